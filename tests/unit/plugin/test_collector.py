"""When a pod's units are given back: not before kubelet and the container runtime have let go."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from property.cases import MODEL, box, pod_of

from edgegpu_core.deviceid import memory_ids
from edgegpu_core.placement import Policy
from edgegpu_core.podview import PodView
from edgegpu_plugin.records.collector import FOLDER_S, Collector
from edgegpu_plugin.records.node_state import NodeState, PodName
from edgegpu_plugin.status import SilentSources, pods_part

IDS = memory_ids("GPU-0", 4)


class Kubelet:
    """Says what it lists and knows, and how often it was asked who is known."""

    def __init__(self) -> None:
        self.listed: frozenset[str] | None = frozenset()
        self.known: frozenset[str] | None = frozenset()
        self.folders: frozenset[str] | None = frozenset()
        self.asked = self.asked_names = 0
        self.names: dict[str, PodName] | None = None
        self.own: list[PodView] | None = None
        self.listed_pods = 0

    def listed_ids(self) -> frozenset[str] | None:
        """Return the ids in PodResources."""
        return self.listed

    def pods(self) -> list[PodView] | None:
        """Return the pods in kubelet's own list."""
        self.listed_pods += 1
        return self.own

    def known_uids(self) -> frozenset[str] | None:
        """Return the pods of kubelet and the runtime."""
        self.asked += 1
        return self.known

    def folder_uids(self) -> frozenset[str] | None:
        """Return the pods of which kubelet keeps a folder."""
        return self.folders

    def listed_names(self) -> dict[str, PodName] | None:
        """Return the names in PodResources by device id."""
        self.asked_names += 1
        return self.names


def bench(folder: Path) -> tuple[NodeState, Kubelet, Collector]:
    """Make a node whose checkpoint books units for the pod `u`, of which the API knows nothing."""
    entry = {"PodUID": "u", "ContainerName": "main", "ResourceName": MODEL.memory_resource}
    book = {"Data": {"PodDeviceEntries": [{**entry, "DeviceIDs": {"-1": list(IDS)}}]}}
    (folder / "checkpoint").write_text(json.dumps(book))
    state = NodeState(model=MODEL, policy=Policy.FIRST_FIT, checkpoint=folder / "checkpoint")
    kubelet = Kubelet()
    return state, kubelet, Collector(state, kubelet)


def holders(state: NodeState) -> tuple[str, ...]:
    return state.snapshot().view.ledger.pods()


def test_a_pod_that_is_gone_holds_until_nobody_knows_it(tmp_path: Path) -> None:
    state, kubelet, collector = bench(tmp_path)
    for listed, known in ((frozenset(IDS), frozenset()), (frozenset(), frozenset({"u"})), (frozenset(), None)):
        kubelet.listed, kubelet.known = listed, known
        assert collector.collect()
        assert holders(state) == ("u",)
    kubelet.known = frozenset()
    assert not collector.collect()
    assert holders(state) == ()


def test_who_has_let_go_is_not_asked_about_again(tmp_path: Path) -> None:
    state, kubelet, collector = bench(tmp_path)
    assert not collector.collect()
    kubelet.known = None
    assert not collector.collect()
    assert kubelet.asked == 1
    assert holders(state) == ()


def test_a_static_pod_that_comes_back_holds_again(tmp_path: Path) -> None:
    state, kubelet, collector = bench(tmp_path)
    assert not collector.collect()
    kubelet.listed = frozenset(IDS)
    assert collector.collect()
    assert holders(state) == ("u",)


def test_an_ended_pod_holds_while_kubelet_lists_its_devices(tmp_path: Path) -> None:
    state, kubelet, collector = bench(tmp_path)
    state.put_pod(pod_of("u", box("main", 4, 0)))
    assert not collector.collect()
    assert holders(state) == ("u",)
    assert kubelet.asked == 0


def test_an_ended_pod_that_kubelet_lists_for_ever_holds_no_longer_than_half_a_minute(tmp_path: Path) -> None:
    """kubelet 1.22 to 1.24 lets go of the pod that it admitted last when it admits another, which waits for this."""
    state, kubelet, _ = bench(tmp_path)
    now_s = 1000.0
    collector = Collector(state, kubelet, clock=lambda: now_s)
    kubelet.listed = frozenset(IDS)
    ended = replace(pod_of("u", box("main", 4, 0)), phase="Succeeded")
    state.put_pod(replace(ended, running=(("main", "id"),)))  # evicted: its containers may take as long as they want
    for _ in range(2):
        assert collector.collect()
        now_s += 600
    state.put_pod(ended)
    assert collector.collect()
    now_s += 29
    assert collector.collect()
    assert holders(state) == ("u",)
    now_s += 1
    assert not collector.collect()
    assert holders(state) == ()


def test_two_ended_pods_that_kubelet_lists_hold_both(tmp_path: Path) -> None:
    """Only one can be the last that was admitted: something keeps kubelet from ending them."""
    state, kubelet, _ = bench(tmp_path)
    now_s = 1000.0
    collector = Collector(state, kubelet, clock=lambda: now_s)
    book = json.loads((tmp_path / "checkpoint").read_text())
    entries = book["Data"]["PodDeviceEntries"]
    entries.append({**entries[0], "PodUID": "v", "DeviceIDs": {"-1": ["GPU-0::m0009"]}})
    (tmp_path / "checkpoint").write_text(json.dumps(book))
    kubelet.listed = frozenset({*IDS, "GPU-0::m0009"})
    for uid in "uv":
        state.put_pod(replace(pod_of(uid, box("main", 4, 0)), phase="Succeeded"))
    for _ in range(2):
        assert collector.collect()
        now_s += 600
    assert set(holders(state)) == {"u", "v"}


def test_who_is_in_the_books_and_not_in_our_watch_is_asked_for_once(tmp_path: Path) -> None:
    state, kubelet, collector = bench(tmp_path)
    collector.learn()
    assert state.snapshot().view.pods == {}
    kubelet.own = [pod_of("u", box("main", 4, 0))]
    collector.learn()
    assert kubelet.listed_pods == 1
    book = json.loads((tmp_path / "checkpoint").read_text())
    entries = book["Data"]["PodDeviceEntries"]
    entries.append({**entries[0], "PodUID": "v", "DeviceIDs": {"-1": ["GPU-0::m0009"]}})
    (tmp_path / "checkpoint").write_text(json.dumps(book))
    collector.learn()
    assert kubelet.listed_pods == 2
    assert set(state.snapshot().view.pods) == {"u"}


def test_a_mirror_that_does_not_come_is_asked_about_ever_more_seldom(tmp_path: Path) -> None:
    """Each answer is the list of all pods of the node, through the API server."""
    state, kubelet, _ = bench(tmp_path)
    now_s = 1000.0
    collector = Collector(state, kubelet, clock=lambda: now_s)
    kubelet.own = [replace(pod_of("u", box("main", 4, 0)), name="file", is_static=True)]
    asked_at_s = []
    for _ in range(4 * 300):
        before = kubelet.listed_pods
        collector.learn()
        asked_at_s += [now_s - 1000] * (kubelet.listed_pods - before)
        now_s += 0.25
    assert asked_at_s == [0, 0.25, 1.25, 3.25, 7.25, 15.25, 31.25, 63.25, 123.25, 183.25, 243.25]
    kubelet.own = [*kubelet.own, replace(pod_of("v", box("main", 4, 0)), name="other", is_static=True)]
    state.learn_pods(kubelet.own)
    collector.learn()
    assert kubelet.listed_pods == len(asked_at_s) + 1


def test_a_pod_that_kubelet_keeps_a_folder_of_and_does_not_list_yet_holds(tmp_path: Path) -> None:
    """After a boot kubelet answers before it has read its static pods' files, and keeps their folders until then."""
    state, kubelet, _ = bench(tmp_path)
    now_s = 1000.0
    collector = Collector(state, kubelet, clock=lambda: now_s)
    kubelet.folders = frozenset({"u"})
    for _ in range(3):
        assert collector.collect()
        assert holders(state) == ("u",)
        now_s += FOLDER_S - 1
        kubelet.known = None  # kubelet begins anew: so does the time
        assert collector.collect()
        kubelet.known = frozenset()
    kubelet.own = [replace(pod_of("u", box("main", 4, 0)), name="file", is_static=True)]
    collector.learn()
    assert not collector.collect()
    assert list(state.snapshot().view.pods) == ["u"]


@pytest.mark.parametrize("folders", [frozenset({"u"}), None], ids=["stuck", "unreadable"])
def test_a_folder_that_kubelet_cannot_remove_holds_units_for_a_minute(
    tmp_path: Path, folders: frozenset[str] | None
) -> None:
    state, kubelet, _ = bench(tmp_path)
    now_s = 1000.0
    collector = Collector(state, kubelet, clock=lambda: now_s)
    kubelet.folders = folders
    assert collector.collect()
    now_s += FOLDER_S
    assert not collector.collect()
    assert holders(state) == ()


def test_of_a_pod_whose_end_the_api_has_shown_no_folder_counts(tmp_path: Path) -> None:
    state, kubelet, collector = bench(tmp_path)
    kubelet.folders = frozenset({"u"})
    state.put_pod(pod_of("u", box("main", 4, 0)))
    state.drop_pod("u")
    assert not collector.collect()
    assert holders(state) == ()


def test_who_had_gone_and_stands_in_a_newer_checkpoint_is_asked_about_again(tmp_path: Path) -> None:
    """A static pod has the same UID and devices when it comes back; PodResources does not list its init containers."""
    state, kubelet, collector = bench(tmp_path)
    assert not collector.collect()
    (tmp_path / "new").write_text((tmp_path / "checkpoint").read_text())
    (tmp_path / "new").replace(tmp_path / "checkpoint")
    kubelet.known = frozenset({"u"})
    assert collector.collect()
    assert holders(state) == ("u",)


@pytest.mark.parametrize("own", [None, []], ids=["no answer", "not listed yet"])
def test_kubelet_is_asked_again_about_a_pod_that_it_has_not_shown(tmp_path: Path, own: list[PodView] | None) -> None:
    state, kubelet, _ = bench(tmp_path)
    now_s = 1000.0
    collector = Collector(state, kubelet, clock=lambda: now_s)
    kubelet.own = own
    asked_at_s = []
    for _ in range(4 * 10):
        before = kubelet.listed_pods
        collector.learn()
        asked_at_s += [now_s - 1000] * (kubelet.listed_pods - before)
        now_s += 0.25
    assert asked_at_s == [0, 1, 3, 7]
    kubelet.own = [replace(pod_of("u", box("main", 4, 0)), name="file", is_static=True)]
    now_s += 10
    collector.learn()
    assert [pod.name for pod in state.snapshot().view.pods.values()] == ["file"]


def test_who_has_let_go_is_not_asked_for(tmp_path: Path) -> None:
    state, kubelet, collector = bench(tmp_path)
    assert not collector.collect()
    collector.learn()
    assert kubelet.listed_pods == 0
    assert holders(state) == ()


def test_before_the_api_server_has_been_read_kubelet_names_who_holds(tmp_path: Path) -> None:
    """Nothing is said to be gone then: an agent node's server may be away for hours."""
    state, kubelet, collector = bench(tmp_path)
    collector.learn_names()
    (row,) = pods_part(state.snapshot(), ())
    assert (row["pod"], row["phase"], row["state"]) == ("", "Unknown", "unknown")
    state, kubelet, collector = bench(tmp_path)
    kubelet.names = dict.fromkeys(IDS, PodName("ns", "a"))
    for _ in range(3):
        collector.learn_names()
    assert kubelet.asked_names == 1
    (row,) = pods_part(state.snapshot(), ())
    assert (row["namespace"], row["pod"], row["phase"], row["state"]) == ("ns", "a", "Unknown", "unknown")
    assert "the API server has not been read since the plugin's start" in row["reason"]
    state.replace_pods([])
    (row,) = pods_part(state.snapshot(), ())
    assert (row["pod"], row["phase"], row["state"]) == ("a", "Gone", "held")


def test_a_silent_source_is_called_silent_and_no_conclusion_takes_its_place(tmp_path: Path) -> None:
    """k3s is down: kubelet's checkpoint may book a pod that came while the API server showed nothing."""
    state, _, _ = bench(tmp_path)
    state.replace_pods([])
    both = SilentSources(api=True, kubelet=True)
    (row,) = pods_part(state.snapshot(), (), silent=both)
    assert (row["phase"], row["state"]) == ("Unknown", "unknown")
    assert "the API server is silent" in row["reason"]
    state.put_pod(pod_of("u", box("main", 4, 0)))
    state.drop_pod("u")
    for silent, words in (
        (both, "kubelet is silent: whether it has let go of the devices since is not known"),
        (SilentSources(api=True), "kubelet has not let go of its devices yet"),
    ):
        (row,) = pods_part(state.snapshot(), (), silent=silent)
        assert (row["phase"], row["state"], row["reason"]) == ("Gone", "held", words)


def test_devices_that_kubelet_gave_to_another_pod_hold_nobody_who_has_gone(tmp_path: Path) -> None:
    """A plugin that starts between a pod's end and the next admission has the ended pod in its first checkpoint."""
    state, kubelet, collector = bench(tmp_path)
    assert holders(state) == ("u",)
    book = json.loads((tmp_path / "checkpoint").read_text())
    book["Data"]["PodDeviceEntries"][0]["PodUID"] = "v"
    (tmp_path / "new").write_text(json.dumps(book))
    (tmp_path / "new").replace(tmp_path / "checkpoint")
    state.put_pod(pod_of("v", box("main", 4, 0)))
    kubelet.listed = frozenset(IDS)
    assert holders(state) == ("u", "v")
    assert not collector.collect()
    assert holders(state) == ("v",)
