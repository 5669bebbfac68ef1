"""The result of a check: how bad it is, why, and the command that fixes it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

NOT_INSTALLED = "edgegpu is not installed here (see the check `plugin`)"
"""The text of a check that needs an installed edgegpu and finds none."""


class CheckLevel(StrEnum):
    """How bad a check's result is."""

    SKIPPED = "not applicable"
    INFO = "info"
    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"

    @property
    def rank(self) -> int:
        """The order of levels, greater is worse; levels that ask for no action have 0."""
        return {CheckLevel.WARNING: 1, CheckLevel.BROKEN: 2}.get(self, 0)


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """One problem that a check found.

    `remedy` is a line for a shell: the commands that fix it, and a comment after `#`. It is plain words when no
    command on this box fixes it.
    """

    level: CheckLevel
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check found; `text` is its summary line."""

    level: CheckLevel
    text: str
    problems: tuple[CheckProblem, ...] = ()
    details: tuple[str, ...] = ()


def broken(text: str, remedy: str) -> CheckProblem:
    """Return a problem that keeps GPU pods from working."""
    return CheckProblem(CheckLevel.BROKEN, text, remedy)


def warning(text: str, remedy: str) -> CheckProblem:
    """Return a problem that does not keep GPU pods from working yet, or not always."""
    return CheckProblem(CheckLevel.WARNING, text, remedy)


def note(text: str, remedy: str) -> CheckProblem:
    """Return a remark about something that could be better and is not wrong."""
    return CheckProblem(CheckLevel.INFO, text, remedy)


def skipped(reason: str) -> CheckResult:
    """Return the result of a check that does not apply here."""
    return CheckResult(level=CheckLevel.SKIPPED, text=reason)


def info(text: str, *details: str) -> CheckResult:
    """Return a result that informs without a judgement."""
    return CheckResult(level=CheckLevel.INFO, text=text, details=details)


def result_of(problems: Iterable[CheckProblem], *, ok: str = "", details: Iterable[str] = ()) -> CheckResult:
    """Return the result of the problems found: the worst gives level and line; without any the line is `ok`."""
    found = sorted(problems, key=lambda problem: -problem.level.rank)
    if not found or not found[0].level.rank:
        return CheckResult(level=CheckLevel.OK, text=ok, problems=tuple(found), details=tuple(details))
    others = sum(problem.level.rank > 0 for problem in found) - 1
    more = f" (and {others} more)" if others else ""
    return CheckResult(
        level=found[0].level, text=f"{found[0].text}{more}", problems=tuple(found), details=tuple(details)
    )
