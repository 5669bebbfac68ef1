"""Runs a program of the box with a deadline that holds also for one that a driver keeps from dying."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

NOT_FOUND = 127
_LAST_S = 1.0
_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended; `status` is None when it did not in time, 127 when there is no such program."""

    status: int | None
    out: str
    err: str

    @property
    def well(self) -> bool:
        """Whether it ended with 0."""
        return self.status == 0

    @property
    def words(self) -> str:
        """What it complained about, in one line."""
        return " ".join((self.err.strip() or self.out.strip()).split())[:400]


def run(command: Sequence[str], *, path: str, timeout_s: float, libraries: str = "") -> ProgramResult:
    """Run a program that is looked for on `path`.

    Its output goes to a file: pipes would have to be read until a child that cannot be killed closes them.
    """
    program = shutil.which(command[0], path=path)
    if program is None:
        return ProgramResult(NOT_FOUND, "", f"{command[0]}: not found")
    environ = {**os.environ, "PATH": path, "LC_ALL": "C"} | ({"LD_LIBRARY_PATH": libraries} if libraries else {})
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ
        )
        status = _wait(process, timeout_s)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(_MOST_BYTES).decode(errors="replace"))
    return ProgramResult(status, texts[0], texts[1])


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            process.wait(_LAST_S)
        except subprocess.TimeoutExpired:  # it hangs in the kernel: left behind
            process.returncode = -9
        return None
