"""A control daemon of MPS, the simulated one or a real one: started in a pipe folder, asked, and ended with the test."""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from kits.mqtt import wait_for


@dataclass
class MpsControl:
    """The program `nvidia-cuda-mps-control` with a pipe folder, and the daemon in it once it is started."""

    program: Path
    pipe: Path
    _daemon: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.pipe),
        }

    def start(self) -> None:
        """Start the daemon in the foreground, and wait until it answers."""
        self._daemon = subprocess.Popen([self.program, "-f"], env=self.environment)
        wait_for(lambda: self.ask("get_default_active_thread_percentage").startswith("100"), what="MPS answers")

    def ask(self, command: str) -> str:
        done = subprocess.run(
            [self.program], input=f"{command}\n", env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout

    def asked(self) -> set[int]:
        """Return the percentages that clients have asked for since the daemon was started."""
        return {int(found) for found in re.findall(r"asks for (\d+)", (self.pipe / "control.log").read_text())}

    def kill(self) -> None:
        """End the daemon as a crash does."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait()
            self._daemon = None

    @property
    def pid(self) -> int:
        assert self._daemon is not None
        return self._daemon.pid
