"""When which fault was on, for those who judge what happened meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

OPEN = float("inf")
KILLS = frozenset({"plugin_kill", "plugin_stop", "kubelet_kill", "kubelet_restart", "containerd_kill", "extender_kill"})
AWAY = KILLS | {"api_away"}
"""While one of these is on nobody can correct an annotation or start a pod. Of all limits only Pending's counts it."""
CARD_FAULTS = frozenset({"card_xid", "card_lost"})


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

    def out(self, after_s: float) -> set[str]:
        """Return the cards that are out of order, or were less than so many seconds ago."""
        at_s = self._clock()
        return {window.card for window in self.all() if window.card and window.end_s + after_s > at_s}

    def longest_s(self) -> dict[str, float]:
        """Return, by kind, how long the longest fault was on, until all was back."""
        at_s = self._clock()
        longest: dict[str, float] = {}
        for window in self.all():
            longest[window.kind] = max(longest.get(window.kind, 0.0), min(window.end_s, at_s) - window.begin_s)
        return longest

    def counted(self) -> Counter[str]:
        """Return how often each kind of fault came."""
        return Counter(window.kind for window in self.all())


class Timeline:
    """What the faults so far mean for a stretch of time. Pure."""

    def __init__(self, windows: Callable[[], Sequence[Window]], *, after_s: float) -> None:
        """Remember how long after a kill kubelet may still refuse pods because of it."""
        self._windows, self._after_s = windows, after_s

    def quiet_s(self, begin_s: float, end_s: float) -> float:
        """Return the length of a stretch of time, 0 if anybody was away in it."""
        away = any(window.kind in AWAY and window.touches(begin_s, end_s) for window in self._windows())
        return 0.0 if away else end_s - begin_s

    def quiet(self, begin_s: float, end_s: float) -> bool:
        """Return whether nobody was away in a stretch of time, nor just before: what waited then has been said."""
        return self.quiet_s(begin_s - self._after_s, end_s) > 0

    def cause_of_refusal(self, begin_s: float, end_s: float) -> str:
        """Return the kind of the fault because of which kubelet may have refused a pod in that time; else nothing.

        A card's fault is one when it begins: the scheduler may have bound a pod to it a moment before it was seen.
        """
        begin_s -= self._after_s
        for window in self._windows():
            if window.kind in KILLS and window.touches(begin_s, end_s):
                return window.kind
        for window in self._windows():
            if window.kind in CARD_FAULTS and begin_s <= window.begin_s <= end_s:
                return window.kind
        return ""
