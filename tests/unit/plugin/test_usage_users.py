"""What a usage file says, and who uses it, among processes whose authors do not want that to be seen."""

import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgegpu_plugin.containers.usage_file import (
    USAGE_BYTES,
    bucket_levels,
    is_mapped,
    load_usage,
    process_maps,
    users_of,
)

LEADERLESS = """
import ctypes, mmap, sys, threading
file = open(sys.argv[1], "r+b")
mapped = mmap.mmap(file.fileno(), 0)
threading.Thread(target=lambda: (print("ready", flush=True), sys.stdin.read())).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def usage(tmp_path: Path) -> Path:
    path = tmp_path / "usage"
    path.write_bytes(bytes(4096))
    return path


@pytest.fixture
def leaderless(usage: Path) -> Iterator[int]:
    """A process that has the file mapped, and whose first thread has ended."""
    command = [sys.executable, "-c", LEADERLESS, str(usage)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        folder = Path(f"/proc/{child.pid}")
        while (folder / "maps").read_bytes():  # the first thread is about to end
            os.sched_yield()
        yield child.pid
        child.kill()


def test_a_process_without_its_first_thread_is_seen(usage: Path, leaderless: int) -> None:
    process = Path(f"/proc/{leaderless}")
    assert is_mapped(usage, process_maps(process))
    assert leaderless in users_of(usage, frozenset({(process / "ns/pid").stat().st_ino}), Path("/proc"))


@pytest.mark.parametrize("name", ["x\x0cy", "x\x1c", "\x85", "x\u2028y", "a b  c"])
def test_the_name_of_a_mapped_file_breaks_nothing(usage: Path, tmp_path: Path, name: str) -> None:
    strange = tmp_path / name
    strange.write_bytes(bytes(4096))
    namespace = frozenset({Path("/proc/self/ns/pid").stat().st_ino})
    with strange.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert os.getpid() not in users_of(usage, namespace, Path("/proc"))
        assert os.getpid() in users_of(strange, namespace, Path("/proc"))


def test_a_process_that_has_ended_has_nothing_mapped(tmp_path: Path) -> None:
    assert process_maps(tmp_path / "7") == b""
    assert users_of(tmp_path / "none", frozenset({1}), Path("/proc")) == []


def test_of_a_list_of_mappings_that_its_author_has_made_huge_the_beginning_is_read(usage: Path, tmp_path: Path) -> None:
    process = tmp_path / "7"
    process.mkdir()
    line = b"7f0000000000-7f0000001000 r--p 00000000 00:01 1 /" + b"x" * 4000 + b"\n"
    with (process / "maps").open("wb") as maps:
        maps.write(f"7f0000000000-7f0000001000 rw-s 00000000 00:01 {usage.stat().st_ino} /usage\n".encode())
        maps.write(line * 10)
        maps.truncate(1 << 40)
    assert is_mapped(usage, process_maps(process))
    (process / "maps").write_bytes(line)
    assert process_maps(process) == line


def test_of_what_stands_twice_in_the_file_the_first_place_counts_as_for_the_limiter(usage: Path) -> None:
    head = struct.pack(
        "=4I2Q2I32s224x2Q112x16s", 0x45474C4D, 5, USAGE_BYTES, 512, 0, 1, 1, 2, b"u" * 32, 3, 4, b"0.1.0"
    )
    shared = struct.pack("=2Q40xQ", 77, 0, 9).ljust(1024, b"\0")
    slot = struct.pack("=4Qq34Q", 1, 1, 1, 1, 1, 0, 0, 5, 1, 6, 1, *([0] * 28))
    tables = b"".join((bytes(range(16)), b"\xff" * 16, bytes(range(16)), bytes(480 - 16)))
    usage.write_bytes((head + shared + slot).ljust(USAGE_BYTES - len(tables), b"\0") + tables)
    counts, card = load_usage(usage), (b"u" * 16).hex()
    assert counts is not None
    assert (counts.bytes, counts.refusals, counts.most) == ({card: 5}, {card: 3}, {card: 9})
    assert counts.tables == ("00010203-0405-0607-0809-0a0b0c0d0e0f", "ffffffff-ffff-ffff-ffff-ffffffffffff")
    assert bucket_levels(usage) == {card: 77}


@pytest.mark.parametrize(("tag", "counts"), [(1, 0), (2, 5)])
def test_what_a_checkpoint_has_put_aside_does_not_count(usage: Path, tag: int, counts: int) -> None:
    """In the slot stands whose that was: a process that has it since counts."""
    head = struct.pack("=4I2Q2I256s", 0x45474C4D, 5, USAGE_BYTES, 512, 0, 1, 1, 1, b"u" * 16)
    slot = struct.pack("=4Qq34Q", tag, 1, 1, 1, 1, 0, 1 << 16 | 1, 5, 1, *([0] * 30))
    usage.write_bytes((head.ljust(40 + 256 + 128 + 16 + 1024, b"\0") + slot).ljust(USAGE_BYTES, b"\0"))
    found = load_usage(usage)
    assert found is not None
    assert found.bytes == {(b"u" * 16).hex(): counts}
