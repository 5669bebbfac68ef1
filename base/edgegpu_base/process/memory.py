"""Measures that keep the process small: glibc holds memory for each thread and returns little of it by itself."""

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_MAPS = Path("/proc/self/smaps")
_DONT_NEED = 4
"""MADV_DONTNEED of madvise(2). On unwritten pages of a file it costs a page fault when they are used again."""


_READ_ONLY = {"r-xp", "r--p"}

SOON_S, AGAIN_S = 30.0, 600.0
"""The first and the later intervals: start-up is over after the first; then rare work makes the process grow."""

STEADY_S = 1.0
"""How long a mapping must have been in the list before it is dropped. While a library is being loaded, the list shows
its later data as unwritten, too, and dropping those would end the process."""


class Footprint:
    """The task that returns memory to the system; `run` lasts until `stop`."""

    def __init__(
        self,
        *,
        first_s: float = SOON_S,
        soon_s: float = SOON_S,
        again_s: float = AGAIN_S,
        hand_back: Callable[[], None] | None = None,
    ) -> None:
        """Make the task; `hand_back` is by default `shed`, which `stop` cuts short."""
        self._first_s, self._soon_s, self._again_s = first_s, soon_s, again_s
        self._stopping, self._grown, self._at_once = threading.Event(), threading.Event(), threading.Event()
        self._hand_back = hand_back or (lambda: shed(wait=lambda: self._stopping.wait(STEADY_S)))

    def run(self) -> None:
        """Call `settle` once, then return memory at intervals until `stop`."""
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
        """Collect garbage now and return memory in half a minute, after work that is not repeated soon. Thread-safe.

        After `settle` the collector runs seldom, and each new connection leaves cycles.
        """
        gc.collect()
        self._grown.set()

    def now(self) -> None:
        """Return memory at once, because little runs until rare work begins, such as a new connection. Thread-safe."""
        self._at_once.set()
        self._grown.set()

    def stop(self) -> None:
        """Make `run` end."""
        self._stopping.set()
        self.now()


def shed(maps: Path = _MAPS, *, wait: Callable[[], object] = lambda: time.sleep(STEADY_S)) -> None:
    """Return the pages of libraries to the system: start-up and rare work use many that are not used again soon.

    Args:
        maps: the kernel's list of this process's mappings.
        wait: waits between two reads of the list; only mappings that both have are dropped.
    """
    madvise: Callable[..., int] = ctypes.CDLL(None).madvise
    before = _unwritten_of(maps)
    wait()
    for start, length in before & _unwritten_of(maps):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _DONT_NEED)


def _unwritten_of(maps: Path) -> set[tuple[int, int]]:
    """Return the unwritten mappings, read by lines: the whole list is a megabyte, which the process would keep."""
    try:
        with maps.open(encoding="utf-8", errors="replace") as lines:
            return set(unwritten(lines))
    except OSError:
        return set()


def unwritten(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield start and length of each mapping of a file's code or constants without pages of the process's own.

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
"""The collector's thresholds: reference counts free a call's objects; a search of all records takes milliseconds."""


def few_arenas() -> None:
    """Make all threads share two heaps; to be called before they start. Without glibc it does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 2)


def settle() -> None:
    """Exclude the objects of start-up from garbage collection, and return free pages to the system."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_RARELY)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
