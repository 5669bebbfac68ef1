"""The store on PostgreSQL, where many write at a time: no update is lost, and who is in the way is named."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.postgres import running
from sqlalchemy import text

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.records import BoxRecord
from edgegpu_cloud.store.store import ContendedError, ControllerStore, RecordError, StoreError
from edgegpu_sim.ports import free_port
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.rules.sequence import CommandSequence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kits.postgres import PostgresServer

FIRST, SECOND = device_id("0000000000000001"), device_id("0000000000000002")
LIMIT_S = 60


def a_box(device: DeviceId, instance: str = "") -> BoxRecord:
    sequence = CommandSequence(enrolment=1, instance=instance)
    return BoxRecord(device=device, name=f"box-{device}", public="A" * 43, sequence=sequence)


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


@pytest.fixture
def store(url: str) -> Iterator[ControllerStore]:
    store = ControllerStore.open(url)
    with store.write() as tx:
        tx.boxes.add(a_box(FIRST))
        tx.boxes.add(a_box(SECOND))
    yield store
    store.close()


class TestWriters:
    def test_no_update_of_a_box_is_lost(self, store: ControllerStore) -> None:
        def add_ten(_: int) -> None:
            for _ in range(10):
                with store.write() as tx:
                    box = tx.boxes.get([FIRST])[FIRST]
                    tx.boxes.put([replace(box, spec_rev=box.spec_rev + 1, touched=tx.notes.changed())])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(add_ten, range(4)))
        with store.read() as tx:
            box = tx.boxes.get([FIRST])[FIRST]
            assert (box.spec_rev, box.touched, tx.notes.number("changes")) == (40, 40, 40)

    def test_two_that_wait_for_each_other_are_told_so_and_one_goes_on(self, store: ControllerStore) -> None:
        both_hold = threading.Barrier(2, timeout=LIMIT_S)

        def take(first: DeviceId, second: DeviceId) -> str:
            try:
                with store.write() as tx:
                    box = tx.boxes.get([first])[first]
                    both_hold.wait()
                    tx.boxes.get([second])
                    tx.boxes.put([replace(box, spec_rev=1)])
            except ContendedError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(2) as pool:
            told = list(pool.map(take, (FIRST, SECOND), (SECOND, FIRST)))
        [words] = filter(None, told)
        assert "deadlock" in words
        assert words.endswith("nothing was changed: try again")
        with store.read() as tx:
            assert sorted(box.spec_rev for box in tx.boxes.get([FIRST, SECOND]).values()) == [0, 1]

    def test_a_process_that_stood_still_in_a_transaction_may_try_again(self, store: ControllerStore) -> None:
        def stand_still() -> None:
            with store.write() as tx:
                connection = tx.boxes._connection  # noqa: SLF001  (the server is to end this one soon)
                connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '20ms'"))
                tx.boxes.put([replace(tx.boxes.get([FIRST])[FIRST], spec_rev=1)])
                time.sleep(1)
                tx.boxes.put([replace(tx.boxes.get([FIRST])[FIRST], spec_rev=2)])

        with pytest.raises(ContendedError, match=r"stood still.*nothing was changed: try again"):
            stand_still()
        with store.write() as tx:
            box = tx.boxes.get([FIRST])[FIRST]
            assert box.spec_rev == 0
            tx.boxes.put([replace(box, spec_rev=3)])

    def test_a_machine_that_enrols_twice_at_once_is_found_by_the_second(self, store: ControllerStore) -> None:
        third, held = device_id("0000000000000003"), threading.Event()

        def second() -> list[DeviceId]:
            assert held.wait(LIMIT_S)
            with store.write() as tx:
                return tx.boxes.with_instance("m")

        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(second)
            with store.write() as tx:
                assert tx.boxes.with_instance("m") == []
                held.set()
                tx.boxes.add(a_box(third, instance="m"))
            assert found.result(LIMIT_S) == [third]

    def test_what_is_there_twice_is_that_record_s_fault(self, store: ControllerStore) -> None:
        with pytest.raises(RecordError, match=r"duplicate key.*pk_boxes"), store.write() as tx:
            tx.boxes.add(a_box(FIRST))

    def test_a_text_that_postgresql_does_not_take_is_that_record_s_fault(self, store: ControllerStore) -> None:
        for text_ in ("a\0b", "x" * 300):
            with pytest.raises(RecordError), store.write() as tx:
                tx.boxes.put([replace(a_box(FIRST), host=text_)])

    def test_two_first_openers_make_the_tables_once(self, url: str) -> None:
        words = "import sys; from edgegpu_cloud.store.store import ControllerStore; ControllerStore.open(sys.argv[1])"
        both = [subprocess.Popen([sys.executable, "-c", words, url]) for _ in range(2)]
        assert [one.wait(LIMIT_S) for one in both] == [0, 0]


class TestReaders:
    def test_a_transaction_that_reads_cannot_write(self, store: ControllerStore) -> None:
        with pytest.raises(StoreError, match="read-only"), store.read() as tx:
            tx.notes.changed()

    def test_a_process_that_stops_in_a_transaction_loses_its_rows_before_others_are_refused(
        self, store: ControllerStore
    ) -> None:
        with store._writing.connect() as connection:  # noqa: SLF001  (what the server was told)
            shown = [connection.execute(text(f"SHOW {name}")).scalar() for name in (
                "idle_in_transaction_session_timeout", "lock_timeout", "transaction_isolation")]  # fmt: skip
        assert shown == ["20s", "30s", "read committed"]


class TestServer:
    def test_after_a_restart_of_the_server_the_next_transaction_works(self, short_tmp: Path) -> None:
        with running(short_tmp) as server:
            store = ControllerStore.open(server.new_database())
            with store.write() as tx:
                tx.boxes.add(a_box(FIRST))

            def lose_the_server() -> None:
                with store.write() as tx:
                    tx.boxes.add(a_box(SECOND))
                    server.stop()
                    tx.boxes.enrolled()

            with pytest.raises(StoreError, match="cannot use the database test_1 at"):
                lose_the_server()
            with pytest.raises(StoreError, match="is PostgreSQL running there"), store.read() as tx:
                tx.boxes.enrolled()
            server.start()
            with store.write() as tx:
                assert list(tx.boxes.get([FIRST, SECOND])) == [FIRST]
            store.close()

    @pytest.mark.parametrize(
        ("database", "user", "password", "cause", "remedy"),
        [
            ("mine", "mallory", "", "no password supplied", "database.password_file"),
            ("mine", "edgegpu_a", "wrong", "password authentication failed", "database.password_file"),
            ("none", "edgegpu_a", "right", 'database "none" does not exist', "createdb"),
            ("mine", "edgegpu_a", "right", "permission denied for schema public", "ALTER DATABASE"),
        ],
    )
    def test_each_refusal_is_explained(
        self, postgres_server: PostgresServer, *, database: str, user: str, password: str, cause: str, remedy: str
    ) -> None:
        postgres_server.execute("DROP DATABASE IF EXISTS mine", "DROP ROLE IF EXISTS edgegpu_a")
        postgres_server.execute("CREATE DATABASE mine", "CREATE ROLE edgegpu_a LOGIN PASSWORD 'right'")
        with pytest.raises(StoreError) as raised:
            ControllerStore.open(postgres_server.tcp_url(database, user=user, password=password))
        assert (cause in raised.value.text, remedy in raised.value.remedy) == (True, True), str(raised.value)
        assert "right" not in str(raised.value)
        assert "\n" not in str(raised.value)

    def test_no_server_is_an_error_with_a_remedy(self) -> None:
        with pytest.raises(StoreError, match=r"refused.*is PostgreSQL running there \(systemctl status postgresql\)"):
            ControllerStore.open(f"postgresql+psycopg://a@127.0.0.1:{free_port()}/b")
        with pytest.raises(CloudError, match="give a URL"):
            ControllerStore.open("postgresql+psycopg://a@h:port/b")
