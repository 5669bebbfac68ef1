"""Runs checks over a sight of the box; a check that fails itself is a finding, never a traceback."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from edgegpu_installer.doctor.checks import Check
from edgegpu_installer.doctor.probe import BoxProbe, DoorShut, Unseen
from edgegpu_installer.doctor.verdict import CheckLevel, CheckProblem, CheckResult, judge, skipped

_NOT_INSTALLED = "edgegpu is not installed here (see the check `plugin`)"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A check, what it said, and how long it took."""

    check: Check
    verdict: CheckResult
    took_s: float


def examine(
    checks: Iterable[Check],
    sight: BoxProbe,
    *,
    before: Callable[[Check], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[CheckRun]:
    """Yield each check's result as it comes; `before` is told which check is begun."""
    for check in checks:
        before(check)
        began = clock()
        verdict = _verdict(check, sight)
        yield CheckRun(check=check, verdict=verdict, took_s=clock() - began)


def worst(results: Iterable[CheckRun]) -> CheckLevel:
    """Return how bad it is altogether."""
    return max((result.verdict.level for result in results), key=lambda level: level.rank, default=CheckLevel.OK)


def exit_status(results: Iterable[CheckRun]) -> int:
    """Return 0 where all is well, 1 with warnings, 2 where something is broken."""
    return worst(results).rank


def _verdict(check: Check, sight: BoxProbe) -> CheckResult:
    try:
        return check.look(sight) if sight.installed or not check.of_install else skipped(_NOT_INSTALLED)
    except Unseen as unseen:
        if unseen.told_by in {check.name, ""}:
            return _failed(unseen.shut)
        return skipped(f"not looked at: {unseen.shut.text} (see the check `{unseen.told_by}`)")
    except DoorShut as shut:
        return _failed(shut)
    except PermissionError as error:
        return _failed(DoorShut(f"cannot look: {error}", remedy="sudo edgegpu doctor"))
    except Exception as error:  # noqa: BLE001  (a check's border: the others must still be heard)
        _LOG.debug("check %s", check.name, exc_info=True)
        text = f"this check failed itself: {type(error).__name__}: {error}"
        return _failed(
            DoorShut(
                text, remedy=f"sudo EDGEGPU_DEBUG=1 edgegpu doctor --check {check.name}  # and report what it prints"
            )
        )


def _failed(shut: DoorShut) -> CheckResult:
    return judge([CheckProblem(CheckLevel.BROKEN, shut.text, shut.remedy)], well="")
