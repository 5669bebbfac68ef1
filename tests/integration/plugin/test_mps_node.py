"""Isolation `mps` on a node: what containers and the daemon's unit get, and what is said while MPS is not there."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract.bed import EmbeddedBed, Json, pod
from contract.test_plugin import offered, runs, share
from integration.plugin.test_isolation_node import isolation, root_of, tried
from kits.cli import Done, edgegpu
from kits.daily import of_the_day
from kits.mps import MpsControl

from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import SimDriver, make_card
from edgegpu_sim.node import NodeSpec

CARDS = [make_card(index, "Tesla T4", 7611) for index in range(2)]
BY_TIME = "until then its compute is held by time"


@pytest.fixture(params=of_the_day(["cdi", "devices"], parts=2))
def bed(simdriver_build: Path, limiter_build: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedBed]:
    assert simdriver_build.is_dir()
    config = {
        "driver": {"injection": request.param, "poll_s": 0.2},
        "isolation": {"mode": "mps", "context_mib": 64, "libraries": str(limiter_build)},
    }
    with EmbeddedCluster([NodeSpec(name="box", cards=CARDS, config=config)]) as cluster:
        cluster.start_plugin("box")
        made = EmbeddedBed(cluster)
        offered(made)
        made.wait(lambda: tried(made), what="the self-test has passed")
        yield made


def started(bed: EmbeddedBed) -> MpsControl:
    """Start the daemon as its unit does: by the plugin's file, and nothing else."""
    run = bed.cluster.nodes["box"].run_folder
    settings = dict(line.split("=", 1) for line in (run / "mps.env").read_text().splitlines())
    control = MpsControl(Path(settings["PROGRAM"]), Path(settings["CUDA_MPS_PIPE_DIRECTORY"]))
    control.start()
    return control


def status(bed: EmbeddedBed) -> Done:
    return edgegpu("status", "--json", "--socket", bed.cluster.nodes["box"].run_folder / "plugin.sock")


def problems(bed: EmbeddedBed) -> list[str]:
    """Return what is said of isolation; nothing as well while the plugin does not answer."""
    found = json.loads(status(bed).out or "{}")
    return [str(one) for one in found.get("problems", ()) if "isolation" in one]


def state(bed: EmbeddedBed, name: str) -> tuple[str, str]:
    found: Json = isolation(bed, name)
    return found["state"], found["reason"]


def set_mode(bed: EmbeddedBed, mode: str) -> None:
    node = bed.cluster.nodes["box"]
    node.config_path.write_text(node.config_path.read_text().replace("mode: mps", f"mode: {mode}"))
    bed.kill_plugin("box")
    bed.start_plugin("box")


def test_a_container_gets_the_pipe_folder_and_the_limits_of_a_client(bed: EmbeddedBed) -> None:
    with started(bed):
        bed.apply(pod("held", share(4)))
        runs(bed, "held")
        root, run = root_of(bed, "held"), bed.cluster.nodes["box"].run_folder
        assert (root / "run/edgegpu/container/mps").resolve() == run / "mps/pipe"
        assert (root / "dev/shm").resolve() == run / "mps/shm"
        assert " policy=mps\n" in (root / "run/edgegpu/container/limits").read_text()
        bed.wait(lambda: state(bed, "held") == ("enforced", ""), what="MPS is seen")
        assert problems(bed) == []


def test_without_the_daemon_compute_is_held_by_time_and_the_remedy_is_named(bed: EmbeddedBed) -> None:
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    (said,) = problems(bed)
    assert said.startswith("isolation: compute is held by time and not by MPS: the MPS daemon does not answer")
    assert "systemctl status edgegpu-mps.service" in said
    found, reason = state(bed, "held")
    assert found == "degraded"
    assert reason.startswith("mps: the MPS daemon does not answer")
    assert reason.endswith(BY_TIME)
    row = edgegpu("pods", "--socket", bed.cluster.nodes["box"].run_folder / "plugin.sock").out
    assert "not surely held to its memory" not in row
    with started(bed):
        bed.wait(lambda: state(bed, "held") == ("enforced", ""), what="MPS is seen")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cc": "6.1"}, "has compute capability 6.1"),
        ({"exclusive": True}, "is in compute mode EXCLUSIVE_PROCESS"),
    ],
    ids=["Pascal", "exclusive"],
)
def test_a_card_that_mps_cannot_share_is_told(bed: EmbeddedBed, change: dict[str, Any], says: str) -> None:
    bed.kill_plugin("box")
    SimDriver.create(bed.cluster.nodes["box"].folder / "d", [replace(CARDS[0], **change), CARDS[1]])
    bed.start_plugin("box")
    with started(bed):
        bed.wait(lambda: any(says in one for one in problems(bed)), what="the card is told")
        bed.apply(pod("held", share(4)))
        runs(bed, "held")
        bed.wait(lambda: says in state(bed, "held")[1], what="the container's state says it")  # after the self-test


def test_the_daemon_quits_when_neither_setting_nor_container_wants_it(bed: EmbeddedBed) -> None:
    run = bed.cluster.nodes["box"].run_folder
    with started(bed) as control:
        bed.apply(pod("held", share(4)))
        runs(bed, "held")
        set_mode(bed, "limiter")
        bed.wait(lambda: not (run / "mps.env").exists(), what="the unit starts it no more")
        bed.apply(pod("later", share(4)))
        runs(bed, "later")
        assert " policy=strict\n" in (root_of(bed, "later") / "run/edgegpu/container/limits").read_text()
        assert " policy=mps\n" in (root_of(bed, "held") / "run/edgegpu/container/limits").read_text()
        assert control.is_running
        with control.client(10):
            bed.delete("Pod", "held")
            bed.wait(lambda: not bed.get("Pod", "held"), what="the pod is gone")
            assert control.is_running, "a client lives: its end would fault it"
        control.wait_for_end()
