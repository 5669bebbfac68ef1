"""Keeps the process small once it runs: what start-up alone needed leaves the resident set."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from edgegpu_plugin import memory

_MAPS = Path("/proc/self/maps")
_DONT_NEED = 4
"""MADV_DONTNEED of madvise(2). On code, which is never written, it costs a page fault where the code is run again."""


SOON_S, AGAIN_S = 30.0, 600.0
"""By the first the box is on the link, and its birth is said; an act that was rare makes it grow until the next one."""


class Footprint:
    """The task that hands back; `run` until `stop`."""

    def __init__(self, *, soon_s: float = SOON_S, again_s: float = AGAIN_S, maps: Path = _MAPS) -> None:
        """Prepare it; `maps` is the kernel's list of this process's mappings."""
        self._soon_s, self._again_s, self._maps = soon_s, again_s, maps
        self._stopping, self._grown = threading.Event(), threading.Event()

    def run(self) -> None:
        """Settle once, then hand back now and then."""
        if self._stopping.wait(self._soon_s):
            return
        memory.settle()
        while True:
            shed(self._maps)
            if self._grown.wait(self._again_s):
                self._grown.clear()
                self._stopping.wait(self._soon_s)
            if self._stopping.is_set():
                return

    def soon(self) -> None:
        """Hand back in half a minute: much was run that is not run again soon. For any thread."""
        self._grown.set()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping.set()
        self._grown.set()


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
