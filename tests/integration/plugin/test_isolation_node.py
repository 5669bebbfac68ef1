"""The limiter's files on a node, from kubelet's Allocate to the container's end; the embedded kubelet."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from contract.bed import EmbeddedBed, Json, main, phase, pod, waiting_for
from contract.test_plugin import CORE, deployment, offered, runs, share, told
from kits.cli import edgegpu
from kits.daily import of_the_day
from unit.plugin.test_isolation import used

from edgegpu_base.elf import library_of
from edgegpu_plugin.containers.limiter_files import LIBRARIES
from edgegpu_plugin.containers.usage_file import load_usage, taken_slots
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import make_card
from edgegpu_sim.node import NodeSpec

CARDS = [make_card(index, "Tesla T4", 7611) for index in range(2)]
PATIENT = {"admission_delay_s": 1.0}
"""What is tried here is not whether the plugin registers in time, and on a busy machine that takes 0.4 s."""
MIB = 1 << 20


@pytest.fixture
def libraries(limiter_build: Path, tmp_path: Path) -> Path:
    """Return a folder with the limiter's libraries, for a test to take away."""
    for name in LIBRARIES:
        shutil.copy(limiter_build / name, tmp_path / name)
    return tmp_path


@pytest.fixture(params=of_the_day(["cdi", "devices"], parts=2))
def bed(simdriver_build: Path, libraries: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedBed]:
    assert simdriver_build.is_dir()
    with bed_by(request.param, libraries) as made:
        yield made


@contextmanager
def bed_by(injection: str, libraries: Path) -> Iterator[EmbeddedBed]:
    config = {
        "driver": {"injection": injection, "poll_s": 0.2},
        "isolation": {"mode": "limiter", "context_mib": 64, "libraries": str(libraries), "pods_may": ["none"]},
    }
    with EmbeddedCluster([NodeSpec(name="box", cards=CARDS, config=config, kubelet=PATIENT)]) as cluster:
        cluster.start_plugin("box")
        made = EmbeddedBed(cluster)
        offered(made)
        made.wait(lambda: tried(made), what="the self-test has passed")
        yield made


def tried(bed: EmbeddedBed) -> bool:
    socket = bed.cluster.nodes["box"].run_folder / "plugin.sock"
    return edgegpu("selftest", "--last", "--socket", socket).code == 0


def folders(bed: EmbeddedBed) -> list[Path]:
    root = bed.cluster.nodes["box"].run_folder / "containers"
    return sorted(root.iterdir()) if root.exists() else []


def root_of(bed: EmbeddedBed, name: str) -> Path:
    """Return the root folder of a pod's one container, with links in the place of mounts."""
    uid = (bed.get("Pod", name) or {})["metadata"]["uid"]
    return bed.cluster.nodes["box"].runtime.view(uid, "main").root


def copy_of(bed: EmbeddedBed, name: str) -> Path:
    """Return the copy of one of the limiter's libraries without the functions that the driver lacks."""
    return (bed.cluster.nodes["box"].folder / "state/limiter" / name).resolve()


def isolation(bed: EmbeddedBed, name: str) -> Json:
    socket = bed.cluster.nodes["box"].run_folder / "plugin.sock"
    rows = json.loads(edgegpu("pods", "--json", "--socket", socket).out)["pods"]
    return dict(next(row["isolation"] for row in rows if row["pod"] == name))


def enforced(bed: EmbeddedBed, name: str) -> None:
    """Wait until a pod's container is held: a plugin that has just started tries the node first."""
    bed.wait(lambda: isolation(bed, name)["state"] == "enforced", what="it is held, and the node has tried itself")


def reboot(bed: EmbeddedBed) -> None:
    """Reboot the node; as its unit does, the plugin answers before kubelet starts."""
    node = bed.cluster.nodes["box"]
    bed.kill_plugin("box")
    node.kubelet.stop()
    node.runtime.forget_all()
    for folder in (node.cdi_folder, node.run_folder):
        shutil.rmtree(folder)
    bed.start_plugin("box")
    bed.wait(lambda: "those are the cards as saved" in node.log_tail(200), what="the plugin offers its cards")
    bed.wait((node.run_folder / "plugin.sock").exists, what="the plugin answers")
    node.kubelet.start()


def runs_again(bed: EmbeddedBed, name: str) -> bool:
    """Return whether a pod's container runs, by the runtime: after a reboot the API says so in any case."""
    uid = (bed.get("Pod", name) or {})["metadata"]["uid"]
    found = bed.cluster.nodes["box"].runtime.containers(uid).get("main")
    return found is not None and found.is_running(time.time())


def test_the_limiter_lies_over_the_driver(bed: EmbeddedBed, libraries: Path) -> None:
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    root, driver = root_of(bed, "held"), bed.cluster.nodes["box"].folder / "d/usr/lib/x86_64-linux-gnu"
    for name in LIBRARIES:
        over = list((root / "usr").rglob(f"{name.removesuffix('.1')}*"))
        assert len(over) >= 4  # in both folders, by SONAME and by the driver's own file name
        assert {path.resolve() for path in over} == {copy_of(bed, name)}
        whole = library_of((libraries / name).read_bytes()).exports()
        assert library_of(copy_of(bed, name).read_bytes()).exports().items() <= whole.items()
        assert (root / "run/edgegpu/container/driver" / name).resolve() == (driver / name).resolve()
    (folder,) = folders(bed)
    assert (root / "run/edgegpu/container/usage").resolve() == folder / "usage"
    assert f"memory_bytes={1024 * MIB} context_bytes={64 * MIB}" in (root / "run/edgegpu/container/limits").read_text()
    found = isolation(bed, "held")
    assert found["state"] == "enforced"
    assert [(one["limit_mib"], one["counted_mib"]) for one in found["cards"]] == [(1024, 0)]


def test_after_a_reboot_the_old_answer_finds_all_its_files(bed: EmbeddedBed) -> None:
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    before = folders(bed)
    reboot(bed)
    bed.wait(lambda: runs_again(bed, "held"), what="it runs again")
    assert (root_of(bed, "held") / "run/edgegpu/container/limits").exists()
    assert folders(bed) == before
    enforced(bed, "held")


def test_a_live_limit_stays_over_restart_and_reboot_and_touches_no_pod(bed: EmbeddedBed) -> None:
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    node = bed.cluster.nodes["box"]

    def limit(*words: str) -> Json:
        done = edgegpu("limit", "held", "main", *words, "--json", "--socket", node.run_folder / "plugin.sock")
        assert done.code == 0, done
        (card,) = json.loads(done.out)["isolation"]["cards"]
        return dict(card)

    def told() -> tuple[int, int]:
        (card,) = isolation(bed, "held")["cards"]
        return card["limit_units"], card["limit_mib"]

    def knows_it() -> bool:
        done = edgegpu("pods", "held", "--json", "--socket", node.run_folder / "plugin.sock")
        return done.code == 0 and any(row["isolation"] for row in json.loads(done.out)["pods"])

    def inside() -> str:
        return (root_of(bed, "held") / "run/edgegpu/container/limits").read_text()

    before, mark = bed.get("Pod", "held"), (node.run_folder / "plugin.changed").stat().st_mtime_ns
    assert limit("--memory", "2")["limit_mib"] == 512
    assert f"memory_bytes={512 * MIB} context_bytes={64 * MIB}" in inside()
    assert (node.run_folder / "plugin.changed").stat().st_mtime_ns > mark  # the agent reports it at once
    assert bed.get("Pod", "held") == before
    refused = edgegpu("limit", "held", "main", "--memory", "5", "--socket", node.run_folder / "plugin.sock")
    assert refused.code == 1
    assert "the container holds 4 on card" in refused.err
    bed.kill_plugin("box")
    bed.start_plugin("box")
    bed.wait(knows_it, what="the plugin knows the pod again")
    assert told() == (2, 512)
    reboot(bed)
    bed.wait(lambda: runs_again(bed, "held"), what="it runs again")
    bed.wait(knows_it, what="the plugin knows the pod again")
    assert told() == (2, 512)
    assert f"memory_bytes={512 * MIB} " in inside()
    assert limit("--reset")["limit_units"] == 4
    limit("--memory", "3")
    bed.delete("Pod", "held")
    (path,) = node.folder.rglob("live-limits.json")
    bed.wait(lambda: json.loads(path.read_text())["limits"] == [], what="the limit goes with its pod")


def test_a_folder_goes_with_its_container_and_with_no_other(bed: EmbeddedBed) -> None:
    bed.apply(pod("stays", share(4)))
    runs(bed, "stays")
    stays = folders(bed)
    bed.apply(pod("goes", share(6)))
    runs(bed, "goes")
    assert len(folders(bed)) == 2
    bed.kill_plugin("box")
    bed.start_plugin("box")
    bed.delete("Pod", "goes")
    bed.wait(lambda: folders(bed) == stays, what="the folder of the pod that is gone is removed")
    bed.apply(pod("next", share(6)))
    runs(bed, "next")
    assert len(folders(bed)) == 2
    enforced(bed, "stays")


def test_a_whole_card_without_memory_is_held_too(bed: EmbeddedBed) -> None:
    bed.apply(pod("whole", {CORE: 100}))
    runs(bed, "whole")
    assert isolation(bed, "whole")["cards"][0]["limit_mib"] == 29 * 256


def test_an_init_container_and_the_one_after_it_start_with_nothing_counted(bed: EmbeddedBed) -> None:
    bed.apply(pod("both", share(4), init=[main(share(4), name="before", command=["true"])]))
    runs(bed, "both")
    assert len(folders(bed)) == 1
    enforced(bed, "both")


def test_without_the_limiter_nothing_starts_unheld(bed: EmbeddedBed, libraries: Path) -> None:
    kept = (libraries / LIBRARIES[0]).read_bytes()
    (libraries / LIBRARIES[0]).unlink()
    bed.apply(pod("waits", share(4)))
    told(bed, "waits", "install edgegpu's bundle again, or set isolation.mode to none and delete the pod")
    assert phase(bed, "waits") == "Pending"
    socket = bed.cluster.nodes["box"].run_folder / "plugin.sock"
    said = edgegpu("status", "--json", "--socket", socket)
    assert said.code == 1
    assert any("containers are not surely held to their memory" in one for one in json.loads(said.out)["problems"])
    (libraries / LIBRARIES[0]).write_bytes(kept)
    runs(bed, "waits")


def test_a_pod_keeps_the_limiter_when_the_setting_goes(bed: EmbeddedBed) -> None:
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    node = bed.cluster.nodes["box"]
    node.config_path.write_text(node.config_path.read_text().replace("mode: limiter", "mode: none"))
    reboot(bed)
    bed.wait(lambda: runs_again(bed, "held"), what="it runs again")
    bed.apply(pod("free", share(4)))
    runs(bed, "free")
    enforced(bed, "held")
    assert isolation(bed, "free") == {
        "state": "off",
        "reason": "",
        "limiter": "",
        "private_tables": [],
        "notes": [],
        "cards": [],
    }
    assert len(folders(bed)) == 1


def test_where_the_nvidia_runtime_brings_the_driver_the_limiter_is_preloaded_and_told_so(
    simdriver_build: Path, libraries: Path
) -> None:
    assert simdriver_build.is_dir()
    with bed_by("runtime", libraries) as bed:
        bed.apply(pod("held", share(4)))
        runs(bed, "held")
        driver = bed.cluster.nodes["box"].folder / "d/usr/lib/x86_64-linux-gnu"

        def is_laid_out() -> None:
            root = root_of(bed, "held")
            assert (root / "etc/ld.so.preload").read_text() == "/run/edgegpu/container/preload/libcuda.so.1\n"
            assert (root / "run/edgegpu/container/preload/libcuda.so.1").resolve() == copy_of(bed, "libcuda.so.1")
            for name in LIBRARIES:
                assert (root / "run/edgegpu/container/driver" / name).resolve() == (driver / name).resolve()
            assert f"memory_bytes={1024 * MIB} " in (root / "run/edgegpu/container/limits").read_text()

        is_laid_out()
        found = isolation(bed, "held")
        assert (found["state"], found["cards"][0]["limit_mib"]) == ("degraded", 1024)
        assert found["reason"].startswith("preload only: ")
        reboot(bed)
        bed.wait(lambda: runs_again(bed, "held"), what="it runs again")
        is_laid_out()
        bed.delete("Pod", "held")
        bed.wait(lambda: folders(bed) == [], what="the folder is removed")


def choosing(item: Json, choice: str) -> Json:
    item["metadata"].setdefault("annotations", {})["edgegpu.io/isolation"] = choice
    return item


def offer(bed: EmbeddedBed) -> set[str]:
    """Return the amounts of both resources that kubelet offers."""
    amounts = (bed.get("Node", "box") or {}).get("status", {}).get("allocatable", {})
    return {str(amounts.get(f"baidu.com/vcuda-{kind}", "0")) for kind in ("memory", "core")}


def set_mode(bed: EmbeddedBed, old: str, new: str) -> None:
    """Change the plugin's configuration, and start the plugin anew."""
    node = bed.cluster.nodes["box"]
    text = node.config_path.read_text()
    assert old in text
    bed.kill_plugin("box")
    bed.wait(lambda: offer(bed) == {"0"}, what="kubelet has seen its end")
    node.config_path.write_text(text.replace(old, new))
    bed.start_plugin("box")

    def is_registered() -> bool:
        said = edgegpu("status", "--json", "--socket", node.run_folder / "plugin.sock").out
        return bool((json.loads(said).get("kubelet") or {}).get("registered"))

    bed.wait(is_registered, what="kubelet knows the plugin again")
    bed.wait(lambda: "0" not in offer(bed), what="kubelet offers its devices again")


def test_a_pod_chooses_what_its_node_allows(bed: EmbeddedBed) -> None:
    for name, choice in (("free", "none"), ("held", "limiter"), ("plain", "")):
        bed.apply(choosing(pod(name, share(4)), choice))  # alike but for the choice
        runs(bed, name)
    assert isolation(bed, "free") == {
        "state": "off",
        "reason": "its pod's annotation edgegpu.io/isolation chooses none",
        "limiter": "",
        "private_tables": [],
        "notes": [],
        "cards": [],
    }
    assert not (root_of(bed, "free") / "run/edgegpu/container").exists()
    for name in ("held", "plain"):
        assert isolation(bed, name)["state"] == "enforced"
        assert (root_of(bed, name) / "run/edgegpu/container/limits").exists()
    assert len(folders(bed)) == 2


def test_what_counts_for_ended_processes_of_other_pid_namespaces_is_free_again(bed: EmbeddedBed) -> None:
    bed.apply(pod("held", share(4)))
    runs(bed, "held")
    usage = root_of(bed, "held") / "run/edgegpu/container/usage"
    card = next(one for one in CARDS if one.uuid == isolation(bed, "held")["cards"][0]["card"]).uuid
    usage.write_bytes(used((7, 5 * MIB), (8, 6 * MIB), cards=(card,)))
    bed.wait(lambda: load_usage(usage) is not None and taken_slots(usage.read_bytes()) == [], what="they are free")
    assert isolation(bed, "held")["cards"][0]["counted_mib"] == 0


def test_a_pod_is_held_on_a_node_that_holds_no_others(bed: EmbeddedBed) -> None:
    set_mode(bed, "mode: limiter", "mode: none")
    set_mode(bed, "pods_may:\n  - none", "pods_may: auto")
    bed.apply(pod("free", share(4)))
    runs(bed, "free")
    bed.apply(choosing(pod("held", share(4)), "limiter"))
    runs(bed, "held")
    assert isolation(bed, "free")["state"] == "off"
    enforced(bed, "held")
    reboot(bed)
    bed.wait(lambda: runs_again(bed, "held"), what="it runs again")
    enforced(bed, "held")


def test_what_the_node_does_not_allow_waits_and_says_so(bed: EmbeddedBed) -> None:
    bed.apply(choosing(pod("strong", share(4)), "strong"))
    told(bed, "strong", "there is no isolation 'strong' (this node allows: limiter, none)")
    set_mode(bed, "pods_may:\n  - none", "pods_may: auto")
    bed.apply(choosing(pod("free", share(4)), "none"))
    told(bed, "free", "add none to isolation.pods_may in the node's plugin.yaml")
    assert phase(bed, "free") == phase(bed, "strong") == "Pending"


def test_past_the_scheduler_nothing_starts_unheld(bed: EmbeddedBed) -> None:
    set_mode(bed, "pods_may:\n  - none", "pods_may: auto")
    bare = choosing(pod("bare", share(4), nodeName="box"), "none")
    bed.apply(bare)
    bed.wait(lambda: phase(bed, "bare") == "Failed", what="the bare pod fails")
    found = bed.get("Pod", "bare") or {}
    assert "this node does not allow none (it allows: limiter)" in found["status"]["message"]
    wanted = deployment("kept", pod("", share(4), nodeName="box")["spec"])
    wanted["spec"]["template"]["metadata"]["annotations"] = {"edgegpu.io/isolation": "none"}
    bed.apply(wanted)
    name = bed.wait(lambda: next((p["metadata"]["name"] for p in bed.pods("app=kept")), ""), what="its pod")
    bed.wait(lambda: "does not allow none" in waiting_for(bed, name), what="kubelet shows why it does not start")
    told(bed, name, "without nodeName in its template it would wait and hold none")
    assert [p["metadata"]["name"] for p in bed.pods("app=kept")] == [name]
    set_mode(bed, "pods_may: auto", "pods_may: [none]")
    runs(bed, name)
    enforced(bed, name)  # by what it was given when nothing else was allowed


def test_a_static_pod_chooses_as_well(bed: EmbeddedBed) -> None:
    node = bed.cluster.nodes["box"]

    def lay(**choices: str) -> None:
        items = [choosing(pod(name, share(4)), choice) for name, choice in choices.items()]
        for item in items:
            item["metadata"]["namespace"] = bed.namespace
        node.kubelet.set_static(items)

    lay(free="none")
    runs(bed, "free-box")
    bed.wait(lambda: isolation(bed, "free-box")["state"] == "off", what="the plugin knows whose it is")
    lay(strong="strong")
    bed.wait(lambda: "there is no isolation 'strong'" in waiting_for(bed, "strong-box"), what="it does not start")


def test_a_container_that_was_given_less_than_its_pod_chooses_does_not_start(bed: EmbeddedBed) -> None:
    """As where kubelet's calls were taken for those of another pod: here the author changes the annotation."""
    bed.apply(choosing(pod("late", share(4), restartPolicy="Always"), "none"))
    runs(bed, "late")
    bed.apply(choosing(bed.get("Pod", "late") or {}, "limiter"))
    reboot(bed)
    words = "it asks for limiter, and the container was given none when its pod was admitted: delete the pod"
    bed.wait(lambda: words in waiting_for(bed, "late"), what="kubelet shows why it does not start")
