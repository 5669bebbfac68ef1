"""What is missing or broken beside the plugin process: what it waits for, in words, and that it goes on by itself."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from contract.bed import EmbeddedBed, phase, pod
from integration.extender_run import Caller
from kits.fault import CARD, CORE, MEMORY, NODE, UNITS, WAIT_S, Box, Manager

from edgegpu_agent.cli.clients.plugin import fetch_status
from edgegpu_plugin.node import READY_WAIT_S
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.node import NodeSpec, SimNode
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def box(short_tmp: Path, simdriver_build: Path) -> Iterator[Box]:
    made = Box(short_tmp, simdriver_build)
    made.start_api()
    yield made
    made.close()


def offered(box: Box, *, memory: int = UNITS, healthy: bool = True) -> None:
    """Wait until kubelet has this list."""

    def look() -> bool:
        found = box.kubelet.lists.get(MEMORY, [])
        return len(found) == memory and all(device.healthy is healthy for device in found)

    box.kubelet.wait(lambda _kubelet: look())


def test_a_driver_that_comes_late(box: Box) -> None:
    box.start_kubelet()
    systemd = Manager(box.root)
    process = box.start(NOTIFY_SOCKET=systemd.address)
    process.says("cannot find the NVIDIA driver's libnvidia-ml.so.1 under")
    began_s = time.monotonic()
    while systemd.hears() != "READY=1":
        pass
    assert time.monotonic() - began_s < READY_WAIT_S, "k3s's start waits for us, and not for a driver"
    shown = process.shows(kubelet={"registered": True})
    assert "install the driver there, or set driver.root" in shown["driver"]["problem"]
    assert shown["cards"] == []
    driver = box.driver(CARD)
    offered(box)
    process.says("NVML answers again")
    process.shows(driver={"problem": "", "version": "560.35.03"})
    driver.unload()
    process.stop()
    assert box.sockets() == []
    heard = [systemd.hears()]
    while heard[-1] != "STOPPING=1":
        heard.append(systemd.hears())
    systemd.close()


def test_a_driver_whose_cards_come_late(box: Box) -> None:
    box.driver()
    box.start_kubelet()
    process = box.start()
    process.says("the NVIDIA driver works but has no card: look at `lspci")
    box.driver(CARD)
    offered(box)
    process.stop()


def test_a_driver_that_is_loaded_late(box: Box) -> None:
    driver = box.driver(CARD)
    driver.unload()
    box.start_kubelet()
    process = box.start()
    process.says("the NVIDIA driver is not loaded")
    assert "modprobe nvidia" in process.status()["driver"]["problem"]
    driver.load()
    offered(box)
    process.stop()


def test_kubelet_s_folder_that_comes_late(box: Box) -> None:
    box.driver(CARD)
    process = box.start()
    process.says(f"waiting for kubelet's folder {box.kubelet.folder}: is k3s (kubelet) installed and started?")
    process.shows(
        kubelet={
            "registered": False,
            "waiting_for": f"kubelet's folder {box.kubelet.folder}: is k3s (kubelet) installed and started?",
        }
    )
    box.kubelet.folder.mkdir(parents=True)
    process.says(f"waiting for kubelet's socket {box.kubelet.folder}/kubelet.sock: is k3s (kubelet) running?")
    box.start_kubelet()
    offered(box)
    process.shows(kubelet={"registered": True, "waiting_for": ""})
    process.stop()
    assert box.sockets() == []


def test_an_nvml_that_hangs_from_the_start(box: Box) -> None:
    driver = box.driver(CARD)
    driver.hang("nvmlInitWithFlags")
    box.set("driver", nvml_timeout_s=0.05)
    box.start_kubelet()
    process = box.start()
    process.says("in nvmlInit: the driver does not answer; a card may have fallen off the bus")
    process.shows(kubelet={"registered": True})
    driver.clear()
    offered(box)
    process.stop()


def test_an_nvml_that_hangs_later(box: Box) -> None:
    driver = box.driver(CARD)
    box.set("driver", nvml_timeout_s=0.3, absent_s=1)
    box.start_kubelet()
    process = box.start()
    offered(box)
    driver.hang("nvmlDeviceGetMemoryInfo")
    process.says("in nvmlDeviceGetMemoryInfo: the driver does not answer")
    process.says("no word of NVML for 1 s: no card is offered until it answers")
    offered(box, healthy=False)
    process.cards([False])
    driver.clear()
    offered(box)
    process.cards([True])
    process.shows(driver={"problem": ""})
    process.stop()


def test_cards_as_saved_are_not_offered_for_ever_without_a_driver(box: Box) -> None:
    box.set("driver", absent_s=1)
    box.save_inventory(CARD)
    memory, _ = box.save_checkpoint("uid-1", CARD)
    box.start_kubelet()
    process = box.start()
    offered(box)
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(box.kubelet.caller(MEMORY).pre_start, memory, 60)
        offered(box, healthy=False)
        process.cards([False])
        assert not start.done(), "a container's start waits for the driver"
        box.driver(CARD)
        start.result()
    offered(box)
    process.cards([True])
    assert CARD.uuid in (box.root / "cdi/edgegpu.json").read_text()
    process.stop()


def test_an_api_server_that_is_away(box: Box) -> None:
    """Containers that run already start again; the cluster's side comes by itself."""
    url = box.api.url
    box.api.stop()
    box.driver(CARD)
    memory, core = box.save_checkpoint("uid-1", CARD)
    box.start_kubelet()
    process = box.start()
    offered(box)
    box.kubelet.caller(MEMORY).pre_start(memory, 30)
    box.kubelet.caller(CORE).pre_start(core, 30)
    shown = process.shows(api={"synced": False}, kubelet={"registered": True})
    process.until(lambda: "Connection refused" in process.status()["api"]["problem"], "cause in the status")
    assert [(row["uid"], row["state"]) for row in shown["pods"]] == [("uid-1", "unknown")]
    box.api.start()
    assert box.api.url == url
    process.shows(api={"synced": True, "problem": ""})
    box.api.stop()
    process.until(lambda: process.status()["api"]["problem"], "the loss in the status")
    process.stop()


def test_the_extender_alone_needs_no_card_and_no_kubelet(box: Box) -> None:
    report = {"metadata": {"name": "other"}, "status": {"allocatable": {}}}
    box.registry.create("nodes", report)
    box.config |= {
        "role": "extender-only",
        "kubelet": {"folder": "/nowhere", "device_plugins": "/nowhere/device-plugins"},
        "driver": {"root": "/nowhere"},
    }
    box.set("extender", listen=f"127.0.0.1:{free_port()}", insecure=True)
    process = box.start()
    process.says("extender: no TLS (extender.insecure): every process of this machine can bind pods")
    shown = process.shows(
        api={"synced": True, "problem": ""}, extender={"healthy": True, "insecure": True, "problem": ""}
    )
    assert (shown["cards"], shown["pods"]) == ([], [])
    caller = Caller(int(box.config["extender"]["listen"].rpartition(":")[2]))
    try:
        plain: dict[str, Any] = {"metadata": {"name": "p", "namespace": "d", "uid": "1"}, "spec": {"containers": []}}
        assert caller.filter(plain, [NODE, "other"])["NodeNames"] == [NODE, "other"]
        limits = {MEMORY: "1", CORE: "1"}
        asks = plain | {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
        answer = caller.filter(asks, [NODE, "other"])
        assert answer["NodeNames"] == []
        assert "edgegpu" in json.dumps(answer)
    finally:
        caller.close()
    process.stop()


def test_the_key_of_the_certificates_is_in_no_log(box: Box) -> None:
    secret = box.certificates()
    box.config["role"] = "server"
    box.driver(CARD)
    box.start_kubelet()
    process = box.start()
    process.shows(extender={"healthy": True, "insecure": False}, api={"synced": True})
    offered(box)
    process.stop()
    assert secret not in process.log
    assert "no TLS" not in process.log


def states(node: SimNode) -> list[str]:
    return [row["state"] for row in fetch_status(node.run_folder / "plugin.sock").raw["pods"]]


def test_a_broken_checkpoint_of_kubelet(simdriver_build: Path) -> None:
    """What it said before counts, nothing is released, and all is well again when kubelet writes it anew."""
    assert simdriver_build.is_dir()
    with EmbeddedCluster([NodeSpec(name=NODE, cards=[CARD])]) as cluster:
        node = cluster.nodes[NODE]
        bed = EmbeddedBed(cluster)
        cluster.start_plugin(NODE)
        wait = partial(cluster.wait, timeout_s=WAIT_S)
        bed.apply(pod("first", {MEMORY: 2, CORE: 1}))
        wait(lambda: phase(bed, "first") == "Running", what="first runs")
        log = node.log_path
        (node.kubelet.devices_folder / "kubelet_internal_checkpoint").write_text("{")
        bed.delete("Pod", "first", grace_s=0)
        wait(lambda: bed.get("Pod", "first") is None, what="first is gone")
        wait(lambda: "what it said before counts, and nothing is released" in log.read_text(), what="line in the log")
        told = fetch_status(node.run_folder / "plugin.sock").raw
        assert "cannot read kubelet's device checkpoint" in told["kubelet"]["checkpoint"]
        wait(lambda: states(node) == ["held"], what="the pod's units are held")
        bed.apply(pod("second", {MEMORY: 4, CORE: 1}))
        wait(lambda: any("4 vcuda-memory" in line for line in bed.events("second")), what="second's reason")
        bed.apply(pod("third", {MEMORY: 2, CORE: 1}))
        wait(lambda: phase(bed, "third") == "Running", what="third runs, and kubelet writes its book")
        wait(lambda: "kubelet_internal_checkpoint can be read again" in log.read_text(), what="line in the log")
        assert "let go of its devices" not in log.read_text().partition("can be read again")[0]
        bed.delete("Pod", "third", grace_s=0)
        wait(lambda: phase(bed, "second") == "Running", what="second runs")
