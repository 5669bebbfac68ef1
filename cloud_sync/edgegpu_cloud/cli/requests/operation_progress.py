"""An operation that a command starts: its progress, what came of it on each box, and the exit status."""

import time
from collections.abc import Iterator, Sequence

import typer

from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.box_selection import askable, chosen, end_by
from edgegpu_cloud.cli.common import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WAITING,
    Cloud,
    LocalCloud,
    print_connection_problem,
    print_json,
    print_table,
    say,
)
from edgegpu_cloud.controller.status import trouble
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.operations import OperationBoxView, OperationView
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind
from edgegpu_cloud.store.records import Json

_LOOK_S = 0.3
_SOON_S = 3.0
"""So long it is looked for what comes at once, without --wait."""
_PAGE = 1_000
_BAD = (BoxOutcome.REJECTED, BoxOutcome.REFUSED, BoxOutcome.CANCELLED)


def outcomes_text(view: OperationView) -> str:
    """Return how many boxes have each outcome, in words."""
    words = [f"{number} {outcome.value}" for outcome in BoxOutcome if (number := view.outcomes.get(outcome, 0))]
    return ", ".join(words) or "-"


def operation_document(view: OperationView) -> dict[str, object]:
    """Return an operation for JSON."""
    return {"operation": view.operation, "outcomes": view.outcomes}


def results_document(boxes: Sequence[OperationBoxView]) -> list[dict[str, object]]:
    """Return what came of an operation on boxes for JSON."""
    fields = ("device", "outcome", "text", "remedy", "rev", "command")
    return [{"name": one.name, **{name: getattr(one.box, name) for name in fields}} for one in boxes]


def print_results(boxes: Sequence[OperationBoxView]) -> None:
    """Print what came of an operation on boxes as a table."""
    rows = [(one.name or one.box.device, one.box.outcome.value, one.box.text or "-") for one in boxes]
    if rows:
        print_table(("BOX", "OUTCOME", "WHY"), rows)


def operate(cloud: Cloud, selector: str, kind: OperationKind, args: Json, *, wait_s: int, as_json: bool) -> None:
    """Start one operation for the boxes of a selector that can be asked, and follow it as `follow_operation` does.

    Raises:
        CloudError: the selector matches no box, none of them can be asked, or the arguments are wrong for every box.
    """
    askable(chosen(cloud, "", selector))
    view = cloud.operations.start(kind, args, where=BoxFilter(selector=selector, askable=True))
    follow_operation(cloud, view, wait_s=wait_s, as_json=as_json)


def follow_operation(cloud: Cloud, view: OperationView, *, wait_s: int, as_json: bool) -> None:
    """Print an operation that was started and what comes of it, and exit with its status.

    Its end is waited for; where `wait_s` is 0, what comes at once.
    """
    print_connection_problem(cloud)
    id_ = view.operation.id
    if not as_json:
        typer.echo(f"operation {id_}: {view.operation.kind.value} for {counted(view.operation.boxes, 'box')}")
    view = _followed(cloud, view, wait_s=wait_s, as_json=as_json)
    boxes = sorted(_results(cloud, id_), key=lambda one: (one.name, one.box.device))
    if as_json:
        print_json({**operation_document(view), "results": results_document(boxes)})
    else:
        print_results(boxes)
    if not view.settled:
        say(f"it goes on: `edgegpu-cloud operations show {id_}` looks again")
    bad = [EXIT_FAILED for outcome in _BAD if view.outcomes.get(outcome, 0)]
    end_by([*bad, *([EXIT_WAITING] if wait_s and not view.settled else [])])


def _followed(cloud: Cloud, view: OperationView, *, wait_s: int, as_json: bool) -> OperationView:
    """Look at an operation until nothing more comes of it, or the time is over; each change is a line on stderr."""
    stands = isinstance(cloud, LocalCloud) and trouble(cloud.layout, cloud.config.broker)
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


def _results(cloud: Cloud, id_: str) -> Iterator[OperationBoxView]:
    after = ""
    while True:
        page = cloud.operations.boxes(id_, after=after, limit=_PAGE)
        yield from page.boxes
        if not (after := page.next):
            return
