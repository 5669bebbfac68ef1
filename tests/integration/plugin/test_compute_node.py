"""The control of shares in the real plugin process: it works while a container computes, and leaves nothing behind."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.bed import EmbeddedBed, pod
from contract.test_plugin import offered, runs, share
from native.limiterkit import LIBRARIES, compile_program, stamp

from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import make_card
from edgegpu_sim.node import NodeSpec

CARDS = [make_card(index, "Tesla T4", 7611) for index in range(2)]
MS = 1_000_000


@pytest.fixture
def bed(simdriver_build: Path, limiter_build: Path) -> Iterator[EmbeddedBed]:
    assert simdriver_build.is_dir()
    config = {
        "driver": {"poll_s": 0.2},
        "isolation": {"mode": "limiter", "context_mib": 0, "compute": "elastic", "libraries": str(limiter_build)},
    }
    with EmbeddedCluster([NodeSpec(name="box", cards=CARDS, config=config)]) as cluster:
        cluster.start_plugin("box")
        made = EmbeddedBed(cluster)
        offered(made)
        yield made


def test_an_elastic_container_that_computes_is_charged_by_the_driver_until_it_ends(
    bed: EmbeddedBed, limiter_build: Path, tmp_path: Path
) -> None:
    """Its process is of no pod here, so its time counts as that of others, and its charge is all that is measured."""
    bed.apply(pod("elastic", share(4, 30)))
    runs(bed, "elastic")
    node = bed.cluster.nodes["box"]
    (folder,) = (node.run_folder / "containers").iterdir()
    driver, limits = node.folder / "d/usr/lib/x86_64-linux-gnu", folder / "limits"
    for name in LIBRARIES:
        stamp(limiter_build / name, tmp_path / name, folder=folder, driver=driver)
    compute = compile_program(tmp_path / "compute", limiter_build, ["tests/compute.c"])
    assert "core_percent=30 policy=elastic\n" in limits.read_text()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [str(compute), "follow", str(MS), "0.2"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        bed.wait(lambda: "charge_permille=" in limits.read_text(), what="the plugin says what is charged")
        before = limits.read_text()
        bed.wait(lambda: limits.read_text() != before, what="it says so again and again")
        process.send_signal(signal.SIGKILL)
    bed.wait(lambda: "charge_permille" not in limits.read_text(), what="nothing is left of it")
