"""The demo's processes: started with a log each, called for an answer, all ended at the end."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from edgegpu_agent.demo.model import DemoError

_END_S = 10.0
_LOOK_S = 0.05
_LOG_LINES = 8
_CALL_S = 90.0


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """A command's exit status and output."""

    status: int
    text: str


class Processes:
    """The processes that run while the object is open; each writes a log below `folder`.

    What is called for an answer has `call_s` seconds.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], *, call_s: float = _CALL_S) -> None:
        self._folder = folder
        self._call_s = call_s
        self._environment = {**os.environ, **environment}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self._running)):
            self.stop(name)

    def start(self, name: str, command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> None:
        """Start a process in its own session: Ctrl-C reaches only the demo, which ends its processes in order.

        Raises:
            DemoError: there is no such program.
        """
        try:
            with self._log(name).open("ab") as log:
                self._running[name] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**self._environment, **(more or {})},
                    start_new_session=True,
                )
        except OSError as error:
            raise DemoError(f"cannot start {command[0]}: {error.strerror}") from error

    def stop(self, name: str) -> None:
        """End a process, if it runs, and what it has started in its session."""
        process = self._running.pop(name, None)
        if process is None or process.returncode is not None:
            return
        os.killpg(process.pid, signal.SIGTERM)  # the pid is the group's, and stays reserved until the wait
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def call(self, command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> CommandOutcome:
        """Run a command to its end; the text of the outcome is stdout and stderr.

        Raises:
            DemoError: the command does not end in time; the text names it as it is typed.
        """
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=self._call_s,
                env={**self._environment, **(more or {})},
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            line = shlex.join(map(str, command))
            text = f"cannot go on: {line} had not ended after {self._call_s:g} s"
            raise DemoError(f"{text}; run the demo again where less runs beside it") from error
        return CommandOutcome(done.returncode, done.stdout)

    def wait(self, name: str, look: Callable[[], bool], *, what: str, timeout_s: float) -> None:
        """Wait until a condition holds.

        Raises:
            DemoError: it does not hold in time, or the process has ended; the text has the end of its log.
        """
        ends = time.monotonic() + timeout_s
        while not look():
            code = self._running[name].poll()
            if code is not None:
                raise DemoError(f"cannot go on: {name} ended with status {code}{self._log_end(name)}")
            if time.monotonic() > ends:
                raise DemoError(f"waited {timeout_s:g} s for {what}{self._log_end(name)}")
            time.sleep(_LOOK_S)

    def log_ends(self) -> str:
        """Return the last lines of all logs, as the end of an error's text."""
        return "".join(self._log_end(name) for name in self._running)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _log_end(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "".join(f"\n  {line}" for line in [f"the end of {name}'s log:", *lines])
