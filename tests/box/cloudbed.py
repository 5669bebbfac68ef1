"""A controller and its broker on the boxes' LAN, both as processes, driven as an operator does: by `edgegpu-cloud`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from box.bed import BUNDLE, LAN, ROOT, SIMULATED, Bed
from kits.mqtt import need_mosquitto
from lab.labrun import Completed, LabError, run, wait_until

PROGRAM = Path(sys.executable).with_name("edgegpu-cloud")
HTTPS_PORT = 9443
LOGS = ROOT / "build/box"


class Cloud:
    """One controller in a folder; `start` it when the LAN is there, which goes with the last box."""

    def __init__(self, bed: Bed, folder: Path, *, bundle: Path = BUNDLE) -> None:
        """Make keys, authorities, certificates; `bundle` is what boxes are installed from."""
        self.bed, self.folder, self.bundle = bed, folder, bundle
        self.disk_before = bed.disk()
        self._running: list[subprocess.Popen[bytes]] = []
        self.ask("init", "--name", LAN, "--https-port", str(HTTPS_PORT), "--no-console")
        LOGS.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start the broker and the controller on the LAN as it is now."""
        self.stop()
        self._run("broker", need_mosquitto(), "-c", self.folder / "broker/mosquitto.conf")
        self._run("cloud", PROGRAM, "serve", "--folder", self.folder, "--bundle", self.bundle)
        health = f"https://{LAN}:{HTTPS_PORT}/healthz"

        def serves() -> bool:
            return run([*self.bed.machine.on_lan, "curl", "-fsSk", health], check=False, timeout_s=20).returncode == 0

        wait_until(serves, what="the controller serves")

    def _run(self, name: str, *command: str | Path) -> None:
        with (LOGS / f"{name}.log").open("ab") as log:
            words: list[str | Path] = [*self.bed.machine.on_lan, *command]
            self._running.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def stop(self) -> None:
        """End both."""
        for one in reversed(self._running):
            one.terminate()
        for one in self._running:
            one.wait(30)
        self._running.clear()

    def ask(self, *words: str, check: bool = True, timeout_s: float = 60) -> Completed:
        """Run one command of the operator's."""
        command = ["env", f"EDGEGPU_CLOUD={self.folder}", str(PROGRAM), *words]
        return run(command, check=check, timeout_s=timeout_s)

    def read(self, *words: str) -> Any:  # noqa: ANN401  (JSON)
        """Return what a command says as JSON."""
        return json.loads(self.ask(*words, "--json").stdout)

    def limits(self, name: str, app: str, *options: str, memory: int, core: int = 1) -> tuple[int, dict[str, Any]]:
        """Set the limits of the container `main` of an app; returns the exit status and what is said as JSON."""
        amounts = ("--memory", str(memory), "--core", str(core))
        words = ("limits", "set", name, app, "--container", "main", *amounts, *options, "--json")
        done = self.ask(*words, check=False, timeout_s=180)
        if not done.stdout:
            raise LabError(f"{' '.join(words)}: {done.returncode}: {done.stderr}")
        said: dict[str, Any] = json.loads(done.stdout)
        if "error" in said:
            raise LabError(f"{' '.join(words)}: {said['error']}: {said['remedy']}")
        return done.returncode, said

    def line(self, name: str, *options: str) -> str:
        """Return the line that is pasted on a box, with options of this lab."""
        line: str = self.read("enrol", "--name", name, *options)["line"]
        return f"{line} --driver-root {SIMULATED} --yes"

    def paste(self, line: str, *, check: bool = True) -> Completed:
        """Paste it there."""
        return self.bed.machine.exec("bash", "-c", f"set -o pipefail; {line}", check=check, timeout_s=240)

    def box(self, name: str) -> dict[str, Any]:
        """Return one box as the fleet has it; empty where there is none."""
        return next((one for one in self.read("boxes") if one["name"] == name), {})

    def online(self, name: str) -> dict[str, Any]:
        """Wait until a box is on the link and has said what it can do."""

        def there() -> dict[str, Any]:
            one = self.box(name)
            return one if one.get("online") and one.get("capabilities") else {}

        return wait_until(there, what=f"{name} is online", every_s=0.5)

    def done(self, *words: str, timeout_s: float = 420) -> Completed:
        """Let a command be carried out to its end.

        Raises:
            LabError: it has not SUCCEEDED.
        """
        ended = self.ask(*words, "--wait", "--timeout", f"{timeout_s:g}s", check=False, timeout_s=timeout_s + 30)
        if ended.returncode:
            raise LabError(f"{' '.join(words)}: {ended.returncode}: {ended.stdout}{ended.stderr}")
        return ended

    def begin(self, *words: str) -> str:
        """Let a command be carried out, and return its id."""
        return str(self.read(*words)["id"])

    def end(self, id_: str, *, timeout_s: float = 420) -> dict[str, Any]:
        """Wait for a command's end and return its view."""

        def ended() -> dict[str, Any]:
            view: dict[str, Any] = next(one for one in self.read("commands") if one["id"] == id_)
            return view if view["ended"] else {}

        return wait_until(ended, what=f"the end of {id_}", timeout_s=timeout_s, every_s=0.5)
