"""Detection, by the installer's journal of a change, of a k3s that schedules without the extender meanwhile."""

from collections.abc import Mapping
from pathlib import Path

from edgegpu_base.files import stamp

LEAVING = frozenset({"uninstall", "withdraw"})
"""The installer's ops that remove sharing: k3s restarts without the extender, and the plugin is stopped after that."""

COMING = frozenset({"install", "upgrade"})
"""The installer's ops that may bring sharing: the plugin is started, and after that k3s restarts with the extender."""

CHANGE = "change"
"""The installer's op for a machine that has this version already."""

PLUGIN_UNIT = "edgegpu-plugin.service"

UNDER_WAY = frozenset({"PREPARED", "STAGED", "SWAPPED", "RESTARTING", "VERIFYING", "ROLLING_BACK"})
"""The states of a change in progress."""

_RESTARTS = frozenset({"RESTARTING", "VERIFYING"})
"""The states in which k3s may have been started anew with the new files; a rollback starts it with the old ones."""

RUN = Path("/run")

_MOST_BYTES = 64 * 1024


class SharingChange:
    """The reader of the installer's journal, which it reads again when that has changed."""

    def __init__(self, state_folder: Path, *, run: Path = RUN) -> None:
        self._path, self._table = state_folder / "tx/state", state_folder / "tx/units"
        self._units = run / "systemd/units"
        self._stamp: tuple[int, ...] = ()
        self._said: Mapping[str, str] = {}

    def is_without_extender(self) -> bool:
        """Return whether k3s may schedule without the extender now; False when the journal cannot be read."""
        said = self._read()
        if said.get("state") not in UNDER_WAY:
            return False
        if said.get("op") in LEAVING:
            return True
        return said.get("op") in COMING and self._starts_plugin() and self.brings_extender()

    def brings_extender(self) -> bool:
        """Return whether a change is to restart k3s with the extender, and has not done so yet.

        To a k3s that was installed again a change of a machine brings it: edgegpu has been installed there before.
        """
        said = self._read()
        if said.get("state") not in UNDER_WAY or said.get("op") not in COMING | {CHANGE}:
            return False
        return said.get("restart") == "1" and not self._has_restarted(said)

    def _starts_plugin(self) -> bool:
        """Return whether the plugin did not run before the change: else k3s has had the extender all the time."""
        try:
            return f"inactive {PLUGIN_UNIT}" in self._table.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return False

    def _has_restarted(self, said: Mapping[str, str]) -> bool:
        """Return whether k3s has been started with the new files; the state comes before the restart that it names.

        Where systemd does not name the present start of k3s, the state decides. The journal has the unit's name without
        `.service`.
        """
        if said.get("state") not in _RESTARTS:
            return False
        try:
            start = (self._units / f"invocation:{said.get('unit', '').removesuffix('.service')}.service").readlink()
        except OSError:
            return True
        return str(start) != said.get("invocation")

    def _read(self) -> Mapping[str, str]:
        try:
            found = stamp(self._path)
            if found != self._stamp:
                with self._path.open(encoding="utf-8", errors="replace") as file:
                    self._said = dict(line.partition("=")[::2] for line in file.read(_MOST_BYTES).splitlines())
                self._stamp = found
        except OSError:
            self._stamp, self._said = (), {}
        return self._said
