"""What the node knows of its pods when the watch, kubelet's own list and broken cards disagree."""

import json
from dataclasses import replace
from pathlib import Path

from property.cases import MODEL, box, pod_of

from edgegpu_core.deviceid import DeviceKind, core_ids, memory_ids
from edgegpu_core.inventory import Card
from edgegpu_core.placement import Policy
from edgegpu_core.podview import PodView
from edgegpu_plugin.records.node_state import NodeState


def state_in(folder: Path) -> NodeState:
    return with_cards(NodeState(model=MODEL, policy=Policy.FIRST_FIT, checkpoint=folder / "checkpoint"))


def with_cards(state: NodeState) -> NodeState:
    state.set_cards(tuple(card(n) for n in range(2)))
    return state


def card(number: int, *, healthy: bool = True) -> Card:
    pci = f"0000:0{number}:00.0"
    return Card(uuid=f"GPU-{number}", index=number, name="T", memory_mib=7611, pci=pci, minor=number, healthy=healthy)


def test_kubelets_list_tells_of_pods_that_the_watch_has_not_told_of(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.learn_pods([pod_of("new", box("main", 4, 10))])
    assert state.snapshot().pods.keys() == {"new"}


def test_an_older_list_of_kubelet_changes_nothing_that_the_watch_told(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    pod = pod_of("u", box("main", 4, 10))
    state.replace_pods([replace(pod, phase="Running"), mirror("file", of="static", phase="Running")])
    state.learn_pods([pod, static("file", "static")])
    assert state.snapshot().pods["u"].phase == "Running"
    shown = state.snapshot().pods["static"]
    assert (shown.uid, shown.kubelet_uid, shown.is_static, shown.phase) == ("mirror-file", "static", True, "Running")


def static(name: str, uid: str) -> PodView:
    """A static pod in kubelet's own list."""
    return replace(pod_of(uid, box("main", 4, 10)), name=name, is_static=True)


def mirror(name: str, *, of: str, phase: str = "Pending") -> PodView:
    """An object of the API that says to show a static pod; anybody may make one, under a name that is free."""
    return replace(pod_of(f"mirror-{name}", box("main", 20, 50)), name=name, mirrors=of, phase=phase)


def test_a_pods_entry_is_not_replaced_by_one_that_says_to_mirror_it(tmp_path: Path) -> None:
    """A mirror marked with another's UID took its place: its amounts, its phase, its end."""
    state = state_in(tmp_path)
    victim = pod_of("victim", box("main", 4, 10))
    forged = mirror("forged", of="victim", phase="Succeeded")
    for pods in ([victim, forged], [forged, victim]):
        state.replace_pods(pods)
        state.learn_pods([victim])
        assert state.snapshot().pods == {"victim": victim}
    state.replace_pods([victim])
    state.put_pod(forged)
    assert state.snapshot().pods == {"victim": victim}
    state.drop_pod("mirror-forged")
    assert state.snapshot().pods == {"victim": victim}


def test_a_mirror_counts_only_with_the_static_pod_of_its_name(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.put_pod(mirror("forged", of="static"))
    assert not state.snapshot().pods
    state.learn_pods([static("file", "static")])
    assert state.snapshot().pods == {"static": static("file", "static")}
    state.put_pod(mirror("file", of="static", phase="Running"))
    assert state.snapshot().pods["static"].phase == "Running"
    state.drop_pod("mirror-forged")
    assert state.snapshot().pods["static"].phase == "Running"


def test_a_static_pod_goes_with_its_mirror_and_comes_back_by_kubelets_list(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.learn_pods([static("file", "static")])
    assert state.unshown() == {"static"}  # so that kubelet is asked again until the mirror is there, or the pod gone
    state.put_pod(mirror("file", of="static"))
    assert not state.unshown()
    state.replace_pods([mirror("file", of="static")])
    assert state.snapshot().pods.keys() == {"static"}
    state.drop_pod("mirror-file")
    assert not state.snapshot().pods
    state.learn_pods([static("file", "static")])
    assert state.snapshot().pods.keys() == {"static"}
    state.learn_pods([])
    assert not state.snapshot().pods


def test_a_deleted_pod_does_not_come_back_from_kubelets_list(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    deleted, missed = pod_of("deleted", box("main", 4, 10)), pod_of("missed", box("main", 4, 10))
    state.replace_pods([deleted, missed])
    state.drop_pod("deleted")
    state.replace_pods([])
    state.learn_pods([deleted, missed])
    assert not state.snapshot().pods


def test_a_pod_that_a_list_is_too_old_for_is_learned_again(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    new = pod_of("new", box("main", 4, 10))
    state.learn_pods([new])
    state.replace_pods([])
    state.learn_pods([new])
    assert state.snapshot().pods.keys() == {"new"}


def test_a_pod_that_asks_for_nothing_wakes_nobody_when_it_goes(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.changed.clear()
    state.drop_pod("somebody else's")
    assert not state.changed.is_set()


def test_a_promise_moves_aside_when_its_card_breaks_before_kubelet_asked(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.put_pod(pod_of("u", box("main", 4, 10), cards={"main": ("GPU-0",)}))
    state.set_cards((card(0, healthy=False), card(1)))
    assert state.snapshot().view.promises == {"u": {"main": ("GPU-1",)}}


MEMORY, CORE = tuple(memory_ids("GPU-0", 29)[:20]), tuple(core_ids("GPU-0")[:10])


def write_books(folder: Path, **cards: str) -> None:
    """Write kubelet's checkpoint: each pod has 20 units and 10 hundredths of a card."""
    entries = [
        {"PodUID": uid, "ContainerName": "main", "ResourceName": name, "DeviceIDs": {"-1": list(ids)}}
        for uid, uuid in cards.items()
        for name, ids in (
            (MODEL.memory_resource, memory_ids(uuid, 29)[:20]),
            (MODEL.core_resource, core_ids(uuid)[:10]),
        )
    ]
    (folder / "checkpoint").write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))


def test_a_promise_moves_aside_for_one_that_is_gone_and_holds_on_but_not_for_one_that_may_only_be_late(
    tmp_path: Path,
) -> None:
    write_books(tmp_path, stranger="GPU-0")
    waiting = pod_of("waiting", box("main", 20, 10), cards={"main": ("GPU-0",)})
    state = state_in(tmp_path)
    state.replace_pods([waiting])
    assert state.snapshot().view.promises["waiting"] == {"main": ("GPU-0",)}
    state.learn_pods([waiting])  # kubelet does not know it either
    assert state.snapshot().view.promises["waiting"] == {"main": ("GPU-1",)}
    late = state_in(tmp_path)
    late.replace_pods([waiting])
    late.learn_pods([waiting, pod_of("stranger", box("main", 20, 10), cards={"main": ("GPU-1",)})])
    promises = {"waiting": {"main": ("GPU-1",)}, "stranger": {"main": ("GPU-0",)}}
    assert late.snapshot().view.promises == promises, "it is the twin whose card was given away"


def test_a_promise_that_came_back_is_not_lost_to_a_late_watch_of_its_correction(tmp_path: Path) -> None:
    """The watch showed the annotation of the first swap after the second: two pods were promised the room of one."""
    ask = box("main", 20, 10)
    state = state_in(tmp_path)
    waiting = pod_of("waiting", ask, cards={"main": ("GPU-0",)}, created="1")
    state.replace_pods([waiting, pod_of("first", ask, cards={"main": ("GPU-1",)}, created="2")])
    write_books(tmp_path, first="GPU-0")
    swapped = state.snapshot().view.promises["waiting"]
    assert swapped == {"main": ("GPU-1",)}  # the reconciler corrects the annotation
    state.drop_pod("first")
    state.put_pod(pod_of("second", ask, cards={"main": ("GPU-0",)}, created="3"))
    write_books(tmp_path, second="GPU-1")
    assert state.snapshot().view.promises["waiting"] == {"main": ("GPU-0",)}
    state.put_pod(replace(waiting, cards=swapped))
    assert state.snapshot().view.promises["waiting"] == {"main": ("GPU-0",)}


def test_a_pod_is_served_when_kubelet_has_written_it_down(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.put_pod(pod_of("u", box("main", 20, 10), cards={"main": ("GPU-0",)}))
    for kind, ids in ((DeviceKind.MEMORY, MEMORY), (DeviceKind.CORE, CORE)):
        state.matcher.allocated(kind, ids, state.snapshot().view, now_s=1.0)
        state.invalidate()
    assert not state.snapshot().view.waiting_containers()
    assert state.snapshot().unwritten == {"u"}
    write_books(tmp_path, u="GPU-0")
    assert state.snapshot().unwritten == frozenset()
    assert not state.snapshot().view.waiting_containers()


def test_units_of_another_size_wait_until_the_pods_are_known(tmp_path: Path) -> None:
    """A pod that waits for its devices is in no book of kubelet's, and was placed in units of the old size."""
    taken: list[int] = []
    state = with_cards(
        NodeState(
            model=MODEL,
            policy=Policy.FIRST_FIT,
            checkpoint=tmp_path / "checkpoint",
            unit_wanted_mib=128,
            on_unit=lambda model: taken.append(model.unit_mib),
        )
    )
    state.snapshot()
    state.replace_pods([pod_of("u", box("main", 4, 10))])
    assert state.snapshot().view.model == MODEL
    state.drop_pod("u")
    assert state.snapshot().view.model.unit_mib == 128
    assert taken == [128]
    state.put_pod(mirror("file", of="static"))
    state.unit_wanted_mib = 512
    state.invalidate()
    assert state.snapshot().view.model.unit_mib == 128, "kubelet has not listed its static pod yet, which may run"
    state.drop_pod("mirror-file")
    assert state.snapshot().view.model.unit_mib == 512
