"""The outcome of what was requested of a box: waited for, in words, and as an exit status."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import typer

from edgegpu_base.cli.output import counted, plain
from edgegpu_cloud.cli.common import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WAITING,
    Cloud,
    link_trouble,
    moment,
    print_connection_problem,
    print_json,
    say,
)
from edgegpu_cloud.fleet.limits.changes import ReplacedLimits
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.fleet.views import BoxDetails, BoxView, current_reports, is_dormant, is_problem
from edgegpu_sync.messages.uplink import ItemReport, ItemState

_NEW_S = 0.3
_SOON_S, _LOOK_S = 3.0, 0.1
"""Seconds to wait in all and between checks: a connected box reports within a second or two whether it begins."""
GOOD = frozenset({ItemState.APPLIED})
_WAITS = "waiting for the box"
WAITS_FOR_SHARING = "waits for GPU sharing"

Reports = Mapping[str, ItemReport | None]
"""The reports by the name of an item; None while the box has reported an older one, or none."""


def reports(details: BoxDetails, names: Iterable[str]) -> dict[str, ItemReport | None]:
    """Return the reports on items as they are desired now."""
    return current_reports(details.spec, details.box.items, names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a box, and its outcome; `looks` is the command that shows the request.

    `replaced`: limits that another person had set before, if one had.
    """

    view: BoxView
    looks: str
    rev: int
    items: Reports
    good: frozenset[ItemState] = GOOD
    replaced: ReplacedLimits | None = None

    def status(self, *, waited: bool) -> int:
        """Return the exit status: 3 where an item is open, 1 where one has a bad end, else 0.

        A request that was not waited for has an open item in any case: it counts only beside a bad end.
        """
        bad = any(report.state not in self.good for report in self.items.values() if report is not None)
        if not _all_ended(self.items) and (waited or bad):
            return EXIT_WAITING
        return EXIT_FAILED if bad else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestViews:
    """The views of a request: for people by `tell`, in JSON as its `document`."""

    tell: Callable[[Request], None]
    document: Callable[[Request], Mapping[str, object]]


def follow_one(cloud: Cloud, one: Request, screens: RequestViews, *, wait_s: int, as_json: bool) -> None:
    """Print what was requested of a box and its outcome, and exit with its status.

    The outcome is waited for; where `wait_s` is 0, it is printed as far as it comes at once.
    """
    print_connection_problem(cloud, one.view)
    if not as_json:
        typer.echo(f"{', '.join(one.items)} on {one.view.name}: requested, revision {one.rev}")
    ended = replace(one, items=_settled(cloud, one, wait_s) if wait_s else _soon(cloud, one))
    if as_json:
        print_json(screens.document(ended))
    else:
        screens.tell(ended)
    if status := ended.status(waited=bool(wait_s)):
        if status == EXIT_WAITING:
            say(f"the box has not ended it yet; it goes on: `{one.looks}` looks again")
        raise typer.Exit(status)


def _settled(cloud: Cloud, one: Request, wait_s: float) -> Reports:
    """Wait until a box has settled the items of this revision, or the time is over."""
    end_s = time.monotonic() + wait_s
    while not _all_ended(found := _told(cloud, one)) and time.monotonic() < end_s:
        try:
            time.sleep(_NEW_S)
        except KeyboardInterrupt:
            say(f"it goes on: `{one.looks}` looks again")
            raise typer.Exit(EXIT_INTERRUPTED) from None
    return found


def _soon(cloud: Cloud, one: Request) -> Reports:
    """Return what a connected box answers at once; None for items that it works on, or was not asked for yet."""
    found: Reports = dict.fromkeys(one.items)
    broken = link_trouble(cloud)
    if broken or not cloud.fleet.box(one.view.device).online:
        return found
    end_s = time.monotonic() + _SOON_S
    while time.monotonic() < end_s and not _all_ended(found := _told(cloud, one)):
        time.sleep(_LOOK_S)
    return {
        name: None if report is None or report.state is ItemState.OPEN else report for name, report in found.items()
    }


def _told(cloud: Cloud, one: Request) -> Reports:
    details = cloud.fleet.details(one.view.device)
    return reports(details, one.items) if details.box.observed_rev >= one.rev else dict.fromkeys(one.items)


def _all_ended(found: Reports) -> bool:
    return all(report is not None and report.state is not ItemState.OPEN for report in found.values())


def requested(view: BoxView) -> str:
    """Return in words how far the box has applied what was requested of it."""
    if not view.rev:
        return "nothing was requested of it yet"
    if view.observed_rev < view.rev:
        return f"revision {view.rev} is requested, and waits for the box"
    if view.applied_rev < view.rev:
        return f"revision {view.rev} is requested, and the box is at it"
    how = "done but for the problems below" if view.problems else "applied"
    return f"revision {view.rev} is requested, and {how}"


TIME_HEADS = ("REQUESTED AT", "ENDED AT")


def time_cells(one: RequestedItem | None) -> tuple[str, str]:
    """Return when something was requested and when the box had settled it, as cells of a table."""
    if one is None:
        return "-", "-"
    return moment(one.requested_at_s or 0.0), moment(one.settled_at_s or 0.0)


def times_document(one: RequestedItem | None) -> dict[str, object]:
    """Return the same for JSON, in seconds since 1970, and who has requested it."""
    requested_at_s, settled_at_s = (one.requested_at_s, one.settled_at_s) if one is not None else (None, None)
    by = one.by if one is not None else ""
    return {"requested_at_s": requested_at_s, "requested_by": by, "settled_at_s": settled_at_s}


def state_word(report: ItemReport | None) -> str:
    """Return the state of an item in a few words."""
    if report is None or report.state is ItemState.OPEN:
        return _WAITS
    if is_dormant(report):
        return WAITS_FOR_SHARING
    return "applied by another box" if report.state is ItemState.ELSEWHERE else report.state.value


def fix(box: str, item: str, report: ItemReport) -> str:
    """Return the remedy for a request that was refused, failed, or waits for GPU sharing."""
    if is_dormant(report):
        return f"Fix: edgegpu-cloud install {box}; or take it back: {withdrawal(box, item)}"
    return f"Fix: ask for something else, or take it back: {withdrawal(box, item)}"


def needs_person(report: ItemReport) -> bool:
    """Whether a person has to act before an item is applied."""
    return is_problem(report) or is_dormant(report)


def withdrawal(box: str, item: str) -> str:
    """Return the command that takes a request back."""
    kind, _, rest = item.partition("/")
    if kind != "app_limits":
        return f"edgegpu-cloud sharing forget {box} {item}"
    namespace, app, container = rest.split("/")
    return f"edgegpu-cloud limits forget {box} {namespace}/{app} --container {container}"


def words(report: ItemReport | None) -> str:
    """Return a settlement as lines for people."""
    if report is None or report.state is ItemState.OPEN:
        return _WAITS
    state = (WAITS_FOR_SHARING,) if is_dormant(report) else (report.state.value, report.code)
    lines = [": ".join(word for word in (*state, report.text) if word)]
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


SETTING_FIELDS = {
    "sharing": "installed",
    "isolation": "mode",
    "policy": "policy",
    "exclusions": "cards",
    "unit_size": "mib",
}
"""The items of sharing in their order, with the field of each that holds its value."""


def setting_text(name: str, value: object) -> str:
    """Return the value of a setting as text for people: one that the box has reported, or that is desired."""
    match name, value:
        case _, None:
            return "-"
        case "sharing", bool():
            return "installed" if value else "not installed"
        case "exclusions", tuple() | list():
            return ", ".join(map(str, value)) or "none"
        case "unit_size", int():
            return f"{value} MiB"
        case _:
            return str(value)
