"""The machine's versions and health, from systemd, the file system and version files."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from edgegpu_agent.telemetry.programs import Programs
from edgegpu_base.cli.commandline import installed_version
from edgegpu_sync.messages.telemetry import HealthPart
from edgegpu_sync.messages.uplink import BoxVersions
from edgegpu_sync.wire import clipped

K3S, K3S_AGENT, PLUGIN = "k3s.service", "k3s-agent.service", "edgegpu-plugin.service"
_UNITS = (K3S, K3S_AGENT, PLUGIN)
_CALL_S = 10.0
_K3S_S = 20.0
_WARN_FREE, _BAD_FREE = 0.05, 0.01


@dataclass(slots=True, kw_only=True)
class MachineReader:
    """The reader of versions and health; it remembers a version until the file it comes from changes."""

    root: Path
    programs: Programs
    release: Path
    """The folder of this version of edgegpu, which contains VERSION."""
    _k3s: tuple[tuple[int, int], str] | None = None
    _fixed: dict[str, str] = field(default_factory=dict)

    def versions(self, *, plugin: str = "", driver: str = "") -> BoxVersions:
        """Return the versions of this box's programs.

        Args:
            plugin: the version that the plugin reports; empty while it does not run.
            driver: the version that the plugin or nvidia-smi reports.
        """
        return BoxVersions(
            agent=self.agent,
            plugin=clipped(plugin, 253),
            k3s=clipped(self._k3s_version(), 253),
            driver=clipped(driver, 253),
            os=clipped(self._os(), 253),
        )

    @property
    def agent(self) -> str:
        """The version of the agent; read from the package where there is no VERSION file, which costs two MiB."""
        if "agent" not in self._fixed:
            self._fixed["agent"] = _line(self.release / "VERSION") or installed_version()
        return self._fixed["agent"]

    def _os(self) -> str:
        if "os" not in self._fixed:
            lines = _text(self.root / "etc/os-release").splitlines()
            named = (line.partition("=")[2].strip("\"'") for line in lines if line.startswith("PRETTY_NAME="))
            self._fixed["os"] = next(named, "")
        return self._fixed["os"]

    def _k3s_version(self) -> str:
        program = shutil.which("k3s", path=(self.programs.environment or os.environ).get("PATH"))
        if program is None:
            return ""
        try:
            info = Path(program).stat()
        except OSError:  # k3s is being replaced at this moment
            return ""
        mark = (info.st_ino, info.st_mtime_ns)
        if self._k3s is None or self._k3s[0] != mark:
            told = self.programs.output_of((program, "--version"), timeout_s=_K3S_S) or ""
            words = told.split()
            self._k3s = (mark, words[2] if len(words) > 2 and words[0] == "k3s" else "")  # noqa: PLR2004
        return self._k3s[1]

    def parts(self) -> list[HealthPart]:
        """Return the health of k3s and of the disk."""
        units = self.units()
        return [_k3s_part(units), self._disk()]

    def units(self) -> Mapping[str, str]:
        """Return the ActiveState of the loaded units; empty where systemd does not answer."""
        command = ("systemctl", "show", "--property=Id,LoadState,ActiveState", "--", *_UNITS)
        told = self.programs.output_of(command, timeout_s=_CALL_S)
        states: dict[str, str] = {}
        for block in (told or "").split("\n\n"):
            values = dict(line.partition("=")[::2] for line in block.splitlines())
            if values.get("LoadState") == "loaded":
                states[values.get("Id", "")] = values.get("ActiveState", "")
        return states

    def plugin_part(self, *, since_s: float) -> HealthPart:
        """Return the health of a plugin that does not answer since then, in seconds since 1970."""
        state = self.units().get(PLUGIN)
        if state is None:
            return HealthPart(name="plugin", state="off", text="GPU sharing is not installed")
        silent = f"it does not answer since {datetime.fromtimestamp(since_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return HealthPart(name="plugin", state="bad", text=clipped(f"{silent}; systemd says {state}"))

    def _disk(self) -> HealthPart:
        try:
            told = os.statvfs(self.root / "var/lib/edgegpu")
        except OSError as error:
            return HealthPart(name="disk", state="bad", text=clipped(f"/var/lib/edgegpu: {error.strerror}"))
        free = told.f_bavail / max(1, told.f_blocks)
        state: Literal["ok", "warn", "bad"] = "ok" if free >= _WARN_FREE else "warn" if free >= _BAD_FREE else "bad"
        mib = told.f_bavail * told.f_frsize >> 20
        return HealthPart(name="disk", state=state, text="" if state == "ok" else f"{mib} MiB free at /var/lib/edgegpu")


def _k3s_part(units: Mapping[str, str]) -> HealthPart:
    found = next((unit for unit in (K3S, K3S_AGENT) if unit in units), None)
    if found is None:
        return HealthPart(name="k3s", state="off", text="systemd has no unit of k3s")
    state = units[found]
    return HealthPart(
        name="k3s", state="ok" if state == "active" else "bad", text="" if state == "active" else f"it is {state}"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _line(path: Path) -> str:
    return _text(path).strip()
