"""Keeps the process small: glibc holds memory for each thread and hands little of it back by itself."""

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_MAPS = Path("/proc/self/smaps")
_DONT_NEED = 4
"""MADV_DONTNEED of madvise(2). On a file's unwritten pages it costs a page fault where they are used again."""


_READ_ONLY = {"r-xp", "r--p"}

SOON_S, AGAIN_S = 30.0, 600.0
"""By the first the process does what it will do for long; what it did rarely makes it grow until the next one."""

STEADY_S = 1.0
"""What stands in the list now and stood there this long ago is no library that is being loaded: while it is, its later
data are listed as unwritten, too, and dropping those would end the process."""


class Footprint:
    """The task that hands back; `run` until `stop`."""

    def __init__(
        self,
        *,
        first_s: float = SOON_S,
        soon_s: float = SOON_S,
        again_s: float = AGAIN_S,
        hand_back: Callable[[], None] | None = None,
    ) -> None:
        """Make the task; without another `hand_back` it is `shed`, which `stop` cuts short."""
        self._first_s, self._soon_s, self._again_s = first_s, soon_s, again_s
        self._stopping, self._grown, self._at_once = threading.Event(), threading.Event(), threading.Event()
        self._hand_back = hand_back or (lambda: shed(wait=lambda: self._stopping.wait(STEADY_S)))

    def run(self) -> None:
        """Settle once, then hand back now and then."""
        if self._stopping.wait(self._first_s):
            return
        settle()
        while True:
            self._hand_back()
            if self._grown.wait(self._again_s):
                self._grown.clear()
                self._at_once.wait(self._soon_s)
                self._at_once.clear()
            if self._stopping.is_set():
                return

    def soon(self) -> None:
        """Collect garbage now, and hand back in half a minute: much was run that is not run again soon. For any thread.

        After `settle` the collector runs seldom, and a connection that is made anew leaves cycles each time.
        """
        gc.collect()
        self._grown.set()

    def now(self) -> None:
        """Hand back at once: little runs until something rare begins, such as a new connection. For any thread."""
        self._at_once.set()
        self._grown.set()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping.set()
        self.now()


def shed(maps: Path = _MAPS, *, wait: Callable[[], object] = lambda: time.sleep(STEADY_S)) -> None:
    """Hand back the pages of libraries: start-up and rare work use much that is not used again soon.

    Args:
        maps: the kernel's list of this process's mappings.
        wait: passes the time between two looks at it; only what stands in both is handed back.
    """
    madvise: Callable[..., int] = ctypes.CDLL(None).madvise
    before = _unwritten_of(maps)
    wait()
    for start, length in before & _unwritten_of(maps):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _DONT_NEED)


def _unwritten_of(maps: Path) -> set[tuple[int, int]]:
    """Read the list line by line: as a whole it is a megabyte, which would stay with the process."""
    try:
        with maps.open(encoding="utf-8", errors="replace") as lines:
            return set(unwritten(lines))
    except OSError:
        return set()


def unwritten(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
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


_ARENA_MAX = -8
"""M_ARENA_MAX of mallopt(3)."""

_RARELY = (20_000, 50, 100)
"""What is made for a call dies with it, by its count; a search for cycles through all records takes milliseconds."""


def few_arenas() -> None:
    """Let all threads share two heaps; to be called before they start. Nothing happens where there is no glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 2)


def settle() -> None:
    """Keep what start-up made out of the collector's sight, and hand free pages back to the system."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_RARELY)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
