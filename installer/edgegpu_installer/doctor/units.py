"""The properties of systemd units, and what is wrong with them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from edgegpu_installer.doctor.probe import BoxProbe, ProbeError
from edgegpu_installer.doctor.verdict import CheckProblem, broken, warning
from edgegpu_installer.machine.programs import NOT_FOUND

_KEYS = "LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result,NeedDaemonReload,ExecMainStartTimestampMonotonic"
_KEYS += ",ExecStart,ExecStartPre"
_LONG_AGO_S = 86_400.0
_BOOT = re.compile(r"^btime (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitProperties:
    """The properties of a unit, from `systemctl show`."""

    name: str
    there: bool
    active: str
    sub: str
    enabled: str
    restarts: int
    result: str
    stale: bool
    """Whether its files changed after systemd had read them."""
    started_s: float | None
    """When its main process started, in seconds since 1970."""
    pre: str
    """Its ExecStartPre= lines."""
    command: str
    """Its ExecStart= line."""

    @property
    def runs(self) -> bool:
        """Whether the unit is active and running."""
        return self.active == "active" and self.sub == "running"


def unit(probe: BoxProbe, name: str) -> UnitProperties:
    """Return a unit's properties; `there` is False for a unit that systemd does not know.

    Raises:
        ProbeError: there is no systemd to ask.
    """
    ran = probe.run("systemctl", "show", name, f"--property={_KEYS}")
    if not ran.well:
        what = "this machine has no systemd" if ran.status == NOT_FOUND else ran.words or "no answer in time"
        raise ProbeError(f"cannot ask systemd for {name}: {what}", remedy="edgegpu needs a machine that systemd runs")
    values = dict(line.partition("=")[::2] for line in ran.out.splitlines())
    restarts = values.get("NRestarts", "")
    return UnitProperties(
        name=name,
        there=values.get("LoadState", "not-found") not in {"not-found", ""},
        active=values.get("ActiveState", ""),
        sub=values.get("SubState", ""),
        enabled=values.get("UnitFileState", ""),
        restarts=int(restarts) if restarts.isdigit() else 0,
        result=values.get("Result", ""),
        stale=values.get("NeedDaemonReload") == "yes",
        started_s=_started_s(probe, values.get("ExecMainStartTimestampMonotonic", "")),
        pre=values.get("ExecStartPre", ""),
        command=values.get("ExecStart", ""),
    )


def restarted_s(probe: BoxProbe, service: UnitProperties) -> float | None:
    """Return how long ago systemd restarted a running unit; None when it did not, or more than a day ago."""
    if not service.restarts or service.started_s is None:
        return None
    ago_s = probe.now().timestamp() - service.started_s
    return ago_s if ago_s < _LONG_AGO_S else None


def restarted(service: UnitProperties, ago_s: float) -> str:
    """Return the sentence about a unit that systemd has restarted."""
    return f"{service.name} was started again by systemd {service.restarts} times, last {ago_s / 60:.0f} minutes ago"


def service_troubles(probe: BoxProbe, service: UnitProperties) -> Iterator[CheckProblem]:
    """Yield what is wrong with one of edgegpu's services."""
    name, log = service.name, f"sudo journalctl -u {service.name} -e"
    if not service.runs:
        text = f"{name} is {service.active} ({service.sub}, {service.result})"
        yield broken(text, f"sudo systemctl restart {name}; {log}")
    if service.enabled not in {"enabled", "enabled-runtime"}:
        yield broken(f"{name} does not start with the machine", f"sudo systemctl enable {name}")
    if service.stale:
        yield warning(f"{name}'s unit file changed after systemd read it", "sudo edgegpu install")
    if service.runs and (ago_s := restarted_s(probe, service)) is not None:
        yield warning(restarted(service, ago_s), log)


def _started_s(probe: BoxProbe, since_boot_us: str) -> float | None:
    """Return the start in seconds since 1970, counted from the boot: systemd's dates are in the local time zone."""
    boot = _BOOT.search(probe.text("/proc/stat") or "")
    if boot is None or not since_boot_us.isdigit() or int(since_boot_us) == 0:
        return None
    return int(boot[1]) + int(since_boot_us) / 1e6


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
