"""`edgegpu-cloud operations list`, `show`, `cancel`, `undo`: changes of many boxes, and what came of each."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from edgegpu_base.cli.durations import waiting_s
from edgegpu_base.cli.helptext import command_group, put
from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.arguments import (
    ExpectOption,
    PreviewOption,
    TimeoutOption,
    WaitOption,
    check_expected,
    expected_of,
)
from edgegpu_cloud.cli.box_selection import print_token
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    YesOption,
    ago,
    confirm,
    moment,
    print_json,
    print_list,
    print_table,
    reached,
    reporting,
)
from edgegpu_cloud.cli.requests.operation_progress import (
    follow_operation,
    op_of,
    operation_document,
    outcomes_text,
    print_results,
    results_of,
)
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.operations import OperationView
from edgegpu_cloud.fleet.operations.undo import LeftBox, UndoPlan, UndoStep
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

UNDO_HELP = """\
Give the boxes of an operation back what they had before it, by a new operation. What each box had was kept when the
change was stored. Boxes that somebody has changed since keep what they have, and are named. A command cannot be undone.

\b
--preview changes nothing: from which values back to which, on how many boxes, and which boxes keep what they have. It
prints a token, with --json on stderr: --expect TOKEN starts it for the boxes that were shown alone.
Without --expect and --yes you are asked. Where nobody can be asked, in a script or with --json, one of the two is
needed.
Exit status: as `limits set -l`.
--json prints what `operations show --json` prints; with --preview {"kind", "args", "boxes", "steps": [{"before",
"after", "boxes"}], "left": [{"device", "name", "text"}], "more_boxes", "seen"}.
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


def undo(
    id_: OperationArgument,
    *,
    folder: FolderOption = DEFAULT,
    show_preview: PreviewOption = False,
    expect: ExpectOption = "",
    yes: YesOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Give the boxes of an operation back what they had."""
    wait_s = waiting_s(timeout, wait=wait, default="10m")
    expected = expected_of(expect)
    check_expected(expected, preview=show_preview)
    with reporting(as_json=json), reached(folder) as cloud:
        plan = cloud.operations.undo_plan(id_) if show_preview or not (expected or yes) else None
        if plan is not None:
            _print_plan(plan, as_json=json, whole=show_preview)
        if show_preview and plan is not None:
            print_token(plan.seen, as_json=json)
            return
        if plan is not None:
            question = f"undo {id_} on {counted(plan.boxes, 'box')}?"
            confirm(question, cannot=f"cannot undo {id_}", yes=not plan.boxes, as_json=json)
            expected = BoxSet.read(plan.seen)
        follow_operation(cloud, cloud.operations.undo(id_, expect=expected), wait_s=wait_s, as_json=json)


def _print_plan(plan: UndoPlan, *, as_json: bool, whole: bool) -> None:
    if as_json:
        fields = ("kind", "args", "boxes", "steps", "left", "more_boxes", "seen")
        if whole:
            print_json({name: getattr(plan, name) for name in fields})
        return
    print_steps_back(plan.steps, plan.left, more_boxes=plan.more_boxes)


def print_steps_back(steps: Sequence[UndoStep], left: Sequence[LeftBox], *, more_boxes: int) -> None:
    """Print what boxes get back, which keep what they have, and how many were not looked at."""
    for step in steps:
        typer.echo(step.words())
    if left:
        print_table(("BOX", "KEEPS WHAT IT HAS"), [(one.name or one.device, one.text) for one in left])
    if more_boxes:
        typer.echo(f"not looked at: {more_boxes}")


put(app, "list", list_, LIST_HELP, "List the last operations.")
put(app, "show", show, SHOW_HELP, "Show an operation, and what came of it on each box.")
put(app, "cancel", cancel, CANCEL_HELP, "Cancel an operation.")
put(app, "undo", undo, UNDO_HELP, "Give its boxes back what they had.")
