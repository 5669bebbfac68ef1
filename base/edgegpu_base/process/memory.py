"""Keeps the process small: glibc holds memory for each thread and hands little of it back by itself."""

import ctypes
import gc

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
