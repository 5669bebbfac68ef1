"""The reckoning: what was sent against what the box has counted, done and become; pure, and as strict as it can be."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from fuzz.lies import Lie

RESIDENT_MIB = 72.0
"""What an agent may take in the flood: 60 MiB at rest, and what it hands back later (docs/box/costs.md)."""

GROWN_MIB = 12.0
"""And by how much its heap may grow."""


@dataclass(slots=True)
class Sent:
    """What was published: each lie by the names under which it may be counted."""

    lies: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    _whys: Counter[frozenset[str]] = field(default_factory=Counter)
    _seen: set[bytes] = field(default_factory=set)

    def add(self, lie: Lie) -> None:
        self.lies += 1
        self.ways[lie.way] += 1
        self._whys[frozenset(lie.whys)] += 1
        self._seen.add(hashlib.sha256(lie.topic.encode() + b"\n" + lie.payload).digest())

    @property
    def different(self) -> int:
        """How many were not what had been published before."""
        return len(self._seen)

    @property
    def refusable(self) -> int:
        """How many must be counted as refused; the others are known, and pass without an effect."""
        return sum(count for whys, count in self._whys.items() if whys)

    def miscounted(self, counted: Mapping[str, int]) -> list[str]:
        """Say where the box's counters cannot be those of what was sent."""
        found = []
        total = sum(counted.values())
        if total != self.refusable:
            found.append(f"{self.refusable} messages had to be refused, {total} were counted")
        for name in sorted({*counted, *(why for whys in self._whys for why in whys)}):
            least = self._whys[frozenset({name})]
            most = sum(count for whys, count in self._whys.items() if name in whys)
            if not least <= counted.get(name, 0) <= most:
                found.append(f"{name}: {counted.get(name, 0)} were counted, and {least} to {most} were sent")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """How a box stands, by its own word, by its ledger, and by the kernel's."""

    pid: int
    resident_mib: float
    heap_mib: float
    """Of which memory that is no file's: what messages could have left behind."""
    epoch: int
    enrolment: int
    key_set: int
    rev: int
    server_time: int
    refused: Mapping[str, int]
    ledger: Mapping[str, int]
    """How often each unit was started, the doctor was run, the machine was changed."""
    commands: Collection[str] = ()
    """Ids of all commands in its journal."""
    unforeseen: int = 0
    """Messages at which the agent's code failed in a way that nobody had foreseen."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A command that was asked for in earnest; `does` is the line of the ledger that it adds to, empty for none."""

    id: str
    op: str
    does: str
    state: str = ""


def effects(before: Stand, after: Stand, asked: Iterable[Asked], *, now_s: float) -> list[str]:
    """Say what has become of the box that nobody has asked for."""
    asked, found = list(asked), []
    for name in ("epoch", "enrolment", "key_set", "rev"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            found.append(f"{name} was {was} and is {now}")
    if after.server_time > now_s + 60:
        found.append(f"the box believes that a controller has signed the time {after.server_time}")
    done = Counter(one.does for one in asked if one.does)
    for name in sorted({*before.ledger, *after.ledger}):
        times = after.ledger.get(name, 0) - before.ledger.get(name, 0)
        if times != done[name]:
            found.append(f"{name}: done {times} times, asked for {done[name]} times")
    known = {*before.commands, *(one.id for one in asked)}
    return found + [
        f"command {id_} is in the journal, and nobody has asked for it" for id_ in after.commands if id_ not in known
    ]


def unwell(before: Stand, after: Stand) -> list[str]:
    """Say what the flood has done to the process."""
    found = []
    if after.pid != before.pid:
        found.append(f"the agent was process {before.pid} and is {after.pid}")
    if after.unforeseen > before.unforeseen:
        found.append(f"{after.unforeseen - before.unforeseen} messages failed in a way that nobody had foreseen")
    if after.resident_mib > RESIDENT_MIB:
        found.append(f"the agent takes {after.resident_mib:.1f} MiB, and may take {RESIDENT_MIB:g}")
    if after.heap_mib - before.heap_mib > GROWN_MIB:
        found.append(f"the agent's heap has grown from {before.heap_mib:.1f} to {after.heap_mib:.1f} MiB")
    return found


def undone(asked: Iterable[Asked]) -> list[str]:
    """Say which commands in earnest have not succeeded."""
    return [f"{one.op} {one.id} is {one.state or 'not heard of'}" for one in asked if one.state != "SUCCEEDED"]
