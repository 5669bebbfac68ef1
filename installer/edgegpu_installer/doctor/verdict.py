"""What a check says: how bad it is, why, and the command that mends it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    SKIPPED = "not applicable"
    INFO = "info"
    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"

    @property
    def rank(self) -> int:
        """Greater is worse; all that asks for nothing is equal."""
        return {Level.WARNING: 1, Level.BROKEN: 2}.get(self, 0)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong.

    `remedy` is a line for a shell: the commands that mend it, and after `#` what else there is to know. Words alone
    where no command of this box mends it.
    """

    level: Level
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one check found; `text` is its line."""

    level: Level
    text: str
    troubles: tuple[Trouble, ...] = ()
    details: tuple[str, ...] = ()


def broken(text: str, remedy: str) -> Trouble:
    """Return a trouble that keeps GPU pods from working."""
    return Trouble(Level.BROKEN, text, remedy)


def warning(text: str, remedy: str) -> Trouble:
    """Return a trouble that does not yet, or not always."""
    return Trouble(Level.WARNING, text, remedy)


def note(text: str, remedy: str) -> Trouble:
    """Return what is less than it could be, and yet as it should be here."""
    return Trouble(Level.INFO, text, remedy)


def skipped(reason: str) -> Verdict:
    """Return the verdict of a check that has nothing to look at here."""
    return Verdict(level=Level.SKIPPED, text=reason)


def info(text: str, *details: str) -> Verdict:
    """Return a verdict that tells and does not judge."""
    return Verdict(level=Level.INFO, text=text, details=details)


def judge(troubles: Iterable[Trouble], *, well: str, details: Iterable[str] = ()) -> Verdict:
    """Return the verdict over what was found: the worst counts and gives the line, `well` where there is nothing."""
    found = sorted(troubles, key=lambda trouble: -trouble.level.rank)
    if not found or not found[0].level.rank:
        return Verdict(level=Level.OK, text=well, troubles=tuple(found), details=tuple(details))
    others = sum(trouble.level.rank > 0 for trouble in found) - 1
    more = f" (and {others} more)" if others else ""
    return Verdict(level=found[0].level, text=f"{found[0].text}{more}", troubles=tuple(found), details=tuple(details))
