"""A process that works on while its tables become another version's: it writes nothing more, and ends."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.postgres import PostgresServer
from kits.stores import open_store
from kits.storeschema import stamp, with_revision

from edgegpu_base.process.tasks import TaskGroup
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.migrations import migrate, newest, upgrade
from edgegpu_cloud.store.store import ControllerStore, OlderTablesError
from edgegpu_cloud.supervision import ended_by_itself
from edgegpu_cloud.tables_watch import TablesWatch, await_tables

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


class TestWait:
    """A process that begins while its tables are another version's."""

    @pytest.fixture
    def group(self) -> TaskGroup:
        return TaskGroup(ended_by_itself=ended_by_itself)

    def test_tables_of_a_newer_version_are_told_of_and_put_back(
        self, store_url: str, store: ControllerStore, group: TaskGroup
    ) -> None:
        stamp(store_url, newest() + 1)
        said: list[str] = []

        def tell(text: str) -> None:
            said.append(text)
            stamp(store_url, newest())

        await_tables(store_url, group, tell=tell)
        [text] = said
        assert f"version {newest() + 1}, ours is {newest()}: upgrade edgegpu here" in text
        count(store)

    def test_a_newer_version_ends_the_wait_and_an_older_one_does_not(
        self, store_url: str, store: ControllerStore, group: TaskGroup
    ) -> None:
        stamp(store_url, newest() + 1)
        with pytest.raises(CloudError, match=NEWER):
            await_tables(store_url, group, tell=pytest.fail, newer_s=0.0)
        stamp(store_url, newest() - 1)
        await_tables(store_url, group, tell=lambda _: stamp(store_url, newest()), newer_s=0.0)
        count(store)
