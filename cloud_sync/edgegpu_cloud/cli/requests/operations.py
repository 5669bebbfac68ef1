"""`edgegpu-cloud operations list`, `show`, `cancel`: changes of many boxes, and what came of each."""

import time
from typing import Annotated

import typer

from edgegpu_base.cli.helptext import command_group, put
from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    ago,
    moment,
    print_json,
    print_list,
    reached,
    reporting,
)
from edgegpu_cloud.cli.requests.operation_progress import (
    op_of,
    operation_document,
    outcomes_text,
    print_results,
    results_of,
)
from edgegpu_cloud.fleet.operations.operations import OperationView
from edgegpu_cloud.store.operations.records import BoxOutcome

app = command_group("Changes of many boxes, and what came of each.")

LIST_HELP = """\
List the last operations, newest first: changes of many boxes. They are started with -l (`limits set`, `sharing set`,
`command`, `install`, `uninstall`), in the console, or by its API.

\b
--json prints a list of what `operations show --json` prints, without "results".
"""
SHOW_HELP = """\
Show an operation: what it changes, and what came of it on each box.

\b
QUEUED     not stored yet: the controller stores a change for 500 boxes at a time
STORED     requested; the box has not ended it: it is away, or at it
APPLIED    the box has done it
REJECTED   the box refused it or failed at it, and says why
REFUSED    it cannot be requested of this box
CANCELLED  the operation was cancelled before
\b
WHY says of a command what it has brought back from the box; below the table is what has no room there, as the doctor's
findings, each with what mends it.
--outcome shows boxes with this outcome alone. --limit: how many boxes; --after DEVICE: those after that one.
--json prints {"operation": {"id", "kind", "args", "by", "at_s", "selector", "boxes", "state", ...},
"outcomes": {OUTCOME: NUMBER}, "results": [{"name", "device", "outcome", "text", "remedy", "rev", "command"}]}. For a
command each result has "data", what it has brought back, or null; of that 8 MiB are printed, and
"data_left_out_after" is the box behind which it is left out, or null.
"""
CANCEL_HELP = """\
Cancel an operation: boxes for which nothing is stored yet are left out. What is stored goes on.

\b
--json prints what `operations list --json` prints of each.
"""

OperationArgument = Annotated[str, typer.Argument(metavar="OPERATION", help="Its id; the beginning of it will do.")]
LimitOption = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, max=10_000, help="How many.")]
OutcomeOption = Annotated[
    BoxOutcome | None,
    typer.Option(
        "--outcome",
        metavar="OUTCOME",
        case_sensitive=False,
        help=f"Boxes with this outcome alone: {', '.join(one.value.lower() for one in BoxOutcome)}.",
    ),
]
AfterOption = Annotated[str, typer.Option("--after", metavar="DEVICE", help="Boxes after this one.")]


def list_(*, folder: FolderOption = DEFAULT, limit: LimitOption = 20, json: JsonOption = False) -> None:
    """List the last operations."""
    with reporting(as_json=json), reached(folder) as cloud:
        found = cloud.operations.list(limit=limit)
        heads = ("ID", "WHAT", "ASKED", "BOXES", "OUTCOMES", "BY")
        print_list(found, heads, _row, none="no operations yet", as_json=json, shown=operation_document)


def _row(view: OperationView) -> tuple[str, ...]:
    one = view.operation
    return (one.id, one.kind.value, ago(one.at_s, time.time()), str(one.boxes), outcomes_text(view), one.by)


def show(
    id_: OperationArgument,
    *,
    folder: FolderOption = DEFAULT,
    outcome: OutcomeOption = None,
    limit: LimitOption = 100,
    after: AfterOption = "",
    json: JsonOption = False,
) -> None:
    """Show an operation, and what came of it on each box."""
    with reporting(as_json=json), reached(folder) as cloud:
        view = cloud.operations.get(id_)
        page = cloud.operations.boxes(
            view.operation.id, outcomes=[outcome] if outcome else (), after=after, limit=limit, data=bool(op_of(view))
        )
        found = results_of(view, [page])
        if json:
            print_json({**operation_document(view), **found.document})
            return
        one = view.operation
        chosen = f", -l {one.selector}" if one.selector else ""
        typer.echo(f"{one.id}  {one.kind.value}, {counted(one.boxes, 'box')}{chosen}: {outcomes_text(view)}")
        typer.echo(f"  asked {moment(one.at_s)} by {one.by}: {_args(view)}")
        print_results(found, one.id)
        if page.next:
            typer.echo(f"more: edgegpu-cloud operations show {one.id} --after {page.next}")


def _args(view: OperationView) -> str:
    given = view.operation.args.items()
    return ", ".join(f"{name} {value}" for name, value in given if value not in (None, False, {})) or "-"


def cancel(id_: OperationArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Cancel an operation."""
    with reporting(as_json=json), reached(folder) as cloud:
        view = cloud.operations.cancel(id_)
        if json:
            print_json(operation_document(view))
            return
        left_out = counted(view.outcomes.get(BoxOutcome.CANCELLED, 0), "box")
        typer.echo(f"{view.operation.id}: cancelled for {left_out}; what was stored before goes on")


put(app, "list", list_, LIST_HELP, "List the last operations.")
put(app, "show", show, SHOW_HELP, "Show an operation, and what came of it on each box.")
put(app, "cancel", cancel, CANCEL_HELP, "Cancel an operation.")
