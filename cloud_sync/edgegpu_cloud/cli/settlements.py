"""What became of what was requested of a box: waited for, in words, and as an exit status."""

import time
from collections.abc import Collection, Iterable, Mapping

import typer

from edgegpu_cloud.cli.common import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WAITING, Cloud, counted, say
from edgegpu_cloud.cli.plain import plain
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.fleet.views import Details, is_dormant
from edgegpu_cloud.standing import trouble
from edgegpu_sync.up import ItemReport, Settled

_NEW_S = 0.3
_SOON_S, _LOOK_S = 3.0, 0.1
"""A box that is there says within a second or two whether it begins something at all."""
GOOD = frozenset({Settled.APPLIED})
_WAITS = "waiting for the box"

Reports = Mapping[str, ItemReport | None]
"""By the name of an item; None while the box has told of an older one, or of none."""


def reports(details: Details, names: Iterable[str]) -> dict[str, ItemReport | None]:
    """Return what became of items as they are desired now."""
    desired, told = desired_items(details.spec), details.box.items
    found: dict[str, ItemReport | None] = {}
    for name in names:
        item, report = desired.get(name), told.get(name)
        current = item is not None and report is not None and (report.rev, report.retry) >= (item.rev, item.retry)
        found[name] = report if current else None
    return found


def settled(cloud: Cloud, device: str, names: Collection[str], *, rev: int, wait_s: float, looks: str) -> Reports:
    """Wait until a box has settled items of this revision, or time is over; `looks` shows it."""
    end_s = time.monotonic() + wait_s
    while True:
        details = cloud.fleet.details(device)
        found = reports(details, names) if details.box.observed_rev >= rev else dict.fromkeys(names)
        if all(one is not None and one.state is not Settled.OPEN for one in found.values()):
            return found
        if time.monotonic() >= end_s:
            return found
        try:
            time.sleep(_NEW_S)
        except KeyboardInterrupt:
            say(f"it goes on: `{looks}` looks again")
            raise typer.Exit(EXIT_INTERRUPTED) from None


def soon(cloud: Cloud, device: str, names: Collection[str], *, rev: int) -> Reports:
    """Return what a box that is there answers at once; None for what it is still at, or was not asked yet."""
    nothing: Reports = dict.fromkeys(names)
    if not cloud.fleet.box(device).online or trouble(cloud.layout, cloud.config.broker):
        return nothing
    end_s = time.monotonic() + _SOON_S
    while time.monotonic() < end_s:
        details = cloud.fleet.details(device)
        found = reports(details, names) if details.box.observed_rev >= rev else nothing
        if all(one is not None and one.state is not Settled.OPEN for one in found.values()):
            return found
        time.sleep(_LOOK_S)
    return {name: None if one is None or one.state is Settled.OPEN else one for name, one in found.items()}


def exit_by(found: Reports, *, looks: str, good: Collection[Settled] = GOOD) -> None:
    """End a command that has waited: 0 for `good` settlements, 1 for others, 3 where one is open; `looks` shows it."""
    status = status_of(found.values(), good=good)
    if status == EXIT_WAITING:
        say(f"the box has not ended it yet; it goes on: `{looks}` looks again")
    if status:
        raise typer.Exit(status)


def status_of(found: Iterable[ItemReport | None], *, good: Collection[Settled] = GOOD) -> int:
    """Return the exit status: 0 for `good` settlements, 1 for others, 3 where one is open."""
    told = list(found)
    if any(one is None or one.state is Settled.OPEN for one in told):
        return EXIT_WAITING
    return EXIT_FAILED if any(one.state not in good for one in told if one is not None) else 0


def state_word(report: ItemReport | None) -> str:
    """Return how an item stands, in a word or some."""
    if report is None or report.state is Settled.OPEN:
        return _WAITS
    if is_dormant(report):
        return "waits for GPU sharing"
    return "applied by another box" if report.state is Settled.ELSEWHERE else report.state.value


def fix(box: str, item: str) -> str:
    """Return what to do about a request that was refused, or failed."""
    return f"Fix: ask for something else, or take it back: {withdrawal(box, item)}"


def withdrawal(box: str, item: str) -> str:
    """Return the command that takes a request back."""
    kind, _, rest = item.partition("/")
    if kind != "app_limits":
        return f"edgegpu-cloud sharing forget {box} {item}"
    namespace, app, container = rest.split("/")
    return f"edgegpu-cloud limits forget {box} {namespace}/{app} --container {container}"


def words(report: ItemReport | None) -> str:
    """Return a settlement as lines for people."""
    if report is None or report.state is Settled.OPEN:
        return _WAITS
    lines = [": ".join(word for word in (report.state.value, report.code, report.text) if word)]
    if report.numbers is not None:
        lines += [
            f"    {card.node} card {card.card}: {counted(card.free_units, 'unit')} and core {card.free_core} free, "
            f"{counted(card.held_by_app_units, 'unit')} held by the app"
            for card in report.numbers.cards
        ]
    return plain("\n".join(lines))


def first_line(report: ItemReport | None) -> str:
    """Return a settlement as a cell of a table."""
    return words(report).partition("\n")[0]
