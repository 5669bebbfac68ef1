"""Migrations: the revisions give the tables of the row classes, whole or not at all, and lose no row."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from kits.storeschema import (
    DEVICE,
    dump,
    make_released,
    names,
    rows,
    until_revision,
    wanted_names,
    whole,
    with_revision,
)
from sqlalchemy import delete, text
from sqlalchemy.exc import DBAPIError

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.migrations import FOLDER, RELEASED, migrate, newest, upgrade
from edgegpu_cloud.store.records import PARTITIONS, partition_of
from edgegpu_cloud.store.schema import TableRow
from edgegpu_cloud.store.store import ControllerStore, OlderTablesError
from edgegpu_sync.ids import DeviceId

ADD_COLUMN = """
with op.batch_alter_table("boxes") as boxes:
    boxes.add_column(sa.Column("colour", sa.Text(), nullable=False, server_default=""))
    boxes.alter_column("host", existing_type=sa.String(253), type_=sa.Text())
op.execute("UPDATE boxes SET colour = 'blue'")
op.create_table("paints", sa.Column("name", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("name", name="pk_p"))
"""


def run(url: str, *statements: str) -> None:
    engine = open_engine(url)
    with engine.begin() as connection:
        for one in statements:
            connection.execute(text(one))
    engine.dispose()


class TestRevisions:
    def test_they_are_one_line_and_each_file_has_the_number_of_its_revision(self) -> None:
        script = ScriptDirectory(str(FOLDER))
        assert script.get_heads() == [f"{newest():04d}"]
        line = [(one.revision, Path(one.path).name[:5]) for one in reversed(list(script.walk_revisions()))]
        assert line == [(f"{number:04d}", f"{number:04d}_") for number in range(1, newest() + 1)]

    def test_they_give_the_tables_of_the_row_classes(self, empty_url: str) -> None:
        upgrade(empty_url)
        engine = open_engine(empty_url)
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_server_default": True})
            assert compare_metadata(context, TableRow.metadata) == []
        engine.dispose()

    @pytest.mark.parametrize("released", [False, True])
    def test_each_constraint_and_index_has_its_name(self, empty_url: str, *, released: bool) -> None:
        if released:
            make_released(empty_url)
        upgrade(empty_url)
        found = names(empty_url)
        assert found.pop("alembic_version") == {"alembic_version_pkc"}
        assert found == wanted_names(TableRow.metadata)


class TestMigration:
    def test_tables_of_edgegpu_0_1_0_are_taken_over_with_their_rows(self, empty_url: str, tmp_path: Path) -> None:
        make_released(empty_url)
        before = rows(empty_url)
        assert upgrade(empty_url) == RELEASED
        store = ControllerStore.open(empty_url)
        after = rows(empty_url)
        assert after["alembic_version"] == [{"version_num": f"{newest():04d}"}]
        for name in set(before) - {"meta"}:
            kept = [{column: one[column] for column in old} for old, one in zip(before[name], after[name], strict=True)]
            assert kept == before[name]  # a later revision may have added columns
        with store.read() as tx:
            assert (tx.notes.number("schema"), tx.notes.number("changes")) == (newest(), 7)
        store.close()
        fresh = f"sqlite:///{tmp_path}/fresh.db"
        if empty_url.startswith("sqlite"):
            upgrade(fresh)
            assert whole(empty_url, rows=False) == whole(fresh, rows=False)

    def test_it_happens_once(self, empty_url: str) -> None:
        assert [upgrade(empty_url), upgrade(empty_url)] == [None, newest()]

    def test_a_revision_that_fails_changes_nothing(self, empty_url: str, tmp_path: Path) -> None:
        upgrade(empty_url)
        before = whole(empty_url)
        folder = with_revision(tmp_path / "more", ADD_COLUMN + "op.drop_table('nowhere')")
        with pytest.raises(DBAPIError, match="nowhere"):
            upgrade(empty_url, folder)
        assert whole(empty_url) == before

    def test_tables_of_an_older_edgegpu_wait_for_somebody_who_migrates_them(self, empty_url: str) -> None:
        make_released(empty_url)
        before = dump(empty_url)
        with pytest.raises(OlderTablesError, match=rf"version 0, ours is {newest()}; run `edgegpu-cloud migrate`"):
            ControllerStore.open(empty_url)
        assert dump(empty_url) == before

    @pytest.mark.parametrize("stamped", [False, True])
    def test_tables_of_a_newer_edgegpu_are_refused(self, empty_url: str, *, stamped: bool) -> None:
        if stamped:
            upgrade(empty_url)
            run(empty_url, "UPDATE alembic_version SET version_num = '9999'")
        else:
            make_released(empty_url)
            run(empty_url, "UPDATE meta SET value = 9999 WHERE key = 'schema'")
        with pytest.raises(CloudError, match=rf"version 9999, ours is {newest()}; upgrade"):
            ControllerStore.open(empty_url)
        with pytest.raises(CloudError, match="version 9999"):
            upgrade(empty_url)

    def test_revisions_of_another_program_are_refused(self, empty_url: str) -> None:
        upgrade(empty_url)
        run(empty_url, "UPDATE alembic_version SET version_num = 'ae1027a6acf'")
        with pytest.raises(CloudError, match=r"ae1027a6acf.*another program's database"):
            ControllerStore.open(empty_url)

    def test_a_store_that_is_current_does_not_load_alembic(self, empty_url: str) -> None:
        upgrade(empty_url)
        words = (
            "import sys; from edgegpu_cloud.store.store import ControllerStore\n"
            "ControllerStore.open(sys.argv[1]); print('alembic' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", words, empty_url], capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"


class TestReferences:
    """SQLite copies a table to change it, and drops the old one: with foreign keys on, that touches other rows."""

    def test_a_migration_that_breaks_one_is_undone(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/store.db"
        make_released(url)
        upgrade(url)
        before = whole(url)
        folder = with_revision(tmp_path / "more", "op.execute('DELETE FROM boxes')")
        with pytest.raises(
            CloudError, match=r"[0-9]+ rows would refer to rows that are gone, in births \(to boxes\), .*"
        ):
            upgrade(url, folder)
        assert whole(url) == before

    def test_with_foreign_keys_on_rows_would_be_gone(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/store.db"
        make_released(url)
        upgrade(url)
        child = "CREATE TABLE child (device TEXT REFERENCES boxes (device) ON DELETE CASCADE)"
        others = [str(delete(one)) for one in TableRow.metadata.sorted_tables if one.name not in {"boxes", "meta"}]
        run(url, *others, child, "INSERT INTO child SELECT device FROM boxes")
        folder = with_revision(tmp_path / "more", ADD_COLUMN)

        def children(*, foreign_keys: bool) -> list[object]:
            engine = open_engine(url, foreign_keys=foreign_keys)
            with writing(engine).connect() as connection:
                migrate(connection, folder)
                found = list(connection.execute(text("SELECT device FROM child")).scalars())
                connection.rollback()
            engine.dispose()
            return found

        assert (children(foreign_keys=True), children(foreign_keys=False)) == ([], [DEVICE])


MOST_APART = 6
"""So many changes apart are the kills, drawn anew in each run: one at each change takes minutes."""

_KILLED = """
import os, random, signal, sys
from pathlib import Path
import alembic.migration, alembic.operations, alembic.script
from kits.storeschema import dump
from sqlalchemy import Engine, event
from edgegpu_cloud.store.migrations import upgrade

url, folder, seed = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
draw = random.Random(seed)

def migrate_until(moment):
    seen = 0
    def count(_, cursor=None, statement="COMMIT", *__):
        nonlocal seen
        if statement.lstrip().startswith(("SELECT", "PRAGMA")):
            return
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)
    upgrade(url, folder)
    os._exit(0)

before, moment, status = dump(url), 0, None
while status != 0:
    moment += draw.randint(1, MOST_APART)
    pid = os.fork()
    if not pid:
        migrate_until(moment)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    assert status == 0 or dump(url) == before, (moment, seed)
print(moment)
"""


@pytest.mark.cloud
@pytest.mark.parametrize("released", [False, True])
def test_a_migration_killed_at_any_change_leaves_the_old_tables(
    empty_url: str, tmp_path: Path, *, released: bool
) -> None:
    folder, seed = with_revision(tmp_path / "more", ADD_COLUMN), random.randrange(2**32)
    if released:
        make_released(empty_url)
    else:
        upgrade(empty_url)
    path = ":".join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED.replace("MOST_APART", str(MOST_APART)), empty_url, str(folder), str(seed)],
        env={"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert killed.returncode == 0, killed.stderr
    assert int(killed.stdout) > 5
    assert {"paints", "alembic_version"} < whole(empty_url).keys()


def test_boxes_get_their_partitions_and_partitions_the_server_time_that_was_one_for_all(empty_url: str) -> None:
    make_released(empty_url)
    run(empty_url, "INSERT INTO meta (key, value) VALUES ('server_time', 1790000000)")
    upgrade(empty_url)
    store = ControllerStore.open(empty_url)
    with store.read() as tx:
        assert {one.number for one in tx.leases.all()} == set(range(PARTITIONS))
        assert {one.holder for one in tx.leases.all()} == {""}
        assert tx.leases.newest_server_time() == 1_790_000_000
        assert tx.boxes.enrolled([partition_of(DeviceId(DEVICE))]) == []  # its state is no state
        assert tx.notes.number("server_time") == 0
    with store.write() as tx:
        assert tx.leases.server_times([DeviceId(DEVICE)], 5.0) == {DEVICE: 1_790_000_000}
    store.close()
    assert [one["partition"] for one in rows(empty_url)["boxes"]] == [partition_of(DeviceId(DEVICE))]


def test_the_number_of_changes_becomes_that_of_each_partition_and_no_change_is_missed(
    empty_url: str, tmp_path: Path
) -> None:
    forgotten = "0000000000000007"  # it has a summary and no box
    make_released(empty_url)
    upgrade(empty_url, until_revision(tmp_path / "before", 16))
    run(
        empty_url,
        "UPDATE meta SET value = 900 WHERE key = 'summaries'",
        "UPDATE box_summaries SET changed = 800, agent = 'kept'",
        "CREATE TABLE copied AS SELECT * FROM box_summaries",
        "UPDATE copied SET device = '0000000000000007', changed = 850",
        "INSERT INTO box_summaries SELECT * FROM copied",
        "DROP TABLE copied",
    )
    before = rows(empty_url)["box_summaries"]
    assert upgrade(empty_url) == 16
    after = rows(empty_url)["box_summaries"]
    assert after == [one | {"partition": partition_of(DeviceId(str(one["device"]))), "claim": ""} for one in before]
    assert [(one["device"], one["changed"]) for one in after] == [(DEVICE, 800), (forgotten, 850)]

    store, everything = ControllerStore.open(empty_url), (0,) * PARTITIONS
    numbers = store.changed_boxes(None).numbers
    assert numbers == (900,) * PARTITIONS
    assert "summaries" not in {one["key"] for one in rows(empty_url)["meta"]}
    assert sorted(store.changed_boxes(everything).boxes) == [DEVICE, forgotten]
    assert not store.changed_boxes(numbers).boxes
    with store.write() as tx:
        tx.summaries.mark([DeviceId(DEVICE)])
    found = store.changed_boxes(numbers)
    assert list(found.boxes) == [DEVICE]
    assert {at: number for at, number in enumerate(found.numbers) if number != 900} == {
        partition_of(DeviceId(DEVICE)): 901
    }
    store.close()


def test_a_store_that_no_box_was_ever_in_gets_its_numbers_too(empty_url: str) -> None:
    upgrade(empty_url)
    kept = {str(one["key"]) for one in rows(empty_url)["meta"]}
    assert {f"summaries/{partition}" for partition in range(PARTITIONS)} < kept
