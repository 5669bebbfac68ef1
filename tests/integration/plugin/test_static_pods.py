"""A static pod over a boot: kubelet answers before it has read the pod's file, and nobody gets its units meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.bed import EmbeddedBed, Json, phase, pod

from edgegpu_agent.cli.clients.plugin import fetch_status
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import make_card
from edgegpu_sim.node import NodeSpec

MEMORY = "baidu.com/vcuda-memory"
UNITS, SHARE = 29, {MEMORY: 20, "baidu.com/vcuda-core": 10}


@pytest.fixture
def bed(simdriver_build: Path) -> Iterator[EmbeddedBed]:
    assert simdriver_build.is_dir()
    spec = NodeSpec(name="box", cards=[make_card(0, "T4", 7611)], kubelet={"admission_delay_s": 3.0})
    with EmbeddedCluster([spec]) as cluster:
        cluster.start_plugin("box")
        made = EmbeddedBed(cluster)
        made.wait(lambda: offered(made), what="the units are offered", timeout_s=60)
        manifest = pod("file", SHARE)
        manifest["metadata"]["namespace"] = made.namespace
        cluster.nodes["box"].kubelet.set_static([manifest])
        made.wait(lambda: phase(made, "file-box") == "Running", what="the static pod runs", timeout_s=60)
        yield made


def offered(bed: EmbeddedBed) -> bool:
    node: Json = bed.get("Node", "box") or {}
    return bool(node.get("status", {}).get("allocatable", {}).get(MEMORY) == str(UNITS))


def status(bed: EmbeddedBed) -> Json:
    found: Json = dict(fetch_status(bed.cluster.nodes["box"].run_folder / "plugin.sock").raw)
    return found


def names(bed: EmbeddedBed) -> list[str]:
    return [row["pod"] for row in status(bed)["pods"]]


def test_a_static_pods_units_are_its_own_before_it_runs_again(bed: EmbeddedBed) -> None:
    node = bed.cluster.nodes["box"]
    bed.wait(lambda: names(bed) == ["file-box"], what="the plugin knows whose they are")
    bed.kill_plugin("box")
    node.kubelet.stop()
    node.runtime.forget_all()
    (node.run_folder / "plugin.sock").unlink()
    bed.start_plugin("box")
    bed.wait((node.run_folder / "plugin.sock").exists, what="the plugin answers", timeout_s=60)
    node.kubelet.start()
    (uid,) = {one.pod_uid for one in bed.checkpoint("box")}
    seen = set()

    def look() -> bool:
        found = status(bed)
        (free,) = {card["units_free"] for card in found["cards"]}
        seen.add((free, tuple(row["pod"] for row in found["pods"])))
        assert free == UNITS - SHARE[MEMORY]
        return "main" in node.runtime.containers(uid) and names(bed) == ["file-box"]

    bed.wait(look, what="the static pod runs again, and the plugin knows it", timeout_s=60)
    assert (UNITS - SHARE[MEMORY], ("",)) in seen, "kubelet did not list it for a while"
    node.kubelet.set_static([])
    bed.wait(lambda: names(bed) == [], what="it has gone when its file has", timeout_s=20)


def test_a_plugin_that_starts_while_the_server_is_away_names_who_holds(bed: EmbeddedBed) -> None:
    """An agent node's server may be away for hours: kubelet alone says who has the devices, and nothing is gone."""
    node = bed.cluster.nodes["box"]
    bed.wait(lambda: names(bed) == ["file-box"], what="the plugin knows whose they are")
    bed.cluster.api.stop()
    bed.kill_plugin("box")
    (node.run_folder / "plugin.sock").unlink()
    bed.start_plugin("box")
    bed.wait((node.run_folder / "plugin.sock").exists, what="the plugin answers", timeout_s=60)
    bed.wait(lambda: names(bed) == ["file-box"], what="kubelet has named it", timeout_s=60)
    (row,) = status(bed)["pods"]
    assert (row["namespace"], row["phase"], row["state"]) == (bed.namespace, "Unknown", "unknown")
    bed.cluster.api.start()
    bed.wait(lambda: [one["state"] for one in status(bed)["pods"]] == ["allocated"], what="all is known", timeout_s=60)
