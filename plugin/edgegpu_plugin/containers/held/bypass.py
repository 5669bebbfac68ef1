"""Processes that use a card past the limiter: what the driver lists is compared with what the limiter counts.

A container's author may bring an own copy of the driver, take the limiter's mount away, or lower the count of another
process. Nothing here prevents that; it is found and told, and by setting the process is killed.
"""

import logging
import os
import platform
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.containers.cdi import library_folders
from edgegpu_plugin.containers.cgroups import CgroupOwner, has_ended, owner_of_process, stat_words
from edgegpu_plugin.containers.limiter_files import FOLDER
from edgegpu_plugin.containers.usage_file import is_mapped, mapped_files, process_maps

_LOG = logging.getLogger(__name__)

LOOK_S = 2.0
"""Seconds between two lists of the cards' processes while the limiter holds a container.

A process counts from the second list on that has it, so it is found within five seconds.
"""

_LOOKS_KEPT, _LOOKS_PAST = 4, 3
"""At so many of so many looks somebody was past the limiter: then it is no process that was just replacing itself."""

SLACK = 1.02
"""By how much the driver's own figure of a container may be over its limit, as a factor."""

_MIB = 1 << 20
_BEGAN_AT = 19
"""In /proc/PID/stat behind the name: when the process began, in the kernel's ticks."""
_REPLACED = " (deleted)"
"""How the kernel ends the path of a mapped file that has no name any more."""

ContainerKey = tuple[str, str]
"""kubelet's UID of the pod, and the container's name."""


@dataclass(frozen=True, slots=True)
class CountedContainer:
    """A container that the limiter holds: its usage files, and its limits in bytes by card.

    `is_spared`: none of its processes is killed, because that would fault other containers' clients of MPS.
    `draws`: its pod has opened graphics, so that it may have processes which use a card without CUDA.
    """

    usage: Sequence[Path]
    limits: Mapping[str, int]
    is_spared: bool = False
    draws: bool = False
    limiter: Path | None = None
    """The limiter's library; None where it is not known."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A process of a container on a card; `began` tells it from a later one with its number."""

    pid: int
    began: str
    card: str


@dataclass(frozen=True, slots=True)
class _Over:
    """A container that uses more of a card than it may, by the driver's count."""

    key: ContainerKey
    card: str


@dataclass(frozen=True, slots=True)
class _Passing:
    """A container whose processes use a card past the limiter, each for so short that two lists do not have it."""

    key: ContainerKey
    card: str


_Finding = _Seen | _Over | _Passing


@dataclass(eq=False, slots=True, kw_only=True)
class BypassDetector:
    """What was found at the last look; `look` is called on one thread, `reason` on any."""

    kills: bool
    """Whether a process that does not count in its container's usage file is killed, where that harms no other."""
    proc: Path
    uses: Mapping[tuple[ContainerKey, str], int] = field(default_factory=dict, init=False)
    """The bytes that the driver counted of held containers at the last look, by card, where it says them."""
    _listed: Collection[str] = field(default=(), init=False)
    _unsaid: Collection[tuple[ContainerKey, str]] = field(default=(), init=False)
    _containers: Mapping[int, ContainerKey] = field(default_factory=dict, init=False)
    """The held container of each process that the driver listed at the last look."""
    _past_lately: Mapping[_Passing, tuple[bool, ...]] = field(default_factory=dict, init=False)
    """Whether a process of a container was past the limiter at its card's last looks."""
    _ownerless: dict[int, int] = field(default_factory=dict, init=False)
    """At how many looks each process was listed that has ended and of which nobody knows whose it was."""
    _suspects: frozenset[_Finding] = field(default=frozenset(), init=False)
    _own_drivers: Mapping[ContainerKey, str] = field(default_factory=dict, init=False)
    """Drivers of their images' own that processes past the limiter had mapped at the last look."""
    _told: Mapping[ContainerKey, Mapping[_Finding, str]] = field(default_factory=dict, init=False)
    _reasons: Mapping[ContainerKey, str] = field(default_factory=dict, init=False)

    def reason(self, key: ContainerKey) -> str:
        """Return why a container is not held although the limiter is in it; empty when nothing was found."""
        return self._reasons.get(key, "")

    def own_driver(self, key: ContainerKey) -> str:
        """Return the path of a driver of its image's own by which a container goes past the limiter; empty without."""
        return self._own_drivers.get(key, "") if key in self._reasons else ""

    def is_unsaid(self, key: ContainerKey, card: str) -> bool:
        """Return whether the driver did not say at the last look what a container has of a card: a call has failed."""
        return card not in self._listed or (key, card) in self._unsaid

    def look(
        self,
        processes: Mapping[str, Iterable[CardProcess]],
        held: Mapping[ContainerKey, CountedContainer],
        key_of: Callable[[CgroupOwner], ContainerKey],
    ) -> bool:
        """Compare the processes on each card with what held containers count; return whether the answers changed.

        Args:
            processes: the processes by the card's UUID, as the driver lists them now.
            held: the containers that the limiter holds.
            key_of: returns the container of a process.
        """
        found = self._still_true(processes, held)
        used: dict[tuple[ContainerKey, str], int | None] = {}
        containers = {} if processes.keys() >= set(self._listed) else dict(self._containers)
        past: set[_Passing] = set()
        own_drivers = {key: path for key, path in self._own_drivers.items() if key in held and key in self._reasons}
        for card, some in processes.items():
            for one in some:
                key = self._container(one.pid, key_of)
                if key is None or key not in held:
                    continue
                containers[one.pid] = key
                known = used.get((key, card), 0)
                used[key, card] = None if known is None or one.memory_bytes is None else known + one.memory_bytes
                if held[key].draws and not one.computes:
                    continue
                if (seen := self._past(one.pid, card, held[key])) is not None:
                    found.setdefault(key, {})[seen] = f"process {one.pid} uses card {card} past the limiter"
                    past.add(_Passing(key, card))
                    if own := _own_driver(process_maps(self.proc / str(one.pid)), held[key].limiter):
                        own_drivers[key] = own
        listed = {one.pid for some in processes.values() for one in some}
        if processes.keys() >= set(self._listed):
            self._ownerless = {pid: looks for pid, looks in self._ownerless.items() if pid in listed}
        self._listed, self._containers, self._own_drivers = frozenset(processes), containers, own_drivers
        self._add_passing(found, past, processes, held)
        self._unsaid = frozenset(place for place, bytes_ in used.items() if bytes_ is None)
        self.uses = {place: bytes_ for place, bytes_ in used.items() if bytes_ is not None}
        for (key, card), bytes_ in self.uses.items():
            limit = held[key].limits.get(card, 0)
            if bytes_ > limit * SLACK:
                words = (
                    f"it uses {bytes_ // _MIB} MiB of card {card} by the driver's count, and may use {limit // _MIB}"
                )
                found.setdefault(key, {})[_Over(key, card)] = words
        return self._take(found, spared={key for key in found if held[key].is_spared})

    def _add_passing(
        self,
        found: dict[ContainerKey, dict[_Finding, str]],
        past: Collection[_Passing],
        cards: Collection[str],
        held: Collection[ContainerKey],
    ) -> None:
        """Add to what was found where somebody was past the limiter at most of the last looks, and nobody for long."""
        lately = {}
        for one in self._past_lately.keys() | past:
            looks = self._past_lately.get(one, ())
            if one.card in cards:
                looks = (*looks, one in past)[-_LOOKS_KEPT:]
            if one.key in held and any(looks):
                lately[one] = looks
        self._past_lately = lately
        for one, looks in lately.items():
            some = found.setdefault(one.key, {}) if one.card in cards and sum(looks) >= _LOOKS_PAST else None
            if some is not None and not any(isinstance(seen, _Seen) and seen in self._suspects for seen in some):
                some[one] = f"processes use card {one.card} past the limiter, one after the other"

    def _still_true(
        self, processes: Collection[str], held: Collection[ContainerKey]
    ) -> dict[ContainerKey, dict[_Finding, str]]:
        """Return what was told of cards that the driver says nothing of now: a call that failed proves nothing."""
        kept: dict[ContainerKey, dict[_Finding, str]] = {}
        for key, some in self._told.items():
            if key in held and (these := {one: words for one, words in some.items() if one.card not in processes}):
                kept[key] = these
        return kept

    def _take(self, found: Mapping[ContainerKey, Mapping[_Finding, str]], *, spared: Collection[ContainerKey]) -> bool:
        """Take what was found: what the look before this had as well is told, the rest may have begun this moment."""
        reasons: dict[ContainerKey, str] = {}
        told: dict[ContainerKey, Mapping[_Finding, str]] = {}
        for key, some in found.items():
            lasting = {one: words for one, words in some.items() if one in self._suspects}
            if not lasting:
                continue
            told[key], reasons[key] = lasting, "; ".join(lasting.values())
            for one in lasting if self.kills and key not in spared else ():
                if isinstance(one, _Seen):
                    self._kill(one)
        self._suspects = frozenset(one for some in found.values() for one in some)
        for key in reasons.keys() - self._reasons.keys():
            _LOG.warning("container %s of pod %s is not held: %s", key[1], key[0], reasons[key])
        changed = reasons != self._reasons
        self._reasons, self._told = reasons, told
        return changed

    def _container(self, pid: int, key_of: Callable[[CgroupOwner], ContainerKey]) -> ContainerKey | None:
        """Return the container of a process; of one that has ended, what it was while it lived.

        The driver lists the memory of a process until the last of its device files is closed, and a child that it has
        forked holds them open.
        """
        owner = owner_of_process(pid, self.proc)
        if owner is not None:
            return key_of(owner)
        if not has_ended(self.proc / str(pid)):
            return None
        if pid not in self._containers:
            looks = self._ownerless[pid] = self._ownerless.get(pid, 0) + 1
            if looks == _LOOKS_PAST:  # no longer about to end
                _LOG.warning("process %d has ended and still counts on a card: a child of its keeps the memory", pid)
        return self._containers.get(pid)

    def _past(self, pid: int, card: str, container: CountedContainer) -> _Seen | None:
        """Return a process that does not have its container's usage file mapped; each that counts there has.

        The limiter maps the file before it first asks the driver for a context, so before the driver can list it.
        """
        folder = self.proc / str(pid)
        maps, began = process_maps(folder), _began(folder)
        if not maps or not began or any(is_mapped(path, maps) for path in container.usage):
            return None  # without maps it is ending
        return _Seen(pid, began, card)

    def _kill(self, one: _Seen) -> None:
        """Kill a process, and no other that has its number by now."""
        with suppress(OSError):
            handle = os.pidfd_open(one.pid)
            try:
                if _began(self.proc / str(one.pid)) == one.began:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    _LOG.warning("process %d is killed: it used card %s past the limiter", one.pid, one.card)
            finally:
                os.close(handle)


def _own_driver(maps: bytes, limiter: Path | None) -> str:
    """Return the path of a mapped driver that neither the plugin has mounted nor is the limiter; empty without one.

    The limiter that was mounted before an upgrade, or before the driver changed, is another file: it is known by where
    it is mounted. Where the image has a link in place of that folder, the kernel says that the file was replaced.
    """
    if limiter is None or is_mapped(limiter, maps):
        return ""  # then a program of its own went to the driver past it
    folders = library_folders(platform.machine())
    for path in mapped_files(maps):
        folder, _, name = path.rpartition("/")
        is_ours = folder in folders or path.startswith(f"{FOLDER}/") or path.endswith(_REPLACED)
        if name.startswith("libcuda.so") and not is_ours:
            return path
    return ""


def _began(process: Path) -> str:
    """Return when a process began, in the kernel's ticks; empty when it has ended."""
    try:
        return stat_words(process)[_BEGAN_AT]
    except (OSError, IndexError):
        return ""
