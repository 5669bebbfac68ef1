"""The demo's box in a folder: the real agent, the simulated node's plugin, stand-ins for systemd and installer."""

import json
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from edgegpu_agent.demo.model import DemoError, Json
from edgegpu_base.cli.commandline import installed_version
from edgegpu_base.files import write_if_changed
from edgegpu_installer.layout import AGENT_UNIT, LIMITS_KUBECONFIG, PLUGIN_UNIT, Layout
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_sim.demo.install_words import UnknownOptionError, settings_of
from edgegpu_sim.demo.processes import CommandOutcome, Processes
from edgegpu_sim.demo.standin import StandInServer

_FOLDERS = ("etc/edgegpu", "etc/systemd/system", "var/lib/edgegpu/tx", "run/edgegpu", "bin")
_FAILED, _STRANGE = 1, 64
_AGENT, _LOAD = "agent", "load"
_MEASURED = "metrics:\n  period_s: 10\n"
"""Agents of the demo measure as often as they can: somebody looks."""


class BoxBed(Protocol):
    """The node below a box: its name, where its plugin's files are, and how the plugin is started and stopped.

    `socket`, `driver` and `runtime`, the container runtime's socket, are paths as the agent sees them.
    `proc` is where the plugin looks up the processes of containers.
    """

    node: str
    folder: Path
    socket: Path
    config: Path
    kubeconfig: Path
    driver: Path
    proc: Path
    runtime: Path

    def start(self) -> None:
        """Start the plugin."""

    def stop(self) -> None:
        """Stop the plugin."""


class DemoBox:
    """One box of the demo; its `edgegpu` installs nothing, but starts and stops the plugin, and sets it."""

    def __init__(self, root: Path, bed: BoxBed, processes: Processes, say: Callable[[str], None]) -> None:
        self.root = root
        self._bed = bed
        self._processes = processes
        self.say = say
        self._layout = Layout(root)

    def lay_out(self, programs: StandInServer) -> None:
        """Make the files that a box has after `edgegpu install`, as far as the agent reads them."""
        root, layout = self.root, self._layout
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True)
        (root / "proc").symlink_to("/proc")
        (root / "etc/machine-id").write_text(f"{secrets.token_hex(16)}\n")
        layout.plugin_socket.symlink_to(self._bed.socket)
        mark = layout.plugin_socket.with_suffix(".changed")
        mark.symlink_to(self._bed.socket.with_suffix(".changed"))
        layout.plugin_yaml.write_bytes(self._bed.config.read_bytes())
        layout.agent_yaml.write_text(_MEASURED)
        layout.at(LIMITS_KUBECONFIG).write_bytes(self._bed.kubeconfig.read_bytes())
        (layout.units / PLUGIN_UNIT).touch()
        for name in ("edgegpu", "systemctl"):
            programs.write(root / "bin" / name)
        smi = root / "bin/nvidia-smi"
        library = shlex.quote(str(self._bed.driver / "usr/lib/x86_64-linux-gnu"))
        program = shlex.quote(str(self._bed.driver / "usr/bin/nvidia-smi"))
        smi.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={library} exec {program} "$@"\n')
        smi.chmod(0o755)

    def start_load(self) -> None:
        """Start the process that loads the cards as pods would."""
        bed = self._bed
        words: list[str | Path] = ["--driver", bed.driver, "--socket", bed.socket, "--kubeconfig", bed.kubeconfig]
        words += ["--node", bed.node, "--proc", bed.proc]
        self._processes.start(_LOAD, [sys.executable, "-m", "edgegpu_sim.demo.workload", *words])

    def answer(self, program: str, words: Sequence[str]) -> tuple[int, str]:
        """Return the answer of the box's systemctl or edgegpu."""
        match program, *words:
            case ["systemctl", "show", *_]:
                return 0, "\n".join(self._unit(word) for word in words if word.endswith(".service"))
            case ["systemctl", "restart", *_] if words[-1] == AGENT_UNIT:
                self._processes.stop(_AGENT)
                self._start_agent()
                return 0, ""
            case ["edgegpu", *rest]:
                return self._edgegpu(rest)
        return _unknown(program, words)

    def _edgegpu(self, words: Sequence[str]) -> tuple[int, str]:
        """Return the answer of the box's edgegpu."""
        match words:
            case ["install", *rest]:
                return self._install(rest)
            case ["uninstall", *_]:
                return 0, _committed(changed=self._uninstall())
            case ["doctor", *_]:
                return _FAILED, json.dumps(_doctor())
            case ["pods", *rest]:
                done = self.ask("pods", *rest)
                return done.status, done.text
        return _unknown("edgegpu", words)

    def run(self, *words: str, secret: str = "") -> CommandOutcome:
        """Run `edgegpu` on the box and show it; a secret is passed in the environment."""
        before = "EDGEGPU_TOKEN=... " if secret else ""
        self.say(f"  {self._bed.node} $ {before}edgegpu {shlex.join(words)}")
        done = self.ask(*words, secret=secret)
        for line in done.text.rstrip().splitlines():
            self.say(f"      {line}".rstrip())
        return done

    def ask(self, *words: str, secret: str = "") -> CommandOutcome:
        """Run `edgegpu` on the box without showing it."""
        sockets = {"journal": self.root / "run/edgegpu/agent.sock", "pods": self._layout.plugin_socket}
        socket = sockets.get(words[0])
        where = ("--root", str(self.root)) if socket is None else ("--socket", str(socket))
        more = {**self._environment(), **({"EDGEGPU_TOKEN": secret} if secret else {})}
        return self._processes.call([sys.executable, "-m", "edgegpu_agent.cli.app", *words, *where], more)

    def _environment(self) -> dict[str, str]:
        path = f"{self.root / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "NOTIFY_SOCKET": "", "CONTAINER_RUNTIME_ENDPOINT": f"unix://{self._bed.runtime}"}

    def _start_agent(self) -> None:
        program = ["--edgegpu", str(self.root / "bin/edgegpu")]
        command = [sys.executable, "-m", "edgegpu_agent", "--root", str(self.root), *program]
        self._processes.start(_AGENT, command, self._environment())

    def _unit(self, name: str) -> str:
        there = name == AGENT_UNIT or (name == PLUGIN_UNIT and self._layout.has_sharing)
        load, active = ("loaded", "active") if there else ("not-found", "inactive")
        return f"Id={name}\nLoadState={load}\nActiveState={active}\n"

    def _install(self, words: Sequence[str]) -> tuple[int, str]:
        """Start the plugin, or start it again with other settings; with the old ones where it does not start."""
        try:
            settings = settings_of(words)
        except UnknownOptionError as error:
            return _refused(str(error))
        unit, before = self._layout.units / PLUGIN_UNIT, self._bed.config.read_text()
        runs, wanted = unit.exists(), settings.applied_to(before)
        if runs and settings.lacks:  # one that starts the plugin does so: the agent asks for the rest again
            return _refused(settings.lacks)
        if runs and wanted == before:
            return 0, _committed(changed=False)
        try:
            self._start_with(wanted, again=runs)
        except DemoError as error:
            self._configure(before)
            self._bed.stop()
            if runs:
                self._bed.start()
            return _FAILED, json.dumps({"state": TransactionState.ROLLED_BACK.value, "why": str(error)})
        unit.touch()
        return 0, _committed(changed=True)

    def _start_with(self, config: str, *, again: bool) -> None:
        self._configure(config)
        if again:
            self._bed.stop()
        self._bed.start()

    def _configure(self, text: str) -> None:
        """Write the plugin's configuration: the file that the plugin reads, and the one that the agent reads."""
        for path in (self._bed.config, self._layout.plugin_yaml):
            write_if_changed(path, text)

    def _uninstall(self) -> bool:
        unit = self._layout.units / PLUGIN_UNIT
        if not unit.exists():
            return False
        unit.unlink()
        self._bed.stop()
        return True


def _committed(*, changed: bool) -> str:
    return json.dumps({"state": TransactionState.COMMITTED.value, "changed": changed})


def _unknown(program: str, words: Sequence[str]) -> tuple[int, str]:
    return _STRANGE, json.dumps({"error": f"the demo's {program} does not know {shlex.join(words)}", "remedy": ""})


def _refused(why: str) -> tuple[int, str]:
    return _FAILED, json.dumps({"error": f"cannot do that here: {why}", "remedy": ""})


def _doctor() -> Json:
    """Return the document of `edgegpu doctor --json` on a box that is no machine: one warning that says so."""
    what = "this box is simulated: it has no driver, k3s or systemd of its own for doctor to look at"
    trouble = {"level": "warning", "text": what, "remedy": "sudo edgegpu doctor  # on a real box"}
    check = {"name": "demo", "group": "machine", "about": "this is a real box", "level": "warning", "text": what}
    checks = [{**check, "troubles": [trouble], "details": [], "took_s": 0}]
    return {"v": 1, "version": installed_version(), "level": "warning", "checks": checks}


@contextmanager
def box(bed: BoxBed, processes: Processes, say: Callable[[str], None]) -> Iterator[DemoBox]:
    """Yield a box below the bed's folder, and answer for its programs meanwhile."""
    made = DemoBox(bed.folder / "b", bed, processes, say)
    with StandInServer(bed.folder / "programs", made.answer) as programs:
        made.lay_out(programs)
        yield made
