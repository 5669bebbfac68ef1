"""A box for edgegpu-farewell: a root of its own, kubelet's checkpoint, a kubectl that answers from files."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from edgegpu_core.model import ResourceModel
from edgegpu_installer.layout import LIB
from edgegpu_installer.transaction.farewell import CONF, LINK, PROGRAM, UNIT_FILE, Farewell, files

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "installer/edgegpu-farewell"
UNIT_SOURCE = ROOT / "systemd/edgegpu-farewell.service"
MODEL = ResourceModel()
MEMORY, CORE = MODEL.memory_resource, MODEL.core_resource
LIMIT_S = 20.0

KUBECTL = """#!/bin/sh
# answers from files: amounts, limits; refuses while there is a file `down`, takes no write while there is `stubborn`
[ "$1" = --kubeconfig ] || { echo "no kubeconfig" >&2; exit 1; }
[ "${0##*/}" = kubectl ] || shift
f=${0%/*}
echo "$*" >> "$f/calls"
case "$*" in
    *" patch --local "*) cat > /dev/null < "$f/amounts"; echo '{"patched":true}' ;;
    *) [ ! -e "$f/down" ] || { echo "apiserver not ready" >&2; exit 1; } ;;
esac
case "$*" in
    *"get node"*json*) echo '{}' ;;
    *"get node"*) cat "$f/amounts" ;;
    *"get pods"*) cat "$f/limits" ;;
    *"replace --raw"*) [ -e "$f/stubborn" ] || : > "$f/amounts" ;;
esac
"""
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "${0%/*}/systemctl-calls"
[ ! -d "${0%/*}/../dev/char" ] || ls "${0%/*}/../dev/char" > "${0%/*}/links"
"""
AMOUNTS = "".join(f"{part} cpu 8\n{part} {MEMORY} 0\n{part} {CORE} 0\n" for part in ("capacity", "allocatable"))


class Machine:
    """A box's folders, its kubelet's checkpoint, and its API server by way of kubectl."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root / "tools"
        self.tools.mkdir()
        for name, text in (("kubectl", KUBECTL), ("systemctl", SYSTEMCTL)):
            (self.tools / name).write_text(text)
            (self.tools / name).chmod(0o755)
        for name in (
            "sh",
            "sed",
            "grep",
            "cut",
            "sort",
            "tr",
            "cat",
            "rm",
            "rmdir",
            "mkdir",
            "sync",
            "sleep",
            "head",
            "ls",
            "ln",
            "stat",
        ):
            (self.tools / name).symlink_to(shutil.which(name) or name)
        self.answers(amounts=AMOUNTS, limits="")
        self.write("/run/edgegpu/plugin.sock", "")
        self.write("/run/edgegpu/containers/0123/limits", "edgegpu-limits 1\n")
        self.write("/var/run/cdi/edgegpu.json", "{}")
        self.write("/var/run/cdi/edgegpu-limited.json", "{}")
        self.write("/var/run/cdi/edgegpu-capability.json", "{}")
        self.write("/var/lib/rancher/k3s/agent/kubelet.kubeconfig", "")
        self.checkpoint(MEMORY, CORE)

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str) -> None:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text)

    def answers(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.tools / f"{name}.new").write_text(text)
            (self.tools / f"{name}.new").rename(self.tools / name)

    def checkpoint(self, *registered: str) -> None:
        entries = [{"PodUID": "u", "ContainerName": "c", "ResourceName": MEMORY, "DeviceIDs": {"-1": ["GPU-1::m0001"]}}]
        data = {"PodDeviceEntries": entries, "RegisteredDevices": {name: ["x"] for name in registered}}
        text = json.dumps({"Data": data, "Checksum": 1}, separators=(",", ":"))
        self.write("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", text)

    def uninstall(self) -> None:
        """Put in place what an uninstall puts in place."""
        told = Farewell(node="box", kubeconfig="/var/lib/rancher/k3s/agent/kubelet.kubeconfig", model=MODEL)
        for change in files(told, program=SOURCE.read_bytes(), unit=UNIT_SOURCE.read_bytes()):
            target = self.at(change.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if change.link_to is not None:
                target.symlink_to(change.link_to)
            else:
                target.write_bytes(change.content or b"")
                target.chmod(change.mode)

    def environment(self, **more: str) -> dict[str, str]:
        times = {"EDGEGPU_POLL_S": "0.05", "EDGEGPU_QUIET_S": "0", "EDGEGPU_FOREIGN_S": "1"}
        return {"PATH": str(self.tools), "EDGEGPU_ROOT": str(self.root), **times, **more}

    def over(self) -> bool:
        """Say whether nothing of it is left."""
        paths = (PROGRAM, CONF, UNIT_FILE, LINK, LIB, "/run/edgegpu-farewell")
        return not any(os.path.lexists(self.at(path)) for path in paths)

    def cleaned(self) -> bool:
        """Say whether what containers need is gone."""
        return not self.at("/run/edgegpu").exists() and not self.at("/var/run/cdi").exists()

    def called(self, words: str) -> bool:
        calls = self.tools / "calls"
        return calls.exists() and words in calls.read_text()


class Run:
    """The program while it runs."""

    def __init__(self, machine: Machine, **more: str) -> None:
        self.log = machine.root / "log"
        with self.log.open("ab") as log:
            command: list[str | Path] = [machine.at(PROGRAM), "run"]
            self.process = subprocess.Popen(command, env=machine.environment(**more), stderr=log)

    def said(self, words: str) -> None:
        wait_for(lambda: words in self.log.read_text(), words, self.log)

    def ended(self) -> int:
        return self.process.wait(LIMIT_S)


def wait_for(probe: Callable[[], bool], what: str, log: Path) -> None:
    ends = time.monotonic() + LIMIT_S
    while not probe():
        assert time.monotonic() < ends, f"never: {what}: {log.read_text()}"
        time.sleep(0.01)
