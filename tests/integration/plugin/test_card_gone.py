"""A card that a pod runs on goes: who is told what, what is counted, and who is placed on another card."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.bed import EmbeddedBed, Json, phase, pod
from contract.test_plugin import deployment, offered, runs, share, told
from kits.cli import edgegpu

from edgegpu_core.nodereport import REPORT_ANNOTATION, read_report
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import SimDriver, make_card
from edgegpu_sim.node import NodeSpec

CARDS = [make_card(index, "Tesla T4", 7611) for index in range(2)]


@pytest.fixture
def bed(simdriver_build: Path) -> Iterator[EmbeddedBed]:
    assert simdriver_build.is_dir()
    config = {"driver": {"absent_s": 2, "poll_s": 0.2}}
    with EmbeddedCluster([NodeSpec(name="box", cards=CARDS, config=config)]) as cluster:
        cluster.start_plugin("box")
        made = EmbeddedBed(cluster)
        offered(made)
        yield made


def status(bed: EmbeddedBed) -> Json:
    """Return what `edgegpu status --json` prints."""
    socket = bed.cluster.nodes["box"].run_folder / "plugin.sock"
    said: Json = json.loads(edgegpu("status", "--json", "--socket", socket).out)
    return said


def lost(bed: EmbeddedBed) -> list[tuple[str, str]]:
    """Name the pods that `edgegpu status` shows on a card that is gone, with the number that it had."""
    rows = [row for row in status(bed)["pods"] if row["state"] == "lost"]
    return [(row["pod"], card["index"]) for row in rows for card in row["cards"]]


def free_by_status(bed: EmbeddedBed) -> list[tuple[str, int, int]]:
    """Return each offered card's number, units and free units by `edgegpu status`."""
    return [(card["index"], card["units"], card["units_free"]) for card in status(bed)["cards"]]


def held_by_report(bed: EmbeddedBed) -> tuple[int, dict[str, int]]:
    """Return the units that the Node's report offers, and those that each pod holds of them, by its name."""
    report = read_report((bed.get("Node", "box") or {})["metadata"]["annotations"].get(REPORT_ANNOTATION))
    assert report is not None
    names = {one["metadata"]["uid"]: one["metadata"]["name"] for one in bed.pods()}
    return report.units(), {
        names[uid]: sum(share.memory_units for share in shares) for uid, shares in report.held.items() if uid in names
    }


def test_a_pod_with_a_controller_gets_another_card_and_a_bare_one_is_named(bed: EmbeddedBed) -> None:
    bed.apply(pod("first", share(29)))
    runs(bed, "first")
    bed.apply(pod("bare", share(4)))
    bed.apply(deployment("moves", pod("", share(20))["spec"]))
    bed.wait(lambda: [p["status"]["phase"] for p in bed.pods("app=moves")] == ["Running"], what="it runs on card 1")
    runs(bed, "bare")
    (old,) = bed.pods("app=moves")
    bed.delete("Pod", "first")
    bed.kill_plugin("box")
    SimDriver.create(bed.cluster.nodes["box"].folder / "d", CARDS[:1])
    bed.start_plugin("box")
    gone = f"its card 1 (Tesla T4, {CARDS[1].uuid}) is gone from this machine"
    told(bed, old["metadata"]["name"], f"{gone}; the pod is evicted when that lasts for 2 seconds")
    told(bed, "bare", f"{gone}; it has no controller that would make it again: delete it")

    def moved() -> bool:
        found = bed.pods("app=moves")
        return [
            p["metadata"]["uid"] != old["metadata"]["uid"] and p["status"]["phase"] == "Running" for p in found
        ] == [True]

    bed.wait(moved, what="a new one runs on the card that is left", timeout_s=20)
    assert lost(bed) == [("bare", "1")]
    assert phase(bed, "bare") == "Running"
    (new,) = bed.pods("app=moves")
    sums = (29, {"bare": 0, new["metadata"]["name"]: 20})
    bed.wait(lambda: held_by_report(bed) == sums, what="the report has what is held of the card that is left")
    assert free_by_status(bed) == [("0", 29, 9)]
    bed.delete("Pod", "bare")
    bed.wait(lambda: not lost(bed), what="nobody is left on it")
