"""The program that stays after an uninstall, in a root of its own, with a kubectl that answers from files."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgegpu_core.model import ResourceModel
from edgegpu_installer.farewell import CONF, LINK, PROGRAM, UNIT_FILE, Farewell, conf, files
from edgegpu_installer.layout import LIB

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
        self.write("/var/run/cdi/edgegpu.json", "{}")
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
        paths = (PROGRAM, CONF, UNIT_FILE, LINK, LIB)
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


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.uninstall()
    return machine


@pytest.fixture
def run(machine: Machine) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(**more: str) -> Run:
        runs.append(Run(machine, **more))
        return runs[-1]

    yield start
    for one in runs:
        one.process.kill()
        one.process.wait()


def test_it_waits_for_kubelet_takes_the_resources_out_and_goes(machine: Machine, run: Callable[..., Run]) -> None:
    one = run()
    one.said("waiting for kubelet to let go")
    assert not machine.called("replace")
    assert machine.at("/var/run/cdi/edgegpu.json").exists()
    machine.checkpoint()
    assert one.ended() == 0
    assert machine.called("replace --raw /api/v1/nodes/box/status")
    for part in ("capacity", "allocatable"):
        for name in ("memory", "core"):
            assert machine.called(f'{{"op":"remove","path":"/status/{part}/baidu.com~1vcuda-{name}"}}')
    assert not machine.called("cpu")
    assert machine.cleaned()
    assert machine.over()
    assert (machine.tools / "systemctl-calls").read_text() == "daemon-reload\n"


def test_pods_with_shares_keep_what_they_stand_on(machine: Machine, run: Callable[..., Run]) -> None:
    machine.checkpoint()
    machine.answers(limits=f"apps/one cpu\napps/one {MEMORY}\napps/one {CORE}\napps/other cpu\n")
    one = run()
    one.said("waiting for the last pods with shares: apps/one \n")
    assert machine.called("replace")  # the node need not wait for them
    assert machine.at("/var/run/cdi/edgegpu.json").exists()
    machine.answers(limits="apps/other cpu\n")
    assert one.ended() == 0
    assert machine.cleaned()
    assert machine.over()


def test_it_outlives_an_api_server_that_does_not_answer(machine: Machine, run: Callable[..., Run]) -> None:
    machine.checkpoint()
    (machine.tools / "down").touch()
    one = run()
    one.said("waiting for the API server: apiserver not ready")
    (machine.tools / "down").unlink()
    assert one.ended() == 0
    assert machine.over()


def test_what_kubelet_puts_back_is_taken_out_again(machine: Machine, run: Callable[..., Run]) -> None:
    machine.checkpoint()
    (machine.tools / "stubborn").touch()
    one = run()
    one.said("taking")
    calls = machine.tools / "calls"
    wait_for(lambda: calls.read_text().count("replace") > 2, "tries again", one.log)
    (machine.tools / "stubborn").unlink()
    assert one.ended() == 0
    assert machine.over()


def test_it_is_quiet_for_two_periods_before_it_believes(machine: Machine, run: Callable[..., Run]) -> None:
    machine.checkpoint()
    machine.answers(amounts="")
    began = time.monotonic()
    assert run(EDGEGPU_QUIET_S="2").ended() == 0
    assert time.monotonic() - began >= 1  # whole seconds since boot


def test_killed_anywhere_it_goes_on(machine: Machine, run: Callable[..., Run]) -> None:
    run().process.kill()
    machine.checkpoint()
    machine.answers(limits=f"apps/one {MEMORY}\n")
    one = run()
    one.said("waiting for the last pods")
    one.process.kill()
    machine.answers(limits="")
    assert run().ended() == 0
    assert machine.over()
    assert machine.cleaned()


def test_an_installation_that_is_decided_ends_it(machine: Machine, run: Callable[..., Run]) -> None:
    one = run()
    one.said("waiting for kubelet")
    machine.write("/var/lib/edgegpu/tx/state", "id=1\nstate=VERIFYING\n")
    machine.write("/etc/systemd/system/edgegpu-plugin.service", "")
    one.said("waiting for the end of a transaction")
    assert not machine.over()
    machine.write("/var/lib/edgegpu/tx/state", "id=1\nstate=COMMITTED\n")
    assert one.ended() == 0
    assert machine.over()
    assert not machine.cleaned()  # these are the new one's
    assert not machine.called("replace")


def test_an_installation_that_is_undone_lets_it_go_on(machine: Machine, run: Callable[..., Run]) -> None:
    machine.write("/var/lib/edgegpu/tx/state", "state=SWAPPED\n")
    machine.write("/etc/systemd/system/edgegpu-plugin.service", "")
    one = run()
    one.said("waiting for the end of a transaction")
    machine.checkpoint()
    machine.at("/etc/systemd/system/edgegpu-plugin.service").unlink()
    assert one.ended() == 0
    assert machine.called("replace")
    assert machine.over()


def test_another_plugin_of_these_names_keeps_them(machine: Machine, run: Callable[..., Run]) -> None:
    machine.answers(amounts=AMOUNTS.replace(f"allocatable {MEMORY} 0", f"allocatable {MEMORY} 94"))
    one = run()
    assert one.ended() == 0
    one.said("another device plugin offers")
    assert not machine.called("replace")
    assert machine.over()


def test_without_a_kubelet_there_is_nothing_to_wait_for(machine: Machine, run: Callable[..., Run]) -> None:
    shutil.rmtree(machine.at("/var/lib"))
    one = run()
    assert one.ended() == 0
    one.said("kubelet is gone")
    assert machine.over()


def test_without_orders_it_only_goes(machine: Machine, run: Callable[..., Run]) -> None:
    machine.at(CONF).unlink()
    assert run().ended() == 0
    assert machine.over()
    assert not machine.called("get")


def test_it_can_be_cancelled(machine: Machine) -> None:
    subprocess.run([machine.at(PROGRAM), "cancel"], env=machine.environment(), check=True, timeout=LIMIT_S)
    assert machine.over()
    assert not machine.cleaned()
    assert (machine.tools / "systemctl-calls").read_text().split("\n")[0] == "stop edgegpu-farewell.service"


def test_folders_that_were_made_go_when_they_are_empty(machine: Machine, run: Callable[..., Run]) -> None:
    told = Farewell(node="box", kubeconfig="/none", model=MODEL, folders=("/usr/local/lib", "/usr/local"))
    machine.write(CONF, conf(told))
    machine.write("/usr/local/keep", "")
    shutil.rmtree(machine.at("/var/lib"))
    assert run().ended() == 0
    assert not machine.at("/usr/local/lib").exists()
    assert machine.at("/usr/local/keep").exists()


def test_links_to_the_cards_are_there_before_systemd_reads_its_units(machine: Machine, run: Callable[..., Run]) -> None:
    machine.at("/dev/char").mkdir(parents=True)
    try:
        os.mknod(machine.at("/dev/nvidia0"), stat.S_IFCHR | 0o666, os.makedev(195, 0))
    except PermissionError:
        pytest.skip("needs to be root, with device nodes")
    machine.checkpoint()
    assert run().ended() == 0
    assert (machine.tools / "links").read_text() == "195:0\n"
    assert machine.at("/dev/char/195:0").readlink() == Path("../nvidia0")


def test_the_units_own_line_finishes_what_was_cut_off(machine: Machine) -> None:
    """The program removes itself before its unit: a power cut in between leaves the unit, which is started again."""
    text = UNIT_SOURCE.read_text().replace("\\\n", "")
    (line,) = [row.partition("=")[2] for row in text.splitlines() if row.startswith("ExecStart=")]
    script = line.partition("'")[2].rpartition("'")[0].replace("$$", "$")
    for prefix in ("/usr/local/lib", "/etc/systemd"):
        script = script.replace(prefix, f"{machine.root}{prefix}")
    machine.at(PROGRAM).unlink()
    machine.at(CONF).unlink()
    subprocess.run(["sh", "-c", script], env=machine.environment(), check=True, timeout=LIMIT_S)
    assert machine.over()
