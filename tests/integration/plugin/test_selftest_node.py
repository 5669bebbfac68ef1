"""The node's self-test in the plugin's process, on simulated cards: what follows from each result for containers."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from contract.bed import EmbeddedBed, Json, pod
from contract.test_plugin import offered, runs, share
from kits.cli import edgegpu
from kits.reruns import not_starved

from edgegpu_plugin.containers.limiter_files import LIBRARIES
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import SimDriver, SimVersions, make_card
from edgegpu_sim.node import NodeSpec

CARDS = [make_card(index, "Tesla T4", 7611) for index in range(2)]
NATIVE = Path(__file__).resolve().parents[2] / "native"
STANDIN = (NATIVE / "selftest_standin.c", NATIVE / "selftest_rest.c")
MIB = 1 << 20

Start = Callable[..., EmbeddedBed]


@pytest.fixture
def libraries(limiter_build: Path, tmp_path: Path) -> Path:
    """Return a folder with the limiter's libraries, for a test to replace."""
    for name in (*LIBRARIES, "cuda/functions.def"):
        shutil.copy(limiter_build / name, tmp_path)
    return tmp_path


def replace(libraries: Path, flag: str) -> None:
    """Put a library that is no limiter into the limiter's place."""
    new = libraries / "new"
    command: list[str | Path] = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", flag]
    subprocess.run([*command, f"-I{libraries}", "-o", new, *STANDIN, "-ldl"], check=True)
    new.replace(libraries / LIBRARIES[0])


@pytest.fixture
def start(simdriver_build: Path, libraries: Path) -> Iterator[Start]:
    assert simdriver_build.is_dir()
    with ExitStack() as stack:

        def started(
            prepare: Callable[[EmbeddedCluster], None] = lambda _cluster: None, **isolation: str
        ) -> EmbeddedBed:
            config = {
                "driver": {"injection": "cdi", "poll_s": 0.2},
                "isolation": {"mode": "limiter", "libraries": str(libraries), **isolation},
            }
            cluster = stack.enter_context(EmbeddedCluster([NodeSpec(name="box", cards=CARDS, config=config)]))
            prepare(cluster)
            cluster.start_plugin("box")
            bed = EmbeddedBed(cluster)
            offered(bed)
            return bed

        yield started


def socket(bed: EmbeddedBed) -> Path:
    return bed.cluster.nodes["box"].run_folder / "plugin.sock"


def document(bed: EmbeddedBed) -> Json:
    return dict(json.loads(edgegpu("status", "--json", "--socket", socket(bed)).out))


def verdicts(bed: EmbeddedBed) -> set[str]:
    return {row["verdict"] for row in document(bed).get("selftest", {}).get("cards", ())}


def tried(bed: EmbeddedBed, verdict: str) -> None:
    bed.wait(lambda: verdicts(bed) == {verdict}, what=f"the self-test says {verdict}")


def isolation(bed: EmbeddedBed, name: str) -> Json:
    rows = [row for row in document(bed)["pods"] if row["pod"] == name]
    return dict(rows[0]["isolation"])


def root_of(bed: EmbeddedBed, name: str) -> Path:
    uid = (bed.get("Pod", name) or {})["metadata"]["uid"]
    return bed.cluster.nodes["box"].runtime.view(uid, "main").root


def failing(**codes: int) -> Callable[[EmbeddedCluster], None]:
    """Return what has the box's driver answer calls with codes."""

    def prepare(cluster: EmbeddedCluster) -> None:
        driver = cluster.nodes["box"].driver
        assert driver is not None
        for call, code in codes.items():
            driver.fail(call, code)

    return prepare


def test_where_it_passes_containers_are_enforced_and_contexts_count_what_they_take(start: Start) -> None:
    bed = start()
    tried(bed, "passed")
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    assert isolation(bed, "held")["state"] == "enforced"
    assert f"context_bytes={16 * MIB}" in (root_of(bed, "held") / "run/edgegpu/container/limits").read_text()
    (saved,) = bed.cluster.nodes["box"].folder.rglob("selftest.json")
    before = saved.stat().st_mtime_ns
    bed.kill_plugin("box")
    bed.start_plugin("box")
    bed.wait(socket(bed).exists, what="the plugin answers")
    tried(bed, "passed")
    assert saved.stat().st_mtime_ns == before  # it was not tried again
    shown = edgegpu("selftest", "--last", "--socket", socket(bed))
    assert shown.code == 0
    ways = "plain, managed, async, virtual, graph, cuGetProcAddress, cuGetProcAddress_v2, and a second program"
    assert f"held within the limit: {ways}" in shown.out
    assert "newer than the limiter's list" not in shown.out
    took = re.search(
        r"a row of kernels took (\d{3,})\.\d ms, with a compute limit of 20 percent \d{3,}\.\d ms", shown.out
    )
    assert took is not None
    not_starved(int(took[1]), 200, "ms")
    assert "a CUDA context counts 16 MiB" in shown.out
    again = edgegpu("selftest", "--json", "--socket", socket(bed))
    assert again.code == 0, again
    assert [one["verdict"] for one in json.loads(again.out)["cards"]] == ["passed", "passed"]
    assert document(bed)["selftest"]["ended"] == 1
    assert edgegpu("status", "--socket", socket(bed)).out.count("self-test  passed") == 1


def test_a_number_in_the_configuration_counts_for_every_context(start: Start) -> None:
    bed = start(context_mib=77)
    tried(bed, "passed")
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    assert f"context_bytes={77 * MIB}" in (root_of(bed, "held") / "run/edgegpu/container/limits").read_text()


def test_a_limiter_that_stops_programs_is_laid_over_no_new_container(
    start: Start, libraries: Path, limiter_build: Path
) -> None:
    replace(libraries, "-DCRASHES")
    bed = start()
    tried(bed, "harmful")
    bed.apply(pod("free", share(4)))
    runs(bed, "free")
    assert not (root_of(bed, "free") / "run/edgegpu/container").exists()
    found = isolation(bed, "free")
    assert found["state"] == "degraded"
    assert found["reason"].startswith("self-test: a CUDA program that works without the limiter does not with it")
    said = edgegpu("status", "--json", "--socket", socket(bed))
    assert said.code == 1
    assert any("card 0: self-test: a CUDA program" in one for one in json.loads(said.out)["problems"])
    assert "ERROR selftest" in bed.cluster.nodes["box"].log_tail(500)
    shown = edgegpu("selftest", "--last", "--socket", socket(bed))
    assert shown.code == 1
    assert "new containers get no limiter, and are degraded" in shown.out
    for name in LIBRARIES:  # what a repaired bundle does
        shutil.copy(limiter_build / name, libraries / "new")
        (libraries / "new").replace(libraries / name)
    assert edgegpu("selftest", "--socket", socket(bed)).code == 0
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    assert isolation(bed, "held")["state"] == "enforced"
    assert "delete the pod to have it made anew" in isolation(bed, "free")["reason"]


def test_a_limit_that_does_not_hold_keeps_the_limiter_and_is_told(start: Start, libraries: Path) -> None:
    replace(libraries, "-DPASSES")
    bed = start()
    tried(bed, "loose")
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    assert (root_of(bed, "held") / "run/edgegpu/container/limits").exists()
    found = isolation(bed, "held")
    assert (found["state"], found["cards"][0]["limit_mib"]) == ("degraded", 1024)
    assert found["reason"] == "self-test: plain memory past the limit was granted"
    assert edgegpu("status", "--socket", socket(bed)).code == 1


def test_what_the_driver_lacks_is_not_tried_and_named(start: Start) -> None:
    bed = start(failing(cuGraphAddMemAllocNode=801))
    tried(bed, "passed")
    shown = edgegpu("selftest", "--last", "--socket", socket(bed))
    assert shown.code == 0
    assert "not tried: graph: CUDA error 801 at an allocation without the limiter too" in shown.out
    assert "self-test  passed (not tried: graph)" in edgegpu("status", "--socket", socket(bed)).out
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    assert isolation(bed, "held")["state"] == "enforced"


def test_a_driver_that_is_newer_than_the_limiters_list_is_told_and_containers_stay_enforced(start: Start) -> None:
    def upgraded(cluster: EmbeddedCluster) -> None:
        driver = cluster.nodes["box"].driver
        assert driver is not None
        SimDriver.create(driver.root, CARDS, versions=SimVersions(cuda="13.6"))

    bed = start(upgraded)
    tried(bed, "passed")
    said = "the driver's CUDA 13.6 is newer than the limiter's list of functions, which ends with CUDA 13.5"
    assert [row["newer_driver"] for row in document(bed)["selftest"]["cards"]] == [said, said]
    assert f"{said}; upgrade edgegpu" in bed.cluster.nodes["box"].log_tail(500)
    shown = edgegpu("selftest", "--last", "--socket", socket(bed))
    assert shown.code == 0
    assert f"{said}: upgrade edgegpu" in shown.out
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    assert isolation(bed, "held")["state"] == "enforced"


def test_a_compute_limit_that_does_not_hold_is_told(start: Start) -> None:
    # Events that cannot be asked may be a capture's, and every stream captures, in a driver that tells no capture from
    # another: the limiter leaves each launch alone.
    bed = start(failing(cuEventElapsedTime=400, cuStreamIsCapturing=906, cuStreamGetCaptureInfo=801))
    tried(bed, "loose")
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    found = isolation(bed, "held")
    assert found["state"] == "degraded"
    assert found["reason"].startswith("self-test: a compute limit of 20 percent held nothing")


def test_without_cuda_it_can_say_nothing_and_says_so(start: Start) -> None:
    bed = start(failing(cuInit=999))
    tried(bed, "inconclusive")
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    found = isolation(bed, "held")
    assert found["state"] == "degraded"
    assert "no CUDA program works without the limiter either: CUDA error 999 at cuInit" in found["reason"]
    said = edgegpu("status", "--socket", socket(bed))
    assert "self-test  inconclusive" in said.out
    driver = bed.cluster.nodes["box"].driver
    assert driver is not None
    driver.clear()
    assert edgegpu("selftest", "--socket", socket(bed)).code == 0
    assert isolation(bed, "held")["state"] == "enforced"


def test_until_it_has_ended_the_limiter_holds_and_nobody_vouches_for_it(start: Start) -> None:
    def hangs(cluster: EmbeddedCluster) -> None:
        driver = cluster.nodes["box"].driver
        assert driver is not None
        driver.hang("cuInit")

    bed = start(hangs)
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    assert (root_of(bed, "held") / "run/edgegpu/container/limits").exists()
    assert isolation(bed, "held")["state"] == "degraded"
    assert isolation(bed, "held")["reason"] == "the node's self-test has not ended"
    driver = bed.cluster.nodes["box"].driver
    assert driver is not None
    driver.clear()
    tried(bed, "passed")
    assert isolation(bed, "held")["state"] == "enforced"


def test_where_the_limiter_is_off_it_is_tried_on_request_alone(start: Start) -> None:
    bed = start(mode="none")
    bed.apply(pod("free", share(4)))
    runs(bed, "free")
    assert verdicts(bed) == {""}
    done = edgegpu("selftest", "--socket", socket(bed))
    assert done.code == 0, done
    assert "isolation.mode is none: no container has the limiter" in done.out
    assert isolation(bed, "free")["state"] == "off"
