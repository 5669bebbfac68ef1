"""The clock floor: the latest moment that has surely passed, whatever this box's clock shows."""

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
"""2026-06-01: this program was written later."""

_AHEAD_S = 86_400
"""A clock so far ahead of the time that the cloud has sent in this boot is wrong."""

_LEAP_S = 366 * 86_400
"""How far signed times may go ahead of the known time in one run of the agent, where the box's clock does not agree."""

_KEEP_EVERY_S = 6 * 3600
"""How often the floor is written: it rises with each receipt, but one that is some hours old does as well."""


class ClockFloor:
    """The clock floor. It only rises, except at an enrolment, which a person begins; any thread may read or raise it.

    A signed time is accepted if this box's clock agrees, or if it is at most a year ahead of the time that was known
    when the agent began. Else one wrong message, of a stolen key or a controller whose clock stood in 2099, would count
    for ever.

    Once the cloud has sent the time in this boot, that time goes on by CLOCK_BOOTTIME, and shows a clock that is years
    ahead. Before that, such a clock is doubted when the box's own certificate seems to have expired.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, boot_s: Callable[[], float] = boot_time
    ) -> None:
        """Build the clock floor.

        Args:
            path: the file that keeps the floor; a file that cannot be read counts as none.
            clock: seconds since 1970, by this box's clock.
            boot_s: CLOCK_BOOTTIME in seconds.
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
        """The latest moment that has surely passed, in seconds since 1970."""
        return self._floor if self._offset is None else max(self._floor, int(self._offset + self._boot_s()))

    @property
    def is_right(self) -> bool:
        """Whether dates in certificates count: the clock is neither below the floor nor far ahead of the cloud's."""
        now_s, said_s = self._clock(), self._offset
        if said_s is None:
            return now_s >= self._floor and not self._doubted
        return self._floor <= now_s <= said_s + self._boot_s() + _AHEAD_S

    @property
    def now_s(self) -> float:
        """The time of the clock; where that is wrong, the latest moment that has surely passed."""
        now_s = self._clock()
        if self._offset is not None and not self.is_right:
            return self.floor_s
        return max(now_s, self.floor_s)

    def set_own_expired(self, *, ended: bool) -> None:
        """Record whether the box's own certificate has expired by this clock."""
        self._doubted = ended

    def learn_signed(self, time_s: int) -> bool:
        """Take the time from a signed message, which is a lower bound; return False where it cannot be right."""
        boot_s = self._boot_s()
        if time_s > max(self._clock() + _AHEAD_S, self._known_s + boot_s + _LEAP_S):
            return False
        self._set(time_s)
        return True

    def begin(self, time_s: int) -> None:
        """Take the time of an enrolment, earlier or later than the known one: a person has vouched for the cloud."""
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
        """Raise the floor to a time that has passed, for example the beginning of a certificate's life."""
        with self._lock:
            if time_s <= self._floor:
                return
            self._floor = time_s
            if time_s - self._kept < _KEEP_EVERY_S:
                return
            self._kept = time_s
            with contextlib.suppress(InstallError):  # a full disk: the floor is learned again
                atomic.write(self._path, json.dumps({"version": 1, "floor_s": time_s}).encode())


def _read(path: Path) -> int:
    try:
        return int(json.loads(path.read_bytes())["floor_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
