"""A container's root can have a lease on each file that is mounted there: who opens it would wait for 45 seconds."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgegpu_plugin.containers.container_folder import CardLimits, ContainerFolders, limits_text
from edgegpu_plugin.containers.held.bypass import CountedContainer
from edgegpu_plugin.containers.held.uncounted import UncountedMemory
from edgegpu_plugin.containers.held.usage_sizes import ENLARGED, UsageSizes
from edgegpu_plugin.containers.usage_file import USAGE_BYTES, bucket_levels, load_usage

CARD = "GPU-11111111-2222-3333-4444-555555555555"
MIB = 1 << 20
SOON_S = 5.0
LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
for path in sys.argv[1:]:
    fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
sys.stdin.read()
"""


@contextmanager
def leased(*paths: Path) -> Iterator[None]:
    """Have a process with a lease on each of these files, by which others wait when they open it."""
    command = [sys.executable, "-c", LEASE, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"leased\n"
        yield
        child.kill()


def gets_lease(path: Path) -> bool:
    """Whether a process gets such a lease on a file."""
    command = [sys.executable, "-c", LEASE, str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ("leased" in done.stdout) != ("BlockingIOError" in done.stderr), done
    return "leased" in done.stdout


@pytest.fixture
def folders(tmp_path: Path) -> ContainerFolders:
    return ContainerFolders(root=tmp_path / "containers", proc=Path("/proc"))


@pytest.fixture
def folder(folders: ContainerFolders) -> Iterator[Path]:
    """The folder of a container, one process of which has leases on its files."""
    folder = folders.of(["a"])
    folders.make(folder, limits_text({CARD: CardLimits(MIB)}))
    with leased(folder / "usage", folder / "limits"):
        yield folder


def is_soon(call: Callable[[], object]) -> bool:
    began = time.monotonic()
    call()
    return time.monotonic() - began < SOON_S


def test_a_lease_is_waited_for_by_nobody_who_reads_what_a_container_has_counted(
    folders: ContainerFolders, folder: Path
) -> None:
    usage = folder / "usage"
    with pytest.raises(BlockingIOError):
        load_usage(usage)
    assert is_soon(lambda: bucket_levels(usage))
    assert folders.state(folder) is None
    assert folders.users(folder) == []
    memory, key = UncountedMemory(), ("u", "main")
    assert memory.look({(key, CARD): 500 * MIB}, {key: CountedContainer([usage], {CARD: MIB})}) == {key}
    assert usage.stat().st_size == USAGE_BYTES


def test_limits_are_changed_and_a_start_is_made_whole_in_spite_of_leases(
    folders: ContainerFolders, folder: Path
) -> None:
    text = limits_text({CARD: CardLimits(2 * MIB)})
    assert is_soon(lambda: folders.write_limits(folder, text))
    assert (folder / "limits").read_text() == text
    assert is_soon(lambda: folders.make(folder, text))
    found = folders.state(folder)
    assert found is not None
    assert found.limits[CARD].memory_bytes == 2 * MIB


def test_a_file_that_is_too_large_is_told_though_it_cannot_be_cut_back_yet(folder: Path) -> None:
    usage, key, sizes = folder / "usage", ("u", "main"), UsageSizes()
    grown = folder / "grown"
    grown.write_bytes(bytes(2 * USAGE_BYTES))
    held = {key: CountedContainer([grown], {})}
    with leased(grown):
        assert is_soon(lambda: sizes.look(held))
        assert (sizes.reason(key), grown.stat().st_size) == (ENLARGED, 2 * USAGE_BYTES)
    assert not sizes.look(held)
    assert grown.stat().st_size == usage.stat().st_size == USAGE_BYTES
