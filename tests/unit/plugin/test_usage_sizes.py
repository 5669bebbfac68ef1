"""Usage files that a container makes larger: cut back at the next look, told until the container's next start."""

import ctypes
import errno
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgegpu_plugin.containers.container_folder import ContainerFolders
from edgegpu_plugin.containers.held.bypass import CountedContainer
from edgegpu_plugin.containers.held.usage_sizes import ENLARGED, UsageSizes
from edgegpu_plugin.containers.usage_file import USAGE_BYTES

KEY, OTHER = ("u", "main"), ("v", "main")
MIB = 1 << 20
KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE: blocks beyond a file's end, which its size does not show."""


class Machine:
    """Two containers' folders in a file system in memory, as /run is."""

    def __init__(self, folder: Path) -> None:
        self.folders = ContainerFolders(root=folder / "containers", proc=Path("/proc"))
        self.usage = [folder / f"containers/{name}/usage" for name in ("one", "other")]
        for path in self.usage:
            self.folders.make(path.parent, "edgegpu-limits 1\n")
        self.sizes = UsageSizes()

    def look(self) -> bool:
        one, other = self.usage
        return self.sizes.look({KEY: CountedContainer([one], {}), OTHER: CountedContainer([other], {})})

    def told(self) -> list[str]:
        return [self.sizes.reason(key) for key in (KEY, OTHER)]


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Machine(Path(folder))


def test_a_new_file_has_its_size_and_all_of_its_memory(machine: Machine) -> None:
    seen = machine.usage[0].stat()
    assert (seen.st_size, seen.st_blocks * 512 >= USAGE_BYTES) == (USAGE_BYTES, True)
    assert not machine.look()
    assert machine.told() == ["", ""]


@pytest.mark.parametrize("sparse", [True, False])
def test_a_file_that_was_made_larger_is_cut_back_and_told_until_the_next_start(
    machine: Machine, *, sparse: bool
) -> None:
    usage = machine.usage[0]
    with usage.open("r+b") as file, mmap.mmap(file.fileno(), USAGE_BYTES) as mapped:
        mapped[USAGE_BYTES - 1] = 7
        if sparse:
            file.truncate(1 << 40)
        else:
            os.pwrite(file.fileno(), b"x" * 8 * MIB, USAGE_BYTES)
        assert machine.look()
        assert usage.stat().st_size == USAGE_BYTES
        assert usage.stat().st_blocks * 512 < MIB
        assert mapped[USAGE_BYTES - 1] == 7
    assert machine.told() == [ENLARGED, ""]
    assert not machine.look()
    assert machine.told() == [ENLARGED, ""]
    machine.folders.make(usage.parent, "edgegpu-limits 1\n")
    assert machine.look()
    assert machine.told() == ["", ""]


def test_blocks_beyond_the_end_are_taken_back_too(machine: Machine) -> None:
    usage = machine.usage[1]
    with usage.open("r+b") as file:
        length = ctypes.c_long(16 * MIB)
        assert ctypes.CDLL(None).fallocate(file.fileno(), KEEP_SIZE, ctypes.c_long(0), length) == 0
    assert (usage.stat().st_size, usage.stat().st_blocks * 512) == (USAGE_BYTES, 16 * MIB)
    assert machine.look()
    assert usage.stat().st_blocks * 512 < MIB
    assert machine.told() == ["", ENLARGED]


FULL = """
import sys
from pathlib import Path
from unit.plugin.test_isolation import CARD, CORE, MEMORY, MIB, OTHER, Box, memory_ids

box = Box(Path(sys.argv[1]))
box.book("u", MEMORY)
box.limiter.prepare("u", "main")
(usage,) = box.run.glob("containers/*/usage")

def fill():
    try:
        with usage.open("r+b", 0) as file:
            file.seek(MIB)
            while file.write(bytes(4096)):
                pass
    except OSError as error:
        return error.errno

print(fill())
box.limiter.set_live_limit("u", "main", {CARD: 2})
print(f"memory_bytes={512 * MIB}" in usage.with_name("limits").read_text())
print(fill())
box.book("v", memory_ids(OTHER, 29)[:2])
box.limiter.prepare("v", "main")
print(len(list(box.run.glob("containers/*/usage"))))
print("made their usage file larger" in box.state_of("u").reason, box.state_of("v").state)
"""
"""In a file system of 2 MiB: a container fills it, has its limit changed, fills it again, and another one starts."""


def test_a_container_that_fills_the_file_system_keeps_nothing_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "run/containers").mkdir(parents=True)
    script = 'mount -t tmpfs -o size=2m none "$1/run/containers" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "-Urm", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FULL]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    full = str(errno.ENOSPC)
    assert done.stdout.splitlines() == [full, "True", full, "2", "True enforced"], done.stderr


def test_a_container_that_is_gone_is_told_of_no_more(machine: Machine) -> None:
    os.truncate(machine.usage[0], MIB)
    machine.look()
    machine.folders.remove(machine.usage[0].parent)
    assert machine.look()
    assert machine.told() == ["", ""]
