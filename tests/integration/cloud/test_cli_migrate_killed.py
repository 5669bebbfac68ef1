"""`edgegpu-cloud migrate` killed (-9) at each step: nothing is half done, no copy is half, the next completes."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kits.cloudcli import ok, run
from kits.storeschema import dump, make_released, names, rows, wanted_names, whole
from sqlalchemy import text

from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.migrations import newest
from edgegpu_cloud.store.schema import TableRow

if TYPE_CHECKING:
    from kits.postgres import PostgresServer

_KILLED = """
import atexit, os, signal, sys
from sqlalchemy import Engine, event
from edgegpu_cloud.cli.tree import app

step, words = sys.argv[1], sys.argv[2:]
_, when, what = step.split(" ")

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def before(connection, cursor, statement, parameters, *_):
    if what == "copy" and when == "during" and statement.startswith("VACUUM"):
        connection.connection.driver_connection.set_progress_handler(die, 200)
    if what == "copy" and when == "after" and statement.startswith(("BEGIN IMMEDIATE", "SELECT pg_advisory")):
        die()

def after(connection, cursor, statement, parameters, *_):
    if when == "after" and stamps(statement, parameters):
        die()

def stamps(statement, parameters):
    return "alembic_version" in statement and f"'{what}'" in f"{statement} {parameters}"

event.listen(Engine, "before_cursor_execute", before)
event.listen(Engine, "after_cursor_execute", after)
if step == "killed before commit":
    event.listen(Engine, "commit", die)
if step == "killed after commit":
    atexit.register(die)
app(words, prog_name="edgegpu-cloud")
"""
_HALF_A_DUMP = """#!/bin/sh
{} "$@" | head -c 2000
kill -9 $PPID
"""

SEED = random.randrange(2**32)
DRAWN = 2
"""All revisions are one transaction, so some stand for all; `test_migrations` kills at every change of each."""


def steps() -> list[str]:
    """Return the steps of a run: around the copy, after the first, the last and some other revisions, at the commit."""
    between = random.Random(SEED).sample(range(2, newest()), DRAWN)
    revisions = (f"killed after {number:04d}" for number in sorted({1, *between, newest()}))
    return ["killed during copy", "killed after copy", *revisions, "killed before commit"]


class Old:
    """A controller whose store edgegpu 0.1.0 has made, with rows in each table."""

    def __init__(self, work: Path, server: PostgresServer | None) -> None:
        self.folder, self.work, self._server = work / "cloud", work, server
        words = ("--database", server.new_database()) if server else ()
        ok("init", "--name", "127.0.0.1", "--no-console", *words, folder=self.folder)
        self.url = server.new_database() if server else f"sqlite:///{self.folder}/controller.db"
        if server:
            config = (self.folder / "controller.yaml").read_text()
            (self.folder / "controller.yaml").write_text(re.sub(r"url: postgresql\S+", f"url: {self.url}", config))
        else:
            for one in self.folder.glob("controller.db*"):
                one.unlink()
        make_released(self.url)

    def killed_at(self, step: str) -> None:
        """Migrate, and be killed at a step."""
        words = [sys.executable, "-c", _KILLED, step, "migrate", "--folder", str(self.folder)]
        env = dict(os.environ)
        if self._server and step == "killed during copy":
            dumps = self.work / "bin/pg_dump"
            dumps.parent.mkdir()
            dumps.write_text(_HALF_A_DUMP.format(shutil.which("pg_dump")))
            dumps.chmod(0o755)
            env["PATH"] = f"{dumps.parent}:{env['PATH']}"
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, (step, done.stdout, done.stderr)

    def copies(self) -> list[Path]:
        return sorted(one for one in self.folder.glob("controller-*") if one.suffix in {".db", ".pgdump"})

    def dump_of(self, copy: Path) -> str:
        if self._server is None:
            return dump(f"sqlite:///{copy}")
        again = self._server.new_database()
        self._server.restore(copy, again)
        return dump(again)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_it_completes_afterwards_and_no_copy_is_half(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    old = Old(tmp_path, request.getfixturevalue("postgres_server") if engine == "postgresql" else None)
    before, counts = dump(old.url), {name: len(found) for name, found in rows(old.url).items()}
    for step in steps():
        old.killed_at(step)
        assert dump(old.url) == before, (SEED, step)
        if step == "killed during copy":
            assert old.copies() == []
            assert list(old.folder.glob(".controller-*"))
    done = run("boxes", folder=old.folder)
    assert (done.code, "run `edgegpu-cloud migrate`" in done.err) == (1, True)
    assert old.copies()
    assert {old.dump_of(one) == before for one in (old.copies()[0], old.copies()[-1])} == {True}

    old.killed_at("killed after commit")
    assert ok("migrate", "--json", folder=old.folder).json == {"from": newest(), "to": newest(), "backup": ""}
    found = names(old.url)
    assert found.pop("alembic_version") == {"alembic_version_pkc"}
    assert found == wanted_names(TableRow.metadata)
    after = {name: len(found) for name, found in rows(old.url).items()}
    counts["audit"] += 1  # who has migrated them, once
    assert {name: after[name] for name in counts if name != "meta"} == {
        name: number for name, number in counts.items() if name != "meta"
    }
    if engine == "sqlite":
        engine_ = open_engine(old.url)
        with engine_.connect() as connection:
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
        engine_.dispose()


def _but_the_moment(database: dict[str, Any]) -> dict[str, Any]:
    """Leave out when revision 0009 ran, and when the audit says that it did: another moment each time."""
    (*about, rows) = database["meta"]
    kept = [row for row in rows if "settlements_since" not in row]
    assert len(kept) == len(rows) - 1
    (*audit, entries) = database["audit"]
    made = [one for one in entries if "store.migrated" not in one]
    assert len(made) == len(entries) - 1
    return {**database, "meta": [*about, kept], "audit": [*audit, made]}


def test_a_copy_that_is_put_back_is_migrated_again(tmp_path: Path) -> None:
    old = Old(tmp_path, None)
    copy = ok("migrate", "--json", folder=old.folder).json["backup"]
    migrated = _but_the_moment(whole(old.url))
    for one in old.folder.glob("controller.db*"):
        one.unlink()
    shutil.copy(copy, old.folder / "controller.db")
    assert ok("migrate", "--no-backup", "--json", folder=old.folder).json["from"] == 0
    assert _but_the_moment(whole(old.url)) == migrated


def test_serve_refuses_the_tables_of_a_newer_edgegpu(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", folder=folder)
    engine = open_engine(f"sqlite:///{folder}/controller.db")
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    for part in (("--no-link", "--no-console"), ("--no-https", "--no-console"), ("--no-link", "--no-https")):
        done = run("serve", *part, folder=folder)
        assert (done.code, f"version 9999, ours is {newest()}; upgrade" in done.err.replace("\n ", ";")) == (1, True)
