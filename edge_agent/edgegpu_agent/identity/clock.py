"""The clock's floor: the latest moment that this box knows to have passed, whatever its clock says."""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from edgegpu_installer import atomic
from edgegpu_installer.errors import InstallError

WRITTEN_S = 1_780_272_000
"""2026-06-01: this program is younger than that."""

_KEEP_EVERY_S = 6 * 3600
"""The floor rises with each receipt; a floor that is some hours old is as good, and spares the disk."""


class ClockFloor:
    """Only rises; may be read and raised by any thread."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Read it.

        Args:
            path: where it is kept; what cannot be read there counts as nothing.
            clock: seconds since 1970, as this box believes.
        """
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._kept = _read(path)
        self._floor = max(WRITTEN_S, self._kept)

    @property
    def floor_s(self) -> int:
        """Seconds since 1970 that have surely passed."""
        return self._floor

    @property
    def is_right(self) -> bool:
        """Whether the clock is not below the floor; if it is, the dates in certificates say nothing."""
        return self._clock() >= self._floor

    @property
    def now_s(self) -> float:
        """The time: the clock's, or the floor where that is later."""
        return max(self._clock(), self._floor)

    def raise_to(self, time_s: int) -> None:
        """Take a time from a signed message or a certificate."""
        with self._lock:
            if time_s <= self._floor:
                return
            self._floor = time_s
            if time_s - self._kept < _KEEP_EVERY_S:
                return
            self._kept = time_s
            with contextlib.suppress(InstallError):  # a full disk: it is learned again
                atomic.write(self._path, json.dumps({"version": 1, "floor_s": time_s}).encode())


def _read(path: Path) -> int:
    try:
        return int(json.loads(path.read_bytes())["floor_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
