"""The state of systemd units, and what is wrong with them."""

import re
from collections.abc import Iterator

from edgegpu_installer.doctor.probe import BoxProbe, ProbeError
from edgegpu_installer.doctor.verdict import CheckProblem, broken, warning
from edgegpu_installer.machine.programs import NOT_FOUND
from edgegpu_installer.machine.systemd import UnitState, show_command

_LONG_AGO_S = 86_400.0
_BOOT = re.compile(r"^btime (\d+)$", re.MULTILINE)


def unit(probe: BoxProbe, name: str) -> UnitState:
    """Return the state of a unit, which need not exist.

    Raises:
        ProbeError: there is no systemd to ask.
    """
    ran = probe.run(*show_command(name))
    if not ran.well:
        what = "this machine has no systemd" if ran.status == NOT_FOUND else ran.words or "no answer in time"
        raise ProbeError(f"cannot ask systemd for {name}: {what}", remedy="edgegpu needs a machine that runs systemd")
    return UnitState.parse(name, ran.out)


def is_known(service: UnitState) -> bool:
    """Return whether systemd knows a unit, even one whose file it cannot load."""
    return service.load not in {"not-found", ""}


def restarted_s(probe: BoxProbe, service: UnitState) -> float | None:
    """Return how long ago systemd restarted a running unit; None when it did not, or more than a day ago."""
    since_s = started_s(probe, service)
    if not service.restarts or since_s is None:
        return None
    ago_s = probe.now().timestamp() - since_s
    return ago_s if ago_s < _LONG_AGO_S else None


def restarted(service: UnitState, ago_s: float) -> str:
    """Return the sentence about a unit that systemd has restarted."""
    return f"{service.name} was started again by systemd {service.restarts} times, last {ago_s / 60:.0f} minutes ago"


def service_troubles(probe: BoxProbe, service: UnitState) -> Iterator[CheckProblem]:
    """Yield what is wrong with one of edgegpu's services."""
    name, log = service.name, f"sudo journalctl -u {service.name} -e"
    if not service.is_running:
        text = f"{name} is {service.active} ({service.sub}, {service.result})"
        yield broken(text, f"sudo systemctl restart {name}; {log}")
    if service.enabled not in {"enabled", "enabled-runtime"}:
        yield broken(f"{name} does not start with the machine", f"sudo systemctl enable {name}")
    if service.stale:
        yield warning(f"{name}'s unit file changed after systemd read it", "sudo edgegpu install")
    if service.is_running and (ago_s := restarted_s(probe, service)) is not None:
        yield warning(restarted(service, ago_s), log)


def started_s(probe: BoxProbe, service: UnitState) -> float | None:
    """Return when a unit's main process started, in seconds since 1970; None when it has not, or that is not known.

    It is counted from the boot, because systemd's dates are in the local time zone.
    """
    boot = _BOOT.search(probe.text("/proc/stat") or "")
    return None if boot is None or not service.main_since_s else int(boot[1]) + service.main_since_s


def last_words(probe: BoxProbe, name: str, lines: int = 3) -> list[str]:
    """Return the last lines of a unit's log, only complaints when there are any; empty when it cannot be read."""
    ran = probe.run("journalctl", "--unit", name, "--lines=100", "--output=cat", "--no-pager")
    if not ran.well:
        return []
    told = [line.strip()[:300] for line in ran.out.splitlines() if line.strip()]
    complaints = [line for line in told if re.search(r"level=fatal|^[EF]\d{4} |[Ee]rror|failed|cannot", line)]
    return (complaints or told)[-lines:]


def restart_k3s(probe: BoxProbe) -> str:
    """Return the command that restarts this node's k3s; its unit has another name on an agent node."""
    return f"sudo systemctl restart --no-block {probe.k3s.unit.name if probe.k3s is not None else 'k3s'}"
