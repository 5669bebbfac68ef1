"""Which cells of the matrices a run strikes: a twentieth, another one each day; twenty runs see all. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RUNS = 20
"""So many runs see all; twice as many see each step with both faults."""

KILL, CUT = "kill", "cut"
_FAULTS = (KILL, CUT)
_NUMBER = re.compile(r"-\d+$")

_BEGIN = ("before-backups", "after-backups", "after-arm")
_STAGED = ("after-PREPARED", "after-stage", "after-STAGED", "after-SWAPPED")
_RESTART = ("after-RESTARTING", "after-restart")
_VERIFY = ("after-VERIFYING", "after-verify")
_END = ("after-COMMITTED", "after-tidy", "after-disarm")


def _numbered(name: str, first: int, last: int) -> tuple[str, ...]:
    return tuple(f"after-{name}-{number}" for number in range(first, last + 1))


_SMALL = (*_BEGIN, *_STAGED, *_numbered("swap", 1, 1), "after-start", *_VERIFY, "after-baseline", *_END)
INSTALLER: dict[str, tuple[str, ...]] = {
    "install": (
        *(*_BEGIN, *_numbered("early", 1, 5), *_STAGED, *_numbered("swap", 6, 18)),
        *("after-reload", "after-start", *_RESTART, *_VERIFY, "after-baseline", *_END),
    ),
    "change": _SMALL,
    "upgrade": _SMALL,
    "uninstall": (
        *(*_BEGIN, *_STAGED, *_numbered("swap", 1, 17)),
        *("after-reload", "after-start", *_RESTART, *_VERIFY, "after-stop", *_END),
    ),
}
"""The steps of the installer's operations, as `FULL=1` finds them; the numbered ones are its files."""

_TAKEN = ("before-RECEIVED", "after-RECEIVED", "after-ACCEPTED")
_TOLD = ("after-ENDED", "after-send", "after-RECEIPTED")
_TX = tuple(f"tx after-{state}" for state in ("PREPARED", "STAGED", "SWAPPED", "RESTARTING", "VERIFYING", "COMMITTED"))
_SHARING = (*_TAKEN, "after-RUNNING", "after-BEGUN", "after-NOTED", *_TX, "after-settle", "after-SETTLED", *_TOLD)
COMMANDS: dict[str, tuple[str, ...]] = {
    "k3s.restart": (
        *(*_TAKEN, "after-token", "after-RUNNING", "after-act", "after-VERIFYING", "after-verify"),
        *_TOLD,
    ),
    "sharing.uninstall": _SHARING,
    "sharing.install": _SHARING,
}
"""Those of commands; `tx`: the installer waits there, else the agent."""


def groups(steps: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the steps in their order, those that differ in their number alone together."""
    found: dict[str, list[str]] = {}
    for step in steps:
        found.setdefault(_NUMBER.sub("", step), []).append(step)
    return [tuple(some) for some in found.values()]


def cells(steps: Mapping[str, Sequence[str]], *, day: int) -> list[tuple[str, str, str]]:
    """Return operation, step and fault of the cells of a day.

    Of steps that differ in their number alone a day has one, the next one `RUNS` days later with the faults changed.
    """
    all_of_them = [(op, group) for op, found in steps.items() for group in groups(found)]
    turn, round_ = day % RUNS, day // RUNS
    return [
        (op, group[round_ % len(group)], _FAULTS[(place + place // RUNS + round_) % 2])
        for place, (op, group) in enumerate(all_of_them)
        if place % RUNS == turn
    ]
