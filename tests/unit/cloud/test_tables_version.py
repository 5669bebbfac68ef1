"""A process that works on while its tables become another version's: it writes nothing more, and ends."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.postgres import PostgresServer
from kits.stores import open_store
from kits.storeschema import stamp, with_revision

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.migrations import migrate, newest, upgrade
from edgegpu_cloud.store.store import ControllerStore, OlderTablesError
from edgegpu_cloud.tables_watch import TablesWatch

WAIT_S = 20.0
NEWER = rf"version {newest() + 1}, ours is {newest()}; upgrade edgegpu here"
A_TABLE = 'op.create_table("paints", sa.Column("name", sa.Text(), nullable=False))'


@pytest.fixture
def store(store_url: str) -> Iterator[ControllerStore]:
    store = open_store(store_url)
    yield store
    store.close()


def count(store: ControllerStore) -> None:
    with store.write() as tx:
        tx.notes.changed()


def counted(store: ControllerStore) -> int:
    with store.read() as tx:
        return tx.notes.number("changes")


def test_nothing_is_written_to_tables_of_another_version(store_url: str, store: ControllerStore) -> None:
    count(store)
    store.check_tables()
    stamp(store_url, newest() + 1)
    with pytest.raises(CloudError, match=NEWER):
        count(store)
    stamp(store_url, newest() - 1)
    with pytest.raises(OlderTablesError, match="run `edgegpu-cloud migrate`"):
        count(store)
    stamp(store_url, newest())
    assert counted(store) == 1
    count(store)
    assert counted(store) == 2


def test_the_watch_ends_its_process(store_url: str, store: ControllerStore) -> None:
    watch = TablesWatch(store, look_s=0.01)
    stamp(store_url, newest() + 1)
    with pytest.raises(CloudError, match=NEWER):
        watch.run()
    watch.stop()
    watch.run()


@pytest.mark.cloud
class TestPostgresql:
    @pytest.fixture
    def url(self, postgres_server: PostgresServer) -> str:
        return postgres_server.new_store()

    @pytest.fixture
    def old(self, url: str) -> Iterator[ControllerStore]:
        store = ControllerStore.open(url)
        yield store
        store.close()

    def test_a_migration_waits_for_who_writes_already(self, url: str, old: ControllerStore, tmp_path: Path) -> None:
        folder = with_revision(tmp_path / "more", A_TABLE)
        done = threading.Event()

        def migrates() -> None:
            upgrade(url, folder)
            done.set()

        thread = threading.Thread(target=migrates)
        with old.write() as tx:
            thread.start()
            assert not done.wait(1.0)
            tx.notes.changed()
        assert done.wait(WAIT_S)
        thread.join()
        assert counted(old) == 1
        with pytest.raises(CloudError, match=NEWER):
            count(old)

    def test_who_begins_to_write_during_a_migration_is_refused_at_its_end(
        self, url: str, old: ControllerStore, tmp_path: Path
    ) -> None:
        folder, told = with_revision(tmp_path / "more", A_TABLE), list[str]()

        def writes() -> None:
            try:
                count(old)
            except CloudError as error:
                told.append(f"{error.text}; {error.remedy}")

        engine = open_engine(url, foreign_keys=False)
        thread = threading.Thread(target=writes)
        with writing(engine).begin() as connection:
            migrate(connection, folder)
            thread.start()
            thread.join(1.0)
            assert thread.is_alive(), "it has not waited"
        thread.join(WAIT_S)
        engine.dispose()
        assert len(told) == 1
        assert f"version {newest() + 1}, ours is {newest()}; upgrade" in told[0]
        assert counted(old) == 0
