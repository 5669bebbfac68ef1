"""Programs that the lab's tests run: to their end (run), or on in a node (Process)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent
Completed = subprocess.CompletedProcess[str]
T = TypeVar("T")
_factors = [1.0]


def patient(seconds: float) -> float:
    """Return a deadline multiplied as `slow_machine` has it."""
    return seconds * _factors[-1]


@contextmanager
def slow_machine(factor: float) -> Iterator[None]:
    """Multiply all deadlines here: where the processor is emulated, everything takes many times as long."""
    _factors.append(factor)
    try:
        yield
    finally:
        _factors.pop()


class LabError(Exception):
    """Something of the lab failed; the text says what, and what to do."""


def missing(part: str = "direct") -> list[str]:
    """Return what this machine lacks for a part of the lab, a line each; empty when nothing.

    The parts: direct (nodes), image (of the pods), box (booted boxes), build (the lab's programs from source).
    """
    done = subprocess.run([HERE / "need", part], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return lines or ([f"tests/lab/need {part} failed with {done.returncode}"] if done.returncode else [])


def wait_until(probe: Callable[[], T | None], *, what: str, timeout_s: float = 120.0, every_s: float = 0.1) -> T:
    """Return the first answer of probe that is true.

    A LabError in probe counts as no answer yet.

    Raises:
        LabError: no answer after timeout_s; the text ends with the last error.
    """
    timeout_s = patient(timeout_s)
    end, last = time.monotonic() + timeout_s, ""
    while True:
        try:
            if answer := probe():
                return answer
        except LabError as error:
            last = f": {error}"
        if time.monotonic() > end:
            raise LabError(f"not so after {timeout_s:g} s: {what}{last}")
        time.sleep(every_s)


def run(
    args: Sequence[str | Path],
    *,
    input: str = "",  # noqa: A002 - subprocess's own word
    check: bool = True,
    timeout_s: float | None = None,
) -> Completed:
    """Run a program to its end and return its output; LabError when it fails (with check) or takes too long."""
    said = " ".join(str(a) for a in args)
    timeout_s = None if timeout_s is None else patient(timeout_s)
    try:
        done = subprocess.run(args, input=input, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"no end after {timeout_s:g} s: {said}") from error
    except OSError as error:
        raise LabError(f"cannot run {said}: {error}") from error
    if check and done.returncode:
        raise LabError(f"exit status {done.returncode}: {said}\n{(done.stderr or done.stdout)[-4000:].strip()}")
    return done


class Process:
    """A program that runs on in a node; its signals reach the program itself, not the nsenter before it."""

    def __init__(self, args: Sequence[str | Path], *, env: Mapping[str, str], log: Path | None) -> None:
        """Start args; the output, both kinds, is appended to log, or is to be read from stdout."""
        if log is None:
            self._outer = _popen(args, env=env, output=subprocess.PIPE)
        else:
            with log.open("a") as file:
                self._outer = _popen(args, env=env, output=file)
        self.stdout = self._outer.stdout

    @property
    def pid(self) -> int:
        """The program's process id as this machine counts.

        Raises:
            LabError: it has ended, or never began.
        """

        def inside() -> int:
            if self._outer.poll() is not None:
                return -1
            for child in _children(self._outer.pid):
                if _namespace(child) != _namespace(os.getpid()):
                    return child
            return 0

        if (pid := wait_until(inside, what="a process in the node", every_s=0.01)) < 0:
            raise LabError(f"the process has ended, exit status {self._outer.returncode}")
        return pid

    def poll(self) -> int | None:
        """Return the exit status, None while it runs; minus the number of a signal that ended it."""
        return self._outer.poll()

    def wait(self, timeout_s: float | None = 30.0) -> int:
        """Return the exit status when it has ended; LabError after timeout_s."""
        timeout_s = None if timeout_s is None else patient(timeout_s)
        try:
            return self._outer.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"no end after {timeout_s:g} s: {self._outer.args!r}") from error

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the program has ended.

        An nsenter whose program stops stops too. It must go on where the program does, else nobody reaps what ends.
        """
        try:
            os.kill(self.pid, number)
        except (LabError, ProcessLookupError):
            if self._outer.poll() is None:
                raise
        if number is not signal.SIGSTOP:
            self._outer.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Send TERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send KILL."""
        self.send_signal(signal.SIGKILL)


def _popen(args: Sequence[str | Path], *, env: Mapping[str, str], output: int | IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        args, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **env}, text=True
    )


def _children(pid: int) -> list[int]:
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""
