"""The controller's clock: boxes never receive a time that leapt ahead, because their clock floors only rise."""

import threading
import time
from collections.abc import Callable

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase

LEAP_S = 86_400
"""A clock that goes ahead of CLOCK_BOOTTIME by more than that between two readings is wrong, or was."""

AWAY_S = 366 * 86_400
"""After an absence that seems so long a person has to confirm the clock first."""


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """A clock that returns seconds since 1970 when it is called, from any thread.

    A box keeps the latest time that a controller has signed as its floor, so a minute in which this machine's clock was
    at 2099 would never pass. After a leap ahead this clock goes on by CLOCK_BOOTTIME from before it, until the
    machine's clock is right again or the process is started anew.
    """

    def __init__(
        self,
        *,
        last_s: float = 0.0,
        wall_s: Callable[[], float] = time.time,
        boot_s: Callable[[], float] = _boottime,
        leapt: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Build the steady clock.

        Args:
            last_s: the latest time that boxes received, seconds since 1970; 0: none yet.
            wall_s: the machine's clock.
            boot_s: CLOCK_BOOTTIME.
            leapt: called once for each leap, with a sentence.
        """
        self._wall_s, self._boot_s, self._leapt = wall_s, boot_s, leapt
        self._lock = threading.Lock()
        self._boot = boot_s()
        self._expected = max(wall_s(), last_s)
        self._ahead = False

    def __call__(self) -> float:
        """Return the time in seconds since 1970."""
        with self._lock:
            wall, boot = self._wall_s(), self._boot_s()
            self._expected += max(0.0, boot - self._boot)
            self._boot = boot
            ahead, was = wall > self._expected + LEAP_S, self._ahead
            self._ahead = ahead
            now = self._expected if ahead else wall
            self._expected = max(self._expected, now)
        if ahead and not was:
            self._leapt(
                phrase(
                    "this machine's clock has leapt from %(now)s to %(wall)s: boxes are told the time as it went on "
                    "from before; set the clock right, or, if it is right, start edgegpu-cloud serve anew",
                    now=utc(now),
                    wall=utc(wall),
                )
            )
        return now


def check_away(*, last_s: float, now_s: float) -> None:
    """Refuse a clock that is far above the time that boxes received last.

    Args:
        last_s: the latest time that they received, seconds since 1970; 0: none yet.
        now_s: the machine's clock.

    Raises:
        CloudError: it is; a person has to check it.
    """
    if last_s and now_s > last_s + AWAY_S:
        raise CloudError(
            f"cannot serve: this machine's clock says {utc(now_s)}, and boxes were told {utc(last_s)} last; "
            "boxes never forget a time that they were told",
            remedy="set the clock right; if it is right, add --clock-is-right once",
        )


def utc(at_s: float) -> str:
    """Return a moment for people: 2026-06-01 12:00 UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))
