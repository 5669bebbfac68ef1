"""Runs the command that finishes a transaction: as a process of its own, with a deadline, its answer in a file."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

_MOST_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Finished:
    """What the command said; `state` is empty where it said nothing that can be read."""

    state: str
    why: str

    @property
    def words(self) -> str:
        """State and reason in a line."""
        return f"{self.state or 'no answer'}: {self.why}" if self.why else self.state or "no answer"


class Finisher:
    """One run of the command.

    It goes on when this process ends: a change that is half made is better finished than cut, and when it restarts this
    very service it must outlive it. So it has a session of its own, and writes into a file, not into a pipe of ours.
    """

    def __init__(
        self, command: Sequence[str], *, deadline_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self._clock = clock
        self._deadline = clock() + deadline_s
        self._deadline_s = deadline_s
        self._late = False
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (read when the process has ended)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._out, start_new_session=True
            )
        except OSError:
            self._out.close()
            raise

    def poll(self) -> Finished | None:
        """Return what it said once it has ended, None before; one that is over its deadline is killed."""
        status = self._process.poll()
        if status is None:
            if self._clock() > self._deadline and not self._late:
                self._late = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            return None
        if self._late:
            return Finished("", f"it did not end within {self._deadline_s:g} s")
        return _read(self._answer(), status)

    def leave(self) -> None:
        """Forget about it; it goes on."""
        self._process.returncode = 0  # nobody waits for it here: its parent is PID 1 then
        self._out.close()

    def _answer(self) -> str:
        self._out.seek(0)
        text = self._out.read(_MOST_BYTES).decode(errors="replace")
        self._out.close()
        return text


def _read(text: str, status: int) -> Finished:
    try:
        value = json.loads(text)
        return Finished(str(value.get("state", "")), str(value.get("why") or value.get("error") or ""))
    except (ValueError, AttributeError):
        return Finished("", f"exit status {status}, and no answer that can be read: {' '.join(text.split())[:200]}")
