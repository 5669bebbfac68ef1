"""Retention: each kind goes after its own days, a batch at a time, and nothing that is open goes at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.storeschema import DEVICE, make_released, row_of
from pydantic import ValidationError
from sqlalchemy import Table, delete, func, insert, select, update

from edgegpu_cloud.layout import CloudConfig, RetentionConfig
from edgegpu_cloud.store.controllers.leases import ALL
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.migrations import upgrade
from edgegpu_cloud.store.records import LEADER
from edgegpu_cloud.store.retention import PURGED_AT_ONCE, Purge
from edgegpu_cloud.store.schema import TableRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Connection

DAY_S = 86_400.0
NOW_S = 1_000 * DAY_S
TABLES: dict[str, Table] = dict(TableRow.metadata.tables)
WHEN = {
    "commands": ("ended_at_s", "commands_days"),
    "events": ("at_s", "events_days"),
    "rollouts": ("ended_at_s", "rollouts_days"),
    "operations": ("ended_at_s", "operations_days"),
    "alerts": ("resolved_at_s", "alerts_days"),
    "evidence": ("at_s", "evidence_days"),
    "card_use": ("quarter_s", "use_days"),
    "tokens": ("expires_at_s", "enrolments_days"),
    "certificates": ("not_after_s", "enrolments_days"),
    "audit": ("at_s", "audit_days"),
}
LATER = ("rollouts", "rollout_boxes", "operations", "operation_boxes", "alerts", "evidence", "card_use")
ALSO_GO = {"commands": "history", "rollouts": "rollout_boxes", "operations": "operation_boxes"}
KEEP = RetentionConfig(**{field: 10 for _, field in WHEN.values()})


@pytest.fixture
def connection(empty_url: str) -> Iterator[Connection]:
    """Yield a connection to a store with rows in each table, all of which ended or happened just now."""
    make_released(empty_url)
    upgrade(empty_url)
    engine = open_engine(empty_url)
    with engine.connect() as connection:
        for name in LATER:
            rows = [row_of(TABLES[name], number) for number in (1, 2)]
            if name == "operation_boxes":
                rows = [row | {"operation": f"id-{number}"} for number, row in enumerate(rows, 1)]
            connection.execute(insert(TABLES[name]), rows)
        connection.execute(update(TABLES["history"]).values(command="id-1"))
        for name, (column, _) in WHEN.items():
            connection.execute(update(TABLES[name]).values({column: NOW_S}))
        connection.execute(update(TABLES["alarms"]).values(seen_by="", at_s=NOW_S))
        yield connection
        connection.rollback()
    engine.dispose()


def count(connection: Connection, name: str) -> int:
    return int(connection.execute(select(func.count()).select_from(TABLES[name])).scalar_one())


def counts(connection: Connection) -> dict[str, int]:
    return {name: count(connection, name) for name in TABLES}


def purge(connection: Connection, keep: RetentionConfig = KEEP, held: Collection[int] = ALL) -> int:
    """Purge until nothing more is told; return how many times."""
    for times in range(1, 100):
        one = Purge(connection, keep, now_s=NOW_S)
        one.run(held=held)
        if not one.more:
            return times
    pytest.fail("it never ends")


@pytest.mark.parametrize("name", WHEN)
def test_each_kind_goes_after_its_own_days(connection: Connection, name: str) -> None:
    before, (column, field) = counts(connection), WHEN[name]
    connection.execute(update(TABLES[name]).values({column: NOW_S - 10 * DAY_S + 1}))
    purge(connection)
    assert counts(connection) == before
    connection.execute(update(TABLES[name]).values({column: NOW_S - 10 * DAY_S - 1}))
    purge(connection, KEEP.model_copy(update={field: 11}))
    assert counts(connection) == before
    purge(connection)
    gone = {one for one, number in counts(connection).items() if number < before[one]}
    assert gone == {name, *([ALSO_GO[name]] if name in ALSO_GO else [])}
    assert count(connection, name) == 0


def test_what_is_open_stays_however_old_it_is(connection: Connection) -> None:
    for name in ("commands", "rollouts", "operations"):
        connection.execute(update(TABLES[name]).values(ended_at_s=None))
    connection.execute(update(TABLES["alerts"]).values(resolved_at_s=None))
    connection.execute(update(TABLES["alarms"]).values(at_s=1.0))
    before = counts(connection)
    assert purge(connection) == 1
    assert counts(connection) == before
    connection.execute(update(TABLES["alarms"]).values(seen_by="anna"))
    purge(connection)
    assert count(connection, "alarms") == 0


@pytest.mark.parametrize("outcome", ["QUEUED", "STORED"])
def test_an_operation_stays_while_a_box_has_not_ended_it(connection: Connection, outcome: str) -> None:
    operations, of, boxes = (TABLES[name] for name in ("operations", "operation_boxes", "boxes"))
    connection.execute(update(operations).values(ended_at_s=1.0))
    connection.execute(update(of).where(of.c.operation == "id-1").values(outcome=outcome, device=DEVICE))
    connection.execute(update(of).where(of.c.operation == "id-2").values(outcome=outcome, device="f" * 16))
    connection.execute(update(boxes).values(state="ENROLLED"))

    def kept() -> tuple[list[str], list[str]]:
        purge(connection)
        ids = connection.execute(select(operations.c.id)).scalars().all()
        return list(ids), list(connection.execute(select(of.c.operation)).scalars())

    assert kept() == (["id-1"], ["id-1"]), "the other one waits for a box that was forgotten"
    connection.execute(update(of).values(outcome="APPLIED"))
    assert kept() == ([], [])


@pytest.mark.parametrize("state", ["REVOKED", "SET_ASIDE"])
def test_a_box_of_which_nothing_is_heard_holds_no_operation(connection: Connection, state: str) -> None:
    connection.execute(update(TABLES["operations"]).values(ended_at_s=1.0))
    connection.execute(update(TABLES["operation_boxes"]).values(outcome="STORED"))
    connection.execute(update(TABLES["boxes"]).values(state=state))
    purge(connection)
    assert (count(connection, "operations"), count(connection, "operation_boxes")) == (0, 0)


def test_a_batch_is_bounded_and_the_rest_follows(connection: Connection) -> None:
    values = {"at_s": 1.0, "by": "anna", "what": "x", "device": DEVICE, "detail": {}}
    many = [values | {"number": number} for number in range(10, 2 * PURGED_AT_ONCE + 15)]
    connection.execute(insert(TABLES["audit"]), many)
    one = Purge(connection, KEEP, now_s=NOW_S)
    one.run()
    assert (one.more, count(connection, "audit")) == (True, PURGED_AT_ONCE + 7)
    assert purge(connection) == 2
    assert count(connection, "audit") == 2


def test_the_audit_is_kept_for_ever_by_default_and_the_fleets_kinds_are_the_leaders(connection: Connection) -> None:
    for name, (column, _) in WHEN.items():
        connection.execute(update(TABLES[name]).values({column: 1.0}))
    before = counts(connection)
    purge(connection, RetentionConfig(), held=[LEADER + 1])
    assert {name for name, number in counts(connection).items() if number < before[name]} <= {
        "commands",
        "history",
        "events",
    }
    purge(connection, RetentionConfig())
    assert counts(connection)["audit"] == before["audit"]
    assert sum(counts(connection)[name] for name in WHEN if name != "audit") == 0


def test_an_attempt_goes_with_its_token_and_one_that_is_open_keeps_it(connection: Connection) -> None:
    tokens, requests = TABLES["tokens"], TABLES["requests"]
    for table in (requests, tokens):
        connection.execute(delete(table))
    old_s, states = NOW_S - 11 * DAY_S, ("WAITING", "APPROVED", "REFUSED", "DONE")
    for number, state in enumerate(states):
        for end, ends_s in (("old", old_s), ("new", NOW_S)):
            digest = f"{state}-{end}"
            token = row_of(tokens, number) | {"digest": digest, "expires_at_s": ends_s, "at_s": 1.0}
            connection.execute(insert(tokens).values(token))
            asked = row_of(requests, number) | {"id": digest, "token": digest, "state": state, "at_s": 1.0}
            connection.execute(insert(requests).values(asked))
    connection.execute(insert(requests).values(asked | {"id": "of-no-token", "token": "gone"}))
    purge(connection)
    kept = {"WAITING-old", "APPROVED-old", *(f"{state}-new" for state in states)}
    assert set(connection.execute(select(tokens.c.digest)).scalars()) == kept
    assert set(connection.execute(select(requests.c.id)).scalars()) == kept


def test_a_certificate_is_kept_while_it_could_be_used_and_a_boxes_last_one_for_good(connection: Connection) -> None:
    table, boxes = TABLES["certificates"], TABLES["boxes"]
    connection.execute(delete(table))
    box = connection.execute(select(boxes.c.device).limit(1)).scalar_one()
    old_s, now_s = NOW_S - 11 * DAY_S, NOW_S - 9 * DAY_S

    def add(serial: str, device: str, not_after_s: float, revoked_at_s: float | None) -> None:
        values = {"serial": serial, "device": device, "not_after_s": not_after_s, "revoked_at_s": revoked_at_s}
        connection.execute(insert(table).values(row_of(table, 1) | values))

    add("first", box, old_s - 1, None)
    add("last", box, old_s, None)
    add("forgotten-revoked", "f" * 16, old_s, 1.0)
    add("forgotten-listed", "f" * 16, now_s, 1.0)
    purge(connection)
    assert set(connection.execute(select(table.c.serial)).scalars()) == {"last", "forgotten-listed"}
    connection.execute(update(table).values(revoked_at_s=1.0))
    purge(connection)
    assert set(connection.execute(select(table.c.serial)).scalars()) == {"forgotten-listed"}


def test_days_are_checked() -> None:
    for wrong in ({"events_days": 0}, {"audit_days": -1}, {"metrics_days": 3}):
        with pytest.raises(ValidationError):
            CloudConfig.model_validate({"version": 1, "retention": wrong})
