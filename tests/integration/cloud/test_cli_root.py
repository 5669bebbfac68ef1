"""Root at work in the folder of the controller's user: what lies there is touched as that user alone, never as root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kits.backups import opened_archive, passphrase_words
from kits.cloudcli import ok, run
from kits.enrol import Box, office

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user")

NOBODY, OTHER = 65_534, 65_533
SECRET = "what root alone may read\n"  # noqa: S105
PROGRAM = """
import json, os, signal, sqlite3, sys, tempfile, traceback  # all of it: Python may lie where nobody reads it later
import gzip, importlib.readers, rich.console, rich.measure, rich.table, uvicorn
from edgegpu_cloud.cli import common, tree
from edgegpu_cloud.enrolment.issuing import write_crl
from edgegpu_cloud.controller.status import hold

def crl(folder):
    with common.opened(folder) as cloud:
        write_crl(cloud.layout, cloud.store, clock=lambda: 1e9)

def holding(folder):
    with common.opened(folder) as cloud:
        hold(cloud.layout, link=True).close()

def play(words):
    if words[0] in {"crl", "hold"}:
        with common.reporting(as_json=False):
            {"crl": crl, "hold": holding}[words[0]](common.Path(os.environ["EDGEGPU_CLOUD"]))
        return 0
    return tree.app(words, prog_name="edgegpu-cloud")

for line in sys.stdin:
    folder, words = json.loads(line)
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os.environ["EDGEGPU_CLOUD"] = folder
            os.dup2(said.fileno(), 1), os.dup2(said.fileno(), 2)
            code = 99
            try:
                code = play(words) or 0
            except BaseException as error:
                code = getattr(error, "exit_code", getattr(error, "code", 98)) or 0
                if code == 98:
                    traceback.print_exc()
            finally:
                sys.stdout.flush(), sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        print(json.dumps([os.waitstatus_to_exitcode(status), said.read()]), flush=True)
"""


@dataclass(frozen=True)
class Bed:
    """A controller of another user's, and beside it what is root's alone."""

    folder: Path
    vault: Path
    program: subprocess.Popen[str]

    def play(self, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
        """Run commands as root, each in a process of its own, and return how each ended and what it said."""
        assert self.program.stdin
        assert self.program.stdout
        found: list[tuple[int, str]] = []
        for words in commands:
            self.program.stdin.write(json.dumps([str(self.folder), words]) + "\n")
            self.program.stdin.flush()
            code, said = json.loads(self.program.stdout.readline())
            found.append((code, said))
        return found

    def ok(self, *commands: tuple[str, ...]) -> None:
        """Run commands that succeed."""
        done = dict(zip(commands, self.play(*commands), strict=True))
        assert {words: said for words, said in done.items() if said[0]} == {}

    def owners(self, folder: Path) -> set[int]:
        """Return whose files lie in a folder."""
        return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@pytest.fixture(scope="module")
def program() -> Iterator[subprocess.Popen[str]]:
    """Yield what runs commands, each in a child of its own: the program is loaded once."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("EDGEGPU_")}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as started:
        yield started
        assert started.stdin
        started.stdin.close()


@pytest.fixture
def bed(program: subprocess.Popen[str]) -> Iterator[Bed]:
    """Yield a folder that another user reaches: those of pytest are the tester's alone."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        Path(top).chmod(0o755)
        made = Bed(Path(top, "cloud"), Path(top, "vault"), program)
        made.folder.mkdir(mode=0o700)
        os.chown(made.folder, NOBODY, NOBODY)
        made.vault.mkdir(mode=0o700)
        (made.vault / "secret").write_text(SECRET)
        (made.vault / "secret").chmod(0o600)
        yield made


def test_a_root_shell_leaves_nothing_that_the_controller_cannot_read(bed: Bed) -> None:
    stick = bed.vault
    bed.ok(("init", "--name", "127.0.0.1"))
    shutil.move(bed.folder / "keys/root.key", stick / "root.key")
    os.chown(stick / "root.key", 0, 0)
    bed.ok(
        ("keys", "rotate", "--root", str(stick / "root.key")),
        ("broker",),
        ("enrol",),
        ("crl",),
        ("hold",),
        ("backup", str(stick / "backup.tgz"), *passphrase_words(stick)),
        ("broker", "--out", str(stick / "broker")),
    )
    assert {"serve.state", ".crl.lock"} <= {path.name for path in bed.folder.rglob("*")}
    assert bed.owners(bed.folder) == {NOBODY}
    assert "user nobody" in (bed.folder / "broker/mosquitto.conf").read_text()
    assert bed.owners(stick) == {0}, "beside the controller's folder it is whose the folder is"
    assert (stick / "backup.tgz").stat().st_mode & 0o777 == 0o600
    assert (stick / "broker/broker.key").read_bytes() == (bed.folder / "tls/broker.key").read_bytes()
    with opened_archive(stick / "backup.tgz") as tar:
        assert {"controller.db", "keys/signing.key", "controller.yaml"} <= set(tar.getnames())
    assert [path.name for path in stick.iterdir() if path.name.startswith(".")] == []
    ok("keys", "make-root", str(stick / "next.key"))
    assert (stick / "next.key").stat().st_uid == 0
    shutil.rmtree(bed.folder)
    bed.folder.mkdir()
    os.chown(bed.folder, NOBODY, NOBODY)
    bed.ok(("restore", "--yes", str(stick / "backup.tgz"), *passphrase_words(stick)), ("boxes",))
    assert bed.owners(bed.folder) == {NOBODY}


def test_what_lies_in_the_folder_does_nothing_to_roots_files(bed: Bed) -> None:
    """Links, hard links and pipes, each where a command opens, makes, empties or gives away something."""
    bed.ok(("init", "--name", "127.0.0.1"), ("hold",), ("crl",))
    secret, rooms, out = bed.vault / "secret", bed.vault / "rooms", bed.vault / "out"
    rooms.mkdir()

    def link(path: Path) -> None:
        path.symlink_to(secret)

    def link_folder(path: Path) -> None:
        path.symlink_to(rooms)

    def hard(path: Path) -> None:
        path.hardlink_to(secret)

    plants: list[tuple[str, Callable[[Path], None], tuple[str, ...]]] = [
        ("ca/.crl.lock", link, ("crl",)),
        ("ca/.crl.lock", hard, ("crl",)),
        ("ca/.crl.lock", os.mkfifo, ("crl",)),
        ("ca", link_folder, ("crl",)),
        ("serve.state", link, ("hold",)),
        ("serve.state", hard, ("hold",)),
        ("serve.state", os.mkfifo, ("hold",)),
        ("serve.state", link, ("serve", "--no-https")),
        ("https.state", link, ("serve", "--no-link")),
        ("broker/data", link_folder, ("broker",)),
        ("broker", link_folder, ("broker",)),
        ("keys", link_folder, ("keys", "rotate")),
        ("controller.yaml", link, ("boxes",)),
        ("controller.yaml", os.mkfifo, ("boxes",)),
        ("controller.db", link, ("boxes",)),
        ("tls/broker.key", link, ("broker", "--out", str(out))),
        ("tls/broker.key", os.mkfifo, ("broker", "--out", str(out))),
        ("keys/more", hard, ("backup", str(bed.vault / "backup.tgz"), *passphrase_words(bed.vault))),
    ]
    before = {path: (path.lstat().st_uid, path.lstat().st_mode) for path in (secret, rooms)}
    for where, plant, command in plants:
        path, aside = bed.folder / where, bed.folder / "aside"
        if path.exists():
            path.rename(aside)
        plant(path)
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False) if plant is not hard else None
        [(code, said)] = bed.play(command)
        assert (code, SECRET in said, "Traceback" in said) == (1, False, False), (where, plant, command, code, said)
        assert (secret.read_text(), list(rooms.iterdir())) == (SECRET, []), (where, plant)
        assert {one: (one.lstat().st_uid, one.lstat().st_mode) for one in before} == before, (where, plant)
        assert sorted(one.name for one in bed.vault.iterdir()) == ["passphrase", "rooms", "secret"], (where, plant)
        path.unlink()
        if aside.exists():
            aside.rename(path)


def test_a_brokers_folder_of_another_user_gives_nothing_away(bed: Bed) -> None:
    out = bed.vault.parent / "out"
    bed.ok(("init", "--name", "127.0.0.1"), ("broker", "--out", str(out)))
    for path in (out, *out.rglob("*")):
        os.chown(path, OTHER, OTHER)
    shutil.rmtree(out / "data")
    (out / "data").symlink_to(bed.vault)
    (out / "broker.key").unlink()
    (out / "broker.key").symlink_to(bed.vault / "secret")
    [(code, said)] = bed.play(("broker", "--out", str(out)))
    assert (code, "cannot write to" in said) == (1, True), said
    assert (bed.vault.stat().st_uid, (bed.vault / "secret").read_text()) == (0, SECRET)
    (out / "data").unlink()
    bed.ok(("broker", "--out", str(out)))
    assert (bed.owners(out), (out / "broker.key").is_symlink()) == ({OTHER}, False)


@pytest.mark.parametrize("words", [("revoke",), ("boxes", "forget")])
def test_the_broker_is_reloaded_as_root_and_an_end_half_way_is_told(bed: Bed, words: tuple[str, ...]) -> None:
    bed.folder.rmdir()  # else this process becomes its owner
    here = office(bed.folder)
    device = Box(here.token(name="lorry")).enrolled(here.desk).device
    here.store.close()
    for path in (bed.folder, *bed.folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    reload = f"sh -c 'id -u > {bed.vault}/who; exit 7'"
    [(code, said)] = bed.play((*words, "lorry", "--yes", "--reload", reload))
    assert (code, "ended with 7" in said) == (1, True), said
    assert (bed.vault / "who").read_text() == "0\n"
    done, named = ("forgotten", device) if "forget" in words else ("revoked", "lorry")
    assert (f"lorry is {done}" in said, f"edgegpu-cloud kick {named}" in said) == (True, True), said


def test_another_user_is_told_whom_to_be(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.ok(("init", "--name", "127.0.0.1"))
    monkeypatch.chdir(bed.folder.parent)
    os.setegid(OTHER)
    os.seteuid(OTHER)
    try:
        done = run("boxes", "--folder", "cloud")
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert (done.code, "runuser -u nobody -- edgegpu-cloud" in done.err) == (1, True), done.err
