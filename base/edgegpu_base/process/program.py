"""Another program as a process that can outlive this one: a session of its own, its words in a file, not in a pipe."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO


class DetachedProgram:
    """One run of a program; close it by `text`, `end` or `leave`."""

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
            env: its environment; this process's unless given.
            errors: whether what it says on stderr belongs to its words.
            holds: descriptors that it keeps open.

        Raises:
            OSError: it cannot be started.
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
        """Return its exit status (negative: by a signal), None before its end."""
        return self._process.poll()

    def text(self, most_bytes: int) -> str:
        """Return what it said, the beginning of it."""
        self.out.seek(0)
        text = self.out.read(most_bytes).decode(errors="replace")
        self.out.close()
        return text

    def kill(self) -> None:
        """Kill it with all that it has started; wait for nothing, for it may sit in a driver."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, where it has not ended, and wait for its end."""
        if self._process.poll() is None:
            self.kill()
            self._process.wait()

    def leave(self) -> None:
        """Forget about it; it goes on."""
        self._process.returncode = 0  # nobody waits for it here: its parent is PID 1 then
        self.out.close()
