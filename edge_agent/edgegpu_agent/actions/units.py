"""systemd's units as acts see them: which run of a unit it is, and whether another is under way."""

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
"""After so long an up k3s has told its node's resources anew."""

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
    """How a unit is; `job`: whether systemd has something to do with it.

    `started_s`, `up_since_s`: when its last start began, and when it was ready, by the monotonic clock.
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
        """Whether it is being started or stopped now."""
        return self.job or self.active in {"activating", "deactivating", "reloading"}

    @property
    def words(self) -> str:
        """How it is, for people."""
        again = f", started again {self.restarts} times" if self.restarts else ""
        why = f", {self.result}" if self.result not in {"", "success"} else ""
        return f"{self.name} is {self.active} ({self.sub}{why}{again})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """systemctl on this machine."""

    layout: Layout
    pace: ActionTimer
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def look(self, name: str) -> SystemdUnit | None:
        """Return how a unit is, also one that is not there; None: systemd does not answer."""
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
        """Ask for a restart, and wait for nothing: k3s may take for ever. Returns why it was refused, or nothing."""
        command = ("systemctl", "restart", "--no-block", "--", name)
        said = run(command, self.pace, within_s=_CALL_S, env=self.env)
        return "" if said.status == 0 else said.last_line

    def run_of(self, unit: SystemdUnit | None) -> UnitRun | None:
        """Return which run of a unit this is; None where that is not known."""
        return None if unit is None else UnitRun(boot=self.boot(), invocation=unit.invocation)

    def boot(self) -> str:
        """Return the id of this boot."""
        return boot_id(self.layout.root)

    def k3s(self) -> str:
        """Return k3s's unit; empty where there is none. Who installed edgegpu knows it, also under another name."""
        named = [*self._by_journal(), *self._by_drop_in(), *_USUAL]
        found = ((name, self.look(f"{name}.service")) for name in dict.fromkeys(named))
        return next((f"{name}.service" for name, unit in found if unit is not None and unit.loaded), "")

    def k3s_settles(self) -> bool:
        """Whether k3s is being started, or was a moment ago: what is known of the node may be from before it."""
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
