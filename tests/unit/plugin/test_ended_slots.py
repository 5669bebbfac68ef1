"""Whose slots of a usage file are freed: of processes that have ended, not of those that are about to."""

import struct
from pathlib import Path

import pytest

from edgegpu_plugin.containers.held.ended_slots import free_ended_slots
from edgegpu_plugin.containers.usage_file import OWN_FORM, USAGE_BYTES, form_text, taken_slots

PID, INNER_PID = 4711, 7


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Return a /proc in which one process, of another PID namespace, has nothing mapped."""
    process = tmp_path / "proc" / str(PID)
    for folder in (process, tmp_path / "proc/self"):
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/pid").touch()
    (process / "task").mkdir()
    (process / "maps").touch()
    (process / "stat").write_text(f"{PID} (python) R 1 1 1 0 -1 4194308 0 0\n")
    return tmp_path / "proc"


@pytest.fixture
def usage(tmp_path: Path, proc: Path) -> Path:
    """Return a usage file with a slot of that process, and one of a process that nobody sees any more."""
    namespaces = [(proc / one / "ns/pid").stat().st_ino for one in (str(PID), "self")]
    head = struct.pack("=4I2Q2I", 0x45474C4D, OWN_FORM.version, USAGE_BYTES, 512, 0, 2, 2, 0)
    slots = [struct.pack("=4Qq34Q", 1, 1, one, 1, INNER_PID, *([0] * 34)) for one in namespaces]
    path = tmp_path / "usage"
    path.write_bytes((head.ljust(40 + 256 + 128 + 16 + 1024, b"\0") + b"".join(slots)).ljust(USAGE_BYTES, b"\0"))
    (tmp_path / "form").write_text(form_text())
    assert len(taken_slots(path.read_bytes())) == 2
    return path


@pytest.mark.parametrize(
    ("state", "threads", "freed"),
    [
        ("R (running)", 1, 1),  # its memory is gone, what it has open is not yet
        ("D (disk sleep)", 1, 1),
        ("Z (zombie)", 2, 1),  # its first thread alone has ended
        ("Z (zombie)", 1, 2),
        ("X (dead)", 1, 2),
    ],
)
def test_a_process_that_is_about_to_end_keeps_its_slot(
    usage: Path, proc: Path, state: str, threads: int, freed: int
) -> None:
    text = f"Name:\tpython\nState:\t{state}\nNSpid:\t{PID}\t{INNER_PID}\nThreads:\t{threads}\n"
    (proc / str(PID) / "status").write_text(text)
    assert free_ended_slots([usage], proc) == freed
    assert len(taken_slots(usage.read_bytes())) == 2 - freed
