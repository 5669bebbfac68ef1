"""What the plugin does on a node, compared with kubelet's books and the container's view; two cards of 29 units."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from contract.bed import Bed, main, phase, pod

from edgegpu_core.deviceid import card_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Json = dict[str, Any]
MEMORY, CORE = "baidu.com/vcuda-memory", "baidu.com/vcuda-core"
START_S = 60.0


@pytest.fixture
def bed(gpu_bed: Bed) -> Bed:
    offered(gpu_bed)
    return gpu_bed


def offered(bed: Bed) -> None:
    def look() -> bool:
        found = (bed.get("Node", bed.nodes[0]) or {}).get("status", {}).get("allocatable", {})
        return (found.get(MEMORY), found.get(CORE)) == ("58", "200")

    bed.wait(look, what="58 units and 200 hundredths", timeout_s=START_S)


def share(units: int, core: int = 1) -> dict[str, int]:
    return {MEMORY: units, CORE: core}


def runs(bed: Bed, *names: str) -> None:
    for name in names:
        bed.wait(lambda name=name: phase(bed, name) == "Running", what=f"{name} runs", timeout_s=START_S)  # type: ignore[misc]


def told(bed: Bed, name: str, words: str) -> None:
    bed.wait(lambda: any(words in line for line in bed.events(name)), what=f"{words!r} in {name}'s events")


def card(bed: Bed, name: str) -> str:
    """The one card on which annotation, kubelet's checkpoint, PodResources and nvidia-smi agree."""
    found = bed.get("Pod", name)
    assert found is not None
    promised = json.loads(found["metadata"]["annotations"]["edgegpu.io/cards"])["c"]["main"]
    booked = {card_of(i) for e in bed.checkpoint(bed.nodes[0]) if e.pod_uid == found["metadata"]["uid"]
              for i in e.device_ids}  # fmt: skip
    listed = {card_of(i) for one in bed.pod_resources(bed.nodes[0]) if one.pod == name for i in one.ids}
    lines = bed.exec(name, "nvidia-smi", "-L").splitlines()
    (seen,) = re.fullmatch(r"GPU 0: .* \(UUID: (.*)\)", lines[0]).groups()  # type: ignore[union-attr]
    assert len(lines) == 1
    assert set(promised) == booked == listed == {seen}
    return str(seen)


def test_two_of_20_go_to_two_cards(bed: Bed) -> None:
    for name, units in (("a", 4), ("b", 20), ("c", 20)):
        bed.apply(pod(name, share(units)))
    runs(bed, "a", "b", "c")
    assert card(bed, "b") != card(bed, "c")
    assert card(bed, "a") in bed.cards(bed.nodes[0])


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (share(30), "needs 30 vcuda-memory on one card"),
        (share(59), f"Insufficient {MEMORY}"),
        ({MEMORY: 4}, f"without vcuda-core: add {CORE}"),
        ({CORE: 5}, f"without vcuda-memory: add {MEMORY}"),
        (share(4, 150), "more than one card goes in whole cards only"),
    ],
)
def test_what_fits_nowhere_waits_with_the_reason(bed: Bed, limits: dict[str, int], words: str) -> None:
    bed.apply(pod("waits", limits))
    told(bed, "waits", words)
    assert phase(bed, "waits") == "Pending"


def test_a_pod_that_waits_runs_when_room_comes(bed: Bed) -> None:
    for name in ("first", "second"):
        bed.apply(pod(name, share(20)))
    runs(bed, "first", "second")
    bed.apply(pod("third", share(15)))
    told(bed, "third", "needs 15 vcuda-memory on one card")
    home = card(bed, "first")
    bed.delete("Pod", "first")
    runs(bed, "third")
    assert card(bed, "third") == home


def test_containers_keep_their_card_over_kubelets_and_the_plugins_restarts(bed: Bed) -> None:
    init = main(share(2), name="prepare", command=["true"])
    bed.apply(pod("app", share(3), init=[init]))
    bed.apply(pod("other", share(25)))
    runs(bed, "app", "other")
    before = {name: (card(bed, name), container_id(bed, name)) for name in ("app", "other")}

    def restart_plugin() -> None:
        bed.kill_plugin(bed.nodes[0])
        bed.start_plugin(bed.nodes[0])

    restarts: list[Callable[[], None]] = [lambda: bed.restart_kubelet(bed.nodes[0]), restart_plugin]
    for number, restart in enumerate(restarts):
        restart()
        # The node's status is old for a moment; a new pod that runs shows that kubelet has looked at the others.
        bed.apply(pod(f"new-{number}", share(10)))
        runs(bed, f"new-{number}")
        assert card(bed, f"new-{number}") != before["other"][0]
        assert {name: (card(bed, name), container_id(bed, name)) for name in before} == before


def test_a_kubelet_that_loses_its_checkpoint_takes_nothing_from_what_runs(bed: Bed) -> None:
    """Its running containers are in no record of it any more; their units stay theirs, and the pods' events say so."""
    for name in ("a", "b"):
        bed.apply(pod(name, share(20)))
    runs(bed, "a", "b")
    before = {name: container_id(bed, name) for name in ("a", "b")}
    home = card(bed, "a")
    (bed.devices_folder(bed.nodes[0]) / "kubelet_internal_checkpoint").unlink()
    bed.restart_kubelet(bed.nodes[0])
    for name in ("a", "b"):
        told(bed, name, "GPUUnrecorded: container main runs, and kubelet has no record of its devices")
    offered(bed)
    bed.apply(pod("c", share(15)))
    told(bed, "c", "needs 15 vcuda-memory on one card")
    assert {name: container_id(bed, name) for name in before} == before
    bed.delete("Pod", "a")
    runs(bed, "c")
    assert card(bed, "c") == home
    assert container_id(bed, "b") == before["b"]


def test_each_registration_has_a_socket_of_its_own(bed: Bed) -> None:
    """Kubelet 1.37 refuses a second Register of a socket while it counts the first one's plugin as connected."""
    folder = bed.devices_folder(bed.nodes[0]) / "edgegpu"

    def restart_plugin() -> None:
        bed.kill_plugin(bed.nodes[0])
        bed.start_plugin(bed.nodes[0])

    earlier: set[str] = set()
    restarts: list[Callable[[], object]] = [lambda: bed.restart_kubelet(bed.nodes[0]), restart_plugin, lambda: None]
    for restart in restarts:
        names = bed.wait(lambda: fresh_sockets(folder, earlier), what="two new sockets", timeout_s=START_S)  # noqa: B023
        earlier = earlier | names
        offered(bed)
        restart()


def fresh_sockets(folder: Path, earlier: set[str]) -> set[str]:
    """Return the names of the two sockets, once no earlier one is left."""
    names = {path.name for path in folder.glob("*.sock")}
    return names if len(names) == 2 and not names & earlier else set()


def test_a_pod_with_a_controller_that_nobody_placed_and_that_fits_no_card_is_refused_and_never_fails(bed: Bed) -> None:
    two_of_20(bed)
    bed.apply(deployment("forced", pod("", share(15), nodeName=bed.nodes[0])["spec"]))
    name = bed.wait(lambda: next((p["metadata"]["name"] for p in bed.pods("app=forced")), ""), what="its pod")
    told(bed, name, "15 vcuda-memory")
    assert [(p["metadata"]["name"], p["status"]["phase"]) for p in bed.pods("app=forced")] == [(name, "Pending")]


def test_a_bare_pod_that_nobody_placed_and_that_fits_no_card_fails_and_holds_nothing(bed: Bed) -> None:
    two_of_20(bed)
    bed.apply(pod("forced", share(15), nodeName=bed.nodes[0]))
    bed.wait(lambda: phase(bed, "forced") == "Failed", what="it fails as where the node's sum is too small")
    said = str((bed.get("Pod", "forced") or {})["status"]["message"])
    assert "needs 15 vcuda-memory on one card; card 0 has 9 free, card 1 has 9 free" in said
    assert "delete it, and create it again" in said
    bed.apply(pod("next", share(9)))
    bed.apply(pod("last", share(9)))
    runs(bed, "next", "last")
    assert bed.get("Pod", "forced") is not None


def two_of_20(bed: Bed) -> None:
    for name in ("left", "right"):
        bed.apply(pod(name, share(20)))
    runs(bed, "left", "right")


def deployment(name: str, spec: Json) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def container_id(bed: Bed, name: str) -> str:
    found = bed.get("Pod", name) or {}
    return str(found["status"]["containerStatuses"][0]["containerID"])
