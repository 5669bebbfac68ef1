"""What a check says: how bad it is, why, and the command that mends it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class CheckLevel(StrEnum):
    """How bad it is."""

    SKIPPED = "not applicable"
    INFO = "info"
    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"

    @property
    def rank(self) -> int:
        """Greater is worse; all that asks for nothing is equal."""
        return {CheckLevel.WARNING: 1, CheckLevel.BROKEN: 2}.get(self, 0)


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """One thing that is wrong.

    `remedy` is a line for a shell: the commands that mend it, and after `#` what else there is to know. Words alone
    where no command of this box mends it.
    """

    level: CheckLevel
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check found; `text` is its line."""

    level: CheckLevel
    text: str
    troubles: tuple[CheckProblem, ...] = ()
    details: tuple[str, ...] = ()


def broken(text: str, remedy: str) -> CheckProblem:
    """Return a trouble that keeps GPU pods from working."""
    return CheckProblem(CheckLevel.BROKEN, text, remedy)


def warning(text: str, remedy: str) -> CheckProblem:
    """Return a trouble that does not yet, or not always."""
    return CheckProblem(CheckLevel.WARNING, text, remedy)


def note(text: str, remedy: str) -> CheckProblem:
    """Return what is less than it could be, and yet as it should be here."""
    return CheckProblem(CheckLevel.INFO, text, remedy)


def skipped(reason: str) -> CheckResult:
    """Return the verdict of a check that has nothing to look at here."""
    return CheckResult(level=CheckLevel.SKIPPED, text=reason)


def info(text: str, *details: str) -> CheckResult:
    """Return a verdict that tells and does not judge."""
    return CheckResult(level=CheckLevel.INFO, text=text, details=details)


def judge(troubles: Iterable[CheckProblem], *, well: str, details: Iterable[str] = ()) -> CheckResult:
    """Return the verdict over what was found: the worst counts and gives the line, `well` where there is nothing."""
    found = sorted(troubles, key=lambda trouble: -trouble.level.rank)
    if not found or not found[0].level.rank:
        return CheckResult(level=CheckLevel.OK, text=well, troubles=tuple(found), details=tuple(details))
    others = sum(trouble.level.rank > 0 for trouble in found) - 1
    more = f" (and {others} more)" if others else ""
    return CheckResult(
        level=found[0].level, text=f"{found[0].text}{more}", troubles=tuple(found), details=tuple(details)
    )
