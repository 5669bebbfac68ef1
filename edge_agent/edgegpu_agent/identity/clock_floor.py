"""The clock's floor: the latest moment that this box knows to have passed, whatever its clock says."""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from edgegpu_base.process.clocks import boot_s as boot_time
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine import atomic

WRITTEN_S = 1_780_272_000
"""2026-06-01: this program is younger than that."""

_AHEAD_S = 86_400
"""A clock that is so far from what the cloud has said in this boot is wrong."""

_LEAP_S = 366 * 86_400
"""How far one start of the agent lets signed times go ahead of what it knew, where the box's clock does not agree."""

_KEEP_EVERY_S = 6 * 3600
"""The floor rises with each receipt; a floor that is some hours old is as good, and spares the disk."""


class ClockFloor:
    """Only rises, but for an enrolment, which a person has begun; may be read and raised by any thread.

    A signed time is believed as far as this box's clock agrees, or it is not more than a year ahead of what was known
    when the agent began: one wrong message, of a stolen key or a controller whose clock stood in 2099, would else
    count for ever.

    Once the cloud has said the time in this boot, it goes on from there by CLOCK_BOOTTIME: that tells a clock that is
    years ahead. Before that such a clock is doubted when the box's own certificate seems to have ended.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, boot_s: Callable[[], float] = boot_time
    ) -> None:
        """Build the clock floor.

        Args:
            path: where it is kept; what cannot be read there counts as nothing.
            clock: seconds since 1970, as this box believes.
            boot_s: CLOCK_BOOTTIME.
        """
        self._path = path
        self._clock = clock
        self._boot_s = boot_s
        self._lock = threading.Lock()
        self._kept = _read(path)
        self._floor = max(WRITTEN_S, self._kept)
        self._offset: float | None = None
        self._doubted = False
        self._known_s = self._floor - boot_s()

    @property
    def floor_s(self) -> int:
        """Seconds since 1970 that have surely passed."""
        return self._floor if self._offset is None else max(self._floor, int(self._offset + self._boot_s()))

    @property
    def is_right(self) -> bool:
        """Whether dates in certificates say something: the clock is not below the floor, nor far above the cloud's."""
        now_s, said_s = self._clock(), self._offset
        if said_s is None:
            return now_s >= self._floor and not self._doubted
        return self._floor <= now_s <= said_s + self._boot_s() + _AHEAD_S

    @property
    def now_s(self) -> float:
        """The time: the clock's; where that is wrong, the latest that is known to have passed."""
        now_s = self._clock()
        if self._offset is not None and not self.is_right:
            return self.floor_s
        return max(now_s, self.floor_s)

    def doubt(self, *, ended: bool) -> None:
        """Say whether the box's own certificate has ended by this clock."""
        self._doubted = ended

    def learn(self, time_s: int) -> bool:
        """Take the time from a signed message: by now it is that or later. False where that cannot be."""
        boot_s = self._boot_s()
        if time_s > max(self._clock() + _AHEAD_S, self._known_s + boot_s + _LEAP_S):
            return False
        self._set(time_s)
        return True

    def begin(self, time_s: int) -> None:
        """Take the time of an enrolment, earlier or later than what was known: a person has vouched for its cloud."""
        with self._lock:
            self._floor, self._kept, self._offset = WRITTEN_S, 0, None
            self._known_s = time_s - self._boot_s()
        self._set(time_s)

    def _set(self, time_s: int) -> None:
        offset = time_s - self._boot_s()
        if self._offset is None or offset > self._offset:
            self._offset = offset
        self.raise_to(time_s)

    def raise_to(self, time_s: int) -> None:
        """Take a time that has passed, the beginning of a certificate's life for one."""
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
