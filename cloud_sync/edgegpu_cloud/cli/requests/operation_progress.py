"""An operation that a command starts: its progress, what came of it on each box, and the exit status."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import typer

from edgegpu_base.cli.output import counted, one_line
from edgegpu_cloud.cli.box_selection import end_by
from edgegpu_cloud.cli.common import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WAITING,
    Cloud,
    link_trouble,
    print_connection_problem,
    print_json,
    print_table,
    say,
)
from edgegpu_cloud.cli.requests.brought_back import details, is_well, summary
from edgegpu_cloud.cli.requests.confirmation import confirmed_boxes
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.operations import OperationBoxPage, OperationBoxView, OperationView
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind
from edgegpu_cloud.store.records import Json

_LOOK_S = 0.3
_SOON_S = 3.0
"""So long it is looked for what comes at once, without --wait."""
_PAGE = 1_000
MOST_DATA_BYTES = 8 * 2**20
"""Of what commands have brought back, as JSON, one command prints so much."""
_BAD = (BoxOutcome.REJECTED, BoxOutcome.REFUSED, BoxOutcome.CANCELLED)


def outcomes_text(view: OperationView) -> str:
    """Return how many boxes have each outcome, in words."""
    words = [f"{number} {outcome.value}" for outcome in BoxOutcome if (number := view.outcomes.get(outcome, 0))]
    return ", ".join(words) or "-"


def operation_document(view: OperationView) -> dict[str, object]:
    """Return an operation for JSON."""
    return {"operation": view.operation, "outcomes": view.outcomes}


@dataclass(frozen=True, slots=True)
class OperationResults:
    """What came of an operation on boxes. `more`: the box after which `data` is left out; empty where it is whole."""

    op: str
    boxes: Sequence[OperationBoxView]
    more: str = ""

    @property
    def document(self) -> dict[str, object]:
        """The results for JSON; what commands have brought back is there for operations that are commands."""
        fields = ("device", "outcome", "text", "remedy", "rev", "command")
        rows = [{"name": one.name, **{name: getattr(one.box, name) for name in fields}} for one in self.boxes]
        if not self.op:
            return {"results": rows}
        data = [{**row, "data": one.data} for row, one in zip(rows, self.boxes, strict=True)]
        return {"results": data, "data_left_out_after": self.more or None}

    @property
    def found_bad(self) -> bool:
        """Whether a command has found on a box that something is not well."""
        return any(one.data is not None and not is_well(self.op, one.data) for one in self.boxes)


def results_of(view: OperationView, pages: Iterable[OperationBoxPage]) -> OperationResults:
    """Return what came of an operation on the boxes of some pages, which were read with their data.

    What the boxes have brought back is kept up to `MOST_DATA_BYTES`: each of them says as much as it likes.
    """
    boxes, left, more = list[OperationBoxView](), MOST_DATA_BYTES, ""
    for one in (one for page in pages for one in page.boxes):
        left -= len(json.dumps(one.data)) if one.data is not None else 0
        if left < 0 and one.data is not None:
            boxes.append(replace(one, data=None))
            continue
        if left >= 0:
            more = one.box.device
        boxes.append(one)
    ordered = sorted(boxes, key=lambda one: (one.name, one.box.device))
    return OperationResults(op_of(view), ordered, more if left < 0 else "")


def op_of(view: OperationView) -> str:
    """Return the op of an operation that is a command; empty for others, which bring nothing back."""
    return str(view.operation.args["op"]) if view.operation.kind is OperationKind.COMMAND else ""


def print_results(found: OperationResults, id_: str) -> None:
    """Print what came of an operation on boxes as a table; below it what a command has found that is not well."""
    rows = [(one.name or one.box.device, one.box.outcome.value, _why(found.op, one)) for one in found.boxes]
    if rows:
        print_table(("BOX", "OUTCOME", "WHY"), rows)
    for one in found.boxes:
        if one.data is not None and (more := details(found.op, one.data)):
            typer.echo("\n".join([f"{one_line(one.name or one.box.device)}:", *(f"  {line}" for line in more)]))
    if found.more:
        say(f"more than that was found: `edgegpu-cloud operations show {id_} --after {found.more}`")


def _why(op: str, one: OperationBoxView) -> str:
    return one.box.text or (summary(op, one.data) if one.data is not None else "") or "-"


def askable(selector: str) -> BoxFilter:
    """Return the boxes of a selector that can be asked."""
    return BoxFilter(selector=selector, askable=True)


def operate(
    cloud: Cloud,
    where: BoxFilter,
    kind: OperationKind,
    args: Json,
    *,
    expect: BoxSet | None = None,
    yes: bool,
    wait_s: int,
    as_json: bool,
) -> None:
    """Start one operation for the boxes of a filter, print what comes of it, and exit with its status.

    Its end is waited for; where `wait_s` is 0, what comes at once. `expect`: the boxes that a preview has shown.
    Without it and `yes` a person confirms what changes many boxes, or a restart of k3s, or sharing off.

    Raises:
        CloudError: the filter finds no box, none of them can be asked, or the arguments are wrong for every box.
        ConflictError: it would be for other boxes than those that are expected.
    """
    if expect is None and not yes:
        expect = confirmed_boxes(cloud, where, kind, args, as_json=as_json)
    view = cloud.operations.start(kind, args, where=where, expect=expect)
    follow_operation(cloud, view, wait_s=wait_s, as_json=as_json)


def follow_operation(cloud: Cloud, view: OperationView, *, wait_s: int, as_json: bool) -> None:
    """Print what comes of an operation that was started, and exit with its status."""
    print_connection_problem(cloud)
    id_ = view.operation.id
    if not as_json:
        typer.echo(f"operation {id_}: {view.operation.kind.value} for {counted(view.operation.boxes, 'box')}")
    view = _followed(cloud, view, wait_s=wait_s, as_json=as_json)
    found = results_of(view, _pages(cloud, view))
    if as_json:
        print_json({**operation_document(view), **found.document})
    else:
        print_results(found, id_)
    if not view.settled:
        say(f"it goes on: `edgegpu-cloud operations show {id_}` looks again")
    bad = [EXIT_FAILED for outcome in _BAD if view.outcomes.get(outcome, 0)]
    bad += [EXIT_FAILED] if wait_s and found.found_bad else []
    end_by([*bad, *([EXIT_WAITING] if wait_s and not view.settled else [])])


def _followed(cloud: Cloud, view: OperationView, *, wait_s: int, as_json: bool) -> OperationView:
    """Look at an operation until nothing more comes of it, or the time is over; each change is a line on stderr."""
    stands = link_trouble(cloud)
    end_s = time.monotonic() + (wait_s or (0.0 if stands else _SOON_S))
    told = ""
    while not view.settled and time.monotonic() < end_s:
        try:
            time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            say(f"it goes on: `edgegpu-cloud operations show {view.operation.id}` looks again")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        view = cloud.operations.get(view.operation.id)
        if wait_s and not as_json and (now := outcomes_text(view)) != told:
            told = now
            say(told)
    return view


def _pages(cloud: Cloud, view: OperationView) -> Iterator[OperationBoxPage]:
    after, data = "", bool(op_of(view))
    while True:
        page = cloud.operations.boxes(view.operation.id, after=after, limit=_PAGE, data=data)
        yield page
        if not (after := page.next):
            return
