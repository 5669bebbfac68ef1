"""Telemetry through a worker: by difference, no faster than it may, whole when asked, measurements given up first."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.telemetry import CLUSTER, UUID, Source, pod, seen
from kits.worker import Wire, fast_folder, wired

from edgegpu_agent.ports import ClusterIdentity
from edgegpu_sync.messages.telemetry import (
    Alloc,
    BoxHealth,
    HealthPart,
    Inventory,
    MemoryUse,
    Metrics,
    PendingContainer,
    PendingPod,
    PendingPods,
    PodAlloc,
    merged,
)
from edgegpu_sync.messages.uplink import Reported


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def wire(source: Source) -> Iterator[Wire]:
    with fast_folder() as folder:
        wire = wired(Path(folder), telemetry=source)
        source.clock = lambda: wire.box.world.clock_s
        yield wire
        wire.box.crash()


def waiting(*names: str, reason: str = "needs 20 vcuda-memory on one card; card 0 has 9 free") -> PendingPods:
    asks = (PendingContainer(name="main", memory_units=20, core=1),)
    return PendingPods(
        cluster=True,
        pods=tuple(
            PendingPod(uid=name, namespace="default", name=name, state="pending", reason=reason, containers=asks)
            for name in names
        ),
    )


def test_at_the_birth_everything_goes_up_once(wire: Wire) -> None:
    assert [len(seen(wire, kind)) for kind in (Inventory, Alloc, BoxHealth)] == [1, 1, 1]
    (reported,) = seen(wire, Reported)
    assert (reported.cluster, reported.holder) == ("3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11", True)
    wire.pass_time(500, 5)
    assert [len(seen(wire, kind)) for kind in (Inventory, Alloc, BoxHealth)] == [0, 0, 0]


def test_a_cluster_or_holder_that_becomes_another_is_reported_within_seconds(wire: Wire, source: Source) -> None:
    seen(wire, Reported)
    for there in (ClusterIdentity(), ClusterIdentity(CLUSTER.uid), CLUSTER):
        source.here = there
        wire.pass_time(6)
        (reported,) = seen(wire, Reported)
        assert (reported.cluster, reported.holder) == (there.uid, there.holder)


def test_a_lease_that_goes_to_and_fro_is_reported_no_faster_than_every_five_seconds(wire: Wire, source: Source) -> None:
    seen(wire, Reported)
    for number in range(50):
        source.here = ClusterIdentity(CLUSTER.uid, holder=bool(number % 2))
        wire.pass_time(1)
    assert 5 <= len(seen(wire, Reported)) <= 11


def test_nothing_changed_is_said_again_after_ten_minutes(wire: Wire) -> None:
    wire.pass_time(1_400, 10)
    assert [len(seen(wire, kind)) for kind in (Inventory, Alloc, BoxHealth)] == [3, 1, 3]


def test_allocations_go_up_as_what_changed(wire: Wire, source: Source) -> None:
    source.pods = {"a1": pod("asr"), "b2": pod("ocr")}
    wire.pass_time(6)
    source.pods = {"b2": pod("ocr"), "c3": pod("llm")}
    wire.pass_time(6)
    wire.pass_time(6)
    whole, first, second = seen(wire, Alloc)
    assert whole.base is None
    assert (first.base, second.base) == (whole.n, first.n)
    assert (set(second.pods), second.gone) == ({"c3"}, ("a1",))
    held = merged(merged(merged({}, whole), first), second)
    assert held == source.pods


def test_who_waits_goes_up_when_it_changes_and_again_with_the_whole(wire: Wire, source: Source) -> None:
    source.pods, source.waiting = {"a1": pod("asr")}, waiting("llm")
    wire.pass_time(6)
    source.waiting = waiting("llm", reason="needs 20 vcuda-memory on one card; card 0 has 4 free")
    wire.pass_time(6)
    wire.pass_time(6)
    _, held, first, second = seen(wire, Alloc)
    assert (held.pending, first.base, second.base) == (None, held.n, first.n)
    assert first.pending == waiting("llm")
    assert second.pending == source.waiting
    assert (first.pods, second.pods, second.gone) == ({}, {}, ())


def test_who_waits_is_told_where_the_words_leave_no_room_for_all(wire: Wire, source: Source) -> None:
    source.waiting = waiting(*(f"pod-{number}" for number in range(40)), reason="卡" * 1_000)
    wire.pass_time(6)
    message = seen(wire, Alloc)[-1]
    assert message.pending is not None
    assert 0 < len(message.pending.pods) < 40
    assert len(message.pending.pods) + message.pending.more == 40
    wire.pass_time(60)
    assert seen(wire, Alloc) == []


def test_a_new_birth_and_a_question_bring_the_whole(wire: Wire, source: Source) -> None:
    source.pods = {"a1": pod("asr")}
    wire.pass_time(6)
    seen(wire, Alloc)
    wire.down.append(wire.controller.receipt(ask=("alloc", "inventory", "health")))
    wire.exchange()
    (alloc,) = seen(wire, Alloc)
    assert (alloc.base, set(alloc.pods)) == (None, {"a1"})
    wire.box.disconnect()
    wire.connect()
    wire.exchange()
    (alloc,) = seen(wire, Alloc)
    assert (alloc.base, set(alloc.pods)) == (None, {"a1"})


def test_more_pods_than_fit_into_a_message_go_in_pieces(wire: Wire, source: Source) -> None:
    seen(wire, Alloc)
    source.pods = {f"uid-{number}": pod(f"pod-{number}") for number in range(700)}
    wire.pass_time(6)
    pieces = seen(wire, Alloc)
    assert len(pieces) == 5
    held: dict[str, PodAlloc] = {}
    for piece in pieces:
        held = merged(held, piece)
    assert held == source.pods


def test_a_flapping_source_is_asked_every_five_seconds_and_no_more(wire: Wire, source: Source) -> None:
    asked = source.asked
    for number in range(50):
        source.parts = (HealthPart(name="plugin", state="bad" if number % 2 else "warn"),)
        wire.pass_time(1)
    assert source.asked - asked <= 11
    assert len(seen(wire, BoxHealth)) <= 12


def test_what_cannot_be_sent_ends_nothing(wire: Wire, source: Source) -> None:
    source.node = "No Such Name!"
    source.parts = (HealthPart(name="plugin", state="bad"),)
    seen(wire, BoxHealth)
    wire.pass_time(10)
    assert seen(wire, BoxHealth)[-1].state == "bad"
    source.node = "box-2"
    wire.pass_time(700, 10)
    assert seen(wire, Inventory)[-1].node == "box-2"


def test_health_says_what_was_refused_and_how_full_the_outbox_is(wire: Wire) -> None:
    seen(wire, BoxHealth)
    wire.box.arrive("edgegpu/v1/nonsense", b"")
    wire.down.append(wire.controller.receipt(ask=("health",)))
    wire.exchange()
    (health,) = seen(wire, BoxHealth)
    assert (health.refused, health.outbox_used) == ({"UnknownTopic": 1}, 0.0)


def test_measurements_go_up_each_quarter_of_an_hour_and_when_asked(wire: Wire, source: Source) -> None:
    wire.pass_time(3_700, 20)
    messages = seen(wire, Metrics)
    assert [(len(one.samples), one.period_s) for one in messages] == [(15, 60)] * 4
    source.period_s = 30
    wire.pass_time(130, 10)
    wire.down.append(wire.controller.receipt(ask=("metrics",)))
    wire.exchange()
    (asked,) = seen(wire, Metrics)
    assert asked.period_s == 30
    assert 1 <= len(asked.samples) <= 4
    assert wire.box.worker.status().metrics_waiting == 0


def use(uid: str | None, *, memory_mib: int = 700, container: str | None = "main") -> MemoryUse:
    return MemoryUse(card=UUID, uid=uid, container=container, processes=1, memory_mib=memory_mib)


def test_what_containers_use_goes_up_once_in_a_message(wire: Wire, source: Source) -> None:
    source.memory_use = (use("77aa"),)
    wire.pass_time(1_900, 20)
    first, *later = seen(wire, Metrics)
    assert [len(one.samples) for one in (first, *later)] == [1, 15, 15]  # new containers do not wait for the batch
    for message in (first, *later):
        assert message.samples[-1].memory_use == source.memory_use
        assert {one.memory_use for one in message.samples[:-1]} <= {None}


def test_a_container_that_came_is_told_of_at_once_a_changed_amount_is_not(wire: Wire, source: Source) -> None:
    source.memory_use = (use("77aa"),)
    wire.pass_time(130, 10)
    seen(wire, Metrics)
    source.memory_use = (use("77aa", memory_mib=900), use(None, container=None))
    wire.pass_time(130, 10)
    assert seen(wire, Metrics) == []
    source.memory_use = (use("77aa"), use("88bb"))
    wire.pass_time(70, 10)
    (message,) = seen(wire, Metrics)
    assert message.samples[-1].memory_use == source.memory_use


def test_containers_for_which_there_is_no_room_give_way_to_the_cards(wire: Wire, source: Source) -> None:
    long = "c" * 253
    source.memory_use = tuple(use(f"{number:064d}", container=long) for number in range(200))
    wire.pass_time(70, 10)
    (message,) = seen(wire, Metrics)
    assert [one.memory_use for one in message.samples] == [None]


def test_measurements_of_days_offline_are_given_up_first(wire: Wire) -> None:
    wire.box.disconnect()
    for hour in range(72):
        if hour % 6 == 0:
            wire.box.worker.send_event("x.y", "an event", level="alarm")
        for _ in range(60):
            wire.box.wait(60)
    status = wire.box.worker.status()
    assert status.events_waiting == 12
    assert status.metrics_dropped > 100
    assert status.metrics_waiting > 5
    wire.connect()
    wire.exchange(300)
    after = wire.box.worker.status()
    assert (after.events_waiting, after.metrics_waiting) == (0, 0)


def test_a_change_that_the_source_tells_of_goes_up_within_a_second_and_no_faster(wire: Wire, source: Source) -> None:
    wire.pass_time(6)
    seen(wire, Alloc)
    source.pods = {"a1": pod("asr")}
    wire.box.worker.measured()
    wire.pass_time(1)
    assert len(seen(wire, Alloc)) == 1
    for number in range(20):
        source.pods = {f"a{number}": pod("asr")}
        wire.box.worker.measured()
        wire.pass_time(0.1, 0.1)
    assert 1 <= len(seen(wire, Alloc)) <= 3
