"""The doctor's remedies carried out on a box of files: a line is pasted as it stands, what it calls has its effect.

chmod, rm, sed, tee and printf are the real ones, `edgegpu config check` too, and `edgegpu install` writes the files of
the installer's own plan. What only a machine can do (systemd, a boot, a package) is written down as a call, and then
has the effect that the test gives it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from integration.previewkit import release
from kits.doctor import BOOTED_S, Box

from edgegpu_installer.changes import FileChange, TransactionKind
from edgegpu_installer.layout import KUBECONFIG, Layout
from edgegpu_installer.machine.atomic import create, wanted
from edgegpu_installer.plan.credentials import extender_certificates
from edgegpu_installer.plan.plan import plan_install
from edgegpu_installer.plan.release import Recovery
from edgegpu_installer.plan.site import InstallOptions, PlanCredentials, site_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Effects = dict[str, "Callable[[], object]"]
"""What happens by a call, by its whole first words; by "" what a person does after the line."""

_SUDO = """\
for word; do
    shift
    case $word in /*) word="$ROOT$word" ;; esac
    set -- "$@" "$word"
done
exec "$@"
"""
_EDGEGPU = f"""\
[ "$*" != "config check" ] || exec {sys.executable} -m edgegpu_agent.cli.app "$@" "$ROOT/etc/edgegpu/plugin.yaml"
"""
_EDIT = '[ -e "$ROOT/edited" ] && cp "$ROOT/edited" "$ROOT$1"\n'
_K3S = 'case "$*" in *apply*) cat > "$ROOT/applied" ;; esac\n'
_DONE = "for name; do :; done\n"
_CALLED = {
    **dict.fromkeys(
        ("systemctl", "timedatectl", "reboot", "modprobe", "journalctl", "mount", "apt-get", "dkms", "sleep"), _DONE
    ),
    **dict.fromkeys(("date", "hwclock"), _DONE),
    "dmesg": "echo NVRM: loading\n",
    "edgegpu": _EDGEGPU,
    "sudoedit": _EDIT,
    "k3s": _K3S,
}
_LOOKS = ("journalctl", "dmesg", "sleep", "hwclock", "edgegpu config check", "edgegpu status", "sudoedit")
"""Calls that change nothing by themselves."""


class Repairs:
    """One who has read the doctor's findings of a box and does what they say."""

    def __init__(self, box: Box, root: Path) -> None:
        """`root` is the source tree, from which edgegpu-recover is installed."""
        self.box = box
        self._recovery = Recovery.of_version(root)
        self._folder = box.at("hands")
        self._folder.mkdir()
        self._calls = box.at("calls")
        self._program("sudo", _SUDO)
        for name, script in _CALLED.items():
            self._program(name, f'echo "{name} $*" >> "$ROOT/calls"\n{script}')

    def mend(self, check: str, effects: Mapping[str, Callable[[], object]]) -> list[str]:
        """Carry out each remedy of a check that is not green, see it green, and return what was called."""
        verdict = self.box.see(check)
        assert verdict.level.rank, verdict
        calls = []
        for line in dict.fromkeys(one.remedy for one in verdict.problems if one.level.rank):
            calls += self.paste(line, effects)
        verdict = self.box.see(check)
        assert not verdict.level.rank, verdict
        return calls

    def paste(self, line: str, effects: Mapping[str, Callable[[], object]]) -> list[str]:
        """Run a line as root of the box, and let what it calls take effect; returns the calls."""
        self._calls.write_text("")
        env = {"PATH": f"{self._folder}:/usr/bin:/bin", "ROOT": str(self.box.root)}
        done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        calls = self._calls.read_text().replace(str(self.box.root), "").splitlines()
        known: Effects = {**self._usual(), **effects}
        for call in calls:
            matching = max((words for words in known if f"{call} ".startswith(f"{words} ")), key=len, default="")
            assert matching or call.startswith(_LOOKS), f"nothing happens by {call!r} of {line!r}"
            if matching:
                known[matching]()
        effects.get("", list)()
        return calls

    def install(self) -> None:
        """Write what an installation would, by the installer's own plan, and let k3s and the plugin read it."""
        box, layout = self.box, Layout(self.box.root)
        site = site_of(box.sight().facts)
        kubeconfig = box.kubeconfig({"token": "t"}).read_bytes()
        made = PlanCredentials(
            kubeconfig=FileChange(KUBECONFIG, kubeconfig, mode=0o600),
            certificates=extender_certificates(layout, site.scheduler_path, now=box.now),
        )
        plan = plan_install(site, InstallOptions(), release=release(), material=made, read_file=layout.read)
        assert plan.op is TransactionKind.INSTALL
        for change in self._recovery.into(plan).files:
            path = layout.at(change.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            create(path, wanted(change))
        if site.kind.is_k3s:
            self.restart_k3s()
        self.restart_plugin()
        box.unit("edgegpu-agent")

    def restart_k3s(self) -> None:
        """Let k3s have started now."""
        since_boot_us = int((time.time() + 1 - BOOTED_S) * 1e6)
        self.box.k3s(ExecMainStartTimestampMonotonic=str(since_boot_us))

    def restart_plugin(self) -> None:
        """Let the plugin run, with the extender on the files that are there."""
        self.box.unit("edgegpu-plugin")
        self.box.stop_extender()
        self.box.start_extender()

    def _usual(self) -> Effects:
        box = self.box
        return {
            "edgegpu install": self.install,
            "systemctl restart edgegpu-plugin": self.restart_plugin,
            "systemctl restart edgegpu-agent": lambda: box.unit("edgegpu-agent"),
            "systemctl restart --no-block k3s": self.restart_k3s,
            "systemctl enable edgegpu-plugin": lambda: box.unit("edgegpu-plugin"),
            "systemctl enable edgegpu-agent": lambda: box.unit("edgegpu-agent"),
        }

    def _program(self, name: str, script: str) -> None:
        file = self._folder / name
        file.write_text(f"#!/bin/sh\n{script}")
        file.chmod(0o755)
