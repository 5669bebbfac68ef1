"""Who is evicted, and above all who is not."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from property.cases import MODEL, NODE, box, pod_of

from edgegpu_base.kube import KubeError
from edgegpu_core.deviceid import DeviceKind, core_ids, memory_ids
from edgegpu_core.inventory import Card
from edgegpu_core.nodereport import REPORT_ANNOTATION, read_report, write_report
from edgegpu_core.placement import Policy, Share
from edgegpu_core.podview import CARDS_ANNOTATION, Cards, PodView
from edgegpu_plugin.extender.node_capacity import capacity_of, known_node
from edgegpu_plugin.records.collector import Collector, KubeletFacts
from edgegpu_plugin.records.node_state import NodeState, PodName, Snapshot
from edgegpu_plugin.records.publisher import Publisher, report_of
from edgegpu_plugin.records.reconciler import RETRY_S, Reconciler, RefusedPod
from edgegpu_plugin.status import cards_part, pods_part

MISSING_S = 300.0


class Pods:
    """Takes down what is done to pods."""

    def __init__(self) -> None:
        self.evicted: list[str] = []
        self.annotated: list[str] = []
        self.deleted: list[str] = []
        self.refuses = False
        self.told: list[str] = []

    def annotate(self, pod: PodView, annotations: dict[str, str]) -> None:
        """Take a correction down; the API takes none where it refuses."""
        self.annotated.append(f"{pod.uid} {annotations[CARDS_ANNOTATION]}")
        if self.refuses:
            raise KubeError("forbidden")

    def evict(self, pod: PodView) -> None:
        """Take an eviction down."""
        self.evicted.append(pod.uid)

    def delete(self, pod: PodView) -> None:
        """Take a deletion down."""
        self.deleted.append(pod.uid)

    def warn(self, pod: PodView, reason: str, message: str) -> None:
        """Take an event down."""
        self.told.append(f"{pod.uid} {reason}: {message}")


class Silent:
    """A kubelet that answers nothing."""

    def listed_ids(self) -> frozenset[str] | None:
        """Return no answer."""
        return None

    def pods(self) -> list[PodView] | None:
        """Return no answer."""
        return None

    def known_uids(self) -> frozenset[str] | None:
        """Return no answer."""
        return None

    def folder_uids(self) -> frozenset[str] | None:
        """Return no answer."""
        return None

    def listed_names(self) -> dict[str, PodName] | None:
        """Return no answer."""
        return None


def write_books(folder: Path, **booked: dict[str, tuple[str, ...]]) -> None:
    """Write kubelet's checkpoint: the ids by resource of each pod's container `main`."""
    entries = [
        {"PodUID": uid, "ContainerName": "main", "ResourceName": name, "DeviceIDs": {"-1": list(some)}}
        for uid, ids in booked.items()
        for name, some in ids.items()
    ]
    (folder / "checkpoint").write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))


class Bench:
    """A reconciler over a node on which the pod `u` has 4 units and 10 hundredths of `GPU-1`."""

    def __init__(
        self,
        folder: Path,
        *,
        controlled: bool = True,
        phase: str = "Pending",
        kubelet_facts: KubeletFacts | None = None,
        find_cardless: Callable[[Snapshot], tuple[RefusedPod, ...]] = lambda _: (),
    ) -> None:
        self.now_s = 1000.0
        self.pods = Pods()
        self.state = NodeState(model=MODEL, policy=Policy.FIRST_FIT, checkpoint=folder / "checkpoint")
        ids = {
            MODEL.memory_resource: memory_ids("GPU-1", 4),
            MODEL.core_resource: core_ids("GPU-1")[:10],
        }
        write_books(folder, u=ids)
        cards: Cards = {"main": ("GPU-1",)}
        self.state.put_pod(pod_of("u", box("main", 4, 10), cards=cards, controlled=controlled, phase=phase))
        self.reconciler = Reconciler(
            state=self.state,
            collector=Collector(self.state, kubelet_facts or Silent()),
            publisher=Publisher(write=lambda _, __: None, read=lambda: {"metadata": {}}, boot="b"),
            pods=self.pods,
            synced=lambda: True,
            beat=lambda: None,
            find_cardless=find_cardless,
            missing_s=MISSING_S,
            clock=lambda: self.now_s,
        )

    def offer(self, *numbers: int, gone: int | None = None) -> None:
        """Let the node have these cards, and not have one that it had."""
        self.state.set_machine(map(card, numbers), () if gone is None else (card(gone),))
        self.state.set_cards(tuple(map(card, numbers)))


def card(number: int) -> Card:
    return Card(uuid=f"GPU-{number}", index=number, name="T", memory_mib=7611, pci=f"0000:0{number}:00.0", minor=number)


class Broken(Silent):
    """A kubelet whose files cannot be read."""

    def pods(self) -> list[PodView] | None:
        """Fail as a file does."""
        raise OSError(5, "Input/output error")


def test_a_file_that_cannot_be_read_is_told_and_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, kubelet_facts=Broken())
    bench.state.drop_pod("u")  # so that kubelet is asked about it
    assert bench.reconciler.step() == RETRY_S
    assert "Input/output error" in bench.reconciler.last_error


def test_nobody_is_judged_before_the_cards_are_known(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.now_s += 2 * MISSING_S
    bench.reconciler.step()
    assert not bench.reconciler.refused
    assert not bench.pods.told
    assert not bench.pods.evicted


def test_a_pod_waits_for_a_card_that_is_not_there_before_it_is_evicted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.offer(0)
    bench.reconciler.step()
    bench.now_s += MISSING_S - 1
    bench.reconciler.step()
    assert not bench.pods.evicted
    assert "u GPURefused: its card GPU-1 is not offered on this node" in bench.pods.told[0]
    bench.now_s += 1
    bench.reconciler.step()
    assert bench.pods.evicted == ["u"]


def test_a_card_that_comes_back_ends_the_wait(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.offer(0)
    bench.reconciler.step()
    bench.offer(0, 1)
    bench.now_s += MISSING_S
    bench.reconciler.step()
    bench.offer(0)
    bench.reconciler.step()
    assert not bench.pods.evicted


def test_a_bare_pod_is_never_evicted_since_nobody_would_make_it_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, controlled=False)
    bench.offer(0)
    bench.reconciler.step()
    bench.now_s += MISSING_S
    bench.reconciler.step()
    assert not bench.pods.evicted
    assert "delete it and create it again" in bench.pods.told[-1]


def test_a_refused_pod_says_that_its_devices_are_nobody_elses(tmp_path: Path) -> None:
    for controlled, words in ((False, "until it is deleted"), (True, "without nodeName in its template")):
        folder = tmp_path / str(controlled)
        folder.mkdir()
        bench = Bench(folder, controlled=controlled)
        bench.state.put_pod(pod_of("u", box("main", 30, 10), controlled=controlled))
        bench.offer(0, 1)
        bench.reconciler.step()
        assert words in bench.pods.told[0]
        assert not bench.pods.evicted


def test_a_pod_that_runs_on_a_card_that_is_gone_is_told_of_and_evicted_after_a_while(tmp_path: Path) -> None:
    bench = Bench(tmp_path, phase="Running")
    bench.offer(0, gone=1)
    bench.reconciler.step()
    bench.now_s += MISSING_S - 1
    bench.reconciler.step()
    assert not bench.pods.evicted
    assert bench.pods.told[0].startswith("u GPUCardGone: its card 1 (T, GPU-1) is gone from this machine; the pod is")
    assert "evicted when that lasts for 5 minutes" in bench.pods.told[0]
    assert [one.pod.uid for one in bench.reconciler.lost] == ["u"]
    bench.now_s += 1
    bench.reconciler.step()
    assert bench.pods.evicted == ["u"]


@pytest.mark.parametrize("listed", [False, True])
def test_units_on_a_card_that_is_gone_are_in_no_sum(tmp_path: Path, *, listed: bool) -> None:
    """The driver does not list the card any more, or lists it and gets no answer from it; the pod `u` has 4 units."""
    bench = Bench(tmp_path, phase="Running")
    bench.state.put_pod(pod_of("v", box("main", 20, 10), cards={"main": ("GPU-0",)}))
    bench.offer(0, gone=1)
    if listed:
        silent = replace(card(1), healthy=False, answers=False)
        bench.state.set_machine((card(0), silent))
        bench.state.set_cards((card(0), silent))
    bench.reconciler.step()
    snapshot = bench.state.snapshot()
    offered = cards_part(snapshot, {})
    assert [(one["index"], one["units_free"], one["core_free"]) for one in offered if one["healthy"]] == [("0", 9, 90)]
    assert sum(one["units_free"] for one in offered) == 9
    text = write_report(report_of(snapshot, boot="b"))
    report = read_report(text)
    assert report is not None
    assert report.units() == 29
    assert report.held == {"u": (Share("GPU-1", 4, 10),) if listed else (), "v": (Share("GPU-0", 20, 10),)}
    # An extender elsewhere has the report alone, and a pod without an annotation where another scheduler bound it.
    item = {
        "metadata": {"name": NODE, "uid": "n", "annotations": {REPORT_ANNOTATION: text}},
        "status": {"allocatable": {MODEL.memory_resource: "29", MODEL.core_resource: "100"}},
    }
    pods = [replace(pod, cards=None) for pod in snapshot.pods.values()]
    room = capacity_of(known_node(item, MODEL), pods, (), MODEL)
    assert not room.problem
    assert (sum(room.free.memory), sum(room.free.core)) == (9, 90)


def test_a_bare_pod_on_a_card_that_is_gone_stays_with_the_remedy(tmp_path: Path) -> None:
    bench = Bench(tmp_path, controlled=False, phase="Running")
    bench.offer(0, gone=1)
    bench.reconciler.step()
    bench.now_s += MISSING_S
    bench.reconciler.step()
    assert not bench.pods.evicted
    assert "delete it and create it again" in bench.pods.told[0]


def test_a_pod_that_runs_on_a_card_that_is_excluded_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, phase="Running")
    bench.offer(0)
    bench.state.set_machine((card(0), card(1)))
    bench.reconciler.step()
    bench.now_s += MISSING_S
    bench.reconciler.step()
    assert not bench.pods.evicted
    assert not bench.pods.told


def test_a_card_that_answers_again_ends_the_wait_of_a_pod_that_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, phase="Running")
    for steps in range(3):
        silent = replace(card(1), healthy=False, answers=False)
        bench.state.set_machine((card(0), silent if steps != 1 else card(1)))
        bench.state.set_cards((card(0), silent if steps != 1 else card(1)))
        bench.reconciler.step()
        bench.now_s += MISSING_S - 1
    assert not bench.pods.evicted


# --- no storm: what is evicted or deleted, its controller makes again at once


def test_a_pod_for_which_there_is_no_room_elsewhere_is_not_evicted_however_often_it_is_looked_at(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.state.put_pod(pod_of("v", box("main", 29, 50), cards={"main": ("GPU-0",)}, controlled=True))
    bench.offer(0)
    bench.reconciler.step()
    bench.now_s += MISSING_S
    for _ in range(3):
        bench.reconciler.step()
    assert [one.pod.uid for one in bench.reconciler.refused] == ["u"]
    assert not bench.pods.evicted
    bench.state.drop_pod("v")
    bench.reconciler.step()
    assert bench.pods.evicted == ["u"]


DIED = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}


@pytest.mark.parametrize(
    ("more", "deleted"),
    [
        (DIED, True),
        ({"phase": "Failed", "reason": f"OutOf{MODEL.memory_resource}"}, True),
        ({"phase": "Failed", "reason": f"OutOf{MODEL.core_resource}"}, True),
        ({"phase": "Succeeded"}, True),  # a new kubelet has ended it
        ({**DIED, "controlled": False}, False),  # nobody makes a new one
        ({**DIED, "deleting": True}, False),  # it is asked for already
        ({"phase": "Succeeded", "restarts": False}, False),
        ({"phase": "Succeeded", "controlled": False}, False),
        ({"phase": "Failed", "reason": "Evicted"}, False),
        ({"phase": "Failed"}, False),
        ({"phase": "Running", "reason": "UnexpectedAdmissionError"}, False),
    ],
)
def test_dead_pods_are_deleted_where_a_controller_has_made_new_ones(
    tmp_path: Path, more: dict[str, Any], *, deleted: bool
) -> None:
    bench = Bench(tmp_path)
    bench.offer(0, 1)
    bench.state.put_pod(replace(pod_of("dead", box("main", 1, 1)), **{"controlled": True, **more}))
    bench.reconciler.step()
    assert bench.pods.deleted == (["dead"] if deleted else [])
    assert bool([one for one in bench.pods.told if one.startswith("dead GPUAdmissionFailed")]) is deleted


def test_a_guess_whose_devices_they_are_promises_nothing(tmp_path: Path) -> None:
    """Kubelet admits `late`, its call is taken for its older twin `early`: `late` was refused what it got."""
    bench = Bench(tmp_path)
    bench.offer(0, 1)
    bench.state.drop_pod("u")
    write_books(tmp_path)
    for uid in ("early", "late"):
        bench.state.put_pod(pod_of(uid, box("main", 0, 100), created=uid))
    given = core_ids("GPU-0")
    bench.state.matcher.allocated(DeviceKind.CORE, given, bench.state.snapshot().view, now_s=1.0)
    bench.state.invalidate()
    assert bench.state.snapshot().unwritten == {"early"}
    bench.reconciler.step()
    assert bench.state.snapshot().view.promises == {}
    write_books(tmp_path, late={MODEL.core_resource: given})
    bench.reconciler.step()
    assert bench.state.snapshot().view.promises == {"late": {"main": ("GPU-0",)}}


def test_a_correction_that_the_api_refuses_is_asked_for_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.state.put_pod(pod_of("u", box("main", 4, 10), controlled=True))
    bench.pods.refuses = True
    bench.offer(0, 1)
    for _ in range(3):
        bench.reconciler.step()
    [once] = bench.pods.annotated
    assert "GPU-1" in once
    assert not bench.reconciler.last_error, "one pod's refusal stops nothing"


def test_the_annotation_of_a_pod_that_ends_is_true_while_kubelet_has_its_devices(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    pod = pod_of("u", box("main", 4, 10), cards={"main": ("GPU-0",)}, controlled=True)
    bench.state.put_pod(replace(pod, deleting=True))
    bench.offer(0, 1)
    bench.reconciler.step()
    [corrected] = bench.pods.annotated
    assert "GPU-1" in corrected
    assert not bench.pods.evicted, "it goes already"


def test_a_container_that_runs_without_its_card_is_told_of_and_left_alone(tmp_path: Path) -> None:
    def look(snapshot: Snapshot) -> tuple[RefusedPod, ...]:
        return (RefusedPod(snapshot.pods["u"], "container main runs without its card 1", container="main"),)

    bench = Bench(tmp_path, phase="Running", find_cardless=look)
    bench.offer(1)
    bench.reconciler.step()
    assert bench.pods.told == ["u GPUMissing: container main runs without its card 1"]
    assert not bench.pods.evicted
    (row,) = pods_part(bench.state.snapshot(), (), (), bench.reconciler.cardless)
    assert (row["state"], row["reason"]) == ("cardless", "container main runs without its card 1")


def test_a_change_is_told_once_it_is_worked_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    reconciler, told = bench.reconciler, threading.Semaphore(0)
    reconciler.changed = told.release
    ended = threading.Event()
    thread = threading.Thread(target=reconciler.run, args=(ended.is_set,))
    thread.start()
    assert told.acquire(timeout=30), "the first step"
    bench.state.drop_pod("u")
    assert told.acquire(timeout=30)
    ended.set()
    bench.state.changed.set()
    thread.join(30)
    assert not thread.is_alive()
