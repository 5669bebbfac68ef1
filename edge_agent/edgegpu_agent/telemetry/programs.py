"""The programs of telemetry, run with a time limit; a program that hangs is left behind, and not run for a while."""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_KILL_S = 2.0
_PAUSE_S = 600.0


@dataclass(slots=True)
class Programs:
    """A runner of programs for telemetry; a driver that hangs keeps a process for ever, so there must not be many."""

    clock: Callable[[], float] = time.monotonic
    environment: dict[str, str] | None = None
    _paused_until: dict[str, float] = field(default_factory=dict)

    def output_of(self, command: Sequence[str], *, timeout_s: float) -> str | None:
        """Return a program's output; None where it is missing, failed or hangs, and for some time after it hung."""
        if self.clock() < self._paused_until.get(command[0], float("-inf")):
            return None
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self.environment,
                text=True,
                errors="replace",
            )
        except OSError:
            return None
        try:
            told, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._paused_until[command[0]] = self.clock() + _PAUSE_S
            self._leave(process)
            return None
        return told if process.returncode == 0 else None

    @staticmethod
    def _leave(process: "subprocess.Popen[str]") -> None:
        process.kill()
        try:
            process.communicate(timeout=_KILL_S)
        except subprocess.TimeoutExpired:  # it is inside the driver, where no signal reaches it
            process.returncode = -9  # Popen must not wait for it any more
            if process.stdout is not None:
                process.stdout.close()
