"""The numbers of changes: one of each partition, so that no two controllers write one row."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kits.mqtt import wait_for
from kits.stores import open_store
from sqlalchemy import Engine, event, text

from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.records import PARTITIONS, BoxRecord, partition_of
from edgegpu_cloud.store.store import MOST_CHANGES, CommitMoment, ControllerStore
from edgegpu_cloud.store.summaries.tables import KEPT_CHANGES, ChangeNumbers
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.rules.sequence import CommandSequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kits.postgres import PostgresServer

LIMIT_S = 60
ZEROS: ChangeNumbers = (0,) * PARTITIONS


def by_partition(number: int) -> dict[int, list[DeviceId]]:
    """Return so many ids of boxes of each partition."""
    found: dict[int, list[DeviceId]] = defaultdict(list)
    for one in range(PARTITIONS * number * 4):
        device = device_id(f"{one:016x}")
        if len(found[partition_of(device)]) < number:
            found[partition_of(device)].append(device)
    assert {len(one) for one in found.values()} == {number}
    return found


IDS = by_partition(3)
LOW, HIGH = IDS[3][0], IDS[40][0]


def add(store: ControllerStore, *devices: DeviceId) -> None:
    with store.write() as tx:
        for device in devices:
            sequence = CommandSequence(enrolment=1, instance="")
            tx.boxes.add(BoxRecord(device=device, name=f"box-{device}", public="A" * 43, sequence=sequence))


def mark(store: ControllerStore, *devices: DeviceId) -> None:
    with store.write() as tx:
        tx.summaries.mark(devices)


def raised(before: ChangeNumbers, after: ChangeNumbers) -> dict[int, int]:
    """Return by how much the numbers are higher now, of the partitions where they are."""
    return {at: new - old for at, (old, new) in enumerate(zip(before, after, strict=True)) if new != old}


@contextmanager
def statements() -> Iterator[list[str]]:
    """Yield a list that gets all statements."""
    found: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_a_transaction_raises_the_numbers_of_its_boxes_partitions_alone(store: ControllerStore) -> None:
    add(store, LOW, HIGH)
    before = store.changed_boxes(None).numbers
    mark(store, LOW)
    assert raised(before, store.changed_boxes(None).numbers) == {3: 1}
    mark(store, HIGH, LOW)
    found = store.changed_boxes(before)
    assert raised(before, found.numbers) == {3: 2, 40: 1}
    assert list(found.boxes) == [LOW, HIGH]
    with store.write() as tx:
        [summary] = tx.summaries.get([HIGH]).values()
        tx.summaries.put([summary])
    again = store.changed_boxes(found.numbers)
    assert (raised(found.numbers, again.numbers), list(again.boxes)) == ({40: 1}, [HIGH])


def test_a_change_of_boxes_of_every_partition_raises_each_number_once(store: ControllerStore) -> None:
    everywhere = [device for devices in IDS.values() for device in devices]
    add(store, *everywhere)
    before = store.changed_boxes(None).numbers
    mark(store, *everywhere)
    found = store.changed_boxes(before)
    assert raised(before, found.numbers) == dict.fromkeys(range(PARTITIONS), 1)
    assert set(found.boxes) == set(everywhere)


def test_where_nothing_has_changed_no_box_is_looked_at_and_else_those_of_the_partitions_that_moved(
    store: ControllerStore,
) -> None:
    add(store, LOW, HIGH)
    before = store.changed_boxes(None).numbers
    with statements() as asked:
        assert not store.changed_boxes(before).boxes
    assert len([one for one in asked if one.startswith("SELECT")]) == 1
    assert "box_summaries" not in "".join(asked)
    mark(store, HIGH)
    with statements() as asked:
        assert list(store.changed_boxes(before).boxes) == [HIGH]
    [query] = [one for one in asked if "box_summaries" in one]
    assert query.count("changed >") == 1


def test_many_changes_come_in_parts_and_no_partition_waits_for_another(store: ControllerStore) -> None:
    busy = IDS[5]
    add(store, *busy, LOW)
    known = store.changed_boxes(None).numbers
    for device in busy:
        mark(store, device)
    mark(store, LOW)
    parts = []
    with store.read() as tx:
        while True:
            found = tx.summaries.changed_since(known, limit=1)
            if not found.boxes:
                break
            parts.append(list(found.boxes))
            known = found.numbers
    assert parts == [[LOW, busy[0]], [busy[1]], [busy[2]]]
    assert known == store.changed_boxes(None).numbers


def test_what_has_changed_in_one_transaction_comes_together(store: ControllerStore) -> None:
    add(store, *IDS[5])
    before = store.changed_boxes(None).numbers
    mark(store, *IDS[5])
    with store.read() as tx:
        found = tx.summaries.changed_since(before, limit=1)
        assert set(found.boxes) == set(IDS[5])
        assert not tx.summaries.changed_since(found.numbers, limit=1).boxes


def test_of_ten_thousand_boxes_that_change_one_by_one_none_is_missed(store: ControllerStore) -> None:
    known = store.changed_boxes(None).numbers
    with store.write() as tx:
        rows = ", ".join(f"('{number:016x}', {number % PARTITIONS}, {number + 2})" for number in range(10_000))
        columns = ("health", "agent", "plugin", "k3s", "driver", "cluster", "claim", "left")
        numbers = ("shared_cards", "units", "free_units", "open_items", "open_commands", "waiting", "problems")
        names = ", ".join(f'"{one}"' for one in (*columns, *numbers))
        rest = ", ".join(["''"] * len(columns) + ["0"] * len(numbers))
        tx._connection.execute(  # noqa: SLF001  (10 000 boxes one by one would take a minute)
            text(
                f"WITH new (device, partition, changed) AS (VALUES {rows}) INSERT INTO box_summaries "  # noqa: S608
                f"(device, partition, changed, sharing, holder, {names}) "
                f"SELECT device, partition, changed, false, false, {rest} FROM new"
            )
        )
        tx._connection.execute(text("UPDATE meta SET value = 10002 WHERE key LIKE 'summaries/%'"))  # noqa: SLF001
    seen: list[DeviceId] = []
    while (found := store.changed_boxes(known)).boxes:
        assert len(found.boxes) <= PARTITIONS * MOST_CHANGES
        seen += found.boxes
        known = found.numbers
    assert len(seen) == len(set(seen)) == 10_000
    assert set(known) == {10_002}


def test_a_store_that_was_restored_is_followed_from_its_own_numbers_on(store: ControllerStore) -> None:
    add(store, LOW, HIGH)
    now = store.changed_boxes(None).numbers
    later = tuple(number + 7 for number in now)
    assert (store.changed_boxes(later).numbers, list(store.changed_boxes(later).boxes)) == (now, [])
    mark(store, LOW)
    assert list(store.changed_boxes(store.changed_boxes(later).numbers).boxes) == []
    assert list(store.changed_boxes(now).boxes) == [LOW]


def test_a_forgotten_box_is_dropped_after_so_many_changes_of_its_own_partition(
    store_url: str, store: ControllerStore
) -> None:
    add(store, LOW, HIGH)
    with store.write() as tx:
        tx.forget_box(LOW, by="anna")
        tx.forget_box(HIGH, by="anna")

    def after(changes: int, *, of: int, held: range = range(PARTITIONS)) -> list[DeviceId]:
        engine = open_engine(store_url)
        with engine.begin() as connection:
            query = "UPDATE meta SET value = (SELECT max(changed) FROM box_summaries WHERE partition = :of) + :by"
            values = {"of": of, "by": changes, "key": f"summaries/{of}"}
            connection.execute(text(query + " WHERE key = :key"), values)
        engine.dispose()
        with store.write() as tx:
            tx.summaries.tidy(held)
        return list(store.changed_boxes(ZEROS).boxes)

    assert after(KEPT_CHANGES, of=3) == [LOW, HIGH]
    assert after(KEPT_CHANGES + 1, of=3, held=range(4, PARTITIONS)) == [LOW, HIGH]
    assert after(KEPT_CHANGES + 1, of=3) == [HIGH]
    assert after(KEPT_CHANGES + 1, of=40) == []


def test_a_box_that_is_there_is_kept_however_long_it_has_not_changed(store_url: str, store: ControllerStore) -> None:
    add(store, LOW)
    engine = open_engine(store_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE meta SET value = 10000000 WHERE key LIKE 'summaries/%'"))
    engine.dispose()
    with store.write() as tx:
        tx.summaries.tidy()
    assert list(store.changed_boxes(ZEROS).boxes) == [LOW]


@pytest.fixture
def postgresql(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.new_store()
    yield url
    postgres_server.drop(url)


@pytest.mark.cloud
class TestOnPostgresql:
    def test_controllers_do_not_wait_for_each_other(self, postgresql: str) -> None:
        """One is about to commit while the other does all of its own transaction: with one row it waited for 30 s."""
        other, seen = open_store(postgresql), []
        add(other, LOW, HIGH)
        before = other.changed_boxes(None).numbers

        def meanwhile(moment: CommitMoment) -> None:
            if moment is CommitMoment.BEFORE_COMMIT:
                mark(other, HIGH)
                seen.append(raised(before, other.changed_boxes(None).numbers))

        one = open_store(postgresql, watcher=meanwhile)
        mark(one, LOW)
        assert seen == [{40: 1}]
        assert raised(before, one.changed_boxes(None).numbers) == {3: 1, 40: 1}
        for store in (one, other):
            store.close()

    def test_two_that_change_boxes_of_the_same_partitions_in_any_order_wait_in_line(self, postgresql: str) -> None:
        """Both wait for the first partition by name, and hold nothing: one that took the other first would be stuck."""
        store = open_store(postgresql)
        add(store, LOW, HIGH)
        before = store.changed_boxes(None).numbers
        first = min(LOW, HIGH, key=lambda device: str(partition_of(device)))
        last = LOW if first == HIGH else HIGH
        with ThreadPoolExecutor(2) as pool:
            with store.write() as tx:
                tx.summaries.mark([first])
                tx.summaries.finish()
                both = [pool.submit(mark, store, first, last)]
                wait_for(lambda: waiting(store) == 1, what="one waits")
                both.append(pool.submit(mark, store, last, first))
                wait_for(lambda: waiting(store) == 2, what="both wait")
            for one in both:
                one.result(LIMIT_S)
        assert raised(before, store.changed_boxes(None).numbers) == {partition_of(first): 3, partition_of(last): 2}
        store.close()

    def test_who_has_seen_a_number_has_seen_what_was_written_under_lower_ones(self, postgresql: str) -> None:
        store, over = open_store(postgresql), False
        boxes = [device for partition in (3, 40) for device in IDS[partition]]
        add(store, *boxes)
        known = store.changed_boxes(None).numbers

        def change(seed: int) -> dict[DeviceId, int]:
            done: dict[DeviceId, int] = defaultdict(int)
            for step in range(30):
                some = boxes[(seed + step) % len(boxes) :][: 1 + step % 3]
                mark(store, *(some if seed % 2 else reversed(some)))
                for device in some:
                    done[device] += 1
            return done

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(change, seed) for seed in range(4)]
            seen: set[DeviceId] = set()
            while not over:
                over = all(one.done() for one in writers)
                found = store.changed_boxes(known)
                if raised(known, found.numbers):
                    assert {partition_of(device) for device in found.boxes} == set(raised(known, found.numbers))
                seen.update(found.boxes)
                known = found.numbers
        assert seen == {device for one in writers for device in one.result()}
        store.close()


def waiting(store: ControllerStore) -> int:
    """Return how many connections wait for a row of this database."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with store.read() as tx:
        return int(tx._connection.execute(text(query)).scalar_one())  # noqa: SLF001  (the server's own view)
