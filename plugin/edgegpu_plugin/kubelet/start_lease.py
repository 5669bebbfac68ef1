"""A lease on a file that kubelet reads at its start: kubelet waits there until it has the devices.

A starting kubelet fails pods that it admits anew before their resource has a device. One thread of it opens the
device-plugin socket (`containerManager.Start` in `initializeRuntimeDependentModules`), another one looks at the pods
(`syncLoop`), and nothing orders the two. Each of these files is opened once, by the thread that has to wait, before the
first look (kubelet.go of 1.37.2, lines 1848 to 1875, 2692 and 3362):

- `graceful_node_shutdown_state`, after the socket is open and before `setRuntimeSync`, without which `syncLoop` sleeps.
  Kubelets from 1.24 on read it where `shutdownGracePeriod` is set and logind answers.
- the resolv.conf of `--resolv-conf`, at the beginning of `syncLoop`.

The kernel keeps an open() of a leased file waiting until the holder gives the lease back or ends, and for
`fs.lease-break-time` (45 s) at most. So a plugin that hangs or is stopped delays kubelet, and no longer than that.
"""

import contextlib
import fcntl
import logging
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import open_at_once, read_at_once, write_atomic

_log = logging.getLogger(__name__)

LONGEST_WAIT_S = 20.0
"""How long kubelet is kept waiting: less than the kernel would, and half the time after which a node is lost."""

LISTS_TAKEN_S = 1.0
"""Time for kubelet to take in the lists that were sent to it. It needs milliseconds, more where cores are busy."""

_BREAK_TIME = Path("/proc/sys/fs/lease-break-time")
_LONGEST_BREAK_S = 60
_MOST_RESOLV_CONF = 1 << 16

_NOT_STARTED = "kubelet has not started since the plugin did"


class LeasedFile(Protocol):
    """A file that a starting kubelet reads before it looks at its pods."""

    path: Path
    unread: str
    """The cause where kubelet does not read it."""

    def lease(self) -> int:
        """Return a descriptor of the file with a write lease on it. Raises OSError and EdgegpuError."""
        ...

    def restore(self) -> None:
        """Leave the file as it is while kubelet runs. Raises OSError."""
        ...


class ShutdownState:
    """The state of a graceful node shutdown in kubelet's root. It is made if it is missing: kubelet takes `{}`."""

    unread = "kubelet has no shutdownGracePeriod, or there is no logind"

    def __init__(self, kubelet_folder: Path) -> None:
        self.path = kubelet_folder / "graceful_node_shutdown_state"

    def lease(self) -> int:
        """Return a descriptor of the file with a write lease on it. Raises OSError and EdgegpuError."""
        if self.path.parent.is_dir() and not self.path.exists():
            write_atomic(self.path, "{}\n")
        return _leased(self.path)

    def restore(self) -> None:
        """Do nothing: nobody but a starting kubelet reads the file."""


class OwnResolvConf:
    """A link to the machine's resolv.conf that kubelet alone is configured with.

    A lease on the machine's own file would keep all programs waiting. So while kubelet is away a copy takes the link's
    place, and the link comes back before kubelet starts a pod. `NAME.machine` keeps it meanwhile.
    """

    unread = "its --resolv-conf is another file"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = path.with_name(f"{path.name}.machine")

    def lease(self) -> int:
        """Return a descriptor of the copy with a write lease on it. Raises OSError."""
        if self.path.is_symlink():
            self._kept.unlink(missing_ok=True)
            self._kept.symlink_to(self.path.readlink())
        elif not self._kept.is_symlink():
            raise OSError(0, "it is not a link to the machine's resolv.conf")
        text = b""
        with contextlib.suppress(OSError):  # at a boot the machine's file may come later
            text = read_at_once(self._kept, most=_MOST_RESOLV_CONF)
        copy = self.path.with_name(f".{self.path.name}.copy")
        copy.write_bytes(text)  # not synced: after a power cut the link is put back before kubelet starts
        descriptor = _leased(copy)
        try:
            copy.replace(self.path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def restore(self) -> None:
        """Put the link back where the copy is. Raises OSError."""
        if self.path.is_symlink():  # never taken, or put right by hand
            self._kept.unlink(missing_ok=True)
        elif self._kept.is_symlink():
            self._kept.replace(self.path)


class StartLease:
    """The lease over a start of kubelet: taken while it is away, given back once it has the devices.

    One thread calls the methods; none of them waits. `document` may be read by any.
    """

    def __init__(
        self,
        file: LeasedFile | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        break_time: Path = _BREAK_TIME,
    ) -> None:
        """Make the lease without taking it.

        Args:
            file: what kubelet reads at its start; None to never let it wait.
            clock: seconds of a clock that nobody sets.
            break_time: the file with the kernel's limit, in seconds.
        """
        self._file, self._clock, self._break_time = file, clock, break_time
        self._descriptor: int | None = None
        self._break_s = 0
        self._unread_s = 0.0
        self._waiting_since_s: float | None = None
        self._is_spent = False
        self.due_s = math.inf
        """When the lease is to be given back, by the clock."""
        self._seen: tuple[bool | None, str] = (None, _NOT_STARTED)
        if file is None:
            self._seen = False, "kubelet.wait_at_start is false"

    @property
    def is_wanted(self) -> bool:
        """Whether the lease would be taken if kubelet were away."""
        return self._file is not None and self._descriptor is None and not self._is_spent

    def document(self) -> dict[str, Any]:
        """Return whether kubelet waited at its last start (null: it has not started), and why not, for the status."""
        waits, why = self._seen
        return {"waits": waits, "why": why}

    def take(self) -> None:
        """Take the lease; where that fails, log why once and go on without."""
        if self._file is None or not self.is_wanted:
            return
        try:
            self._break_s = self._read_break_s()
            self._descriptor = self._file.lease()
            self._unread_s = self._clock()
        except (OSError, EdgegpuError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._note(waits=False, why=f"no lease on {self._file.path}: {why}")

    def devices_listed(self) -> None:
        """Give the lease back in a moment: the lists of all resources are sent."""
        self._is_spent = False
        if self._descriptor is not None:
            self.due_s = self._clock() + LISTS_TAKEN_S

    def give_back_late(self) -> None:
        """Give the lease back if kubelet has had time for the lists, or if somebody has waited for too long."""
        if self._file is None or self._descriptor is None:
            return
        now = self._clock()
        if fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
            self._unread_s = now
        elif self._waiting_since_s is None:
            self._waiting_since_s = now
        # The kernel answers the same while it keeps somebody and after it has let him go.
        if now - self._unread_s >= self._break_s:
            self._is_spent = math.isinf(self.due_s)
            text = f"the kernel let kubelet go after {self._break_s} s (fs.lease-break-time)"
            self._note(waits=False, why=text)
            self.give_back()
        elif now >= self.due_s:
            if self._waiting_since_s is not None:
                self._note(waits=True, why="")
            else:
                self._note(waits=False, why=f"kubelet did not read {self._file.path}: {self._file.unread}")
            self.give_back()
        elif self._waiting_since_s is not None and now - self._waiting_since_s >= LONGEST_WAIT_S:
            self._is_spent = math.isinf(self.due_s)
            text = f"it read {self._file.path} and was let go after {LONGEST_WAIT_S:.0f} s, before it had the devices"
            self._note(waits=False, why=text)
            self.give_back()

    def give_back(self) -> None:
        """Let kubelet go on, with its file as it is while kubelet runs."""
        if self._file is not None:
            try:
                self._file.restore()
            except OSError as error:
                _log.warning("cannot put %s back: %s", self._file.path, error)
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # the kernel has taken it back
                fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(self._descriptor)
        self._descriptor, self._waiting_since_s, self.due_s = None, None, math.inf

    def _read_break_s(self) -> int:
        """Return how long the kernel keeps kubelet waiting if this process hangs.

        Raises:
            OSError: it would be for ever (0) or for long.
        """
        seconds = int(self._break_time.read_text())
        if not 0 < seconds <= _LONGEST_BREAK_S:
            raise OSError(0, f"fs.lease-break-time is {seconds}: 1 to {_LONGEST_BREAK_S} would do, 45 is usual")
        return seconds

    def _note(self, *, waits: bool, why: str) -> None:
        if (waits, why) != self._seen:
            _log.info("kubelet waits for the devices at its start: %s", "yes" if waits else f"no: {why}")
        self._seen = waits, why


def start_file(*, kubelet_folder: Path, resolv_conf: Path | None) -> LeasedFile:
    """Return the file that kubelet is kept at: a resolv.conf of its own, or what every kubelet may read."""
    return ShutdownState(kubelet_folder) if resolv_conf is None else OwnResolvConf(resolv_conf)


def _leased(path: Path) -> int:
    """Open a file and take a write lease on it, which its owner may do without CAP_LEASE.

    Raises:
        OSError: EAGAIN while somebody has it open, EINVAL where its file system has no leases, EACCES where it is
            another user's and CAP_LEASE lacks.
    """
    descriptor = open_at_once(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        # Who opens the file sends a signal here. The usual one, SIGIO, would end the process; this one does nothing.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
