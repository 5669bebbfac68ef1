"""Counts of frequent events, logged in one line a minute: a flood of connections does not flood the log."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

PERIOD_S = 60.0


class MinuteCounter:
    """A count of events by kind, usable from any thread."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._next_s = clock()

    def note(self, kind: str) -> bool:
        """Count an event; return whether it is the first of its kind since the last line."""
        with self._lock:
            self._counts[kind] += 1
            return self._counts[kind] == 1

    def tell(self) -> None:
        """Log the counts, if there are any and the last line is a minute ago."""
        with self._lock:
            if not self._counts or self._clock() < self._next_s:
                return
            self._next_s = self._clock() + PERIOD_S
            counts, self._counts = self._counts, Counter()
        self._log.warning("in the last minute: %s", ", ".join(f"{n} {kind}" for kind, n in counts.most_common(10)))


class LogRateFilter(logging.Handler):
    """A log handler that counts a library's records by their text, and logs the first of each with its traceback."""

    def __init__(self, minute: MinuteCounter, log: logging.Logger) -> None:
        super().__init__()
        self._minute, self._log = minute, log

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record."""
        text = record.getMessage().strip()
        if self._minute.note(text) and record.exc_info:
            self._log.error("%s", text, exc_info=record.exc_info)
