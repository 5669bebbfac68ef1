"""Another program as a process that can outlive this one: in its own session, with its output in a file, not a pipe."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO


class DetachedProgram:
    """One run of a program; `text`, `end` or `leave` closes it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        errors: bool = False,
        holds: Sequence[int] = (),
    ) -> None:
        """Build the detached program.

        Args:
            command: the program and its arguments.
            env: its environment, by default this process's.
            errors: whether its stderr belongs to its output.
            holds: descriptors that it keeps open.

        Raises:
            OSError: the program cannot be started.
        """
        self.out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (read when the process has ended)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self.out,
                stderr=subprocess.STDOUT if errors else None,
                env=env,
                start_new_session=True,
                pass_fds=holds,
            )
        except OSError:
            self.out.close()
            raise

    def poll(self) -> int | None:
        """Return the program's exit status (negative after a signal); None before its end."""
        return self._process.poll()

    def text(self, most_bytes: int) -> str:
        """Return the beginning of the program's output."""
        self.out.seek(0)
        text = self.out.read(most_bytes).decode(errors="replace")
        self.out.close()
        return text

    def kill(self) -> None:
        """Kill the program and all that it has started, without a wait, since it may hang in a driver."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the program unless it has ended, and wait for its end."""
        if self._process.poll() is None:
            self.kill()
            self._process.wait()

    def leave(self) -> None:
        """Leave the program running on its own."""
        self._process.returncode = 0  # this process will not wait for it: PID 1 becomes its parent
        self.out.close()
