"""Watches of a folder: by inotify through libc, or by quick polling when the kernel has no instance left."""

import ctypes
import logging
import os
import select
import struct
from pathlib import Path

_log = logging.getLogger(__name__)

_IN_ATTRIB, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x4, 0x40, 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF, _IN_ONLYDIR = 0x400, 0x800, 0x1000000
_WANTED = (
    _IN_ATTRIB | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
)
_EVENT = struct.Struct("iIII")
_BLIND_POLL_S = 0.05


class FolderWatch:
    """A watch for changes of names in a folder; without inotify it knows no changes and returns soon."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Wait for a change, `wake` or the time-out; return the names that were made since, as far as known."""
        if select.select([self._event], [], [], min(max(timeout_s, 0), _BLIND_POLL_S))[0]:
            os.eventfd_read(self._event)
        return frozenset()

    def wake(self) -> None:
        """End the wait of another thread."""
        os.eventfd_write(self._event, 1)

    def follow(self, folder: Path) -> None:
        """Watch this folder, which need not exist (yet, or any more); cheap enough to repeat before each wait."""


class InotifyWatch(FolderWatch):
    """The watch by inotify of one folder, or of its nearest existing ancestor while it does not exist.

    Raises:
        OSError: the kernel has no inotify instance left (fs.inotify.max_user_instances).
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _os_error()
        super().__init__()
        self._watched = -1

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Wait for a change, `wake` or the time-out; return the names that were made since."""
        ready, _, _ = select.select([self._fd, self._event], [], [], max(timeout_s, 0))
        if self._event in ready:
            os.eventfd_read(self._event)
        return self._read() if self._fd in ready else frozenset()

    def follow(self, folder: Path) -> None:
        """Watch the folder or its nearest existing ancestor; for the same folder the kernel returns the same number."""
        chain = (folder, *folder.parents)
        number, place = self._add_nearest(chain)
        while place > 0 and chain[place - 1].exists():  # made before the watch was set, so without an event
            number, place = self._add_nearest(chain)
        if number != self._watched and self._watched >= 0:
            self._libc.inotify_rm_watch(self._fd, self._watched)  # fails, without harm, if the folder is gone
        self._watched = number

    def _add_nearest(self, chain: tuple[Path, ...]) -> tuple[int, int]:
        """Watch the first of the folders that exists; return the watch's number and the folder's index."""
        for place, candidate in enumerate(chain):
            number = self._libc.inotify_add_watch(self._fd, os.fsencode(candidate), _WANTED)
            if number >= 0:
                return number, place
        return -1, 0

    def _read(self) -> frozenset[str]:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return frozenset()
        made, at = set(), 0
        while at + _EVENT.size <= len(data):
            _, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            if mask & (_IN_CREATE | _IN_MOVED_TO):
                made.add(os.fsdecode(data[at : at + length].rstrip(b"\0")))
            at += length
        return frozenset(made)


def folder_watch() -> FolderWatch:
    """Return a watch by inotify, or one that polls where the kernel has no more instances to give."""
    try:
        return InotifyWatch()
    except OSError as error:
        _log.warning("no inotify (%s): polling kubelet's folder every %.0f ms", error, _BLIND_POLL_S * 1000)
        return FolderWatch()


def _os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
