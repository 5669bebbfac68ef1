"""A program that a test starts and signals, as a person does at a terminal."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ENDS_S = 30.0
"""How long a program may take to end once it is told to."""


@contextmanager
def running_child(
    command: Sequence[str], *, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Run a program, yield it and the lines that it prints; kill it at the end if it still runs.

    A test that fails, or is out of time, leaves `Popen`'s own end waiting without a bound for a program that goes on.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, bufsize=1) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()
