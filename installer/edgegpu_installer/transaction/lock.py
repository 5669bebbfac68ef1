"""The lock by which one process at a time changes the machine, and the guard against signals during a change."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

from edgegpu_base.lock_files import is_in_place, open_lock, try_lock
from edgegpu_installer.errors import BusyError, InstallError, InterruptedByError

LOCK = "/run/edgegpu-tx.lock"
"""The lock file; it is gone after a boot, and an uninstall removes it."""

BEGUN = "/run/edgegpu-begun.lock"
"""The lock that each installer started by an agent holds, shared, from its start to its end, by an inherited
descriptor. It shows an installer that reads the machine and has not taken LOCK yet."""

UNPACK = "/run/edgegpu-unpack.lock"
"""The lock by which one process at a time, an install.sh or the agent, unpacks a bundle into /opt/edgegpu."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the lock and yield its descriptor, for a child that goes on when this process is killed.

    Raises:
        BusyError: another process holds the lock.
        InstallError: the lock file cannot be made.
    """
    descriptor = _open(path)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def shared(path: Path) -> Iterator[int]:
    """Hold a shared lock and yield its descriptor; the lock ends when the last process closes it.

    Raises:
        OSError: the lock file cannot be made.
    """
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    while True:
        try:
            descriptor = open_lock(path)
        except OSError as error:
            raise InstallError(f"cannot lock {path}: {error.strerror}", "run it as root") from error
        if not try_lock(descriptor):
            pid = os.pread(descriptor, 32, 0).strip()
            os.close(descriptor)
            raise BusyError(int(pid) if pid.isdigit() else 0)
        if is_in_place(descriptor, path):
            return descriptor
        os.close(descriptor)  # an uninstall removed the file between open and flock


class SignalGuard:
    """A guard that turns the first SIGINT, SIGTERM or SIGHUP into an InterruptedByError and then ignores them.

    The error is raised in the main thread. Entered in another thread, the guard changes nothing.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._raise) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """Ignore these signals from now on, because what follows must not be interrupted."""
        for number in self._before:
            signal.signal(number, _nothing)  # not SIG_IGN, which children would inherit

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        self.hold()
        raise InterruptedByError(signal.Signals(number).name)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    return
