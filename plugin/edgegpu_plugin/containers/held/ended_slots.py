"""Slots of a usage file whose process has ended where nobody in its container can know that: in another PID namespace.

A process frees the slots of those that have ended in its own namespace. The plugin sees the processes of all.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from edgegpu_base.files import open_at_once, read_at_once
from edgegpu_base.process.tasks import Repeated
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


LOOK_S = 0.5
"""Seconds between two looks: what a process held that was killed is free again within a second."""


class EndedSlots(Repeated):
    """Looks again and again for slots whose processes have ended, in all of a node's usage files."""

    def __init__(self, folders: ContainerFolders) -> None:
        super().__init__(
            lambda: free_ended_slots((folder / "usage" for folder in folders.names()), folders.proc), every_s=LOOK_S
        )


def free_ended_slots(usages: Iterable[Path], proc: Path = Path("/proc")) -> int:
    """Free the slots of usage files whose processes have ended; return how many.

    A file with the slots of one namespace alone is left to its processes. So is one in another version's form, and
    one that its container has locked.

    Args:
        usages: the usage files of the containers that the limiter holds.
        proc: where the processes of all PID namespaces are looked at.
    """
    freed = 0
    for usage in usages:
        try:
            freed += _free(usage, proc)
        except OSError as error:
            _LOG.debug("cannot free slots of %s: %s", usage, error)
    return freed


def _free(usage: Path, proc: Path) -> int:
    if form_of(usage) != OWN_FORM or len({slot.namespace for slot in _slots(usage)}) < 2:  # noqa: PLR2004
        return 0
    if not _ended(usage, proc):
        return 0
    with _claims_stopped(usage) as file:
        ended = _ended(usage, proc)
        for slot in ended:
            forget_slot(file, slot)
    return len(ended)


def _slots(usage: Path) -> list[UsageSlot]:
    return taken_slots(read_at_once(usage, most=USAGE_BYTES))


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


def _ended(usage: Path, proc: Path) -> list[UsageSlot]:
    """Return the slots whose process is gone, or does not use the file any more.

    The slots are read first: a process that takes one later is not among them, and one that had it is there.
    """
    slots = _slots(usage)
    living = set(_users(usage, {slot.namespace for slot in slots}, proc))
    return [slot for slot in slots if (slot.namespace, slot.pid) not in living]


def _users(usage: Path, namespaces: set[int], proc: Path) -> Iterator[tuple[int, int]]:
    """Yield the processes of some PID namespaces that have a usage file mapped, each with its number there.

    One that may not be looked at counts as one, in each namespace that may be its own. So does one that is about to end
    and maps nothing any more: what it has of cards goes after that, with what it has open.
    """
    own = pid_namespace(proc / "self")
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            status = _status(process)
            numbers = [int(number) for number in status.get("NSpid", process.name).split()]  # older kernels know one
            try:
                namespace = pid_namespace(process)
            except PermissionError:
                yield from ((one, numbers[-1]) for one in ({own} if len(numbers) == 1 else namespaces))
                continue
            if namespace in namespaces and _uses(usage, process, status):
                yield namespace, numbers[-1]


def _uses(usage: Path, process: Path, status: Mapping[str, str]) -> bool:
    """Return whether a process has a usage file mapped, or is about to end: between two reads of its list, too."""
    if is_mapped(usage, process_maps(process)):
        return True
    return not process_maps(process) and not _has_ended(status)


def _status(process: Path) -> dict[str, str]:
    lines = (process / "status").read_text("utf-8", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _has_ended(status: Mapping[str, str]) -> bool:
    """Return whether a process has ended by all but name: its first thread is a zombie, and it has no other."""
    return status.get("State", "")[:1] in {"Z", "X"} and status.get("Threads") in {"0", "1"}
