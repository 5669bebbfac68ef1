"""`edgegpu-cloud migrate`: after an upgrade the tables are old, all wait for it, and it copies the store first."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest
from kits.backups import PASSPHRASE, passphrase_words
from kits.cloudcli import ok, run
from kits.mqtt import wait_for
from kits.storeschema import dump, make_old, make_released, stamp
from sqlalchemy import text

from edgegpu_cloud.controller.status import hold
from edgegpu_cloud.enrolment.sealing import SealedWriter
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.migrations import newest
from edgegpu_cloud.store.records import ControllerBeat
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from kits.postgres import PostgresServer


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return the folder of a controller whose store edgegpu 0.1.0 has made."""
    folder = tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", "--https-port", str(free_port()), "--no-console", folder=folder)
    make_old(folder / "controller.db")
    return folder


def test_commands_refuse_older_tables_and_change_nothing(old: Path) -> None:
    url = f"sqlite:///{old}/controller.db"
    before = dump(url)
    done = run("boxes", folder=old)
    assert (done.code, "version 0, ours is" in done.err, "run `edgegpu-cloud migrate`" in done.err) == (1, True, True)
    assert dump(url) == before


def test_a_restore_of_older_tables_migrates_them(old: Path, tmp_path: Path) -> None:
    words = passphrase_words(tmp_path)
    with (tmp_path / "old.backup").open("wb") as file:
        sealed = SealedWriter(file, PASSPHRASE)
        with tarfile.open(mode="w|gz", fileobj=cast("BinaryIO", sealed)) as tar:
            tar.add(old, arcname=".")
        sealed.close()
    done = ok("restore", "--yes", str(tmp_path / "old.backup"), *words, "--json", folder=tmp_path / "back").json
    assert (done["from"], done["to"]) == (0, newest())
    assert ok("boxes", folder=tmp_path / "back").out.startswith("no boxes yet")
    audit = ok("audit", "--what", "store", "--json", folder=tmp_path / "back").json
    assert {one["what"] for one in audit} == {"store.migrated", "store.restored"}


def test_it_copies_the_store_and_migrates_it(old: Path) -> None:
    before = dump(f"sqlite:///{old}/controller.db")
    done = ok("migrate", "--json", folder=old).json
    copy = Path(done["backup"])
    assert (done["from"], done["to"]) == (0, newest())
    assert re.fullmatch(r"controller-\d{8}-\d{6}\.db", copy.name)
    assert (copy.parent, stat.S_IMODE(copy.stat().st_mode)) == (old, 0o600)
    assert dump(f"sqlite:///{copy}") == before
    assert ok("boxes", folder=old).out.startswith("no boxes yet")
    assert ok("migrate", folder=old).out == f"nothing to do: the tables have version {newest()}\n"
    (entry,) = ok("audit", "--what", "store", "--json", folder=old).json
    assert (entry["by"], entry["what"]) == ("operator anna", "store.migrated")
    assert (entry["before"], entry["after"], entry["result"]["state"]) == (
        {"version": 0},
        {"version": newest()},
        "done",
    )
    assert ok("migrate", "--json", folder=old).json == {"from": newest(), "to": newest(), "backup": ""}


def test_without_a_copy_it_leaves_none(old: Path) -> None:
    done = ok("migrate", "--no-backup", folder=old)
    assert done.out == f"migrated the tables from version 0 to {newest()}\n"
    assert list(old.glob("controller-*.db")) == []


def test_it_refuses_while_another_edgegpu_works_with_the_tables(old: Path) -> None:
    before = dump(f"sqlite:///{old}/controller.db")
    held = hold(CloudLayout(old), link=True)
    try:
        done = run("migrate", folder=old)
    finally:
        held.close()
    assert (done.code, f"works with it, pid {os.getpid()}" in done.err) == (1, True)
    assert "systemctl stop edgegpu-cloud" in done.err
    assert dump(f"sqlite:///{old}/controller.db") == before


def test_a_folder_without_a_store_gets_none(old: Path) -> None:
    (old / "controller.db").unlink()
    done = run("migrate", folder=old)
    assert (done.code, "it is not there; " in done.err or "bring it back" in done.err) == (1, True)
    assert not (old / "controller.db").exists()


def test_serve_waits_for_it_and_goes_on(old: Path, tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-link", "--folder", str(old)]
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        wait_for(lambda: "this process waits: run `edgegpu-cloud migrate`" in log.read_text(), what="it waits")
        ok("migrate", folder=old)
        wait_for(lambda: "boxes enrol at" in log.read_text(), what="it serves")
        assert log.read_text().count("this process waits") == 1
    finally:
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


def test_serve_that_begins_with_tables_of_a_newer_version_waits_and_says_so(old: Path, tmp_path: Path) -> None:
    ok("migrate", folder=old)
    stamp(f"sqlite:///{old}/controller.db", newest() + 1)
    log = tmp_path / "serve.log"
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-link", "--folder", str(old)]
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        wait_for(lambda: "this process waits: upgrade edgegpu here" in log.read_text(), what="it waits")
        stamp(f"sqlite:///{old}/controller.db", newest())
        wait_for(lambda: "boxes enrol at" in log.read_text(), what="it serves")
    finally:
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


def test_serve_that_waits_ends_when_it_is_told_to(old: Path, tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--folder", str(old)]
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    wait_for(lambda: "this process waits" in log.read_text(), what="it waits")
    process.terminate()
    assert process.wait(30) == 0, log.read_text()


def test_serve_that_runs_ends_when_the_tables_are_another_version_s(old: Path, tmp_path: Path) -> None:
    ok("migrate", folder=old)
    log = tmp_path / "serve.log"
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-link", "--folder", str(old)]
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        wait_for(lambda: "boxes enrol at" in log.read_text(), what="it serves")
        stamp(f"sqlite:///{old}/controller.db", newest() + 1)
        assert process.wait(30) == 1, log.read_text()
    finally:
        process.kill()
    assert f"version {newest() + 1}, ours is {newest()}" in log.read_text()
    assert "upgrade edgegpu here" in log.read_text()


class TestPostgresql:
    @pytest.fixture
    def url(self, postgres_server: PostgresServer) -> str:
        return postgres_server.new_database()

    def make(self, folder: Path, url: str, *more: str) -> None:
        ok("init", "--name", "127.0.0.1", "--no-console", "--database", url, *more, folder=folder)

    def test_init_makes_the_tables_there_and_no_file_here(self, tmp_path: Path, url: str) -> None:
        folder = tmp_path / "cloud"
        self.make(folder, url)
        assert not (folder / "controller.db").exists()
        assert ok("keys", "show", "--json", folder=folder).json["sets"]
        assert ok("boxes", folder=folder).code == 0
        done = run("init", "--name", "127.0.0.1", "--database", url, folder=tmp_path / "another")
        assert (done.code, "it has tables already" in done.err) == (1, True)
        assert not (tmp_path / "another/controller.yaml").exists()

    def test_a_database_without_tables_is_not_taken_for_a_new_store(
        self, tmp_path: Path, url: str, postgres_server: PostgresServer
    ) -> None:
        folder = tmp_path / "cloud"
        self.make(folder, url)
        config = (folder / "controller.yaml").read_text()
        (folder / "controller.yaml").write_text(config.replace(url, postgres_server.new_database()))
        for words in (("boxes",), ("migrate",)):
            done = run(*words, folder=folder)
            assert (done.code, "it has no tables" in done.err, "restore a backup" in done.err) == (1, True, True)

    def test_it_dumps_the_store_and_migrates_it(
        self, tmp_path: Path, url: str, postgres_server: PostgresServer
    ) -> None:
        folder = tmp_path / "cloud"
        self.make(folder, postgres_server.new_database())
        config = (folder / "controller.yaml").read_text()
        make_released(url)
        (folder / "controller.yaml").write_text(re.sub(r"url: postgresql\S+", f"url: {url}", config))
        before = dump(url)
        done = ok("migrate", "--json", folder=folder).json
        assert (done["from"], done["to"]) == (0, newest())
        copy, again = Path(done["backup"]), postgres_server.new_database()
        assert (copy.parent, stat.S_IMODE(copy.stat().st_mode)) == (folder, 0o600)
        postgres_server.restore(copy, again)
        assert dump(again) == before

    def test_it_refuses_while_a_controller_of_another_machine_works_with_the_tables(
        self, tmp_path: Path, url: str
    ) -> None:
        folder, ends = tmp_path / "cloud", threading.Event()
        self.make(folder, url)
        store = ControllerStore.open(url)
        with store.write() as tx:
            for name in ("dead", "west"):
                tx.leases.join(ControllerBeat(name=name, instance="1", beat=1, place="", host=f"host-{name}"))
        store.close()
        stamp(url, newest() - 1)

        def beats() -> None:
            engine = open_engine(url)
            while not ends.wait(0.5):
                with engine.begin() as connection:
                    connection.execute(text("UPDATE controllers SET beat = beat + 1 WHERE name = 'west'"))
            engine.dispose()

        thread = threading.Thread(target=beats)
        thread.start()
        done = run("migrate", "--no-backup", folder=folder)
        ends.set()
        thread.join()
        assert done.code == 1
        assert "cannot migrate the store: west on host-west works with it" in done.err
        assert "stop it there" in done.err
        done = run("migrate", "--no-backup", folder=folder)
        assert "host-" not in done.err, "the dead one is in nobody's way"

    def test_without_pg_dump_it_refuses_and_says_what_to_do(
        self, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer
    ) -> None:
        folder = tmp_path / "cloud"
        self.make(folder, postgres_server.new_database())
        make_released(url)
        config = (folder / "controller.yaml").read_text()
        (folder / "controller.yaml").write_text(re.sub(r"url: postgresql\S+", f"url: {url}", config))
        before = dump(url)
        monkeypatch.setenv("PATH", str(tmp_path))
        done = run("migrate", folder=folder)
        assert (done.code, "there is no pg_dump here" in done.err) == (1, True)
        assert "apt-get install postgresql-client" in done.err
        assert "migrate --no-backup" in done.err
        assert dump(url) == before
        assert ok("migrate", "--no-backup", folder=folder).out.startswith("migrated the tables from version 0")

    def test_the_password_comes_from_a_file_and_is_printed_nowhere(
        self, tmp_path: Path, postgres_server: PostgresServer
    ) -> None:
        password = tmp_path / "password"
        password.write_text("s3:cr/et@ %\n")
        postgres_server.execute(
            "CREATE ROLE edgegpu LOGIN PASSWORD 's3:cr/et@ %'", "CREATE DATABASE secret OWNER edgegpu"
        )
        url = postgres_server.tcp_url("secret", user="edgegpu").replace("+psycopg", "")
        folder = tmp_path / "cloud"
        self.make(folder, url, "--database-password-file", str(password))
        assert "s3:cr" not in (folder / "controller.yaml").read_text()
        assert ok("boxes", folder=folder).code == 0
        ok("backup", str(tmp_path / "all"), *passphrase_words(tmp_path), folder=folder)
        password.write_text("another\n")
        done = run("boxes", folder=folder)
        assert (done.code, "password authentication failed" in done.err) == (1, True)
        assert "`database.password_file`" in done.err
        password.unlink()
        done = run("boxes", folder=folder)
        assert (done.code, f"cannot read the database's password in {password}" in done.err) == (1, True)
