"""When which fault was on, for those who judge what happened meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

OPEN = float("inf")


@dataclass(frozen=True, slots=True)
class Window:
    """A fault, from just before it was injected until all was back; `card`: of a card's fault, its UUID."""

    kind: str
    begin_s: float
    end_s: float = OPEN
    card: str = ""

    def touches(self, begin_s: float, end_s: float) -> bool:
        """Return whether a stretch of time overlaps this one."""
        return self.begin_s <= end_s and begin_s <= self.end_s

    def within(self, begin_s: float, end_s: float) -> float:
        """Return how many seconds of a stretch of time this one covers."""
        return max(0.0, min(end_s, self.end_s) - max(begin_s, self.begin_s))


class Windows:
    """All faults of a run; threads add, the checker reads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._all: list[Window] = []

    @contextmanager
    def during(self, kind: str) -> Iterator[None]:
        """Keep a window open around what injects a fault and waits until all is back."""
        at = self.begin(kind)
        try:
            yield
        finally:
            self.end(at)

    def begin(self, kind: str, card: str = "") -> int:
        """Open a window; returns its number."""
        with self._lock:
            self._all.append(Window(kind, self._clock(), card=card))
            return len(self._all) - 1

    def end(self, number: int) -> None:
        """Close a window."""
        with self._lock:
            self._all[number] = replace(self._all[number], end_s=self._clock())

    def all(self) -> tuple[Window, ...]:
        """Return all windows, in the order in which they began."""
        with self._lock:
            return tuple(self._all)

    def counted(self) -> Counter[str]:
        """Return how often each kind of fault came."""
        return Counter(window.kind for window in self.all())
