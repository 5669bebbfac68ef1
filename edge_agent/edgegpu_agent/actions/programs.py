"""The waits of actions, and the programs that they run: those that end with the agent, and those that outlive it."""

import contextlib
import io
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from edgegpu_agent.ports import ActionStopped
from edgegpu_base.process.program import DetachedProgram
from edgegpu_sync.wire import clipped

_LOOK_S = 0.1
_MOST_BYTES = 1_048_576

T = TypeVar("T")


class ActionTimer:
    """The time of all actions of one agent; it runs `speed` times as fast as the clock, so that tests wait less."""

    def __init__(
        self, stop: threading.Event, *, clock: Callable[[], float] = time.monotonic, speed: float = 1.0
    ) -> None:
        """Build the timer; `stop` is set once, when the agent ends."""
        self._stop = stop
        self._clock = clock
        self._speed = speed

    def now_s(self) -> float:
        """Return monotonic seconds."""
        return self._clock() * self._speed

    def pause(self, seconds: float) -> None:
        """Wait for so many seconds.

        Raises:
            ActionStopped: the agent ends.
        """
        if self._stop.wait(seconds / self._speed):
            raise ActionStopped("the agent ends")

    def wait_for(self, probe: Callable[[], T | None], *, every_s: float, within_s: float) -> T | None:
        """Call `probe` until it returns something, and return that; None when the time is over.

        Raises:
            ActionStopped: the agent ends.
        """
        deadline = self.now_s() + within_s
        while (found := probe()) is None and self.now_s() < deadline:
            self.pause(every_s)
        return found


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """A program's output, and its exit status: negative after a signal, None where the program took too long."""

    status: int | None
    text: str

    @property
    def last_line(self) -> str:
        """The last line of the output, for people; the exit status where there is none."""
        lines = self.text.strip().splitlines()
        return clipped(lines[-1].strip(), 300) if lines else f"exit status {self.status}"


class RunningProgram(DetachedProgram):
    """A program that an action waits for; it can outlive the agent."""

    def wait(self, timer: ActionTimer, *, within_s: float, outlives: bool = False) -> ProgramOutput:
        """Wait for the program's end; after `within_s` kill it and all that it has started.

        Raises:
            ActionStopped: the agent ends; the program goes on where it `outlives` the agent, else it is killed.
        """
        try:
            status = timer.wait_for(self.poll, every_s=_LOOK_S, within_s=within_s)
        except ActionStopped:
            self.leave() if outlives else self._cut()
            raise
        if status is None:
            self._cut()
            return ProgramOutput(None, f"it did not end within {within_s:g} s")
        return ProgramOutput(status, self.text(_MOST_BYTES))

    def _cut(self) -> None:
        self.end()
        self.out.close()


def run(
    command: Sequence[str], timer: ActionTimer, *, within_s: float, env: Mapping[str, str], errors: bool = True
) -> ProgramOutput:
    """Run a program that may be killed at any point; if it cannot be started, status 127 and the text says why.

    `errors`: the output includes stderr.

    Raises:
        ActionStopped: the agent ends, and the program was killed.
    """
    try:
        program = RunningProgram(command, env=env, errors=errors)
    except OSError as error:
        return ProgramOutput(127, f"cannot run {command[0]}: {error.strerror}")
    return program.wait(timer, within_s=within_s)


@contextlib.contextmanager
def capture(
    command: Sequence[str], timer: ActionTimer, *, within_s: float, env: Mapping[str, str]
) -> Iterator[IO[bytes]]:
    """Run a program that changes nothing, and yield its whole output, or why it could not be started.

    Raises:
        ActionStopped: the agent ends, and the program was killed.
    """
    try:
        program = DetachedProgram(command, env=env, errors=True)
    except OSError as error:
        yield io.BytesIO(f"cannot run {command[0]}: {error.strerror}\n".encode())
        return
    with program.out as out:
        try:
            timer.wait_for(program.poll, every_s=_LOOK_S, within_s=within_s)
        finally:
            program.end()
        out.seek(0)
        yield out


def runs_with(words: Sequence[str], *, proc: Path) -> bool:
    """Return whether a process of this user has these words among its arguments, one directly after the other.

    Other users' processes do not count, since anybody may give a process any arguments. The real uid decides: a
    setuid program runs as root for another user.

    Args:
        words: whole arguments.
        proc: the kernel's /proc.
    """
    wanted = b"\0" + b"\0".join(word.encode() for word in words) + b"\0"
    for path in proc.glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has just ended
            if wanted in path.read_bytes() and _real_uid(path.with_name("status")) == os.getuid():
                return True
    return False


def _real_uid(status: Path) -> int | None:
    lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)
