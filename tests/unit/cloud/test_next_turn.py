"""Periodic steps on PostgreSQL that meet another transaction: they are done at their next turn, and end no process."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from edgegpu_cloud.controller.leases import LeaseChange, PartitionLeases
from edgegpu_cloud.controller.partitions import LeaseTimes
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.rollouts.strategy import RolloutStrategy
from edgegpu_cloud.store.controllers.next_turn import tried_next_turn
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind
from edgegpu_cloud.store.records import EnrolledBox
from edgegpu_cloud.store.store import ContendedError, ControllerStore, RecordError, StoreError
from edgegpu_sync.ids import device_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kits.postgres import PostgresServer

ANNA, NOW_S, TIMES = Access("anna"), 1_000.0, LeaseTimes()
DEVICE, OTHER = device_id("0" * 15 + "1"), device_id("0" * 15 + "2")


def clock() -> float:
    return NOW_S


def hurry(connection: Any, _: object) -> None:  # noqa: ANN401  (the driver's own connection)
    """Let PostgreSQL end a wait for a lock at once, as it does after 30 s: with the same error."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '100ms'")
    connection.commit()


@pytest.fixture
def store(postgres_server: PostgresServer) -> Iterator[ControllerStore]:
    engine = open_engine(postgres_server.new_store())
    event.listen(engine, "connect", hurry)
    store = ControllerStore(engine)
    with store.write() as tx:
        for number, device in enumerate((DEVICE, OTHER), 1):
            box = EnrolledBox(device=device, enrolment=1, public="x" * 43, instance=f"a{number}", name=f"box-{number}")
            add_box(tx, box, Author("setup", 1.0))
        boxes = tx.boxes.get([DEVICE, OTHER])
        tx.boxes.put([replace(box, online=True, seen_at_s=NOW_S) for box in boxes.values()])
    yield store
    store.close()


@contextmanager
def held(store: ControllerStore) -> Iterator[None]:
    """Hold the row of a box in another transaction."""
    with store.write() as tx:
        tx.boxes.get([DEVICE])
        yield


def rev(store: ControllerStore) -> int:
    with store.read() as tx:
        return tx.boxes.get([DEVICE])[DEVICE].spec_rev


def test_an_operation_is_stored_at_the_next_turn(store: ControllerStore, caplog: pytest.LogCaptureFixture) -> None:
    operations = Operations(store, clock=clock, access=ANNA)
    id_ = operations.start(OperationKind.SHARING, {"policy": "spread"}, devices=[DEVICE]).operation.id
    runner = OperationRunner(store, clock=clock)
    with held(store):
        assert not runner.step(), "the next turn comes after a wait"
    assert (operations.get(id_).outcomes, rev(store)) == ({BoxOutcome.QUEUED: 1}, 0)
    assert "another change was in the way" in caplog.text
    assert runner.step()
    assert (operations.get(id_).outcomes, rev(store)) == ({BoxOutcome.STORED: 1}, 1)


def test_a_rollout_goes_on_at_the_next_turn_and_others_meanwhile(store: ControllerStore) -> None:
    rollouts = Rollouts(store, clock=clock, access=ANNA)
    change = SharingSettings(policy="spread")
    first, second = (
        rollouts.start(RolloutRequest(change=change, strategy=RolloutStrategy(), boxes=[name]))
        for name in ("box-1", "box-2")
    )
    runner = RolloutRunner(store, clock=clock)
    before = rollouts.boxes(first), rollouts.boxes(second)
    with held(store):
        runner.step()
    assert rollouts.boxes(first) == before[0]
    assert rollouts.boxes(second) != before[1]
    runner.step()
    assert rollouts.boxes(first) != before[0]
    assert rev(store) == 1


def test_leases_that_cannot_be_renewed_are_held_and_renewed_at_the_next_turn(store: ControllerStore) -> None:
    now_s = [NOW_S]
    leases = PartitionLeases(store, "one", shared=True, place="one", times=TIMES, clock=clock, steady=lambda: now_s[0])
    while not leases.leads:
        now_s[0] += TIMES.look_s
        leases.look()
    renewed_s = now_s[0]
    now_s[0] += TIMES.renew_s
    held = leases.held
    with store.write() as tx:
        tx.leases.beat("one", next(iter(tx.leases.controllers())).instance, now_s=NOW_S)
        assert leases.look() == LeaseChange()
    assert leases.held == held
    now_s[0] += TIMES.look_s
    leases.look()
    now_s[0] = renewed_s + TIMES.lost_s
    assert leases.leads, "it was renewed at the next turn"


@pytest.mark.parametrize("error", [StoreError("the disk is full"), RecordError("it is there twice"), ValueError("x")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)), tried_next_turn("work"):
        raise error
    with tried_next_turn("work"):
        raise ContendedError("another change was in the way")
