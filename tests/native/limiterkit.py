"""A container of the limiter: its folder with the files in it, and its two libraries in front of a driver."""

import os
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgegpu_plugin.containers.container_folder import CardLimits, Charge, limits_text
from edgegpu_sim.driver import SimCard

SOURCES = Path(__file__).resolve().parents[2] / "plugin/limiter"
MIB = 1 << 20
CARDS, SLOTS = 16, 512
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
NULL_CARD = "GPU-abababab-abab-abab-abab-abababababab"
"""The card of plugin/limiter/tests/nulldriver.c."""
_HEAD = struct.Struct(f"=4I2Q2I{16 * CARDS}x{CARDS}Q16s{64 * CARDS}x")
BUCKETS_AT = _HEAD.size - 64 * CARDS
"""Where the buckets of GPU time begin, 64 bytes for each card."""
_SLOT = struct.Struct(f"=7Q{2 * CARDS}Q")
USAGE_BYTES = _HEAD.size + SLOTS * _SLOT.size + 32 * 16
_MAGIC, _VERSION = 0x45474C4D, 5
_SETTING_BYTES = 256
_FLAGS = ("-O1", "-g", "-Wall", "-Wextra", "-Werror", "-std=gnu11", '-DLIMITER_VERSION="0.0.0"')


@dataclass(frozen=True)
class Container:
    """One container: `libraries` goes on the LD_LIBRARY_PATH of what runs in it."""

    folder: Path

    @property
    def libraries(self) -> Path:
        return self.folder / "lib"

    @property
    def usage(self) -> Path:
        return self.folder / "usage"

    def limit(
        self,
        *cards: tuple[SimCard | str, int],
        context_mib: int = 0,
        core: int | None = None,
        policy: str = "strict",
        charge: Charge | None = None,
        uncounted_mib: int = 0,
    ) -> None:
        """Write the limits file as the plugin does, or with a policy that it does not write.

        Args:
            cards: cards with their MiB.
            context_mib: what counts for each CUDA context.
            core: percent of each card's time; None: no limit.
            policy: strict, elastic, mps or off.
            charge: how much of what is measured is charged.
            uncounted_mib: what the driver counts of the container beyond its usage file.
        """
        names = [(card if isinstance(card, str) else card.uuid, mib) for card, mib in cards]
        limits = {
            card: CardLimits(mib * MIB, core or 0, context_mib * MIB, policy, charge, uncounted_mib * MIB)
            for card, mib in names
        }
        self.write_limits(limits_text(limits))

    def write_limits(self, text: str) -> None:
        new = self.folder / "limits.new"
        new.write_text(text)
        new.replace(self.folder / "limits")

    def environment(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self.libraries)}

    def run(self, *command: str | Path, timeout_s: float = 240) -> str:
        """Run a program in the container; what it printed. It must succeed and write nothing to stderr."""
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    def counted(self) -> int:
        """Return the bytes that count in all taken slots, on all cards: what is put aside does not."""
        data = self.usage.read_bytes()
        slots = (_SLOT.unpack_from(data, _HEAD.size + index * _SLOT.size) for index in range(SLOTS))
        return sum(sum(slot[7::2]) for slot in slots if slot[0] != 0 and slot[6] != slot[0] << 16 | 1)

    def refused(self) -> int:
        """Return how often a program was told that there is no memory on the first card."""
        return int(_HEAD.unpack_from(self.usage.read_bytes())[8])

    def fill_slots(self, count: int) -> None:
        """Take slots for this process, which must have the file mapped to count as living."""
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        slot = _SLOT.pack(1, start, namespace, 1, os.getpid(), 0, 0, *([0] * 2 * CARDS))
        head = _HEAD.pack(_MAGIC, _VERSION, USAGE_BYTES, SLOTS, 0, 1, count, 0, *([0] * CARDS), b"")
        with self.usage.open("r+b") as file:
            file.write(head + slot * count)

    def free_slot(self, number: int) -> None:
        with self.usage.open("r+b") as file:
            file.seek(_HEAD.size + number * _SLOT.size)
            file.write(bytes(8))

    def write_slot(self, pid: int, *, start: int, mib: int) -> None:
        """Write the first slot of a file that nobody has used: a process that counts so much of the first card."""
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        slot = _SLOT.pack(1, start, namespace, 1, pid, 0, 0, mib * MIB, 1, *([0] * 2 * (CARDS - 1)))
        head = _HEAD.pack(_MAGIC, _VERSION, USAGE_BYTES, SLOTS, 0, 1, 1, 0, *([0] * CARDS), b"")
        with self.usage.open("r+b") as file:
            file.write(head + slot)


def stamp(library: Path, out: Path, **settings: Path) -> None:
    """Copy a library with other folders written into it (settings.c)."""
    data = bytearray(library.read_bytes())
    for name, value in settings.items():
        mark = f"edgegpu-limiter-{name}:".encode().ljust(32, b"\0")
        assert data.count(mark) == 1, f"{library} has no place for {name}"
        at = data.index(mark) + len(mark)
        data[at : at + _SETTING_BYTES] = bytes(value).ljust(_SETTING_BYTES, b"\0")
    out.write_bytes(data)
    out.chmod(0o755)


def make_container(folder: Path, build: Path, driver: Path) -> Container:
    """Lay a container's folder out; driver: the folder with the driver's own libraries."""
    container = Container(folder)
    container.libraries.mkdir(parents=True)
    for name in LIBRARIES:
        stamp(build / name, container.libraries / name, folder=folder, driver=driver)
    with container.usage.open("wb") as file:
        file.truncate(USAGE_BYTES)
    container.usage.chmod(0o666)
    (folder / "form").write_text(f"{_VERSION} {USAGE_BYTES}\n")
    return container


def make_null_container(folder: Path, build: Path, *flags: str, objects: bool = False) -> Container:
    """Lay out a container, without limits yet, on the driver that answers at once.

    Args:
        folder: gets the driver's folder and the container's.
        build: the folder of the built limiter.
        *flags: of the compiler, for the driver.
        objects: whether the driver also has what few tests need (nullobjects.c).
    """
    driver = folder / "driver"
    driver.mkdir()
    sources = ["tests/nulldriver.c", *(["tests/nullobjects.c"] if objects else [])]
    compile_program(driver / "libcuda.so.1", build, sources, "-O2", "-shared", "-fPIC", *flags)
    return make_container(folder / "container", build, driver)


def compile_program(out: Path, build: Path, sources: Sequence[str], *flags: str | Path) -> Path:
    """Compile sources of plugin/limiter; build: the folder with the generated headers."""
    include = (f"-I{SOURCES}/common", f"-I{SOURCES}/cuda", f"-I{build}/cuda")
    files = [SOURCES / source for source in sources]
    made = subprocess.run(
        ["cc", *_FLAGS, *include, "-o", out, *files, *flags, "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return out
