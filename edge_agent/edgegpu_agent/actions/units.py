"""systemd's units as actions need them: which run of a unit it is, and whether another is under way."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_agent.actions.programs import ActionTimer, run
from edgegpu_base.process.clocks import boot_id
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import UNIT_DROP_IN, Layout
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_sync.rules.ops import UnitRun

_CALL_S = 30.0
_SETTLES_S = 60.0
"""So long after its start k3s has reported its node's resources again."""

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "InvocationID",
    "NRestarts",
    "Job",
    "InactiveExitTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)
_USUAL = ("k3s", "k3s-agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemdUnit:
    """The state of a unit; `job`: whether systemd has a job for it.

    `started_s`, `up_since_s`: when its last start began, and when it became active, by the monotonic clock.
    """

    name: str
    loaded: bool
    active: str
    sub: str
    result: str
    invocation: str
    restarts: int
    job: bool
    started_s: float
    up_since_s: float

    @property
    def on_its_way(self) -> bool:
        """Whether systemd is starting or stopping the unit, or is about to."""
        return self.job or self.active in {"activating", "deactivating", "reloading"}

    @property
    def words(self) -> str:
        """The state of the unit, for people."""
        again = f", started again {self.restarts} times" if self.restarts else ""
        why = f", {self.result}" if self.result not in {"", "success"} else ""
        return f"{self.name} is {self.active} ({self.sub}{why}{again})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of this machine, through systemctl."""

    layout: Layout
    pace: ActionTimer
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def look(self, name: str) -> SystemdUnit | None:
        """Return the state of a unit, also of one that does not exist; None where systemd does not answer."""
        command = ("systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", name)
        said = run(command, self.pace, within_s=_CALL_S, env=self.env)
        if said.status != 0:
            return None
        values = dict(line.partition("=")[::2] for line in said.text.splitlines())
        return SystemdUnit(
            name=name,
            loaded=values.get("LoadState") == "loaded",
            active=values.get("ActiveState", ""),
            sub=values.get("SubState", ""),
            result=values.get("Result", ""),
            invocation=values.get("InvocationID", ""),
            restarts=_number(values.get("NRestarts", "")),
            job=values.get("Job", "") not in {"", "0"},
            started_s=_number(values.get("InactiveExitTimestampMonotonic", "")) / 1e6,
            up_since_s=_number(values.get("ActiveEnterTimestampMonotonic", "")) / 1e6,
        )

    def restart(self, name: str) -> str:
        """Ask for a restart without waiting for it, since k3s may take for ever; return why it was refused, or ""."""
        command = ("systemctl", "restart", "--no-block", "--", name)
        said = run(command, self.pace, within_s=_CALL_S, env=self.env)
        return "" if said.status == 0 else said.last_line

    def run_of(self, unit: SystemdUnit | None) -> UnitRun | None:
        """Return the run of a unit; None where the unit is not known."""
        return None if unit is None else UnitRun(boot=boot_id(self.layout.root), invocation=unit.invocation)

    def k3s(self) -> str:
        """Return k3s's unit, empty where there is none; the installer's journal and drop-in know its name."""
        named = [*self._by_journal(), *self._by_drop_in(), *_USUAL]
        found = ((name, self.look(f"{name}.service")) for name in dict.fromkeys(named))
        return next((f"{name}.service" for name, unit in found if unit is not None and unit.loaded), "")

    def k3s_settles(self) -> bool:
        """Return whether k3s is starting, or has just started: data about the node may be from before the start."""
        name = self.k3s()
        unit = self.look(name) if name else None
        if unit is None:
            return False
        return unit.on_its_way or (unit.active == "active" and time.monotonic() - unit.up_since_s < _SETTLES_S)

    def _by_journal(self) -> list[str]:
        try:
            record = TransactionJournal(self.layout.tx).read()
        except InstallError:
            return []
        return [record.unit] if record is not None and record.unit else []

    def _by_drop_in(self) -> list[str]:
        drop_ins: list[Path] = sorted(self.layout.units.glob(f"*.service.d/{UNIT_DROP_IN}"))
        return [path.parent.name.removesuffix(".service.d") for path in drop_ins]


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
