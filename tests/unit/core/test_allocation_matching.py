"""For which container a call of kubelet's is, where its devices shall lie, and what a swap leaves to the others."""

from dataclasses import replace

import pytest
from property.cases import Book, box, pod_of, slots_of, view_of

from edgegpu_core.allocation_matching import PAIR_LIMIT_S, AllocationMatcher, AllocationTarget, pick
from edgegpu_core.choices.modes import Capability
from edgegpu_core.choices.pod_choice import NO_CHOICE, PodChoice
from edgegpu_core.deviceid import DeviceKind, core_ids, count_by_card, memory_ids
from edgegpu_core.inventory import CardCapacity
from edgegpu_core.ledger import Ledger
from edgegpu_core.nodeview import NodeView, corrected_promises
from edgegpu_core.podview import PodView
from edgegpu_core.request import ContainerRole

SLOTS = slots_of(29, 29)


class Calls:
    """kubelet's calls, one by one, on a node whose checkpoint is never written in between."""

    def __init__(self, *pods: PodView, slots: tuple[CardCapacity, ...] = SLOTS, ledger: Ledger | None = None) -> None:
        self.flight = AllocationMatcher()
        self.pods = pods
        self.slots = slots
        self.ledger = ledger or Ledger()
        self.now_s = 0.0
        self.given: set[str] = {
            text
            for uid in self.ledger.pods()
            for g in self.ledger.grants(uid).values()
            for i in g.ids.values()
            for text in i
        }

    def view(self) -> NodeView:
        ledger = self.ledger.only(self.ledger.pods())
        self.flight.add_to(ledger, {pod.kubelet_uid for pod in self.pods})
        return view_of(self.slots, *self.pods, ledger=ledger)

    def ask(self, kind: DeviceKind, size: int, must: tuple[str, ...] = ()) -> tuple[str, dict[str, int]]:
        """Ask and allocate; returns whose call it was taken for and how many devices lie on which card."""
        ids = memory_ids if kind is DeviceKind.MEMORY else lambda card, _: core_ids(card)
        available = [text for slot in self.slots for text in ids(slot.uuid, slot.units) if text not in self.given]
        target = self.flight.prefer(kind, size, must, self.view(), now_s=self.now_s)
        chosen = pick([*available, *must], must, size, target)
        assert len(set(chosen)) == size
        assert set(must) <= set(chosen)
        want = self.flight.allocated(kind, tuple(chosen), self.view(), now_s=self.now_s)
        self.given |= set(chosen)
        return "" if want is None else f"{want.pod.uid}/{want.container.name}", count_by_card(chosen)


def test_both_resources_go_to_the_promised_card_in_either_order() -> None:
    for first, second in ((DeviceKind.MEMORY, DeviceKind.CORE), (DeviceKind.CORE, DeviceKind.MEMORY)):
        calls = Calls(pod_of("u", box("main", 20, 10), cards={"main": ("GPU-1",)}))
        sizes = {DeviceKind.MEMORY: 20, DeviceKind.CORE: 10}
        assert calls.ask(first, sizes[first]) == ("u/main", {"GPU-1": sizes[first]})
        assert calls.ask(second, sizes[second]) == ("u/main", {"GPU-1": sizes[second]})


def test_the_second_call_tells_pods_apart_that_the_first_did_not() -> None:
    one = pod_of("1", box("main", 4, 10), cards={"main": ("GPU-0",)}, created="1")
    two = pod_of("2", box("main", 4, 20), cards={"main": ("GPU-1",)}, created="2")
    calls = Calls(one, two)
    assert calls.ask(DeviceKind.MEMORY, 4) == ("1/main", {"GPU-0": 4})
    assert calls.ask(DeviceKind.CORE, 20) == ("2/main", {"GPU-0": 20})
    ledger = calls.view().ledger
    assert (ledger.grant("1", "main").cards(), ledger.grant("2", "main").cards()) == ((), ("GPU-0",))


def test_an_answer_before_its_allocate_changes_nothing() -> None:
    one = pod_of("1", box("main", 4, 10), cards={"main": ("GPU-0",)}, created="1")
    two = pod_of("2", box("main", 4, 20), cards={"main": ("GPU-1",)}, created="2")
    three = pod_of("3", box("main", 8, 20), cards={"main": ("GPU-1",)}, created="0")
    calls = Calls(one, two, three)
    calls.ask(DeviceKind.MEMORY, 4)
    view = calls.view()
    calls.flight.prefer(DeviceKind.CORE, 20, (), view, now_s=0.0)
    assert calls.view().ledger.grant("1", "main").cards() == ("GPU-0",)
    assert calls.ask(DeviceKind.CORE, 20) == ("2/main", {"GPU-0": 20})
    assert calls.view().ledger.grants("3") == {}


def test_a_pair_is_not_awaited_for_ever() -> None:
    one = pod_of("1", box("main", 4, 10), cards={"main": ("GPU-0",)}, created="1")
    two = pod_of("2", box("main", 8, 20), cards={"main": ("GPU-1",)}, created="2")
    calls = Calls(one, two)
    calls.ask(DeviceKind.MEMORY, 4)
    calls.now_s = PAIR_LIMIT_S + 0.1
    assert calls.ask(DeviceKind.CORE, 20) == ("2/main", {"GPU-1": 20})


def test_a_first_half_of_a_pod_that_failed_is_not_held_against_its_twin() -> None:
    twins = [pod_of(uid, box("main", 4, 10), cards={"main": (f"GPU-{uid}",)}, created=uid) for uid in ("0", "1")]
    calls = Calls(*twins)
    assert calls.ask(DeviceKind.MEMORY, 4) == ("0/main", {"GPU-0": 4})  # kubelet asked for 1, which failed after this
    calls.pods = (twins[0],)
    assert calls.ask(DeviceKind.MEMORY, 4) == ("0/main", {"GPU-0": 4})
    assert calls.ask(DeviceKind.CORE, 10) == ("0/main", {"GPU-0": 10})
    assert calls.view().free().memory == [25, 29]


def test_a_first_half_of_a_pod_that_has_ended_is_no_half_of_the_next() -> None:
    twins = [pod_of(uid, box("main", 4, 10), cards={"main": (f"GPU-{uid}",)}, created=uid) for uid in ("0", "1")]
    calls = Calls(*twins)
    assert calls.ask(DeviceKind.MEMORY, 4) == ("0/main", {"GPU-0": 4})
    calls.pods = (twins[1],)
    assert calls.ask(DeviceKind.CORE, 10) == ("1/main", {"GPU-1": 10})
    assert calls.ask(DeviceKind.MEMORY, 4) == ("1/main", {"GPU-1": 4})


@pytest.mark.parametrize(("memory", "is_held"), [(2, True), (1, False)])
def test_what_a_pod_that_has_ended_chose_counts_where_its_first_half_may_be_the_next_one_s(
    memory: int, *, is_held: bool
) -> None:
    """kubelet's call for core 20 is the second of the next pod, or its first: by the amount of the other call."""
    one = pod_of("1", box("main", memory, 10), cards={"main": ("GPU-0",)}, created="1")
    graphics = PodChoice("", (Capability.GRAPHICS,))
    two = replace(pod_of("2", box("main", 2, 20), cards={"main": ("GPU-1",)}, created="2"), choice=graphics)
    calls = Calls(one, two)
    assert calls.ask(DeviceKind.MEMORY, memory)[0] == "1/main"
    calls.pods = (two,)
    found = calls.flight.choices(DeviceKind.CORE, 20, calls.view(), now_s=0.0)
    assert found == ({NO_CHOICE, graphics} if is_held else {graphics})


def test_a_restart_of_kubelet_forgets_the_first_half() -> None:
    calls = Calls(pod_of("1", box("main", 4, 10), cards={"main": ("GPU-1",)}))
    calls.ask(DeviceKind.MEMORY, 4)
    calls.flight.forget()
    assert calls.view().ledger.pods() == ()
    assert calls.ask(DeviceKind.CORE, 10) == ("1/main", {"GPU-1": 10})


def test_later_containers_follow_the_init_container_and_must_include_wins() -> None:
    pod = pod_of("u", box("i", 8, 10, ContainerRole.INIT), box("a", 10, 10))
    book = Book(SLOTS)
    book.share("u", "GPU-1", 8, 10, container="i")
    calls = Calls(pod, ledger=book.ledger)
    reused = book.ledger.grant("u", "i").ids[DeviceKind.MEMORY]
    assert calls.ask(DeviceKind.MEMORY, 10, reused) == ("u/a", {"GPU-1": 10})
    assert calls.flight.allocated(
        DeviceKind.CORE, book.ledger.grant("u", "i").ids[DeviceKind.CORE], calls.view(), now_s=0.0
    )
    assert calls.view().ledger.grant("u", "a").cards() == ("GPU-1",)


def test_where_nobody_chose_the_whole_pod_is_placed_beside_what_is_promised() -> None:
    pod = pod_of("u", box("a", 4, 10), box("b", 20, 20), created="2")
    promised = pod_of("v", box("main", 10, 30), cards={"main": ("GPU-0",)}, created="1")
    calls = Calls(pod, promised)
    assert calls.ask(DeviceKind.MEMORY, 4) == ("u/a", {"GPU-0": 4})
    assert calls.ask(DeviceKind.CORE, 10) == ("u/a", {"GPU-0": 10})
    assert calls.ask(DeviceKind.MEMORY, 20) == ("u/b", {"GPU-1": 20})


def test_a_call_for_no_known_pod_still_gets_one_card() -> None:
    promised = pod_of("v", box("main", 10, 30), cards={"main": ("GPU-0",)})
    calls = Calls(promised)
    assert calls.ask(DeviceKind.MEMORY, 20) == ("", {"GPU-1": 20})
    assert calls.view().free().memory == [19, 9]
    assert calls.ask(DeviceKind.CORE, 7) == ("", {"GPU-1": 7})


def test_a_container_that_becomes_known_between_its_calls_stays_where_it_began() -> None:
    calls = Calls(slots=slots_of(29, 29))
    assert calls.ask(DeviceKind.MEMORY, 20) == ("", {"GPU-0": 20})
    calls.pods = (pod_of("u", box("main", 20, 10), cards={"main": ("GPU-1",)}),)
    assert calls.ask(DeviceKind.CORE, 10) == ("u/main", {"GPU-0": 10})
    assert corrected_promises(calls.view()) == {"u": {"main": ("GPU-0",)}}


def test_a_pod_that_fits_nowhere_takes_what_is_promised_to_nobody() -> None:
    intruder = pod_of("u", box("main", 20, 10), created="2")
    promised = [
        pod_of("v", box("main", 25, 30), cards={"main": ("GPU-0",)}, created="1"),
        pod_of("w", box("main", 12, 31), cards={"main": ("GPU-1",)}, created="1"),
    ]
    calls = Calls(intruder, *promised)
    assert calls.ask(DeviceKind.MEMORY, 20) == ("u/main", {"GPU-1": 17, "GPU-0": 3})
    other = Calls(intruder, promised[0], slots=slots_of(29, 18))
    assert other.ask(DeviceKind.MEMORY, 20) == ("u/main", {"GPU-1": 18, "GPU-0": 2})


def test_whole_cards_of_mixed_sizes_get_the_larger_parts_on_the_larger_cards() -> None:
    cards = tuple(f"GPU-{n}" for n in range(4))
    pod = pod_of("u", box("main", 42, 400), cards={"main": cards})
    calls = Calls(pod, slots=slots_of(10, 10, 20, 20))
    assert calls.ask(DeviceKind.CORE, 400) == ("u/main", dict.fromkeys(cards, 100))
    assert calls.ask(DeviceKind.MEMORY, 42) == ("u/main", {"GPU-0": 10, "GPU-1": 10, "GPU-2": 11, "GPU-3": 11})


def test_a_first_call_that_needs_one_of_two_whole_cards_does_not_forget_the_other() -> None:
    pod = pod_of("u", box("main", 1, 200), cards={"main": ("GPU-1", "GPU-2")})
    calls = Calls(pod, slots=slots_of(29, 29, 29))
    assert calls.ask(DeviceKind.MEMORY, 1) == ("u/main", {"GPU-1": 1})
    assert corrected_promises(calls.view()) == {"u": {"main": ("GPU-1", "GPU-2")}}
    assert calls.view().free().memory == [29, 0, 0]
    assert calls.ask(DeviceKind.CORE, 200) == ("u/main", {"GPU-1": 100, "GPU-2": 100})


def test_pick_fills_up_elsewhere_only_in_need() -> None:
    available = [*memory_ids("A", 3), *memory_ids("B", 9), *memory_ids("C", 5)]
    assert count_by_card(pick(available, [], 3, AllocationTarget((("A", 3),), None))) == {"A": 3}
    assert count_by_card(pick(available, [], 8, AllocationTarget((("A", 8),), None))) == {"A": 3, "B": 5}
    assert pick(available, ["C::m0004"], 1, AllocationTarget((("A", 1),), None)) == ["C::m0004"]
    assert count_by_card(pick(available, ["C::m0004"], 2, AllocationTarget((("C", 2),), None))) == {"C": 2}
    assert count_by_card(pick(available, [], 17, AllocationTarget((), None))) == {"A": 3, "B": 9, "C": 5}
    assert count_by_card(pick(available, [], 3, AllocationTarget((("gone", 3),), None))) == {"B": 3}


def test_what_a_pod_holds_is_given_to_no_other_though_kubelet_has_forgotten_it() -> None:
    pods = (pod_of(uid, box("main", 4, 30), cards={"main": ("GPU-0",)}, created=uid) for uid in ("1", "2"))
    calls = Calls(*pods)
    for kind, size in ((DeviceKind.MEMORY, 4), (DeviceKind.CORE, 30)):
        calls.ask(kind, size)
    before = calls.given.copy()
    calls.given.clear()
    for kind, size in ((DeviceKind.CORE, 30), (DeviceKind.MEMORY, 4)):
        assert calls.ask(kind, size) == ("2/main", {"GPU-0": size})
    assert not calls.given & before


def test_what_a_pod_seems_to_hold_is_given_where_nothing_else_is_left() -> None:
    calls = Calls(*(pod_of(uid, box("main", 20, 30), cards={"main": ("GPU-0",)}, created=uid) for uid in ("1", "2")))
    calls.ask(DeviceKind.MEMORY, 20)
    calls.ask(DeviceKind.CORE, 30)
    calls.given.clear()  # the first is gone, and kubelet knows it before we do
    assert calls.ask(DeviceKind.MEMORY, 20) == ("2/main", {"GPU-0": 20})


def alike(uid: str, card: str) -> PodView:
    return pod_of(uid, box("main", 4, 80), cards={"main": (card,)}, created=uid)


def test_whoever_lost_its_card_inherits_the_other() -> None:
    one, two = alike("1", "GPU-0"), alike("2", "GPU-1")
    book = Book(SLOTS)
    book.share("2", "GPU-0", 4, 80)
    assert corrected_promises(view_of(SLOTS, one, two, ledger=book.ledger)) == {
        "1": {"main": ("GPU-1",)},
        "2": {"main": ("GPU-0",)},
    }


def test_a_ring_of_swaps_is_settled_in_any_order_of_pods() -> None:
    slots = slots_of(29, 29, 29)
    pods = [alike("1", "GPU-0"), alike("2", "GPU-1"), alike("3", "GPU-2")]
    book = Book(slots)
    book.share("2", "GPU-0", 4, 80)
    book.share("3", "GPU-1", 4, 80)
    settled = {"1": {"main": ("GPU-2",)}, "2": {"main": ("GPU-0",)}, "3": {"main": ("GPU-1",)}}
    assert corrected_promises(view_of(slots, *pods, ledger=book.ledger)) == settled
    assert corrected_promises(view_of(slots, *reversed(pods), ledger=book.ledger)) == settled


def test_after_a_restart_nobody_inherits_more_than_there_is() -> None:
    slots = slots_of(29, 29)
    gone = "GPU-0"  # promised to a pod whose card 2 got, and which is deleted by now; 5 was bound in its place
    pods = [
        pod_of(uid, box("main", 4, 45), cards={"main": (card,)}, created=uid)
        for uid, card in (("2", "GPU-1"), ("3", gone), ("4", "GPU-1"), ("5", "GPU-1"))
    ]
    book = Book(slots)
    book.share("2", gone, 4, 45)
    view = view_of(slots, *pods, ledger=book.ledger)
    after = view_of(slots, *(replace(pod, cards=corrected_promises(view)[pod.uid]) for pod in pods), ledger=book.ledger)
    assert after.free().core == [10, 10]


def test_a_promised_pod_moves_aside_when_one_without_promise_got_its_card() -> None:
    promised = pod_of("1", box("main", 20, 10), cards={"main": ("GPU-0",)}, created="1")
    forced = pod_of("2", box("main", 20, 10), created="2")
    book = Book(SLOTS)
    book.share("2", "GPU-0", 20, 10)
    assert corrected_promises(view_of(SLOTS, promised, forced, ledger=book.ledger)) == {"1": {"main": ("GPU-1",)}}
    alone = slots_of(29)
    book = Book(alone)
    book.share("2", "GPU-0", 20, 10)
    assert corrected_promises(view_of(alone, promised, forced, ledger=book.ledger)) == {"1": {"main": ("GPU-0",)}}


def test_a_promised_pod_moves_aside_when_one_that_is_gone_had_got_its_card() -> None:
    waiting = pod_of("2", box("main", 20, 10), cards={"main": ("GPU-0",)}, created="2")
    book = Book(SLOTS)
    book.share("1", "GPU-0", 20, 10)  # was promised GPU-1 and is deleted; who inherited that, a restart forgot
    view = view_of(SLOTS, waiting, ledger=book.ledger)
    assert corrected_promises(view, gone={"1"}) == {"2": {"main": ("GPU-1",)}}
    assert corrected_promises(view) == {"2": {"main": ("GPU-0",)}}, "1 may be a pod that the watch is late with"


def test_what_a_node_holds_is_devices_and_promises() -> None:
    half = pod_of("1", box("a", 4, 10), box("b", 6, 20), cards={"a": ("GPU-0",), "b": ("GPU-1",)})
    init = pod_of("2", box("i", 4, 10, ContainerRole.INIT), box("a", 6, 10), cards={"i": ("GPU-1",), "a": ("GPU-1",)})
    book = Book(SLOTS)
    book.share("1", "GPU-0", 4, 10, container="a")
    book.share("dead", "GPU-0", 5, 5)
    view = view_of(SLOTS, half, init, ledger=book.ledger)
    free = view.free()
    assert (free.memory, free.core) == ([20, 17], [85, 70])
    assert view.free(without="2").memory == [20, 23]
    assert [want.key for want in view.waiting_containers()] == [("1", "b"), ("2", "i")]


def test_a_pod_halfway_to_whole_cards_holds_all_of_them() -> None:
    slots = slots_of(12, 12)
    both = ("GPU-0", "GPU-1")
    first, last = box("first", 1, 200, ContainerRole.INIT), box("main", 1, 200)
    for pod in (
        pod_of("u", last, cards={"main": both}),
        pod_of("u", first, last, cards={"first": both, "main": both}),
    ):
        book = Book(slots)
        book.give("u", pod.containers[0].name, DeviceKind.MEMORY, {"GPU-0": 1})
        free = view_of(slots, pod, ledger=book.ledger).free()
        assert (free.memory, free.core) == ([0, 0], [0, 0])


def test_what_a_failed_admission_left_goes_with_its_pod() -> None:
    calls = Calls(pod_of("p", box("main", 4, 10)))
    assert calls.ask(DeviceKind.MEMORY, 4)[0] == "p/main"
    assert calls.view().free().memory[0] == SLOTS[0].units - 4
    ended = Ledger()
    calls.flight.add_to(ended, frozenset())
    assert ended.pods() == ()
