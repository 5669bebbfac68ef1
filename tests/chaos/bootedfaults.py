"""What goes wrong with a booted box by itself: its agent and its installer die, its disk is full, its power is cut."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from chaos.booted import Booted

EVERY_S = 15.0
INSTALLERS = 0.25
"""How many of the installer's runs are killed."""

MOST_CUTS = 2


class BootedFaults:
    """`tick` it often; `calm` ends all that still goes on. An agent is away for five seconds, so faults come slowly."""

    def __init__(self, box: Booted, rng: random.Random) -> None:
        self._box, self._rng = box, rng
        self.counted: Counter[str] = Counter()
        self.errors: list[str] = []
        self._next_s = time.monotonic() + rng.uniform(0, EVERY_S)
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._installer: int | None = None
        self._cuts = sorted(rng.uniform(0.2, 0.9) for _ in range(rng.randint(1, MOST_CUTS)))
        self._cutting: threading.Thread | None = None

    def tick(self, done: float) -> None:
        """Do what is due; `done`: how much of what booted boxes get was asked for, 0 to 1."""
        if self._cutting is not None and self._cutting.is_alive():
            return
        now = time.monotonic()
        for at_s, call in [one for one in self._later if one[0] <= now]:
            self._later.remove((at_s, call))
            call()
        self._aim_at_installers()
        if self._cuts and done >= self._cuts[0]:
            self._cuts.pop(0)
            self._cut()
        elif now >= self._next_s:
            self._next_s = now + self._rng.expovariate(1 / EVERY_S)
            self._rng.choices((self._kill_agent, self._fill), weights=(3, 2))[0]()

    def calm(self) -> None:
        """End what goes on."""
        if self._cutting is not None:
            self._cutting.join()
        for _, call in self._later:
            call()
        self._later.clear()

    def _after(self, low_s: float, high_s: float, call: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + self._rng.uniform(low_s, high_s), call))

    def _kill_agent(self) -> None:
        self.counted["kill agent of a booted box"] += self._box.kill_agent()

    def _aim_at_installers(self) -> None:
        pid = self._box.installer()
        if pid is not None and pid != self._installer and self._rng.random() < INSTALLERS:
            self._after(0, 20, lambda: self._kill_installer(pid))
        self._installer = pid

    def _kill_installer(self, pid: int) -> None:
        if self._box.installer() == pid:
            self.counted["kill installer of a booted box"] += self._box.kill_installer(pid)

    def _fill(self) -> None:
        self._box.fill_disk()
        self.counted["full disk of a booted box"] += 1
        self._after(1.0, 8.0, self._box.free_disk)

    def _cut(self) -> None:
        """Cut the power beside the run, since it takes seconds until it has booted."""
        self._box.free_disk()
        self._later.clear()
        self.counted["power cut"] += 1
        self._cutting = threading.Thread(target=self._cut_now, daemon=True)
        self._cutting.start()

    def _cut_now(self) -> None:
        try:
            self._box.cut()
        except Exception as error:  # noqa: BLE001  (a thread's border: the run says it)
            self.errors.append(f"{self._box.name} does not come up after a power cut: {error}")
