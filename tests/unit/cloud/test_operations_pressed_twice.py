"""Two presses of one button at the same moment on PostgreSQL: both get the one operation, whichever commits first."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from edgegpu_cloud.errors import ConflictError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.operations.records import BoxArgs, OperationKind
from edgegpu_cloud.store.records import EnrolledBox, Json
from edgegpu_cloud.store.store import CommitMoment, ControllerStore
from edgegpu_sync.ids import device_id

if TYPE_CHECKING:
    from kits.postgres import PostgresServer

    from edgegpu_cloud.fleet.operations.operations import OperationView

LIMITS: Json = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 4, "core": 1}
DEVICES = [device_id(f"{number:016d}") for number in range(1, 4)]
LIMIT_S = 30.0
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class HeldStore:
    """A store whose first commit waits until another transaction waits for it."""

    def __init__(self, url: str) -> None:
        self.begun, self._engine = threading.Event(), open_engine(url)
        self.store = ControllerStore.open(url, watcher=self._watch)

    def _watch(self, moment: CommitMoment) -> None:
        if moment is not CommitMoment.BEFORE_COMMIT or self.begun.is_set():
            return
        self.begun.set()
        end_s = time.monotonic() + LIMIT_S
        with self._engine.connect() as connection:
            while not connection.execute(text(WAITING)).scalar_one():
                connection.rollback()
                assert time.monotonic() < end_s, "nobody waits for the first press"

    def close(self) -> None:
        self.store.close()
        self._engine.dispose()


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    url = postgres_server.new_database()
    store = ControllerStore.open(url)
    for device in DEVICES:
        box = EnrolledBox(
            device=device, enrolment=1, public="A" * 43, instance="ab" * 32, name=f"box-{device}", labels={}
        )
        with store.write() as tx:
            add_box(tx, box, Author("setup", 1.0))
    store.close()
    return url


def press(store: ControllerStore, units: int = 4) -> OperationView:
    own = {device: BoxArgs(seen_rev=0) for device in DEVICES}
    operations = Operations(store, clock=time.time, access=Access("anna"))
    args = LIMITS | {"memory_units": units}
    return operations.start(OperationKind.LIMITS, args, devices=DEVICES, own=own, key="pressed")


def test_the_later_gets_the_operation_of_the_first(url: str) -> None:
    held, other = HeldStore(url), ControllerStore.open(url)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(press, held.store)
        assert held.begun.wait(LIMIT_S)
        second = press(other)
        assert first.result(LIMIT_S) == second
    operations = Operations(other, clock=time.time, access=Access("anna"))
    assert [one.operation.id for one in operations.list()] == [second.operation.id]
    assert second.operation.boxes == len(DEVICES)
    held.close()
    other.close()


def test_another_change_under_the_key_is_told_so(url: str) -> None:
    held, other = HeldStore(url), ControllerStore.open(url)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(press, held.store)
        assert held.begun.wait(LIMIT_S)
        with pytest.raises(ConflictError, match="was another request"):
            press(other, units=5)
        first.result(LIMIT_S)
    held.close()
    other.close()
