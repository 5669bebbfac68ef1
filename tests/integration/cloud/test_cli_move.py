"""`edgegpu-cloud migrate --to`: a SQLite store goes into a PostgreSQL whole or not at all; `serve` goes on there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.backups import passphrase_words
from kits.cloudcli import ok, run
from kits.cloudprocess import running
from kits.mqtt import wait_for
from kits.storeschema import dump, make_released, rows
from sqlalchemy import text

from edgegpu_cloud.layout import load
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.migrations import upgrade
from edgegpu_cloud.store.move import move_store
from edgegpu_cloud.store.schema import TableRow
from edgegpu_cloud.store.store import tables_version

if TYPE_CHECKING:
    from kits.postgres import PostgresServer

_KILLED = """
import os, signal, sys
from sqlalchemy import Engine, event
from edgegpu_cloud.cli.tree import app
from edgegpu_cloud.store import move

step, words = sys.argv[1], sys.argv[2:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def after(connection, cursor, statement, *_):
    if step in statement:
        die()

def commit(connection):
    if step == "commit":
        die()

def replaced(name, arguments):
    if step == "controller.yaml" and name == "os.rename" and "controller.yaml" in str(arguments):
        die()

event.listen(Engine, "after_cursor_execute", after)
event.listen(Engine, "commit", commit)
sys.addaudithook(replaced)
app(words, prog_name="edgegpu-cloud")
"""
_COMMENT = "# the hall's own broker\n"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return the folder of a controller with a SQLite store that has rows in each table."""
    folder = tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", folder=folder)
    for one in folder.glob("controller.db*"):
        one.unlink()
    url = f"sqlite:///{folder}/controller.db"
    make_released(url)
    upgrade(url)
    config = folder / "controller.yaml"
    config.write_text(config.read_text().replace("broker:\n", f"{_COMMENT}broker:\n"))
    return folder


def same_rows(one: str, other: str) -> bool:
    def of(url: str) -> dict[str, list[str]]:
        return {name: sorted(map(str, found)) for name, found in rows(url).items()}

    return of(one) == of(other)


def test_all_rows_arrive_and_the_configuration_names_the_database(made: Path, postgres_server: PostgresServer) -> None:
    target, source = postgres_server.new_database(), f"sqlite:///{made}/controller.db"
    before = dump(source)
    done = ok("migrate", "--to", target, "--json", folder=made).json
    assert done["kept"] == str(made / "controller.db")
    assert done["rows"].keys() == {one.name for one in TableRow.metadata.sorted_tables}
    assert done["rows"]["births"] == 2
    assert dump(source) == before
    (moved,) = ok("audit", "--what", "store", "--json", folder=made).json
    assert (moved["by"], moved["what"]) == ("operator anna", "store.migrated")
    assert (moved["before"], moved["after"]) == ({"database": done["kept"]}, {"database": done["database"]})
    engine = open_engine(target)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM audit WHERE what = 'store.migrated'"))
    engine.dispose()
    assert same_rows(source, target)
    text_ = (made / "controller.yaml").read_text()
    assert load(made / "controller.yaml").database.url == target
    assert (_COMMENT in text_, text_.count("database:")) == (True, 1)
    done_again = run("migrate", "--to", target, folder=made)
    assert (done_again.code, "it is in a PostgreSQL already" in done_again.err) == (1, True)


def test_killed_at_any_step_it_has_moved_nothing_or_all(made: Path, postgres_server: PostgresServer) -> None:
    target, source = postgres_server.new_database(), f"sqlite:///{made}/controller.db"
    before, config = dump(source), (made / "controller.yaml").read_text()
    for step in ("CREATE TABLE boxes", "DELETE FROM", "INSERT INTO boxes", "INSERT INTO audit", "count(*)", "commit"):
        words = [sys.executable, "-c", _KILLED, step, "migrate", "--to", target, "--folder", str(made)]
        assert subprocess.run(words, check=False, env=dict(os.environ)).returncode == -signal.SIGKILL, step
        assert (tables_version(target), dump(source) == before) == (None, True), step
        assert (made / "controller.yaml").read_text() == config
    words[3] = "controller.yaml"
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert same_rows(source, target)
    assert not load(made / "controller.yaml").database.url
    ok("migrate", "--to", target, folder=made)
    assert load(made / "controller.yaml").database.url == target


def test_a_database_of_another_store_is_left_alone(made: Path, postgres_server: PostgresServer, tmp_path: Path) -> None:
    target = postgres_server.new_database()
    ok("init", "--name", "127.0.0.1", "--database", target, folder=tmp_path / "other")
    before = dump(target)
    done = run("migrate", "--to", target, folder=made)
    assert (done.code, "it has tables already" in done.err, dump(target) == before) == (1, True, True)
    assert run("migrate", "--to", "mysql://x", folder=made).code == 2
    assert not load(made / "controller.yaml").database.url


def test_a_store_with_older_tables_is_migrated_first(made: Path, postgres_server: PostgresServer) -> None:
    for one in made.glob("controller.db*"):
        one.unlink()
    make_released(f"sqlite:///{made}/controller.db")
    done = run("migrate", "--to", postgres_server.new_database(), folder=made)
    assert (done.code, "run `edgegpu-cloud migrate`" in done.err) == (1, True)


def test_a_row_that_refers_to_none_stops_it(made: Path, postgres_server: PostgresServer) -> None:
    target = postgres_server.new_database()
    engine = open_engine(f"sqlite:///{made}/controller.db", foreign_keys=False)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM boxes"))
    engine.dispose()
    done = run("migrate", "--to", target, folder=made)
    assert (done.code, "violates foreign key" in done.err) == (1, True)
    assert tables_version(target) is None


def test_many_rows_go_in_batches(tmp_path: Path, postgres_server: PostgresServer) -> None:
    source, target = f"sqlite:///{tmp_path}/many.db", postgres_server.new_database()
    upgrade(source)
    engine = open_engine(source)
    many = [{"n": number} for number in range(12_345)]
    with engine.begin() as connection:
        values = "VALUES (:n + 0.25, 'anna', 'x', '', '{\"é\": 1}')"
        connection.execute(text(f"INSERT INTO audit (at_s, by, what, device, detail) {values}"), many)
    engine.dispose()
    assert move_store(source, target).rows["audit"] == len(many)
    assert same_rows(source, target)


def test_serve_goes_on_there_with_the_boxes_that_it_had(tmp_path: Path, postgres_server: PostgresServer) -> None:
    with running(tmp_path) as cloud, cloud.live("hall-1") as live:
        cloud.ok("limits", "set", "hall-1", "asr", "--memory", "4", "--core", "1", "--wait")
        done = cloud.run("migrate", "--to", postgres_server.new_database())
        assert (done.code, "works with it" in done.err) == (1, True)
        cloud.end()
        cloud.ok("migrate", "--to", postgres_server.new_database())
        (cloud.folder / "controller.db").unlink()
        cloud.serve()
        wait_for(lambda: cloud.box("hall-1")["online"], what="the box is online at the moved store")
        assert not cloud.box("hall-1")["restored"]
        rev = live.box.desired_state.seen.rev
        cloud.ok("limits", "set", "hall-1", "asr", "--memory", "9", "--core", "1", "--wait")
        assert live.box.desired_state.seen.rev > rev
        assert cloud.enrols("hall-2")
        cloud.ok("backup", str(tmp_path / "all"), *passphrase_words(tmp_path))
