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
from typing import Any

import pytest
from integration.farewellkit import AMOUNTS, CORE, LIMIT_S, MEMORY, MODEL, UNIT_SOURCE, Machine, Run, wait_for

from edgegpu_core.choices.modes import Capability
from edgegpu_core.inventory import Card
from edgegpu_installer.transaction.farewell import CONF, PROGRAM, Farewell, conf
from edgegpu_plugin.containers.cdi import build_capabilities, build_spec, write_spec
from edgegpu_plugin.containers.driver_files import CapabilityFiles, DriverFiles, Library
from edgegpu_plugin.containers.limiter_files import LimiterFiles


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
    assert (machine.tools / "systemctl-calls").read_text() == "stop run-edgegpu-containers.mount\ndaemon-reload\n"


def test_no_spec_names_a_program_that_went_with_the_version(machine: Machine, run: Callable[..., Run]) -> None:
    """A kubelet that started after the uninstall makes containers anew without a plugin: it has the answers."""
    library = Library(Path("/usr/lib64/libcuda.so.1"), ("libcuda.so.1",))
    files = DriverFiles(
        root=Path("/"), version="1", libraries=(library,), opened={Capability.VIDEO: CapabilityFiles((library,))}
    )
    limiter = LimiterFiles({"libcuda.so.1": Path("/opt/edgegpu/1/limiter/libcuda.so.1")})
    card = Card(uuid="GPU-1", index=0, name="T4", memory_mib=15360, pci="00000000:01:00.0", minor=0)

    def specs(hook: Path | None) -> list[dict[str, Any]]:
        held = build_spec([card], files, limiter=limiter, hook=hook)
        return [build_spec([card], files, hook=hook), held, build_capabilities(files, hook=hook) or {}]

    for spec in specs(Path("/opt/edgegpu/1/limiter/edgegpu-loader-cache")):
        assert "edgegpu-loader-cache" in json.dumps(spec)
        write_spec(machine.at("/var/run/cdi"), spec)
    machine.answers(limits=f"apps/one {MEMORY}\n")
    machine.checkpoint()
    run().said("waiting for the last pods with shares: apps/one \n")
    written = [json.loads(path.read_text()) for path in machine.at("/var/run/cdi").iterdir()]
    assert sorted(written, key=json.dumps) == sorted(specs(None), key=json.dumps)


def test_pods_with_shares_keep_what_they_stand_on(machine: Machine, run: Callable[..., Run]) -> None:
    machine.checkpoint()
    machine.answers(limits=f"apps/one cpu\napps/one {MEMORY}\napps/one {CORE}\napps/other cpu\n")
    one = run()
    one.said("waiting for the last pods with shares: apps/one \n")
    assert machine.called("replace")  # the node need not wait for them
    assert machine.at("/var/run/cdi/edgegpu.json").exists()
    assert machine.at("/var/run/cdi/edgegpu-limited.json").exists()
    assert machine.at("/run/edgegpu/containers/0123/limits").exists()  # what holds them to their memory
    calls = machine.tools / "systemctl-calls"
    assert not calls.exists()  # nor is the file system unmounted in which that lies
    machine.answers(limits="apps/other cpu\n")
    assert one.ended() == 0
    assert calls.read_text().split("\n")[0] == "stop run-edgegpu-containers.mount"
    assert machine.cleaned()
    assert machine.over()


def test_mps_is_stopped_after_the_last_pod_with_shares_and_not_before(
    machine: Machine, run: Callable[..., Run]
) -> None:
    """Its clients are in such pods, and its end would end what they compute."""
    machine.write("/run/edgegpu/mps/log/control.log", "")
    machine.checkpoint()
    machine.answers(limits=f"apps/one {MEMORY}\n")
    calls = machine.tools / "systemctl-calls"
    one = run()
    one.said("waiting for the last pods with shares: apps/one \n")
    assert not calls.exists()
    machine.answers(limits="")
    assert one.ended() == 0
    assert calls.read_text().split("\n")[:3] == [
        "stop edgegpu-mps.service",
        "stop run-edgegpu-mps-shm.mount run-edgegpu-mps-pipe.mount",
        "stop run-edgegpu-containers.mount",
    ]
    assert not machine.at("/run/edgegpu").exists()


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
    machine.write("/var/lib/edgegpu/tx/state", "state=ROLLED_BACK\n")
    assert one.ended() == 0
    assert machine.called("replace")
    assert machine.over()


def test_an_uninstall_that_is_not_decided_is_waited_for(machine: Machine, run: Callable[..., Run]) -> None:
    """Its plugin runs until k3s was restarted, and longer where its author was killed: it is no other plugin."""
    machine.answers(amounts=AMOUNTS.replace(f"allocatable {MEMORY} 0", f"allocatable {MEMORY} 94"))
    machine.write("/var/lib/edgegpu/tx/state", "id=1\nstate=VERIFYING\n")
    one = run()
    one.said("waiting for the end of a transaction")
    assert not machine.called("get")
    machine.write("/var/lib/edgegpu/tx/state", "id=1\nstate=COMMITTED\n")
    one.said("another device plugin offers")
    assert one.ended() == 0
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


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT_SOURCE.name
    unit.write_text(UNIT_SOURCE.read_text())
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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


def test_the_agents_socket_stays_where_the_agent_does(machine: Machine, run: Callable[..., Run]) -> None:
    machine.write("/etc/systemd/system/edgegpu-agent.service", "")
    machine.write("/run/edgegpu/agent.sock", "")
    machine.checkpoint()
    assert run().ended() == 0
    assert [path.name for path in machine.at("/run/edgegpu").iterdir()] == ["agent.sock"]
    assert machine.over()
