"""Keeps the process small once it runs: what start-up alone needed leaves the resident set."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from edgegpu_plugin import memory

_MAPS = Path("/proc/self/smaps")
_DONT_NEED = 4
"""MADV_DONTNEED of madvise(2). On a file's unwritten pages it costs a page fault where they are used again."""


_READ_ONLY = {"r-xp", "r--p"}

SOON_S, AGAIN_S = 30.0, 600.0
"""By the first the process does what it will do for long; what it did rarely makes it grow until the next one."""


class Footprint:
    """The task that hands back; `run` until `stop`."""

    def __init__(self, *, soon_s: float = SOON_S, again_s: float = AGAIN_S, maps: Path = _MAPS) -> None:
        """Make the task; `maps` is the kernel's list of this process's mappings (proc_pid_smaps(5))."""
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
    """Hand back the pages of libraries: start-up and rare work use much that is not used again soon."""
    madvise: Callable[..., int] = ctypes.CDLL(None).madvise
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for start, length in unwritten(lines):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _DONT_NEED)


def unwritten(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield start and length of each mapping of a file's code or constants of which no page is the process's own.

    A page that was written before the mapping became read-only (relocations) is anonymous, and would be lost.
    """
    mapping: tuple[int, int] | None = None
    for line in lines:
        words = line.split(maxsplit=5)
        if words[0] == "Anonymous:":
            if mapping is not None and words[1] == "0":
                yield mapping
            mapping = None
        elif not words[0].endswith(":"):
            start, _, end = words[0].partition("-")
            of_file = len(words) > 5 and words[5].startswith("/")  # noqa: PLR2004  (proc_pid_maps(5))
            mapping = (int(start, 16), int(end, 16) - int(start, 16)) if of_file and words[1] in _READ_ONLY else None
