"""The control of the shares of cards' time: a task that works only while containers compete, or may have more.

Each tick it compares what containers had of their cards, by the driver's count, with what they are to have, and writes
how much of what the limiter measures is charged. What it writes holds for two seconds: without this process every
container is back at the share that the limiter measures by itself.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.compute.buckets import BucketWatch, read_level
from edgegpu_plugin.compute.shares import WHOLE_PERMILLE, BusyContainer, goals, next_part, permille, targets
from edgegpu_plugin.containers.container_folder import Charge
from edgegpu_plugin.containers.held.bypass import ContainerKey
from edgegpu_plugin.containers.held.container_state import TimedContainer
from edgegpu_plugin.errors import NvmlError, PluginError

_LOG = logging.getLogger(__name__)

TICK_S = 0.25
VALID_MS = 2000
_SMOOTH = 0.2
"""The weight of a new sample in what a container is believed to use; one is of a sixth of a second or more.

The first is of a time in which it may not have begun, and the mean of those after it counts until they are several.
"""

_MEAN = 0.03
"""The same for its mean of some ten seconds."""

_STALE_S = 1.5
"""A card that says nothing for so long while containers compute is not believed any more."""

_KNOWN_S = 1.0
_DOUBT_S = 2.0
"""For so long after a process of a container has ended all that no other was seen to have counts as the container's.

The driver tells what processes had that are there. Who hands work from one short process to the next would seem to lack
its share, and be charged for less and less.
"""
_CARD = 100.0
_ROUNDED = 0.5
"""What the driver cuts off of a whole percent, on average."""

_NEEDED = 2
"""Containers with a compute limit that compete for a card."""

Shares = Callable[[Collection[str]], Mapping[str, Mapping[int, int] | None]]
_Place = tuple[ContainerKey, str]


@dataclass(eq=False, slots=True)
class _Account:
    """What is known of a container on one card."""

    watch: BucketWatch = field(default_factory=BucketWatch)
    used: float = 0.0
    mean: float = 0.0
    samples: int = 0
    part: float = 1.0
    charged: float = WHOLE_PERMILLE
    """The permille of what is measured that it is charged from now on."""
    charged_before: float = WHOLE_PERMILLE
    """The same over the time of `used`."""
    target: float = 0.0
    since_s: float | None = None
    """When it began to compute; None while it does not."""
    doubted_until_s: float = 0.0


class ComputeControl:
    """The control loop: `run` is the task, `look` is called on another thread."""

    def __init__(
        self,
        *,
        containers: Callable[[], list[TimedContainer]],
        shares: Shares,
        container_of: Callable[[int], ContainerKey | None],
        charge: Callable[[Mapping[ContainerKey, Mapping[str, Charge]]], None],
    ) -> None:
        """Prepare the loop, which sleeps until `look` wakes it.

        Args:
            containers: returns the containers that are held to a part of a card's time.
            shares: returns what processes had of some cards since the last call, as `NvmlLibrary.process_shares` does.
            container_of: returns the container of a process; None for a process of none.
            charge: writes what containers are charged; of those that are missing, all that is measured.
        """
        self._containers = containers
        self._shares = shares
        self._container_of = container_of
        self._charge = charge
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._levels: dict[_Place, int] = {}
        self._accounts: dict[_Place, _Account] = {}
        self._others: dict[str, float] = {}
        self._told_s: dict[str, float] = {}
        self._pids: dict[str, dict[int, ContainerKey]] = {}
        """The processes of containers that were seen to compute on a card, and have not ended."""
        self._beside: Collection[str] = ()
        """Cards on which processes are listed that are of no container that computes there with a limit."""
        self._silent: set[str] = set()
        """Cards that do not say now what processes have: nothing is corrected there."""
        self._mute: set[str] = set()
        """Cards that never do."""

    def run(self) -> None:
        """Control shares until `stop`; sleep while no card needs it."""
        while not self._stopping.is_set():
            self._wanted.wait()
            self._wanted.clear()
            while not self._stopping.is_set() and self._tick():
                self._stopping.wait(TICK_S)
            for known in (self._accounts, self._others, self._told_s, self._pids):
                known.clear()
            self._write({})

    def stop(self) -> None:
        """Make `run` end; every container is charged for all that is measured."""
        self._stopping.set()
        self._wanted.set()

    def look(self, processes: Mapping[str, Iterable[CardProcess]]) -> None:
        """See whether containers compete for a card, by the buckets that moved since the last look, and begin then.

        A container also competes with what has no compute limit, and with one whose bucket stands still, as who writes
        its usage file can have it. Whether those compute, the driver's count tells.
        """
        used = {card for card, some in processes.items() if any(True for _ in some)} - self._mute
        containers = self._containers() if used else []
        before, self._levels = (
            self._levels,
            {(one.key, card): read_level(one.usage, card) for one in containers for card in one.core if card in used},
        )
        moved = {place for place, level in self._levels.items() if level != before.get(place, level)}
        self._beside = {
            card
            for card in used & {card for _, card in moved}
            if any((self._container_of(one.pid), card) not in moved for one in processes[card])
        }
        if any(self._is_needed(containers, card, {key for key, on in moved if on == card}) for card in used):
            self._wanted.set()

    def _tick(self) -> bool:
        """Look at all containers once and write what they are charged; return whether any card needs it."""
        now_ns = time.monotonic_ns()
        containers = self._containers()
        places = {(one.key, card): one for one in containers for card in one.core}
        for place in self._accounts.keys() - places.keys():
            del self._accounts[place]
        for (key, card), one in places.items():
            self._watch(self._accounts.setdefault((key, card), _Account()), read_level(one.usage, card), now_ns)
        busy = {place for place, account in self._accounts.items() if account.since_s is not None}
        starting = any(not account.watch.is_full for account in self._accounts.values())
        cards = {card for _, card in busy if self._is_needed(containers, card, {key for key, on in busy if on == card})}
        fresh = self._measure(cards - self._mute, now_ns / 1e9)
        charges: dict[ContainerKey, dict[str, Charge]] = {}
        for card in cards - self._silent:
            competing = {
                place: self._competitor(place, places[place], now_ns / 1e9) for place in busy if place[1] == card
            }
            for (key, _), part in self._settle(card, competing, is_fresh=card in fresh).items():
                charges.setdefault(key, {})[card] = Charge(part, now_ns // 1_000_000 + VALID_MS)
        self._write(charges)
        return bool(cards - self._mute) or starting

    def _watch(self, account: _Account, level: int, now_ns: int) -> None:
        account.watch.look(level, now_ns)
        if not account.watch.is_busy:
            account.since_s, account.used, account.mean, account.samples, account.part = None, 0.0, 0.0, 0, 1.0
            account.charged = account.charged_before = WHOLE_PERMILLE
        elif account.since_s is None:
            account.since_s = now_ns / 1e9

    def _measure(self, cards: Collection[str], now_s: float) -> Collection[str]:
        """Take the driver's new samples of some cards; return the cards that have some."""
        try:
            found = self._shares(cards) if cards else {}
        except NvmlError as error:
            _LOG.debug("the shares of the cards' time are not corrected: %s", error)
            self._silent |= set(cards)
            return ()
        fresh = set()
        for card in cards:
            samples = found.get(card)
            if card in found and samples is None and card not in self._mute:
                _LOG.warning("card %s does not tell what each process has of its time: shares are as measured", card)
                self._mute.add(card)
            if samples is not None:
                self._told_s[card] = now_s
                self._silent.discard(card)
                fresh.add(card)
                self._take(card, samples, now_s)
            elif card in found or now_s - self._told_s.setdefault(card, now_s) > _STALE_S:
                self._silent.add(card)
        return fresh

    def _take(self, card: str, samples: Mapping[int, int], now_s: float) -> None:
        """Add one sample of a card to what containers that compute, and all others, are believed to use."""
        owners = {pid: self._container_of(pid) for pid in samples}
        self._doubt(card, owners, now_s)
        used: dict[ContainerKey | None, float] = {}
        for pid, percent in samples.items():
            found = owners[pid]
            key = found if found is not None and self._computes((found, card)) else None
            used[key] = used.get(key, 0) + percent + _ROUNDED
        unseen = max(0.0, _CARD - sum(used.values()))
        for (key, on), account in self._accounts.items():
            if on == card and now_s < account.doubted_until_s:
                used[key] = used.get(key, 0) + unseen
        for (key, on), account in self._accounts.items():
            if on == card:
                account.samples += 1
                least, new = 1 / max(1, account.samples - 1), used.get(key, 0)
                weight = max(_SMOOTH, least)
                account.used += (new - account.used) * weight
                account.charged_before += (account.charged - account.charged_before) * weight  # seen as late as `used`
                account.mean += (new - account.mean) * max(_MEAN, least)
        before = self._others.get(card, 0)
        others = before + (used.get(None, 0) - before) * _SMOOTH
        self._others[card] = others if others >= 1 else 0

    def _doubt(self, card: str, owners: Mapping[int, ContainerKey | None], now_s: float) -> None:
        """Doubt what is seen of containers of which a process has ended since the last sample."""
        known = self._pids.get(card, {})
        ended = {
            pid for pid, key in known.items() if (owners[pid] if pid in owners else self._container_of(pid)) != key
        }
        for pid in ended:
            if (account := self._accounts.get((known[pid], card))) is not None:
                account.doubted_until_s = now_s + _DOUBT_S
        alive = {pid: key for pid, key in known.items() if pid not in ended}
        self._pids[card] = alive | {pid: key for pid, key in owners.items() if key is not None}

    def _computes(self, place: _Place) -> bool:
        return place in self._accounts and self._accounts[place].since_s is not None

    def _competitor(self, place: _Place, one: TimedContainer, now_s: float) -> BusyContainer:
        account = self._accounts[place]
        known = account.since_s is not None and now_s - account.since_s > _KNOWN_S
        return BusyContainer(
            core=one.core[place[1]],
            elastic=one.elastic,
            used=account.used,
            wants=account.watch.wants,
            mean=account.mean,
            known=known,
            on_its_way=account.charged_before / account.charged,
        )

    def _settle(self, card: str, competing: Mapping[_Place, BusyContainer], *, is_fresh: bool) -> dict[_Place, int]:
        """Return the permille of what is measured that the containers on a card are charged."""
        others = self._others.get(card, 0)
        all_used = others + sum(one.used for one in competing.values())
        wanted = targets(competing, others)
        goal = goals(competing, wanted)
        charged = {}
        for place, one in competing.items():
            account, target = self._accounts[place], wanted[place]
            if target < account.target:  # what it had under another target says nothing
                account.mean = min(account.mean, target)
            account.target = target
            if is_fresh and one.known:
                account.part = next_part(account.part, one, target=goal[place], rest=all_used - one.used)
            account.charged = charged[place] = permille(account.part, one, target=goal[place])
        return charged

    def _is_needed(self, containers: Iterable[TimedContainer], card: str, busy: Collection[ContainerKey]) -> bool:
        """Return whether a container competes for a card, or may have more of it than it is guaranteed."""
        found = [one for one in containers if one.key in busy and card in one.core]
        competes = len(found) >= _NEEDED or (found and card in self._beside)
        return bool(competes) or any(one.elastic for one in found)

    def _write(self, charges: Mapping[ContainerKey, Mapping[str, Charge]]) -> None:
        try:
            self._charge(charges)
        except PluginError as error:
            _LOG.warning("%s", error)
