"""A control daemon of MPS, simulated or real: started in a pipe folder, asked, and ended with the test."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from kits.mqtt import wait_for

WAIT_S = 30.0


@dataclass(frozen=True)
class MpsClient:
    """A process that is a client of the simulated daemon."""

    pid: int


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

    @contextmanager
    def client(self, percent: int) -> Iterator[MpsClient]:
        """Be a client of the simulated daemon as its libcuda is: by a line on the socket, which stays open."""
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self.pipe / "control"))
            link.sendall(f"client {percent}\n".encode())
            self.wait_for_clients(1)
            yield MpsClient(os.getpid())

    def wait_for_clients(self, count: int) -> None:
        wait_for(lambda: len(self.ask("ps").splitlines()) == count, what=f"MPS has {count} clients")

    @property
    def is_running(self) -> bool:
        return self._daemon is not None and self._daemon.poll() is None

    def wait_for_end(self) -> None:
        """Wait until the daemon has ended by itself, and well."""
        assert self._daemon is not None
        assert self._daemon.wait(WAIT_S) == 0

    def kill(self) -> None:
        """End the daemon as a crash does."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait()
