"""Every command as a user without root: it says what it needs before it begins, and blames nothing on edgegpu."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
import typer
from kits.cli import document, edgegpu, plugin

from edgegpu_agent.cli.common import reporting
from edgegpu_agent.cli.tree import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = 65534
NEEDS_ROOT = {
    "install": ["--yes"],
    "uninstall": ["--yes"],
    "doctor": [],
    "journal": [],
    "transaction show": [],
    "transaction resume": [],
    "agent status": [],
    "agent enrol": ["--url", "https://cloud.example"],
}
"""With the options that they need. The others can do something for everybody."""
FOR_EVERYBODY = {
    "card accept",
    "card release",
    "status",
    "pods",
    "limit",
    "selftest",
    "version",
    "config check",
    "demo",
}


@pytest.fixture
def nobody() -> Iterator[None]:
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)
    yield
    os.seteuid(me)


def commands(group: typer.Typer = app, prefix: str = "") -> set[str]:
    own = {f"{prefix}{one.name}" for one in group.registered_commands}
    groups = ((one.typer_instance, one.name) for one in group.registered_groups)
    return own.union(*(commands(inner, f"{name} ") for inner, name in groups if inner is not None))


def test_of_every_command_it_is_known_whether_it_needs_root() -> None:
    assert commands() == NEEDS_ROOT.keys() | FOR_EVERYBODY


@pytest.mark.parametrize("command", NEEDS_ROOT)
@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.usefixtures("nobody")
def test_a_command_that_needs_root_says_so_and_begins_nothing(command: str, more: list[str]) -> None:
    done = edgegpu(*command.split(), *NEEDS_ROOT[command], *more)
    assert done.code == (3 if command == "doctor" else 1)
    said = done.out if more else done.err
    assert ": this needs root" in said
    assert "sudo" in said
    assert "fault" not in said


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("words", [["install", "--dry-run"], ["uninstall", "--dry-run"]])
def test_a_dry_run_reads_what_is_roots_alone(words: list[str]) -> None:
    assert ": this needs root" in edgegpu(*words).err


def test_a_socket_of_roots_is_named_with_sudo(short_tmp: Path, nobody: None) -> None:
    del nobody
    me = os.geteuid()
    os.seteuid(os.getuid())
    short_tmp.chmod(0o755)
    with plugin(short_tmp, document()) as socket:
        socket.chmod(0)
        os.seteuid(me)
        for command in ("status", "pods", "version"):
            done = edgegpu(command, "--socket", socket)
            assert "only root may ask it" in done.err + done.out, command
            assert "fault" not in done.err
        os.seteuid(os.getuid())


def test_a_configuration_that_may_not_be_read_is_no_fault_of_ours(tmp_path: Path, nobody: None) -> None:
    del nobody
    me = os.geteuid()
    os.seteuid(os.getuid())
    file = tmp_path / "plugin.yaml"
    file.write_text("version: 1\n")
    file.chmod(0)
    os.seteuid(me)
    done = edgegpu("config", "check", file)
    assert done.code == 1
    assert "fault" not in done.err
    assert "ermission denied" in done.err


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "sudo"),
        (errno.ENOSPC, "make room on that file system"),
        (errno.EROFS, "remount,rw"),
        (errno.EMFILE, "EDGEGPU_DEBUG=1"),
    ],
)
def test_what_the_box_is_at_fault_for_is_not_blamed_on_edgegpu(
    number: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), reporting(as_json=False):
        raise OSError(number, os.strerror(number), "/etc/edgegpu/x")
    said = capsys.readouterr().err
    assert f"edgegpu: cannot go on: {os.strerror(number)}: /etc/edgegpu/x" in said
    assert words in said
    assert "fault" not in said
