"""A process that is started again a moment after each death, as systemd would; and one that is not."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

END_S = 20.0


@dataclass(slots=True, kw_only=True)
class Kept:
    """`tend` it often. `died` counts ends that nobody here has brought about."""

    name: str
    command: Sequence[str]
    log: Path
    env: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    died: int = 0
    starts: int = 0
    held: bool = False
    clock: dict[str, str] = field(default_factory=dict)
    """Variables besides `env` by which it sees another time than this machine's, from its next start on."""
    _process: subprocess.Popen[bytes] | None = None
    _frozen: bool = False
    _again_at_s: float = 0.0

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def works(self) -> bool:
        """Whether it runs, and is not stopped."""
        return self.runs and not self._frozen

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def tend(self) -> None:
        """Start it where it does not run and its time has come."""
        if self._process is not None and self._process.poll() is not None:
            self.died += 1
            self._process = None
            self._again_at_s = time.monotonic() + 0.5
        if self._process is None and not self.held and time.monotonic() >= self._again_at_s:
            self._start()

    def _start(self) -> None:
        self.starts += 1
        self._frozen = False
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self.env | self.clock
            )

    def kill(self, *, away_s: float) -> bool:
        """End it with kill -9, and let it be away for so long; False where it does not run."""
        if not self.runs:
            return False
        self._end(signal.SIGKILL)
        self._again_at_s = time.monotonic() + away_s
        return True

    def freeze(self) -> bool:
        """Stop it as it is, until `thaw`; False where it does not run."""
        if not self.runs:
            return False
        os.kill(self.pid, signal.SIGSTOP)
        self._frozen = True
        return True

    def thaw(self) -> None:
        """Let it go on, if it is still there."""
        if self.runs:
            os.kill(self.pid, signal.SIGCONT)
        self._frozen = False

    def stop(self) -> None:
        """End it in order, and for good."""
        self.held = True
        if self.runs:
            self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)  # it may have been stopped
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)
