"""`edgegpu-cloud backup` and `restore`: nothing in the file is in clear, and what comes back is the same controller."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.backups import PASSPHRASE, opened_archive, passphrase_words
from kits.cloudcli import ok, run
from kits.cloudprocess import running
from kits.mqtt import wait_for

from edgegpu_cloud.store.migrations import newest
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from kits.postgres import PostgresServer


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return the folder of a controller."""
    folder = tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", "--https-port", str(free_port()), folder=folder)
    return folder


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    """Return a backup of that controller."""
    file = tmp_path / "all.backup"
    done = ok("backup", str(file), *passphrase_words(tmp_path), "--json", folder=made).json
    assert done == {"file": str(file), "bytes": file.stat().st_size}
    return file


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of each file, less the store and what names the folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith((".crl.lock", "controller.db", "mosquitto.conf"))
    }


class TestBackup:
    def test_it_is_whole_and_encrypted(self, made: Path, backup: Path) -> None:
        assert backup.stat().st_mode & 0o777 == 0o600
        with opened_archive(backup) as tar:
            names = set(tar.getnames())
        assert {"ca/boxes.key", "keys/signing.key", "keys/root.key", "tls/https.key", "controller.db"} < names
        data = backup.read_bytes()
        assert not tarfile.is_tarfile(io.BytesIO(data))
        assert b"PRIVATE KEY" not in data
        assert str(made).encode() not in data

    def test_a_passphrase_that_is_not_good_enough_is_refused(self, made: Path, tmp_path: Path) -> None:
        option, file = passphrase_words(tmp_path, "short")
        words = ("backup", str(tmp_path / "all.backup"), option, file)
        assert "fewer than 12 characters" in run(*words, folder=made).err
        passphrase_words(tmp_path, "")
        assert "its first line is empty" in run(*words, folder=made).err
        passphrase_words(tmp_path)
        Path(file).chmod(0o640)
        done = run(*words, folder=made)
        assert (done.code, "others may read it" in done.err, f"chmod 600 {file}" in done.err) == (1, True, True)
        assert "cannot read the passphrase" in run(*words[:-1], str(tmp_path / "none"), folder=made).err
        done = run(*words[:2], folder=made)
        assert (done.code, "the input is no terminal" in done.err, "--passphrase-file" in done.err) == (1, True, True)
        assert not (tmp_path / "all.backup").exists()


class TestRestore:
    def test_it_gives_the_same_controller_in_another_folder(self, made: Path, backup: Path, tmp_path: Path) -> None:
        back = tmp_path / "back"
        done = ok("restore", "--yes", str(backup), *passphrase_words(tmp_path), "--json", folder=back).json
        assert (done["folder"], done["from"], done["to"]) == (str(back), newest(), newest())
        assert tree(back) == tree(made)
        (entry,) = ok("audit", "--what", "store", "--json", folder=back).json
        assert (entry["by"], entry["what"], entry["before"]) == ("operator anna", "store.restored", {})
        assert entry["after"] == {"file": "all.backup", "version": newest()}
        assert ok("audit", "--what", "store", "--json", folder=made).json == []
        assert {path.stat().st_mode & 0o777 for path in (back, back / "keys", back / "ca", back / "tls")} == {0o700}
        assert str(back / "broker/data") in (back / "broker/mosquitto.conf").read_text()
        assert ok("keys", "show", folder=back).out == ok("keys", "show", folder=made).out
        assert not [one for one in back.iterdir() if one.name.startswith(".")]

    def test_a_wrong_passphrase_changes_nothing(self, backup: Path, tmp_path: Path) -> None:
        words = passphrase_words(tmp_path, PASSPHRASE.upper())
        done = run("restore", "--yes", str(backup), *words, folder=tmp_path / "back")
        assert (done.code, "the passphrase is wrong" in done.err) == (1, True)
        assert not (tmp_path / "back").exists()

    def test_a_damaged_backup_changes_nothing(self, backup: Path, tmp_path: Path) -> None:
        data = backup.read_bytes()
        for broken in (data[:-20], data[:-1] + bytes([data[-1] ^ 1]), data + b"more"):
            backup.write_bytes(broken)
            done = run("restore", "--yes", str(backup), *passphrase_words(tmp_path), folder=tmp_path / "back")
            assert (done.code, "damaged, or cut off" in done.err) == (1, True)
            assert not (tmp_path / "back").exists()

    def test_a_folder_with_a_controller_is_left_alone(self, made: Path, backup: Path, tmp_path: Path) -> None:
        before = tree(made)
        done = run("restore", "--yes", str(backup), *passphrase_words(tmp_path), folder=made)
        assert (done.code, "it has controller.yaml" in done.err) == (1, True)
        assert tree(made) == before

    def test_a_backup_of_edgegpu_0_1_0_is_named(self, made: Path, tmp_path: Path) -> None:
        old = tmp_path / "old.tar.gz"
        subprocess.run(["tar", "-czf", old, "-C", made, "."], check=True)
        done = run("restore", "--yes", str(old), *passphrase_words(tmp_path), folder=tmp_path / "back")
        assert (done.code, "edgegpu 0.1.0 has made it" in done.err, "tar -xzf" in done.err) == (1, True, True)
        assert not (tmp_path / "back").exists()

    def test_a_sqlite_store_goes_into_no_database_by_restore(self, backup: Path, tmp_path: Path) -> None:
        words = (*passphrase_words(tmp_path), "--database", "postgresql://edgegpu@/edgegpu")
        done = run("restore", "--yes", str(backup), *words, folder=tmp_path / "back")
        assert (done.code, "its store is a SQLite file" in done.err) == (1, True)
        assert not (tmp_path / "back").exists()


class TestPostgresql:
    def test_the_store_comes_back_in_another_database(self, tmp_path: Path, postgres_server: PostgresServer) -> None:
        made, back, again = tmp_path / "cloud", tmp_path / "back", postgres_server.new_database()
        ok("init", "--name", "127.0.0.1", "--database", postgres_server.new_database(), folder=made)
        ok("enrol", "--name", "hall-1", folder=made)
        words = passphrase_words(tmp_path)
        ok("backup", str(tmp_path / "all"), *words, folder=made)
        done = run("restore", "--yes", str(tmp_path / "all"), *words, folder=back)
        assert (done.code, "it has tables already" in done.err, "createdb" in done.err) == (1, True, True)
        assert not back.exists()
        ok("restore", "--yes", str(tmp_path / "all"), *words, "--database", again, "--later", str(made), folder=back)
        assert ok("tokens", "--json", folder=back).json == ok("tokens", "--json", folder=made).json
        assert not (back / "controller.pgdump").exists()
        assert [one["what"] for one in ok("audit", "--what", "store", "--json", folder=back).json] == ["store.restored"]
        assert tree(back).keys() == tree(made).keys()


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql")])
def test_boxes_that_were_enrolled_before_obey_the_restored_controller(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: PostgresServer | None = request.getfixturevalue("postgres_server") if engine == "postgresql" else None
    there = ("--database", server.new_database()) if server else ()
    with running(tmp_path, *there) as cloud, cloud.live("hall-1") as live:
        cloud.ok("limits", "set", "hall-1", "asr", "--memory", "4", "--core", "1", "--wait")
        cloud.ok("backup", str(tmp_path / "all.backup"), *passphrase_words(tmp_path))
        cloud.end()
        cloud.stop_broker()
        cloud.folder.rename(tmp_path / "gone")

        back = ("--database", server.new_database()) if server else ()
        words = (*passphrase_words(tmp_path), *back)
        ok("restore", "--yes", str(tmp_path / "all.backup"), *words, folder=tmp_path / "restored")
        cloud.move(tmp_path / "restored")
        ups = live.ups
        cloud.start_broker()
        cloud.serve()

        wait_for(lambda: live.ups > ups and cloud.box("hall-1")["online"], what="the box is on the link again")
        if cloud.box("hall-1")["restored"]:
            cloud.ok("confirm", "hall-1")
        cloud.ok("limits", "set", "hall-1", "asr", "--memory", "9", "--core", "1", "--wait")
        assert [one["memory_units"] for one in cloud.ok("limits", "show", "hall-1", "--json").json] == [9]
        assert cloud.enrols("hall-2")
