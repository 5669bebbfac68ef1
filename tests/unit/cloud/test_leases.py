"""Leases in the store, on each database: one holder, a fence in each transaction, times that never fall."""

from __future__ import annotations

import threading

import pytest

from edgegpu_cloud.controller.leases import PartitionLeases
from edgegpu_cloud.controller.partitions import LeaseTimes
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.store.controllers.leadership import LeasesLostError
from edgegpu_cloud.store.records import PARTITIONS, ControllerBeat, EnrolledBox, Lease, partition_of
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_sync.ids import DeviceId, device_id

DEVICES = [device_id(f"{number:016d}") for number in range(40)]
TIMES = LeaseTimes()


def enrol(tx: Transaction, device: DeviceId) -> None:
    add_box(tx, EnrolledBox(device=device, enrolment=1, public="x" * 43, instance=device), Author("anna", 1.0))


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def leases(store: ControllerStore, name: str, clock: Clock, *, place: str = "") -> PartitionLeases:
    return PartitionLeases(store, name, shared=True, place=place or name, times=TIMES, clock=clock, steady=clock)


def work(clock: Clock, *those: PartitionLeases, seconds: float = 1.0) -> None:
    end_s = clock.now_s + seconds
    while clock.now_s < end_s:
        clock.now_s += TIMES.look_s
        for one in those:
            one.look()


def test_a_lease_goes_to_one_of_two_who_have_seen_it_free(store: ControllerStore) -> None:
    seen = Lease(7, "", 0)
    with store.write() as tx:
        assert tx.leases.give(seen, "a") == 1
    with store.write() as tx:
        assert tx.leases.give(seen, "b") is None
        assert tx.leases.all()[7] == Lease(7, "a", 1)
        assert tx.leases.lost({7: 1, 8: 0, 9: 5}) == {9}


def test_what_is_limited_to_partitions_finds_their_boxes_and_no_others(store: ControllerStore) -> None:
    with store.write() as tx:
        for device in DEVICES:
            enrol(tx, device)
    held = {partition_of(DEVICES[0]), partition_of(DEVICES[1])}
    mine = [device for device in DEVICES if partition_of(device) in held]
    with store.read() as tx:
        assert tx.boxes.enrolled(held) == mine
        assert tx.boxes.enrolled() == DEVICES
        assert tx.boxes.enrolled([]) == []
        assert [device for _, device in tx.boxes.touched_since(0, limit=100, held=held)] == mine


def test_the_time_that_boxes_receive_is_their_partitions_own_and_never_falls(store: ControllerStore) -> None:
    first, other = DEVICES[0], next(one for one in DEVICES if partition_of(one) != partition_of(DEVICES[0]))
    with store.write() as tx:
        assert tx.leases.server_times([first, other], 100.9) == {first: 100, other: 100}
        assert tx.leases.server_times([first], 160.0) == {first: 160}  # a controller whose clock is 60 s ahead
    with store.write() as tx:  # its partition goes to one whose clock is right
        assert tx.leases.server_times([first, other], 101.0) == {first: 160, other: 101}
        assert tx.leases.newest_server_time() == 160


def test_each_change_by_a_person_has_a_number_of_its_own(store: ControllerStore) -> None:
    numbers: list[int] = []

    def change() -> None:
        for _ in range(20):
            with store.write() as tx:
                numbers.append(tx.notes.changed())

    threads = [threading.Thread(target=change) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 61))


def test_controllers_share_and_who_ends_leaves_at_once(store: ControllerStore) -> None:
    clock = Clock()
    a, b = leases(store, "a", clock), leases(store, "b", clock)
    work(clock, a)
    assert len(a.held) == PARTITIONS
    work(clock, b, a, b, seconds=2)
    assert (len(a.held), len(b.held)) == (32, 32)
    assert not a.held & b.held
    assert a.end().gone
    assert a.held == frozenset()
    work(clock, b)
    assert len(b.held) == PARTITIONS
    assert b.leads


def test_who_was_stopped_can_write_nothing_for_what_it_lost(store: ControllerStore) -> None:
    clock = Clock()
    stopped, other = leases(store, "stopped", clock), leases(store, "other", clock)
    work(clock, stopped)
    work(clock, other, seconds=TIMES.lost_s + 2)
    assert len(stopped.held) == PARTITIONS  # it does not know yet
    assert not stopped.acts_for(0)
    with pytest.raises(LeasesLostError) as lost, stopped.write([0, 1]) as tx:
        tx.notes.changed()
    assert lost.value.numbers == {0, 1}
    with store.read() as tx:
        assert tx.notes.number("changes") == 0
    change = stopped.look()
    assert len(change.gone) == PARTITIONS
    work(clock, stopped, other, seconds=3)
    assert (len(stopped.held), len(other.held)) == (32, 32)


def test_nobody_takes_a_lease_while_a_transaction_writes_for_it(store: ControllerStore) -> None:
    clock = Clock()
    first = leases(store, "first", clock)
    work(clock, first)
    began, taken = threading.Event(), threading.Event()
    fence = next(one for one in _all(store) if one.number == 5).fence

    def take() -> None:
        began.set()
        with store.write() as tx:
            assert tx.leases.give(Lease(5, "first", fence), "second") == fence + 1
        taken.set()

    thread = threading.Thread(target=take)
    with first.write([5]) as tx:
        tx.notes.changed()
        thread.start()
        began.wait(10)
        assert not taken.wait(0.3)
    thread.join(10)
    assert taken.is_set()


def _all(store: ControllerStore) -> list[Lease]:
    with store.read() as tx:
        return tx.leases.all()


def test_a_second_process_under_one_name_is_refused_and_harms_nobody(store: ControllerStore) -> None:
    clock = Clock()
    first, second = leases(store, "a", clock), leases(store, "a", clock, place="elsewhere")
    work(clock, first)
    second.look()
    assert second.held == frozenset()
    with pytest.raises(CloudError, match="another process is a"):
        work(clock, first, second, seconds=6)
    assert len(first.held) == PARTITIONS


def test_one_that_was_killed_begins_again_at_once_at_its_own_place(store: ControllerStore) -> None:
    clock = Clock()
    work(clock, leases(store, "a", clock))
    again = leases(store, "a", clock)
    work(clock, again)
    assert len(again.held) == PARTITIONS


def test_one_that_is_alone_takes_everything_whoever_is_there(store: ControllerStore) -> None:
    with store.write() as tx:
        tx.leases.join(ControllerBeat(name="dead", instance="1", beat=1))
        for lease in tx.leases.all():
            tx.leases.give(lease, "dead")
    alone = PartitionLeases(store, "controller-1")
    assert len(alone.begin().gained) == PARTITIONS
    assert alone.acts_for(63)
    with alone.write(range(PARTITIONS)) as tx:
        assert {one.holder for one in tx.leases.all()} == {"controller-1"}


def test_controllers_that_died_long_ago_are_forgotten(store: ControllerStore) -> None:
    clock = Clock()
    clock.now_s = 1e6
    with store.write() as tx:
        tx.leases.join(ControllerBeat(name="dead", instance="1", beat=1, seen_at_s=1.0))
    one = leases(store, "a", clock)
    work(clock, one, seconds=TIMES.lost_s + 3)
    with one.write([0]) as tx:
        one.tidy(tx)
    with store.read() as tx:
        assert [beat.name for beat in tx.leases.controllers()] == ["a"]
