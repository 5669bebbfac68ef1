"""The rows of rollouts on each engine: which upgraded boxes have lost their upgrade."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from kits.stores import open_store

from edgegpu_cloud.store.records import BoxRecord, Latest
from edgegpu_cloud.store.rollouts.planned import PlanQuery
from edgegpu_cloud.store.rollouts.records import Json, RolloutBoxState, RolloutRecord
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.topics import TopicKind

NEW, OLD = "0.3.0", "0.2.0"
APPLIED_S, LATER_S = 100.0, 130.0
STAMP = Stamp(enrolment=1, epoch=Epoch(1, "9f2c4d1a7b3e5f60"), n=1)
KINDS = (TopicKind.STATUS, TopicKind.HEALTH)


@pytest.fixture
def store(store_url: str) -> Iterator[ControllerStore]:
    store = open_store(store_url)
    yield store
    store.close()


def upgraded(store: ControllerStore, number: int, *, agent: str, health: str, said_s: float) -> DeviceId:
    """Put in a box with its last messages; returns its id."""
    device = device_id(f"{number:016d}")
    with store.write() as tx:
        tx.boxes.add(
            BoxRecord(device=device, name=f"box-{number}", public="A" * 43, sequence=CommandSequence(enrolment=1))
        )
        tx.boxes.add_latest([Latest(device=device, kind=kind, stamp=STAMP, at_s=said_s, body={}) for kind in KINDS])
        tx.summaries.put([replace(tx.summaries.get([device])[device], agent=agent, health=health)])
    return device


def test_an_upgraded_box_is_lost_by_another_version_or_by_a_health_that_was_not_so(store: ControllerStore) -> None:
    well, unwell = {"version": OLD, "health": "ok"}, {"version": OLD, "health": "bad"}
    cases: list[tuple[str, str, Json | None, float, bool]] = [
        (NEW, "ok", well, LATER_S, False),
        (OLD, "ok", well, LATER_S, True),
        ("", "ok", well, LATER_S, False),
        (NEW, "bad", well, LATER_S, True),
        (NEW, "bad", None, LATER_S, True),
        (NEW, "bad", unwell, LATER_S, False),
        (OLD, "bad", well, APPLIED_S, False),
    ]
    lost = set()
    for number, (agent, health, _, said_s, is_lost) in enumerate(cases, 1):
        device = upgraded(store, number, agent=agent, health=health, said_s=said_s)
        lost |= {device} if is_lost else set()
    with store.write() as tx:
        rollout = RolloutRecord(
            kind="upgrade", subject="agent", change={"version": NEW}, strategy={}, by="anna", at_s=1.0, waves=2
        )
        number, boxes = tx.rollouts.add(rollout, PlanQuery(boxes=BoxQuery(present_since_s=0.0)))
        assert boxes == len(cases)
        tx.rollouts.put_boxes(
            replace(
                row,
                state=RolloutBoxState.APPLIED,
                since_s=APPLIED_S,
                changed=True,
                wave=1,
                before=cases[row.position][2],
            )
            for row in tx.rollouts.boxes(number, limit=100)
        )
    with store.read() as tx:
        assert {row.device for row in tx.rollouts.upgrade_lost(number, 1, limit=100)} == lost
        assert not tx.rollouts.upgrade_lost(number, 2, limit=100)
        assert len(tx.rollouts.upgrade_lost(number, 1, limit=2)) == 2
