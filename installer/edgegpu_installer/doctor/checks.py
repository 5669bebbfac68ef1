"""The list of checks, and their run over a box: a check that fails itself is a finding, never a traceback."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from edgegpu_installer.doctor import (
    access,
    box,
    certificates,
    cloud,
    containers,
    driver,
    extender,
    history,
    k3s,
    plugin,
)
from edgegpu_installer.doctor.probe import BoxProbe, ProbeError, SkippedCheck
from edgegpu_installer.doctor.verdict import NOT_INSTALLED, CheckLevel, CheckProblem, CheckResult, result_of, skipped

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the box."""

    name: str
    group: str
    about: str
    run: Callable[[BoxProbe], CheckResult]
    needs_install: bool = True
    """Whether the check needs an installed edgegpu; without one it is skipped."""


CHECKS = (
    Check("clock", "machine", "the clock is right", box.check_clock, needs_install=False),
    Check("disk", "machine", "there is room, and edgegpu can write its folders", box.check_disk, needs_install=False),
    Check("driver", "machine", "the driver's parts are of one version", driver.check_versions, needs_install=False),
    Check("cards", "machine", "the cards that are seen, excluded and offered", driver.check_cards, needs_install=False),
    Check("k3s", "cluster", "k3s runs, stays up, and is new enough", k3s.check_k3s, needs_install=False),
    Check("kubeconfig", "cluster", "the API server answers, and the account has its rights", access.check_kubeconfig),
    Check("plugin", "edgegpu", "edgegpu-plugin runs", plugin.check_plugin, needs_install=False),
    Check("resources", "edgegpu", "both resources are registered and offered", plugin.check_resources),
    Check(
        "double", "edgegpu", "no other device plugin offers the same cards", plugin.check_double, needs_install=False
    ),
    Check("scheduler", "edgegpu", "k3s's scheduler reads a right file of edgegpu's", k3s.check_scheduler),
    Check("extender", "edgegpu", "the scheduler reaches the extender", extender.check_extender),
    Check("certificates", "edgegpu", "no certificate expires soon", certificates.check_certificates),
    Check("agent", "cloud", "edgegpu-agent runs", cloud.check_agent, needs_install=False),
    Check("cloud", "cloud", "the cloud can be reached and trusted", cloud.check_cloud, needs_install=False),
    Check(
        "enrolment",
        "cloud",
        "this box is enrolled, and its certificate holds",
        cloud.check_enrolment,
        needs_install=False,
    ),
    Check("link", "cloud", "the box is connected, and the controller is heard", cloud.check_link, needs_install=False),
    Check("runtime", "containers", "containerd can bring cards into containers", containers.check_runtime),
    Check("cdi", "containers", "the CDI spec is there, with all its files", containers.check_cdi),
    Check("cgroups", "containers", "running containers keep their cards at a daemon-reload", containers.check_cgroups),
    Check("visible", "containers", "no container sees cards that it was not given", containers.check_visible),
    Check("limiter", "containers", "which limits containers are held to", plugin.check_limiter, needs_install=False),
    Check("recover", "install", "a change that fails is undone", history.check_recover),
    Check(
        "transaction",
        "install",
        "the last change of this machine is finished",
        history.check_transaction,
        needs_install=False,
    ),
    Check("files", "install", "edgegpu's files are as it wrote them", history.check_files),
    Check(
        "leftovers",
        "install",
        "nothing is left of older installs or of other products",
        history.check_leftovers,
        needs_install=False,
    ),
)
"""Ordered so that causes come before their consequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A check, its result, and how long it took."""

    check: Check
    verdict: CheckResult
    duration_s: float


def run_checks(
    checks: Iterable[Check],
    probe: BoxProbe,
    *,
    before: Callable[[Check], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[CheckRun]:
    """Run the checks and yield each result as it comes; `before` is called with each check before it runs."""
    for check in checks:
        before(check)
        began = clock()
        verdict = _verdict(check, probe)
        yield CheckRun(check=check, verdict=verdict, duration_s=clock() - began)


def worst(results: Iterable[CheckRun]) -> CheckLevel:
    """Return the worst level of all results."""
    return max((result.verdict.level for result in results), key=lambda level: level.rank, default=CheckLevel.OK)


def exit_status(results: Iterable[CheckRun]) -> int:
    """Return the exit status: 0 when nothing is wrong, 1 with warnings, 2 when something is broken."""
    return worst(results).rank


def _verdict(check: Check, probe: BoxProbe) -> CheckResult:
    try:
        return check.run(probe) if probe.installed or not check.needs_install else skipped(NOT_INSTALLED)
    except SkippedCheck as unseen:
        if unseen.reported_by in {check.name, ""}:
            return _failed(unseen.shut)
        return skipped(f"not looked at: {unseen.shut.text} (see the check `{unseen.reported_by}`)")
    except ProbeError as shut:
        return _failed(shut)
    except PermissionError as error:
        return _failed(ProbeError(f"cannot look: {error}", remedy="sudo edgegpu doctor"))
    except Exception as error:  # noqa: BLE001  (where a check ends: the others must still run)
        _LOG.debug("check %s", check.name, exc_info=True)
        text = f"this check itself failed: {type(error).__name__}: {error}"
        return _failed(
            ProbeError(
                text, remedy=f"sudo EDGEGPU_DEBUG=1 edgegpu doctor --check {check.name}  # and report what it prints"
            )
        )


def _failed(shut: ProbeError) -> CheckResult:
    return result_of([CheckProblem(CheckLevel.BROKEN, shut.text, shut.remedy)])
