"""Which process counts as one of ours: anybody may give a process any arguments."""

import os
from pathlib import Path

import pytest

from edgegpu_agent.actions.programs import runs_with

WORDS = ("--transaction-id", "t-1")


def process(proc: Path, *, real: int, effective: int, words: tuple[str, ...] = WORDS) -> None:
    folder = proc / "4242"
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in ("edgegpu", "install", *words)) + b"\0")
    (folder / "status").write_text(f"Name:\tedgegpu\nUid:\t{real}\t{effective}\t{effective}\t{effective}\n")


def test_a_process_of_this_user_counts(tmp_path: Path) -> None:
    process(tmp_path, real=os.getuid(), effective=os.getuid())
    assert runs_with(WORDS, proc=tmp_path)
    assert not runs_with(("--transaction-id", "t-2"), proc=tmp_path)


@pytest.mark.parametrize("effective", [os.getuid(), 4711], ids=["a setuid program", "an ordinary one"])
def test_a_process_of_another_user_does_not(tmp_path: Path, effective: int) -> None:
    process(tmp_path, real=4711, effective=effective)
    assert not runs_with(WORDS, proc=tmp_path)


def test_one_that_has_just_ended_does_not(tmp_path: Path) -> None:
    process(tmp_path, real=os.getuid(), effective=os.getuid())
    (tmp_path / "4242/status").unlink()
    assert not runs_with(WORDS, proc=tmp_path)
