"""The folder of a container that the limiter holds: its limits, its usage file, places for the driver's libraries."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import read_at_once, remove_placeholder, write_if_changed
from edgegpu_plugin.containers.limiter_files import DRIVER_FOLDER, FOLDER, LIBRARIES, PRELOAD_LIST, PRELOADED
from edgegpu_plugin.containers.usage_file import (
    OWN_FORM,
    USAGE_BYTES,
    UsageCounts,
    form_of,
    form_text,
    load_usage,
    users_of,
    uuid_digits,
)
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.pb import Mount

_HEAD = "edgegpu-limits 1"
_NAME_DIGITS = 32
_PRELOAD_NAME = "ld.so.preload"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFolders:
    """The folders below RUN/containers, one for each container; only root may look into them on this machine."""

    root: Path
    proc: Path

    def of(self, ids: Iterable[str]) -> Path:
        """Return the folder of the container with these device ids.

        kubelet gives the ids at Allocate and at each start. A device belongs to one container at a time; where an app
        container takes over all devices of an init container that has ended, both have the same folder in turn.
        """
        text = "\n".join(sorted(ids))
        return self.root / hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]

    def mounts(self, folder: Path) -> list[Mount]:
        """Return what kubelet shall mount: the folder, read-only inside, the usage file over it, the preloaded's list.

        kubelet keeps the answer for the pod's life, so each container has a list, which is empty for most.
        """
        return [
            Mount(FOLDER, str(folder)),
            Mount(f"{FOLDER}/usage", str(folder / "usage"), read_only=False),
            Mount(PRELOAD_LIST, str(folder / _PRELOAD_NAME)),
        ]

    def make(self, folder: Path, limits: str, *, preload: str = "") -> None:
        """Make a container's folder whole before its start, with a usage file that nobody has used.

        Files that are mounted in a running container are never replaced: the kernel would take the mount away.

        Args:
            folder: the container's.
            limits: the text of its limits file.
            preload: its list of preloaded libraries; a container that runs keeps the list of its start.

        Raises:
            PluginError: a file cannot be made, or processes of the container's last run still hold card memory.
        """
        usage = folder / "usage"
        try:
            (folder / "mps").mkdir(parents=True, exist_ok=True)
            for name in (*(f"{DRIVER_FOLDER}/{one}" for one in LIBRARIES), PRELOADED):
                place = folder / Path(name).relative_to(FOLDER)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()  # something is mounted there
            self.root.chmod(0o700)
            if left := self.users(folder):
                raise PluginError(
                    f"processes of the container's last run still hold card memory (process {left[0]}): it starts when "
                    "they have ended"
                )
            self.write_limits(folder, limits)
            (folder / "state").unlink(missing_ok=True)  # of the last run
            _write(folder / "form", form_text())
            remove_placeholder(folder / _PRELOAD_NAME)  # after a start under a version that makes no list
            _write(folder / _PRELOAD_NAME, preload)
            _write_zeros(usage)
        except OSError as error:
            raise PluginError(f"cannot make {folder}: {error}; check the folder") from error

    def write_limits(self, folder: Path, limits: str) -> None:
        """Give a container other limits, which its processes follow while they run.

        Raises:
            PluginError: the file cannot be written.
        """
        _write(folder / "limits", limits)

    def write_state(self, folder: Path, text: str) -> None:
        """Tell a container's programs what it is held to.

        Raises:
            PluginError: the file cannot be written.
        """
        _write(folder / "state", text)

    def users(self, folder: Path) -> list[int]:
        """Return the processes of a container that count their card memory in its folder.

        Where the usage file does not say in which PID namespaces they are, all processes are looked at.
        """
        usage = folder / "usage"
        if not usage.exists():
            return []
        counts = None
        if not self.is_of_another_version(folder):
            with suppress(OSError):  # somebody has a lease on it
                counts = load_usage(usage)
        namespaces = None if counts is None or 0 in counts.namespaces else counts.namespaces
        return users_of(usage, namespaces, self.proc)

    def is_of_another_version(self, folder: Path) -> bool:
        """Return whether a container started with a limiter that counts in another form than this version's."""
        usage = folder / "usage"
        return form_of(usage) != OWN_FORM and usage.exists()

    def state(self, folder: Path) -> "FolderState | None":
        """Return the limits and counts of a container; None when its folder is not whole, or of another version."""
        if self.is_of_another_version(folder):
            return None
        try:
            limits, counts = read_at_once(folder / "limits").decode("ascii"), load_usage(folder / "usage")
        except (OSError, UnicodeDecodeError):
            return None
        return None if counts is None else FolderState(_read_limits(limits), counts)

    def names(self) -> list[Path]:
        """Return the folders that are there."""
        try:
            return list(self.root.iterdir())
        except OSError:
            return []

    def remove(self, folder: Path) -> None:
        """Remove the folder of a container that is gone.

        Raises:
            EdgegpuError: it cannot be removed.
        """
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise EdgegpuError(f"cannot remove {folder}: {error}") from error


def preload_list(folder: Path) -> list[str]:
    """Return the libraries in the list that a container had at its last start; none where it has no list."""
    try:
        return (folder / _PRELOAD_NAME).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


@dataclass(frozen=True, slots=True)
class CardLimits:
    """What a container may use of one card: bytes of its memory, and percent of its compute, 0 for any.

    `context_bytes`: what counts for each CUDA context there. `policy`: how the compute is held, as the limiter knows
    it: `strict`, or `mps`.
    """

    memory_bytes: int
    core_percent: int = 0
    context_bytes: int = 0
    policy: str = "strict"
    charge: "Charge | None" = None
    uncounted_bytes: int = 0
    """What the driver counts of the container beyond its usage file."""


@dataclass(frozen=True, slots=True)
class Charge:
    """How much of the time that the limiter measures is charged, until a moment of CLOCK_MONOTONIC."""

    permille: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class FolderState:
    """A container's limits by card, and what its processes have counted."""

    limits: Mapping[str, CardLimits]
    counts: UsageCounts

    def counted(self, card: str) -> int:
        """Return the bytes that the container's processes hold on a card by their own count."""
        return self.counts.bytes.get(uuid_digits(card), 0)

    def used(self, card: str) -> int:
        """Return the bytes of a card that count as used: with what the driver counts beyond that."""
        limits = self.limits.get(card)
        return self.counted(card) + (0 if limits is None else limits.uncounted_bytes)

    def refused(self, card: str) -> int:
        """Return how often a program was told that there is no memory on a card, since the container's start."""
        return self.counts.refusals.get(uuid_digits(card), 0)


def limits_text(limits: Mapping[str, CardLimits]) -> str:
    """Return the text of a limits file (`plugin/limiter/common/limits.h`); `limits` are by card."""
    lines = [_HEAD]
    for card, one in limits.items():
        compute = f" core_percent={one.core_percent} policy={one.policy}" if one.core_percent else ""
        if one.core_percent and one.charge is not None:
            compute += f" charge_permille={one.charge.permille} charge_until_ms={one.charge.until_ms}"
        memory = f"memory_bytes={one.memory_bytes} context_bytes={one.context_bytes}"
        if one.uncounted_bytes:
            memory += f" uncounted_bytes={one.uncounted_bytes}"
        lines.append(f"card {card} {memory}{compute}")
    return "\n".join([*lines, ""])


def _read_limits(text: str) -> dict[str, CardLimits]:
    found = {}
    for line in text.splitlines()[1:]:
        word, card, *rest = line.split()
        values = dict(one.partition("=")[::2] for one in rest)
        memory, core = values.get("memory_bytes", ""), values.get("core_percent", "0")
        uncounted = values.get("uncounted_bytes", "0")
        if word == "card" and all(number.isdigit() for number in (memory, core, uncounted)):
            found[card] = CardLimits(int(memory), int(core), uncounted_bytes=int(uncounted))
    return found


def _write(path: Path, text: str) -> None:
    try:
        write_if_changed(path, text)
    except EdgegpuError as error:
        raise PluginError(f"cannot change the {path.name} in {path.parent}: {error}") from error


def _write_zeros(path: Path) -> None:
    """Replace the usage file, with all of its memory: a program that maps it needs none once another has taken it."""
    temp = path.with_name(".usage.new")
    with temp.open("wb") as file:
        os.fchmod(file.fileno(), 0o666)
        os.posix_fallocate(file.fileno(), 0, USAGE_BYTES)
    temp.replace(path)
