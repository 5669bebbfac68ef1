"""A day in the audit has what changes of many boxes have done on it, also of those that began on an earlier day."""

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from alembic.operations import Operations as MigrationOperations
from alembic.runtime.migration import MigrationContext
from kits.stores import open_store
from sqlalchemy import Engine, event, text

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.audit.views import AuditView
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.rollouts.strategy import RolloutStrategy, WaveSize
from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import AuditEntry, AuditFilter, EnrolledBox
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import device_id

DAY_S = 86_400.0
DEVICES = [device_id(f"{number:016d}") for number in (1, 2, 3)]
ANNA = Access("anna")
AT_ONCE = RolloutStrategy(canary=0, sizes=(WaveSize(100, percent=True),))


@dataclass
class Days:
    """Three boxes, and a clock that moves on by days."""

    store: ControllerStore
    day: int = 10

    def clock(self) -> float:
        return self.day * DAY_S + 60.0

    def on(self, day: int, **where: object) -> list[AuditView]:
        """Return the entries of a day, each change of many boxes as one."""
        days = AuditFilter(since_s=day * DAY_S, until_s=(day + 1) * DAY_S, whole=True)
        return Fleet(self.store, clock=self.clock, by="anna").audit(replace(days, **where))  # type: ignore[arg-type]

    def start_operation(self, policy: str) -> str:
        operations = Operations(self.store, clock=self.clock, access=ANNA)
        return operations.start(OperationKind.SHARING, {"policy": policy}, devices=DEVICES).operation.id

    def operate(self) -> None:
        while OperationRunner(self.store, clock=self.clock).step():
            pass

    def start_rollout(self) -> int:
        request = RolloutRequest(change=SharingSettings(policy="spread"), strategy=AT_ONCE)
        return Rollouts(self.store, clock=self.clock, access=ANNA).start(request)

    def roll_out(self) -> None:
        with self.store.write() as tx:
            boxes = tx.boxes.get(DEVICES)
            tx.boxes.put([replace(box, online=True, seen_at_s=self.clock()) for box in boxes.values()])
        for _ in range(5):
            RolloutRunner(self.store, clock=self.clock).step()


def kinds(entries: list[AuditView]) -> list[tuple[str, object]]:
    return [(one.what, one.detail.get("part_of")) for one in entries]


@pytest.fixture
def days(store: ControllerStore) -> Days:
    days = Days(store)
    with store.write() as tx:
        for device in DEVICES:
            box = EnrolledBox(device=device, enrolment=1, public="x" * 43, instance=device, name=f"box-{device[-1]}")
            add_box(tx, box, Author("setup", 1.0))
    return days


def test_an_operation_begun_on_an_earlier_day_has_one_row(days: Days) -> None:
    id_ = days.start_operation("spread")
    days.day += 1
    days.operate()
    assert kinds(days.on(10)) == [("operation", None)]
    (row,) = days.on(11)
    parts = Fleet(days.store, clock=days.clock, by="anna").audit(AuditFilter(part_of=id_))
    assert (row, len(parts)) == (parts[0], 3)
    assert days.on(11, before=row.number) == [], "an older page has no other part of it"
    assert [one.device for device in DEVICES for one in days.on(11, device=device)] == DEVICES, "a box has its own part"
    assert days.on(12) == []


def test_a_rollout_begun_on_an_earlier_day_has_one_row(days: Days) -> None:
    number = days.start_rollout()
    days.day += 1
    days.roll_out()
    assert kinds(days.on(10)) == [("rollout.started", None)]
    assert kinds(days.on(11)) == [("box.spec", f"rollout/{number}")]
    assert days.on(11, by="otto") == []


def test_a_rollout_of_the_same_day_is_the_row_of_its_start(days: Days) -> None:
    number = days.start_rollout()
    days.roll_out()
    assert kinds(days.on(10)) == [("rollout.started", None)]
    assert len(days.on(10, whole=False, part_of=f"rollout/{number}")) == 3


def test_each_change_has_one_row_of_its_own(days: Days) -> None:
    early = days.start_operation("spread")
    days.day += 1
    days.operate()
    days.start_operation("best-fit")
    days.operate()
    assert kinds(days.on(11)) == [("operation", None), ("box.spec", early)]
    assert [what for what, _ in kinds(days.on(11, by="anna", whole=False))].count("box.spec") == 6


class TestCost:
    """What a page of the audit reads: never the entries of all time, however many there are."""

    @pytest.mark.parametrize(
        "where",
        [
            AuditFilter(since_s=10 * DAY_S, until_s=11 * DAY_S, whole=True),
            AuditFilter(since_s=10 * DAY_S, whole=True, app="default/asr"),
            AuditFilter(until_s=11 * DAY_S),
            AuditFilter(part_of="01m8mfgbky4sg8cg6hskqe4eyg"),
            AuditFilter(whole=True),
        ],
    )
    def test_sqlite_finds_it_by_an_index(self, tmp_path: Path, where: AuditFilter) -> None:
        store = open_store(tmp_path / "controller.db")
        plan: list[str] = []

        def explain(connection: Any, _: object, statement: str, parameters: Any, *rest: object) -> None:  # noqa: ANN401
            del rest
            if statement.startswith("SELECT audit."):
                cursor = connection.connection.cursor()
                cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                plan.extend(str(row[3]) for row in cursor.fetchall())

        event.listen(Engine, "before_cursor_execute", explain)
        try:
            Fleet(store, clock=lambda: 11 * DAY_S, by="anna").audit(where)
        finally:
            event.remove(Engine, "before_cursor_execute", explain)
            store.close()
        assert plan
        assert not [step for step in plan if step.startswith("SCAN")], plan
        assert "USE TEMP B-TREE FOR ORDER BY" not in plan


def test_the_revision_reads_the_part_out_of_each_entry(tmp_path: Path) -> None:
    path = tmp_path / "controller.db"
    store = open_store(path)
    parts = [AuditEntry(at_s=1.0, by="anna", what="box.spec", detail={"part_of": "rollout/7"})]
    with store.write() as tx:
        tx.notes.audit(*parts, AuditEntry(at_s=2.0, by="anna", what="sign_in"))
    store.close()
    engine = open_engine(f"sqlite:///{path}")
    with writing(engine).begin() as connection:
        before = connection.execute(text("SELECT number, part_of FROM audit ORDER BY number")).all()
        for name in ("audit_by_part", "audit_by_time"):
            connection.execute(text(f"DROP INDEX {name}"))
        connection.execute(text("ALTER TABLE audit DROP COLUMN part_of"))
        with MigrationOperations.context(MigrationContext.configure(connection)):
            import_module("edgegpu_cloud.store.versions.0021_audit").upgrade()
        assert connection.execute(text("SELECT number, part_of FROM audit ORDER BY number")).all() == before
    engine.dispose()
    assert [part for _, part in before] == ["rollout/7", None]
