"""Who still uses a container's usage file, among processes whose authors do not want that to be seen."""

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgegpu_plugin.containers.usage_file import is_mapped, process_maps, users_of

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
    assert leaderless in users_of(usage, frozenset({(process / "ns/pid").stat().st_ino}))


@pytest.mark.parametrize("name", ["x\x0cy", "x\x1c", "\x85", "x\u2028y", "a b  c"])
def test_the_name_of_a_mapped_file_breaks_nothing(usage: Path, tmp_path: Path, name: str) -> None:
    strange = tmp_path / name
    strange.write_bytes(bytes(4096))
    namespace = frozenset({Path("/proc/self/ns/pid").stat().st_ino})
    with strange.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert os.getpid() not in users_of(usage, namespace)
        assert os.getpid() in users_of(strange, namespace)


def test_a_process_that_has_ended_has_nothing_mapped(tmp_path: Path) -> None:
    assert process_maps(tmp_path / "7") == b""
    assert users_of(tmp_path / "none", frozenset({1})) == []
