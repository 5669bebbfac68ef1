"""What goes wrong, at random, and how often it did: deaths, the network, the disk, a liar on the broker."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

from chaos import clocks
from chaos.bootedfaults import BootedFaults
from chaos.verdict import DATABASE_RESTARTED, KILLED, STOPPED_LONG, WIPED

from edgegpu_cloud.store.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.kept import Kept
    from chaos.machine import Machine
    from chaos.rogue import Rogue
    from chaos.site import Site
    from kits.faultproxy import FaultProxy, Way

EVERY_S = 0.25
BURST_S, LULL_S = 4.0, 15.0
LULL_ENDS = 40
"""What takes the link from all boxes at once comes in bursts, for a controller that was away hears from its boxes
within five seconds: with a fault each second nothing would ever be done. A lull lasts until so many commands ended.
"""
AIMED = 0.12
"""How often an agent is killed at the moment at which its box did something."""

LONGEST_STOP_S = 30.0
"""So long a controller is stopped at most, where three times the length of its leases is not longer."""

Later = list[tuple[float, "Callable[[], object]"]]


class Faults:
    """`tick` it often; `calm` ends all that still goes on. `counted` says what was done."""

    def __init__(self, site: Site, rogue: Rogue, rng: random.Random, *, aimed: float = AIMED) -> None:
        self._site, self._rogue, self._rng, self._aimed = site, rogue, rng, aimed
        self.counted: Counter[str] = Counter()
        self._booted = [BootedFaults(box, rng) for box in site.booted]
        self.skipped: dict[str, str] = {}
        self._later: Later = []
        self._next_s = time.monotonic() + 1.0
        self._sizes = {box.name: box.size() for box in site.boxes}
        self._full: set[str] = set()
        self._burst_until_s, self._lull_until_s, self._lull_ends = 0.0, self._next_s, 0
        self._gentle: dict[Callable[[], object], int] = {
            self._kill_agent: 4,
            self._kill_installer: 4,
            self._fill_disk: 2,
            self._wrong_clock: 2,
            self._rogue.act: 60,
        }
        self._hard: dict[Callable[[], object], int] = {
            self._kill_controller: 6,
            self._kill_broker: 5,
            self._kill_all: 2,
            self._kill_unheard: 4,
            self._wipe_broker: 2,
            self._cut: 12,
            self._cut_within: 10,
            self._stall: 6,
            self._delay: 5,
            self._refuse: 4,
        }
        self._due: list[tuple[float, Callable[[], bool]]] = []
        self._zombie: Kept | None = None
        self._takeover_until_s = 0.0
        """Until when the other controllers and the database are left alone: a run must see them take partitions."""
        if site.database is not None:
            self._hard |= {self._freeze_controller: 5, self._restart_database: 3}
            self._due = [
                (0.1, self._freeze_long),
                (0.3, self._wipe_broker),
                (0.5, self._restart_database),
                (0.7, self._kill_for_long),
            ]

    @property
    def owing(self) -> bool:
        """Whether a fault that each run with several controllers must have is still to come, or goes on."""
        return bool(self._due) or self._zombie is not None

    def tick(self, ended: int, done: float, *, asked: float) -> None:
        """Do what is due.

        Args:
            ended: how many commands have ended.
            done: how much of what booted boxes get was asked, 0 to 1.
            asked: how much of all was asked, 0 to 1. What chance may leave out of a short run comes at fixed shares.
        """
        if self._due and asked >= self._due[0][0] and self._due[0][1]():
            self._due.pop(0)
        for one in self._booted:
            one.tick(done)
        now = time.monotonic()
        kinds = self._gentle | (self._hard if self._in_burst(now, ended) else {})
        for at_s, call in [one for one in self._later if one[0] <= now]:
            self._later.remove((at_s, call))
            call()
        self._aim()
        if now >= self._next_s:
            self._next_s = now + self._rng.expovariate(1 / EVERY_S)
            self._rng.choices([*kinds], weights=[*kinds.values()])[0]()

    def _in_burst(self, now: float, ended: int) -> bool:
        if now < self._burst_until_s:
            self._lull_until_s, self._lull_ends = self._burst_until_s + LULL_S, ended + LULL_ENDS
            return True
        if now >= self._lull_until_s or ended >= self._lull_ends:
            self._burst_until_s = now + BURST_S
        return False

    def calm(self) -> None:
        """End what goes on; nothing begins any more."""
        for one in self._booted:
            one.calm()
            self.counted += one.counted
        for _, call in self._later:
            call()
        self._later.clear()
        for proxy in self._proxies:
            proxy.flow()
            proxy.delay(0)
            proxy.accept()
        self._site.uploads.faulty = False
        self.counted.update({f"message {kind}": count for kind, count in self._rogue.done.items()})
        self.counted["upload answer lost"] += self._site.uploads.cut

    def _after(self, low_s: float, high_s: float, call: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + self._rng.uniform(low_s, high_s), call))

    @property
    def errors(self) -> list[str]:
        """What a fault has broken that should have come back."""
        return [words for one in self._booted for words in one.errors]

    @property
    def _proxies(self) -> list[FaultProxy]:
        return [self._site.to_boxes, self._site.to_controller]

    # --- deaths

    def _aim(self) -> None:
        """Kill an agent within moments of what it did."""
        for box in self._site.boxes:
            size = box.size()
            if size != self._sizes[box.name]:
                self._sizes[box.name] = size
                if self._rng.random() < self._aimed:
                    self._after(0, 0.3, self._killer(box))

    def _killer(self, box: Machine) -> Callable[[], object]:
        return lambda: self._kill(box, "kill agent at an act")

    def _kill(self, box: Machine, kind: str) -> None:
        self.counted[kind] += box.agent.kill(away_s=self._rng.uniform(0.0, 1.0))

    def _kill_agent(self) -> None:
        self._kill(self._rng.choice(self._site.boxes), "kill agent")

    def _leave_to_others(self) -> None:
        self._takeover_until_s = time.monotonic() + 2 * self._site.lost_s

    @property
    def _takes_over(self) -> bool:
        return time.monotonic() < self._takeover_until_s

    def _kill_controller(self) -> None:
        if self._takes_over:
            return
        away_s = self._rng.uniform(0.0, 2 * self._site.lost_s if self._site.further else 2.0)
        one = self._rng.choice(self._site.controllers)
        if one is not self._zombie:
            self.counted[KILLED] += one.kill(away_s=away_s)

    def _kill_for_long(self) -> bool:
        """Kill a controller that holds partitions, and let it be away for longer than its leases last."""
        holding = self._holding()
        if not holding or not self._rng.choice(holding).kill(away_s=2 * self._site.lost_s):
            return False
        self.counted[KILLED] += 1
        self._leave_to_others()
        return True

    def _holding(self) -> list[Kept]:
        """Return the controllers that work and hold partitions, none where the database does not answer."""
        try:
            with self._site.store.read() as tx:
                holders = {lease.holder for lease in tx.leases.all()}
        except StoreError:
            return []
        controllers = enumerate(self._site.controllers, start=1)
        return [one for number, one in controllers if one.works and f"controller-{number}" in holders]

    def _freeze_controller(self) -> None:
        """Stop a controller, often for longer than its leases last, then let it go on: it does not know yet."""
        one = self._rng.choice(self._site.controllers)
        if not self._takes_over and one is not self._zombie and one.freeze():
            self.counted["controller stopped, then continued"] += 1
            self._after(1.0, self._longest_stop_s, one.thaw)

    @property
    def _longest_stop_s(self) -> float:
        return max(3 * self._site.lost_s, LONGEST_STOP_S)

    def _freeze_long(self) -> bool:
        """Stop a controller that holds partitions for the longest time, during which nothing else happens to it."""
        holding = self._holding()
        if not holding or not (one := self._rng.choice(holding)).freeze():
            return False
        self._zombie, began_s = one, time.monotonic()
        self._leave_to_others()

        def go_on() -> None:
            whole = time.monotonic() - began_s >= LONGEST_STOP_S  # not where the run has ended before
            self.counted[STOPPED_LONG] += whole and one.runs
            self._zombie = None
            one.thaw()

        self._after(self._longest_stop_s, self._longest_stop_s, go_on)
        return True

    def _restart_database(self) -> bool:
        if (database := self._site.database) is None or self._takes_over:
            return False
        database.stop()
        database.start()
        self.counted[DATABASE_RESTARTED] += 1
        return True

    def _kill_broker(self) -> None:
        self.counted["kill broker"] += self._site.broker.kill(away_s=self._rng.uniform(0.1, 2.0))

    def _wipe_broker(self) -> bool:
        if not self._site.broker.kill(away_s=self._rng.uniform(0.1, 2.0)):
            return False
        self._site.wipe_broker()
        self.counted[WIPED] += 1
        return True

    def _kill_all(self) -> None:
        if self._takes_over:
            return
        for one in self._site.kept:
            if one is not self._zombie:
                one.kill(away_s=self._rng.uniform(0.1, 2.0))
        self.counted["kill all at once"] += 1

    def _kill_unheard(self) -> None:
        """Let nothing that boxes say come through, and kill them when they have done something meanwhile."""
        proxy = self._site.to_boxes
        proxy.stall("up")

        def kill() -> None:
            for box in self._site.boxes:
                self._kill(box, "kill agent unheard")
            proxy.flow()

        self._after(1.0, 2.0, kill)

    def _kill_installer(self) -> None:
        """Kill a transaction's author: now, or when there is one within some seconds."""
        end = time.monotonic() + 5.0

        def look() -> None:
            pids = [pid for box in self._site.boxes if (pid := box.installer()) is not None]
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[0], signal.SIGKILL)
                    self.counted["kill installer"] += 1
            elif time.monotonic() < end:
                self._after(0, 0, look)

        look()

    # --- the network

    def _proxy(self) -> FaultProxy:
        return self._rng.choice(self._proxies)

    def _cut(self) -> None:
        self.counted["cut"] += self._proxy().cut() > 0

    def _cut_within(self) -> None:
        way: Way = self._rng.choice(("up", "down"))
        self._proxy().cut_after(way, self._rng.randint(0, 3_000))
        self.counted["cut within a message"] += 1

    def _stall(self) -> None:
        proxy, ways = self._proxy(), self._rng.choice((("up",), ("down",), ()))
        proxy.stall(*ways)
        self.counted["stall"] += 1
        self._after(0.3, 4.0, proxy.flow)

    def _delay(self) -> None:
        proxy = self._proxy()
        proxy.delay(self._rng.uniform(0.02, 0.8))
        self.counted["delay"] += 1
        self._after(1.0, 4.0, lambda: proxy.delay(0))

    def _refuse(self) -> None:
        proxy = self._proxy()
        proxy.refuse()
        self.counted["refuse"] += 1
        self._after(0.2, 2.0, proxy.accept)

    # --- the clock

    def _wrong_clock(self) -> None:
        """Let an agent start in another year; sometimes its clock is put right while it runs, then it starts again."""
        box = self._rng.choice(self._site.boxes)
        if why := clocks.lacks():
            self.skipped["wrong clock"] = why
        elif not box.agent.clock:
            file = clocks.set_wrong(box.agent, self._site.place, self._rng)
            box.agent.kill(away_s=0)
            self.counted["wrong clock"] += 1
            self._after(2.0, 8.0, lambda: clocks.leap_back(file))
            self._after(5.0, 12.0, lambda: self._right_clock(box))

    def _right_clock(self, box: Machine) -> None:
        box.agent.clock = {}
        self._kill(box, "kill agent of a wrong clock")

    # --- the disk

    def _fill_disk(self) -> None:
        box = self._site.boxes[0]
        if box.disk:
            self.skipped["full disk"] = box.disk
        elif box.name not in self._full:
            self._full.add(box.name)
            box.fill_disk()
            self.counted["full disk"] += 1
            self._after(1.0, 6.0, lambda: self._free_disk(box))

    def _free_disk(self, box: Machine) -> None:
        box.free_disk()
        self._full.discard(box.name)
