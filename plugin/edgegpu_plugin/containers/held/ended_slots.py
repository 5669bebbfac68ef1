"""Slots of a usage file whose process has ended where nobody in its container can know that: in another PID namespace.

A process frees the slots of those that have ended in its own namespace. The plugin sees the processes of all.
"""

import contextlib
import fcntl
import logging
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from edgegpu_base.files import open_at_once, read_at_once
from edgegpu_base.process.tasks import Repeated
from edgegpu_plugin.containers.cgroups import stat_words
from edgegpu_plugin.containers.container_folder import ContainerFolders
from edgegpu_plugin.containers.usage_file import (
    OWN_FORM,
    USAGE_BYTES,
    UsageSlot,
    forget_slot,
    form_of,
    is_mapped,
    pid_namespace,
    process_maps,
    taken_slots,
)

_LOG = logging.getLogger(__name__)


_FLAGS_AT, _KERNELS = 6, 0x00200000

LOOK_S = 0.5
"""Seconds between two looks: what a process held that was killed is free again within a second."""


class EndedSlots(Repeated):
    """Looks again and again for slots whose processes have ended, in all of a node's usage files."""

    def __init__(self, folders: ContainerFolders) -> None:
        super().__init__(
            lambda: free_ended_slots((folder / "usage" for folder in folders.names()), folders.proc), every_s=LOOK_S
        )


def free_ended_slots(usages: Iterable[Path], proc: Path) -> int:
    """Free the slots of usage files whose processes have ended; return how many.

    A file whose slots are all of this process's namespace is left to its processes: of a pod with hostPID. So is one in
    another version's form, and one that its container has locked.

    Args:
        usages: the usage files of the containers that the limiter holds.
        proc: where the processes of all PID namespaces are looked at.
    """
    freed = 0
    taken = {usage: slots for usage in usages if form_of(usage) == OWN_FORM and (slots := _slots(usage))}
    try:
        processes = _by_namespace(proc) if taken else {}  # after the slots were read: `_ended` says why
    except OSError as error:
        _LOG.debug("cannot look at processes: %s", error)
        return 0
    for usage, slots in taken.items():
        try:
            freed += _free(usage, proc) if _ended(usage, slots, processes, proc) else 0
        except OSError as error:
            _LOG.debug("cannot free slots of %s: %s", usage, error)
    return freed


def _free(usage: Path, proc: Path) -> int:
    with _claims_stopped(usage) as file:
        slots = _slots(usage)
        ended = _ended(usage, slots, _by_namespace(proc), proc)
        for slot in ended:
            forget_slot(file, slot)
    return len(ended)


def _slots(usage: Path) -> list[UsageSlot]:
    try:
        return taken_slots(read_at_once(usage, most=USAGE_BYTES))
    except OSError as error:
        _LOG.debug("cannot read %s: %s", usage, error)
        return []


@contextlib.contextmanager
def _claims_stopped(usage: Path) -> Iterator[int]:
    """Open a usage file in which nobody takes a slot meanwhile: the limiter does so under this lock alone.

    Raises:
        OSError: it cannot be opened, or somebody has the lock.
    """
    file = open_at_once(usage, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
    finally:
        os.close(file)


_Processes = Mapping[int | None, Sequence[Path]]
"""The folders of processes by their PID namespace; under None those that may not be asked."""


def _by_namespace(proc: Path) -> _Processes:
    found: defaultdict[int | None, list[Path]] = defaultdict(list)
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            try:
                found[pid_namespace(process)].append(process)
            except PermissionError:
                found[None].append(process)
    return found


def _ended(usage: Path, slots: Collection[UsageSlot], processes: _Processes, proc: Path) -> list[UsageSlot]:
    """Return the slots whose process is gone, or does not use the file any more.

    The slots must have been read first: a process that takes one later is not among them, and one that had it is there.
    """
    own = pid_namespace(proc / "self")
    if {slot.namespace for slot in slots} == {own}:  # its next process can look itself
        return []
    living = set(_users(usage, slots, processes, own))
    numbers = {number for _, number in living}  # of those that had no /proc when they began, so that they know no more
    return [
        slot
        for slot in slots
        if slot.pid not in numbers or (slot.namespace and (slot.namespace, slot.pid) not in living)
    ]


def _users(usage: Path, slots: Collection[UsageSlot], processes: _Processes, own: int) -> Iterator[tuple[int, int]]:
    """Yield the processes that slots may be of and that have the usage file mapped: namespace, and number there.

    One that may not be looked at counts as one, in each namespace that may be its own. So does one that is about to end
    and maps nothing any more: what it has of cards goes after that, with what it has open.
    """
    namespaces, wanted = {slot.namespace for slot in slots}, {slot.pid for slot in slots}
    for namespace, some in processes.items():
        if namespace is not None and namespaces.isdisjoint({namespace, 0}):
            continue
        for process in some:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                status = _status(process)
                numbers = [
                    int(number) for number in status.get("NSpid", process.name).split()
                ]  # older kernels know one
                if numbers[-1] not in wanted:
                    continue
                if namespace is None:
                    yield from ((one, numbers[-1]) for one in ({own} if len(numbers) == 1 else namespaces))
                elif _uses(usage, process, status):
                    yield namespace, numbers[-1]


def _uses(usage: Path, process: Path, status: Mapping[str, str]) -> bool:
    """Return whether a process has a usage file mapped, or is about to end: between two reads of its list, too."""
    if is_mapped(usage, process_maps(process)):
        return True
    return not process_maps(process) and not _has_ended(status) and not _is_kernels(process)


def _is_kernels(process: Path) -> bool:
    """Return whether a process is a thread of the kernel's, which never maps anything (PF_KTHREAD in its flags)."""
    return bool(int(stat_words(process)[_FLAGS_AT]) & _KERNELS)


def _status(process: Path) -> dict[str, str]:
    lines = (process / "status").read_text("utf-8", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _has_ended(status: Mapping[str, str]) -> bool:
    """Return whether a process has ended by all but name: its first thread is a zombie, and it has no other."""
    return status.get("State", "")[:1] in {"Z", "X"} and status.get("Threads") in {"0", "1"}
