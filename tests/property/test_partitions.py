"""Controllers that die, stop, join and leave, and a store that is away: one holder at a time, and all boxes held.

The store here is a few dictionaries with the same conditions as the statements of `store/controllers/leases.py`; those
are tested on the databases themselves (tests/unit/cloud/test_leases.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgegpu_cloud.controller.partitions import LeaseTimes, Tenure, next_step, quota
from edgegpu_cloud.store.records import PARTITIONS, ControllerBeat, Lease, partition_of
from edgegpu_sync.ids import DeviceId

TIMES = LeaseTimes()
NAMES = ("a", "b", "c", "d")
MOVED_S = 15.0
"""The longest that a partition may be without its new holder after a death (issue 12)."""


@dataclass
class Shared:
    """The store: what all controllers see."""

    leases: dict[int, Lease] = field(
        default_factory=lambda: {number: Lease(number, "", 0) for number in range(PARTITIONS)}
    )
    beats: dict[str, ControllerBeat] = field(default_factory=dict)
    away: bool = False

    def list_(self) -> list[Lease]:
        return list(self.leases.values())

    def set_holder(self, number: int, *, seen: int, holder: str) -> int | None:
        if self.leases[number].fence != seen:
            return None
        self.leases[number] = Lease(number, holder, seen + 1)
        return seen + 1


@dataclass
class Process:
    """One process of a controller; its monotonic clock began at another time than those of the others."""

    shared: Shared
    tenure: Tenure
    offset_s: float
    next_s: float
    stopped: bool = False
    refused: bool = False

    def tick(self, now_s: float) -> None:
        own_s = now_s + self.offset_s
        shared, tenure = self.shared, self.tenure
        if shared.away or self.refused:
            return
        tenure.watch.look(list(shared.beats.values()), own_s)
        if tenure.name_taken():
            self.refused = True
            return
        if not tenure.joined and not tenure.may_join():
            return
        tenure.gone(tenure.lost(shared.list_()))
        plan = tenure.plan(shared.list_())
        if not tenure.renewal_due(own_s) and not plan.take and not plan.release:
            return
        held = shared.beats.get(tenure.name)
        if tenure.joined and (held is None or held.instance != tenure.instance):
            self.refused = True
            return
        beat = held.beat + 1 if held else 1
        shared.beats[tenure.name] = ControllerBeat(
            name=tenure.name, instance=tenure.instance, beat=beat, place=tenure.place
        )
        taken = {}
        for lease in plan.take:
            if (fence := shared.set_holder(lease.number, seen=lease.fence, holder=tenure.name)) is not None:
                taken[lease.number] = fence
        for number in plan.release:
            shared.set_holder(number, seen=tenure.fences[number], holder="")
        tenure.renewed(own_s)
        tenure.gone(plan.release)
        tenure.gained(taken)

    def acts_for(self, now_s: float) -> set[int]:
        """The partitions for which it would send something now; a stopped process sends nothing."""
        if self.stopped or self.refused or not self.tenure.valid(now_s + self.offset_s):
            return set()
        return set(self.tenure.fences)

    def writes_for(self) -> set[int]:
        """The partitions for which the store would take a transaction of it."""
        return {number for number, fence in self.tenure.fences.items() if self.shared.leases[number].fence == fence}


class ControllersMachine(RuleBasedStateMachine):
    """The rules are what can happen; `teardown` lets time pass, and sees that everything is held and shared."""

    @initialize()
    def begin(self) -> None:
        self.now_s, self.made = 1_000.0, 0
        self.shared = Shared()
        self.processes: dict[str, Process] = {}
        self.ever: list[Process] = []

    def pass_time(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.25
            for process in self.processes.values():
                if not process.stopped and process.next_s <= self.now_s:
                    process.next_s = self.now_s + TIMES.look_s
                    process.tick(self.now_s)
            self.nobody_doubly()

    def nobody_doubly(self) -> None:
        acting = [process.acts_for(self.now_s) for process in self.processes.values()]
        assert len(set[int]().union(*acting)) == sum(map(len, acting)), "two controllers act for one partition"
        writing = [process.writes_for() for process in self.ever]
        assert len(set[int]().union(*writing)) == sum(map(len, writing)), "two processes can write for one partition"

    @rule(name=st.sampled_from(NAMES), offset_s=st.floats(-1e6, 1e6), late_s=st.floats(0, 1))
    def start(self, name: str, offset_s: float, late_s: float) -> None:
        """Start a process, at its own place where nobody runs, or by mistake somewhere else under the same name."""
        self.made += 1
        place = f"place of {name}"
        if any(one.tenure.place == place for one in self.processes.values()):
            place = f"another of {name} {self.made}"
        tenure = Tenure(name=name, instance=f"{name}-{self.made}", place=place)
        process = Process(self.shared, tenure, offset_s, self.now_s + late_s)
        self.processes[tenure.instance] = process
        self.ever.append(process)

    @precondition(lambda self: self.processes)
    @rule(pick=st.integers(0, 9))
    def kill(self, pick: int) -> None:
        del self.processes[sorted(self.processes)[pick % len(self.processes)]]

    @precondition(lambda self: self.processes)
    @rule(pick=st.integers(0, 9))
    def leave(self, pick: int) -> None:
        instance = sorted(self.processes)[pick % len(self.processes)]
        process = self.processes[instance]
        if process.stopped or self.shared.away:
            return
        del self.processes[instance]
        name = process.tenure.name
        for number, fence in process.tenure.fences.items():
            self.shared.set_holder(number, seen=fence, holder="")
        held = self.shared.beats.get(name)
        if held and held.instance == process.tenure.instance:
            del self.shared.beats[name]
        process.tenure.gone(list(process.tenure.fences))

    @precondition(lambda self: self.processes)
    @rule(pick=st.integers(0, 9))
    def stop_or_continue(self, pick: int) -> None:
        process = self.processes[sorted(self.processes)[pick % len(self.processes)]]
        process.stopped = not process.stopped

    @rule(away=st.booleans())
    def store_away(self, *, away: bool) -> None:
        self.shared.away = away

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 12.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)

    @invariant()
    def one_holder_at_a_time(self) -> None:
        if hasattr(self, "ever"):
            self.nobody_doubly()

    @invariant()
    def fences_only_rise(self) -> None:
        if not hasattr(self, "shared"):
            return
        before = getattr(self, "fences_before", dict.fromkeys(self.shared.leases, 0))
        after = {number: lease.fence for number, lease in self.shared.leases.items()}
        assert all(after[number] >= fence for number, fence in before.items())
        self.fences_before = after

    def teardown(self) -> None:
        if not getattr(self, "processes", None):
            return
        self.shared.away = False
        for process in self.processes.values():
            process.stopped = False
        self.pass_time(MOVED_S + TIMES.lost_s)  # who has the name of a dead one elsewhere waits first
        alive = [one for one in self.processes.values() if not one.refused]
        if not alive:
            return
        self.pass_time(5)  # an uneven share is evened out
        held = [one.acts_for(self.now_s) for one in alive]
        assert sum(map(len, held)) == PARTITIONS, "a partition has no holder"
        assert max(map(len, held)) - min(map(len, held)) <= 1, "the shares are not even"
        before = dict(self.shared.leases)
        self.pass_time(20)
        assert self.shared.leases == before, "partitions move although nothing happens"


ControllersMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestControllers = ControllersMachine.TestCase


@given(st.sets(st.sampled_from([f"c{number}" for number in range(100)]), min_size=1))
def test_shares_add_up_and_are_even(names: set[str]) -> None:
    shares = [quota(name, names) for name in names]
    assert sum(shares) == PARTITIONS
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 6), st.integers(1, 6))
def test_no_more_moves_than_the_new_share(before: int, after: int) -> None:
    """From a number of controllers to another only so many partitions move as the shares differ by."""
    leases = {number: Lease(number, "", 0) for number in range(PARTITIONS)}

    def settle(names: list[str]) -> None:
        for _ in range(3):
            for name in names:
                plan = next_step(name, list(leases.values()), names)
                for number in plan.release:
                    leases[number] = Lease(number, "", leases[number].fence + 1)
            for name in names:
                for one in next_step(name, list(leases.values()), names).take:
                    leases[one.number] = Lease(one.number, name, one.fence + 1)

    old, new = [f"c{at}" for at in range(before)], [f"c{at}" for at in range(after)]
    settle(old)
    was = {number: one.holder for number, one in leases.items()}
    settle(new)
    now = {number: one.holder for number, one in leases.items()}
    moved = sum(was[number] != now[number] for number in was)
    shares = {name: quota(name, new) for name in new}
    least = sum(max(0, list(was.values()).count(name) - shares.get(name, 0)) for name in old)
    assert moved == least


def test_a_controller_that_is_killed_loses_its_partitions_within_eleven_seconds() -> None:
    shared, now_s = Shared(), 0.0
    processes = [Process(shared, Tenure(name=name, instance=name), 0.0, 0.0) for name in "abc"]

    def pass_time(seconds: float, who: list[Process]) -> None:
        nonlocal now_s
        end_s = now_s + seconds
        while now_s < end_s:
            now_s += TIMES.look_s
            for one in who:
                one.tick(now_s)

    pass_time(10, processes)
    assert [len(one.tenure.fences) for one in processes] == [22, 21, 21]
    alive = processes[:2]
    pass_time(TIMES.lost_s + 2 * TIMES.look_s, alive)
    assert [len(one.tenure.fences) for one in alive] == [32, 32]


def test_a_process_that_was_stopped_does_nothing_for_what_it_lost() -> None:
    """It was stopped for 12 s and another has its partitions: it sends nothing, even before it looks at the store."""
    shared, now_s = Shared(), 0.0
    stopped, other = (Process(shared, Tenure(name=name, instance=name), 0.0, 0.0) for name in "ab")
    for _ in range(10):
        now_s += TIMES.look_s
        stopped.tick(now_s)
        other.tick(now_s)
    assert len(stopped.acts_for(now_s)) == PARTITIONS / 2
    for _ in range(12):
        now_s += TIMES.look_s
        other.tick(now_s)
    assert len(other.acts_for(now_s)) == PARTITIONS
    assert stopped.acts_for(now_s) == set()
    assert stopped.writes_for() == set()
    stopped.tick(now_s)
    assert stopped.acts_for(now_s) == set()


def test_a_second_process_under_one_name_does_not_begin() -> None:
    shared, now_s = Shared(), 0.0
    first = Process(shared, Tenure(name="a", instance="1", place="here"), 0.0, 0.0)
    second = Process(shared, Tenure(name="a", instance="2", place="there"), 0.0, 0.0)
    first.tick(now_s)
    for _ in range(20):
        now_s += TIMES.look_s
        second.tick(now_s)
        first.tick(now_s)
    assert second.refused
    assert len(first.acts_for(now_s)) == PARTITIONS


def test_a_controller_that_was_killed_begins_at_once_where_its_folder_shows_that_it_is_dead() -> None:
    shared = Shared()
    Process(shared, Tenure(name="a", instance="1", place="here"), 0.0, 0.0).tick(0.0)
    again = Process(shared, Tenure(name="a", instance="2", place="here"), 0.0, 0.0)
    again.tick(0.5)
    assert len(again.acts_for(0.5)) == PARTITIONS
    elsewhere = Process(shared, Tenure(name="a", instance="3", place="there"), 0.0, 0.0)
    elsewhere.tick(0.5)
    assert not elsewhere.acts_for(0.5)


def test_what_a_killed_controller_held_above_its_new_share_goes_to_who_joined_meanwhile() -> None:
    shared, now_s = Shared(), 0.0
    Process(shared, Tenure(name="a", instance="1", place="here"), 0.0, 0.0).tick(0.0)
    joined = Process(shared, Tenure(name="b", instance="2", place="there"), 0.0, 0.0)
    again = Process(shared, Tenure(name="a", instance="3", place="here"), 0.0, 0.0)
    for _ in range(5):
        now_s += TIMES.look_s
        joined.tick(now_s)
        again.tick(now_s)
    assert [len(one.acts_for(now_s)) for one in (joined, again)] == [PARTITIONS / 2, PARTITIONS / 2]


def test_a_store_that_was_away_makes_nobody_take_the_others_for_dead() -> None:
    shared, now_s = Shared(), 0.0
    processes = [Process(shared, Tenure(name=name, instance=name), 0.0, 0.0) for name in "ab"]
    for _ in range(20):
        now_s += TIMES.look_s
        for one in processes:
            one.tick(now_s)
    before = dict(shared.leases)
    now_s += 600.0
    for _ in range(20):
        now_s += TIMES.look_s
        for one in processes:
            one.tick(now_s)
    assert shared.leases == before


def test_the_partition_of_a_box_never_changes() -> None:
    """These stand in stores: another hash would leave boxes to nobody."""
    devices = ["0000000000000001", "k3f9x2m7q1w8e5r4", "zzzzzzzzzzzzzzzz"]
    assert [partition_of(DeviceId(device)) for device in devices] == [38, 34, 32]
