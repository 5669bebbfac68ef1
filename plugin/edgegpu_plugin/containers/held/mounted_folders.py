"""Which containers' folders the kernel has mounted for processes that live: such a container has not ended."""

import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path

_LOG = logging.getLogger(__name__)

_FOLDER = re.compile(rb"/([0-9a-f]{32})(?:/usage)?(?://deleted)?")
_ROOT_AT = 3
"""In a line of /proc/PID/mountinfo: what of its file system is mounted (proc_pid_mountinfo(5))."""


def mounted_folders(root: Path, proc: Path) -> frozenset[str]:
    """Return the names of the folders below a folder that are mounted for some process, whole or by the usage file.

    A container's programs need not have the files open. The containers' folder may be a file system of its own, as by
    the plugin's unit: then a mount says nothing of what is above it. So folders with such a name elsewhere come too:
    callers compare the names. A name is the digest of a container's devices. The file system's number is not compared:
    some file systems show another number there than stat does, and a mount that is missed costs a container its files.

    Args:
        root: the containers' folders.
        proc: the kernel's /proc.

    Raises:
        OSError: processes cannot be asked; then nothing is known.
    """
    above = f"/{root.name}".encode()
    return frozenset(
        name.decode()
        for mounts in _mount_tables(proc)
        for line in mounts.split(b"\n")
        if (name := _folder_of(line, above)) is not None
    )


def _folder_of(line: bytes, above: bytes) -> bytes | None:
    fields = line.split(b" ", _ROOT_AT + 1)
    if len(fields) <= _ROOT_AT + 1:
        return None
    below = fields[_ROOT_AT].rpartition(above)[2]  # the whole, where the folder is a file system of its own
    match = _FOLDER.fullmatch(below)
    return None if match is None else match[1]


def _mount_tables(proc: Path) -> Iterator[bytes]:
    """Yield the mounts of every mount namespace, each once where its number may be read."""
    seen: set[str] = set()
    for process in proc.iterdir():
        if process.name.isdigit():
            yield from _new_tables(process, seen)


def _new_tables(process: Path, seen: set[str]) -> Iterator[bytes]:
    """Yield the mounts of a process unless its namespace was seen; the first of its threads that lives shows them."""
    for thread in _threads(process):
        try:
            namespace = _namespace(thread)
            if namespace not in seen:
                yield (thread / "mountinfo").read_bytes()
                seen |= {namespace} if namespace else set()
        except PermissionError:
            raise
        except OSError as error:  # it has ended, perhaps by all but name: EINVAL
            _LOG.debug("cannot look at %s: %s", thread, error)
        else:
            return


def _threads(process: Path) -> Iterator[Path]:
    """Yield the folder of a process, which is its first thread's, and then those of its threads."""
    yield process
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        yield from (process / "task").iterdir()


def _namespace(thread: Path) -> str:
    try:
        return str((thread / "ns/mnt").readlink())
    except PermissionError:  # its mounts can be read all the same
        return ""
