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
from edgegpu_installer.machine.systemd import UnitState, show_command
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_sync.rules.ops import UnitRun

_CALL_S = 30.0
_SETTLES_S = 60.0
"""So long after its start k3s has reported its node's resources again."""

_USUAL = ("k3s", "k3s-agent")


def state_text(unit: UnitState) -> str:
    """Return the state of a unit, for people."""
    again = f", started again {unit.restarts} times" if unit.restarts else ""
    why = f", {unit.result}" if unit.result not in {"", "success"} else ""
    return f"{unit.name} is {unit.active} ({unit.sub}{why}{again})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of this machine, through systemctl."""

    layout: Layout
    timer: ActionTimer
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def read(self, name: str) -> UnitState | None:
        """Return the state of a unit, also of one that does not exist; None where systemd does not answer."""
        said = run(show_command(name), self.timer, within_s=_CALL_S, env=self.env)
        return UnitState.parse(name, said.text) if said.status == 0 else None

    def restart(self, name: str) -> str:
        """Ask for a restart without waiting for it, since k3s may take for ever; return why it was refused, or ""."""
        command = ("systemctl", "restart", "--no-block", "--", name)
        said = run(command, self.timer, within_s=_CALL_S, env=self.env)
        return "" if said.status == 0 else said.last_line

    def run_of(self, unit: UnitState | None) -> UnitRun | None:
        """Return the run of a unit; None where the unit is not known."""
        return None if unit is None else UnitRun(boot=boot_id(self.layout.root), invocation=unit.invocation)

    def k3s(self) -> str:
        """Return k3s's unit, empty where there is none; the installer's journal and drop-in know its name."""
        named = [*self._by_journal(), *self._by_drop_in(), *_USUAL]
        found = ((name, self.read(f"{name}.service")) for name in dict.fromkeys(named))
        return next((f"{name}.service" for name, unit in found if unit is not None and unit.is_there), "")

    def k3s_settles(self) -> bool:
        """Return whether k3s is starting, or has just started: data about the node may be from before the start."""
        name = self.k3s()
        unit = self.read(name) if name else None
        if unit is None:
            return False
        return unit.is_changing or (unit.is_active and time.monotonic() - unit.up_since_s < _SETTLES_S)

    def _by_journal(self) -> list[str]:
        try:
            record = TransactionJournal(self.layout.tx).read()
        except InstallError:
            return []
        return [record.unit] if record is not None and record.unit else []

    def _by_drop_in(self) -> list[str]:
        drop_ins: list[Path] = sorted(self.layout.units.glob(f"*.service.d/{UNIT_DROP_IN}"))
        return [path.parent.name.removesuffix(".service.d") for path in drop_ins]
