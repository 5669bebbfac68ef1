"""A program that runs beside the measurement and answers in lines; no wait for it is without an end."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_END_S = 10.0


class ProgramError(Exception):
    """A program died, or said nothing for too long; the text says which and what it had said."""


class Program:
    """A started program: `say` writes a line to it, `line` and `answer` wait for one of its own."""

    def __init__(self, words: Sequence[str], env: dict[str, str]) -> None:
        self.name = " ".join(word.rpartition("/")[2] for word in words)
        self._lines: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def say(self, text: str) -> None:
        """Write a line to it.

        Raises:
            ProgramError: it has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ProgramError(f"{self.name} has ended with {self._process.poll()}") from error

    def line(self, timeout_s: float) -> str:
        """Return its next line.

        Raises:
            ProgramError: it ended, or there was none in time.
        """
        try:
            found = self._lines.get(timeout=max(timeout_s, 0))
        except queue.Empty:
            raise ProgramError(f"{self.name} said nothing for {timeout_s:.0f} s") from None
        if not found:
            raise ProgramError(f"{self.name} ended with {self._process.wait(_END_S)}")
        return found

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Return its next line, which is JSON."""
        return dict(json.loads(self.line(timeout_s)))

    def ask(self, text: str, timeout_s: float) -> dict[str, Any]:
        """Write a line and return the answer to it."""
        self.say(text)
        return self.answer(timeout_s)

    def close(self) -> None:
        """Close its standard input: it ends then."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone, with a line unread
            self._process.stdin.close()

    def kill(self) -> None:
        """Send it SIGKILL, if it runs."""
        if self._process.poll() is None:
            self._process.kill()

    def ended(self, timeout_s: float) -> bool:
        """Return whether it has ended, or does so in time; one that hangs in the driver may not."""
        try:
            self._process.wait(max(timeout_s, 0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")
