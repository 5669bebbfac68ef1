"""The counter of changes by people, whose row all of them wait for: a change raises it once, whatever it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.store.notes import CHANGES
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import EnrolledBox
from edgegpu_sync.ids import DeviceId, device_id

if TYPE_CHECKING:
    from edgegpu_cloud.store.records import Json
    from edgegpu_cloud.store.store import ControllerStore

DEVICES = [device_id(f"{number:016d}") for number in range(1, 4)]


def clock() -> float:
    return 1_000.0


@pytest.fixture
def counted(store: ControllerStore) -> ControllerStore:
    """Return a store with boxes."""
    with store.write() as tx:
        for device in DEVICES:
            box = EnrolledBox(device=device, enrolment=1, public="x" * 43, instance=device, name=f"box-{int(device)}")
            add_box(tx, box, Author("setup", 1.0))
    return store


def number(store: ControllerStore) -> int:
    with store.read() as tx:
        return tx.notes.number(CHANGES)


def seen_after(store: ControllerStore, change: int) -> tuple[set[DeviceId], set[DeviceId]]:
    """Return the boxes with documents, and those for the controller to look at, that came after a change."""
    with store.read() as tx:
        touched = {device for _, device in tx.boxes.touched_since(change, limit=9)}
        return set(tx.boxes.first_revisions_after(DEVICES, change)), touched


def test_a_document_and_its_box_are_one_change(counted: ControllerStore) -> None:
    fleet, before = Fleet(counted, clock=clock, by="anna"), number(counted)
    fleet.set_settings(DEVICES[0], SharingSettings(policy="spread"))
    assert number(counted) == before + 1
    assert seen_after(counted, before) == ({DEVICES[0]}, {DEVICES[0]})
    assert seen_after(counted, before + 1) == (set(), set())


def test_a_restored_box_that_is_confirmed_is_one_change(counted: ControllerStore) -> None:
    fleet = Fleet(counted, clock=clock, by="anna")
    fleet.set_settings(DEVICES[0], SharingSettings(policy="spread"))
    with counted.write() as tx:
        [box] = tx.boxes.get(DEVICES[:1]).values()
        tx.boxes.put([replace(box, sequence=replace(box.sequence, restored=True))])
    before = number(counted)
    fleet.confirm_restored(DEVICES[0])
    assert number(counted) == before + 1
    assert seen_after(counted, before) == ({DEVICES[0]}, {DEVICES[0]})


@pytest.mark.parametrize(
    ("kind", "args"),
    [(OperationKind.SHARING, {"policy": "spread"}), (OperationKind.INSTALL, {"wait_s": 60})],
)
def test_many_boxes_are_one_change_each(counted: ControllerStore, kind: OperationKind, args: Json) -> None:
    before = number(counted)
    Operations(counted, clock=clock, access=Access("anna")).start(kind, args, devices=DEVICES)
    OperationRunner(counted, clock=clock).step()
    assert number(counted) == before + len(DEVICES)
    assert seen_after(counted, before) == (set(DEVICES), set(DEVICES))
    assert seen_after(counted, number(counted)) == (set(), set())
