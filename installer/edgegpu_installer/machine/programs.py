"""Programs of the box, run with a deadline that holds even for a process that hangs in the kernel."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_FOUND = 127
_MOST_WORDS = 300
_MOST_COMPLAINT = 400
_LAST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """How a program ended; `status` is None when it did not end in time, 127 when there is no such program."""

    status: int | None
    out: str = ""
    err: str = ""
    why: str = ""
    """Why it did not exit with 0, in one line; empty when it did."""

    @property
    def well(self) -> bool:
        """Whether the program ended with exit status 0."""
        return self.status == 0

    @property
    def words(self) -> str:
        """The program's error output, else its output, in one line."""
        return " ".join((self.err.strip() or self.out.strip()).split())[:_MOST_COMPLAINT]


def run(
    words: Sequence[str], *, timeout_s: float, path: str = SYSTEM_PATH, environment: Mapping[str, str] | None = None
) -> ProgramResult:
    """Run a program, found on `path`, to its end; after timeout_s it is killed with its children.

    Its output goes to a file in memory: a pipe would have to be read until a child that cannot be killed closes it.
    """
    env = {"HOME": "/root"} | dict(environment or {}) | {"PATH": path, "LC_ALL": "C"}
    with _memory("out") as out, _memory("err") as err:
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, process_group=0)
        except OSError as error:
            why = f"cannot run {words[0]}: {error.strerror}"
            return ProgramResult(status=NOT_FOUND, err=f"{words[0]}: not found", why=why)
        status = _wait(child, timeout_s)
        said = [_text(file) for file in (out, err)]
    why = "" if status == 0 else f"{' '.join(words)[:_MOST_WORDS]}{_how(status, said[1], timeout_s)}"
    return ProgramResult(status=status, out=said[0], err=said[1], why=why)


def _wait(child: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return child.wait(timeout_s)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, 9)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    try:
        child.wait(_LAST_S)
    except subprocess.TimeoutExpired:  # it hangs in the kernel and is left behind
        child.returncode = -9
    return None


def _how(status: int | None, err: str, timeout_s: float) -> str:
    if status is None:
        return f" did not end within {timeout_s:g} s"
    said = err.strip().rpartition("\n")[2] or f"exit status {status}"
    return f": {said[:_MOST_WORDS]}"


def _memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(f"edgegpu-{name}"), "w+b")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
