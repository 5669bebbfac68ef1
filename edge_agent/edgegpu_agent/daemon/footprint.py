"""Keeps the process small once it runs: what start-up alone needed leaves the resident set."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from edgegpu_plugin import memory

_MAPS = Path("/proc/self/maps")
_DONT_NEED = 4
"""MADV_DONTNEED of madvise(2). On code, which is never written, it costs a page fault where the code is run again."""


FIRST_S, AGAIN_S = 30.0, 600.0
"""By the first the box is on the link; an act that was rare makes it grow again until the next one."""


class Footprint:
    """The task that hands back; `run` until `stop`."""

    def __init__(self, *, first_s: float = FIRST_S, again_s: float = AGAIN_S, maps: Path = _MAPS) -> None:
        """Prepare it; `maps` is the kernel's list of this process's mappings."""
        self._first_s, self._again_s, self._maps = first_s, again_s, maps
        self._stopping = threading.Event()

    def run(self) -> None:
        """Settle once, then hand back now and then."""
        if self._stopping.wait(self._first_s):
            return
        memory.settle()
        shed(self._maps)
        while not self._stopping.wait(self._again_s):
            shed(self._maps)

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping.set()


def shed(maps: Path = _MAPS) -> None:
    """Hand back the pages of libraries' code: start-up and rare acts run much that is not run again soon."""
    madvise: Callable[..., int] = ctypes.CDLL(None).madvise
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for start, length in code(lines):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _DONT_NEED)


def code(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield start and length of each mapping that holds the code of a file, and can hold nothing else."""
    for line in lines:
        words = line.split(maxsplit=5)
        if len(words) > 5 and words[1] == "r-xp" and words[5].startswith("/"):  # noqa: PLR2004  (proc_pid_maps(5))
            start, _, end = words[0].partition("-")
            yield int(start, 16), int(end, 16) - int(start, 16)
