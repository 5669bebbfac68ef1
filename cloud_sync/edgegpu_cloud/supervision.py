"""`edgegpu-cloud serve` as two processes, HTTPS and the controller: one that ends is started again alone.

A flood on 8443 may cost HTTPS its process, and never the link to the boxes. A process that ends before it was ever
ready has a fault that a person must correct, so it ends all.
"""

import ctypes
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgegpu_base.process.sdnotify import Notifier
from edgegpu_cloud.errors import CloudError

_LOG = logging.getLogger(__name__)

_READY = b"r"
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_ENDS = {signal.SIGTERM, signal.SIGINT}
_GRACE_S = 8.0
_WAIT_S, _WAIT_MOST_S, _STEADY_S = 1.0, 30.0, 60.0


class Supervised:
    """A supervised process from inside: it ends with its supervisor, and reports to it; or it runs alone."""

    def __init__(self, line: socket.socket | None = None, *, systemd: Notifier | None = None) -> None:
        """Take the line to the supervisor, or without one what notifies systemd."""
        self._line, self._systemd = line, systemd or Notifier()

    @property
    def pid(self) -> int:
        """The pid that a person stops: the supervisor's, or this process's."""
        return os.getppid() if self._line is not None else os.getpid()

    def waits(self, why: str) -> None:
        """Tell systemd that the start is complete, and what the process waits for: only a person can end the wait."""
        self._systemd.status(why)
        self._systemd.ready()

    def ready(self) -> None:
        """Report that this process is ready; the supervisor may have died by now."""
        self._systemd.status("")
        self._systemd.ready()
        if self._line is not None:
            try:
                self._line.send(_READY)
            except OSError as error:
                _LOG.warning("the supervisor does not listen: %s", error)


@dataclass(slots=True)
class SupervisedProcess:
    """A process to supervise: `run` does its work and returns its status. `task` is its name in `ps`, 15 characters."""

    name: str
    task: str
    run: Callable[[Supervised], int]
    pid: int = 0
    line: socket.socket | None = field(default=None, repr=False)
    """Our end of a socket pair: a byte means that it is ready, the end of the stream that it has ended."""
    began_s: float = 0.0
    wait_s: float = _WAIT_S
    again_s: float | None = None
    """When it is started again, by the monotonic clock."""

    def start(self) -> None:
        """Fork the process; ours has one thread, and has loaded nothing but the command line. Raises OSError."""
        ours, theirs = socket.socketpair()
        us = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
        try:
            pid = os.fork()
            if not pid:
                self._live(theirs, us)
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
            theirs.close()
        self.pid, self.line = pid, ours
        self.began_s, self.again_s = time.monotonic(), None

    def _live(self, line: socket.socket, supervisor: int) -> None:
        status = 1
        try:
            for number in _ENDS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_NAME, self.task.encode())
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == supervisor:
                status = self.run(Supervised(line))
        except Exception:  # noqa: BLE001  (the border of a process)
            _LOG.exception("%s failed", self.name)
        finally:
            os._exit(status)

    def later(self) -> float:
        """Schedule a new start after a wait, which is longer the next time; return the seconds."""
        wait_s = self.wait_s
        self.again_s, self.wait_s = time.monotonic() + wait_s, min(_WAIT_MOST_S, wait_s * 2)
        return wait_s

    def ended(self) -> int:
        """Return the exit status of a process whose line has ended; negative for a signal."""
        if self.line is None:
            return 0
        self.line.close()
        self.line = None
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def end(self, deadline_s: float) -> None:
        """Wait until the process has ended; from the deadline on it is killed."""
        if self.line is None:
            return
        try:
            while True:
                self.line.settimeout(max(0.01, deadline_s - time.monotonic()))
                if not self.line.recv(1):
                    break
        except OSError:  # the deadline has passed
            os.kill(self.pid, signal.SIGKILL)
        self.ended()


def ended_by_itself(task: str) -> CloudError:
    """Return the error for a task that returned though nothing had stopped it."""
    return CloudError(f"cannot go on: {task} ended by itself")


class Supervisor:
    """The parent that runs processes until it is stopped; `stop` may be called from a signal handler."""

    def __init__(self, parts: Sequence[SupervisedProcess]) -> None:
        self._parts = parts
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._stopped = False

    def stop(self) -> None:
        """End `run`."""
        self._stopped = True
        os.write(self._wake, b"x")

    def run(self) -> int:
        """Start one process after the other, restart what ends; return 0, or the status of one that was never ready."""
        try:
            for part in self._parts:
                self._start(part)
                if status := self._until_ready(part):
                    return status
            while not self._stopped:
                self._step()
            return 0
        finally:
            self._end()

    def _start(self, part: SupervisedProcess) -> None:
        part.start()
        if part.line is not None:
            self._selector.register(part.line, selectors.EVENT_READ, part)

    def _until_ready(self, part: SupervisedProcess) -> int:
        """Wait until a process is ready; return the status of one that ended instead, 0 where none did."""
        while not self._stopped:
            for one in self._heard(None):
                if one is part and part.line is not None and part.line.recv(1) == _READY:
                    return 0
                return abs(self._gone(one)) or 1
        return 0

    def _heard(self, timeout_s: float | None) -> list[SupervisedProcess]:
        events = self._selector.select(timeout_s)
        return [] if self._stopped else [key.data for key, _ in events if isinstance(key.data, SupervisedProcess)]

    def _step(self) -> None:
        now_s = time.monotonic()
        due = [part.again_s for part in self._parts if part.again_s is not None]
        for part in self._heard(max(0.0, min(due) - now_s) if due else None):
            if part.line is not None and part.line.recv(1) == _READY:
                continue
            status = self._gone(part)
            if time.monotonic() - part.began_s > _STEADY_S:
                part.wait_s = _WAIT_S
            _LOG.error("%s has ended (%s): started again in %.0f s", part.name, _words(status), part.later())
        for part in self._parts:
            if not self._stopped and part.again_s is not None and part.again_s <= time.monotonic():
                self._start_again(part)

    def _start_again(self, part: SupervisedProcess) -> None:
        """Start a process again; where there is no memory or no pid for it, the others go on meanwhile."""
        try:
            self._start(part)
        except OSError as error:
            _LOG.error("cannot start %s again: %s; tried again in %.0f s", part.name, error, part.later())

    def _gone(self, part: SupervisedProcess) -> int:
        if part.line is not None:
            self._selector.unregister(part.line)
        return part.ended()

    def _end(self) -> None:
        alive = [part for part in self._parts if part.line is not None]
        for part in alive:
            os.kill(part.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + _GRACE_S
        for part in alive:
            part.end(deadline_s)


def _words(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
