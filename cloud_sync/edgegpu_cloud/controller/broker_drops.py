"""What the broker tells controllers alone, drops and refusals; and what follows for a box that floods."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from edgegpu_cloud.controller.ingest import FLOOD_MESSAGES
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import block_box
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.controllers.next_turn import tried_next_turn
from edgegpu_cloud.store.notes import BLOCKED, CHANGES, FLOOD
from edgegpu_cloud.store.records import BoxState
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.errors import SyncError
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.link.events import MessageArrived

TOPIC = "$SYS/broker/publish/messages/dropped"
"""The topic of mosquitto's counter: messages dropped since its start, sent every `sys_interval` seconds."""

OF_BROKER = "$SYS/"
"""How the topics begin under which the broker itself speaks."""

REFUSED_FILTER = "$SYS/broker/edgegpu/refused/+"
"""The topics of mosquitto's guard: under each box's name what was refused of it in 10 s, where there is any."""


BLOCKED_TOPIC = "$CONTROL/edgegpu/v1"
"""The topic by which mosquitto's guard is told the blocked boxes: all of them, a name a line."""

BLOCKED_FILTER = "$SYS/broker/edgegpu/blocked"
"""The topic under which the guard says how many boxes it has blocked, whenever it was told."""

BLOCKED_BY = "controller"
"""Who has blocked a box by itself, in the audit."""


class GuardSender(Protocol):
    """The part of the link that sends: `edgegpu_sync.link.link.Link`."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        """Publish with QoS 1; None when it cannot be sent now."""
        ...


def blocked_list(devices: Iterable[DeviceId]) -> bytes:
    """Return what the guard is told: the boxes that the broker is to refuse, and no others."""
    return b"".join(f"{device}\n".encode() for device in sorted(devices))


@dataclass(frozen=True, slots=True)
class RefusedOfBox:
    """What the broker has refused of a box: messages above its rate, filters that are not its own."""

    device: DeviceId
    messages: int
    filters: int


def refused_of_box(topic: str, payload: bytes) -> RefusedOfBox | None:
    """Read what the guard tells of a box; None where it is nothing of it."""
    head, _, name = topic.rpartition("/")
    if f"{head}/+" != REFUSED_FILTER:
        return None
    try:
        messages, filters = map(int, payload.split())
        return RefusedOfBox(device_id(name), messages, filters)
    except (ValueError, SyncError):
        return None


@dataclass(slots=True)
class _Excess:
    """How much a box has sent above what is allowed: `level` when it was last reported, in how many reports."""

    level: float = 0.0
    reports: int = 0
    at_s: float = 0.0


@dataclass(slots=True)
class FloodMeter:
    """Whether boxes flood: what each sends above what is allowed runs into a vessel that leaks.

    A box floods when its vessel has run over, after at least `REPORTS` reports: one burst is none, however large it is,
    nor is a box behind a bad link, whose repetitions leak away. An empty vessel counts its reports anew.
    """

    LEAK_PER_S: ClassVar[float] = 50.0
    SIZE: ClassVar[float] = 10_000.0
    REPORTS: ClassVar[int] = 3
    _of: dict[DeviceId, _Excess] = field(default_factory=dict)

    def floods(self, device: DeviceId, excess: int, at_s: float) -> bool:
        """Add what a report says, and return whether the box floods; the vessel is empty then.

        Args:
            device: the box.
            excess: messages and filters above what is allowed, since the last report.
            at_s: now, by a clock that nobody sets.
        """
        state = self._of.setdefault(device, _Excess(at_s=at_s))
        left = max(0.0, state.level - (at_s - state.at_s) * self.LEAK_PER_S)
        state.level, state.at_s = left + excess, at_s
        state.reports = state.reports + 1 if left else 1
        if state.level < self.SIZE or state.reports < self.REPORTS:
            return False
        del self._of[device]
        return True


@dataclass(slots=True)
class FloodBrake:
    """The end of a flood: the box is blocked in the store, and the broker's guard is told all blocked boxes.

    `guarded`: the broker has the guard. `blocks`: a box that floods is blocked; else the alarm is all. `MOST` boxes are
    blocked within `WITHIN_S`: more floods at one time are a fault of the broker, or of all, and no rooted boxes.
    """

    MOST: ClassVar[int] = 3
    WITHIN_S: ClassVar[float] = 3_600.0
    store: ControllerStore
    guarded: bool = False
    blocks: bool = True
    clock: Callable[[], float] = time.time
    refused: FloodMeter = field(default_factory=FloodMeter)
    arrived: FloodMeter = field(default_factory=FloodMeter)
    _blocked_at_s: list[float] = field(default_factory=list)
    _told: tuple[int, bytes] | None = None

    def on_refused(self, refused: RefusedOfBox, at_s: float) -> None:
        """Block the box of which the guard refuses too much, for too long."""
        if self.refused.floods(refused.device, refused.messages + refused.filters, at_s):
            self._block(refused.device, at_s, phrase("the broker's guard refused a flood of it"))

    def on_arrived(self, floods: Mapping[DeviceId, int], at_s: float) -> None:
        """Block boxes of which too much arrives each minute, for too long, with a broker that lets it through."""
        for device, number in floods.items():
            if self.arrived.floods(device, number - FLOOD_MESSAGES, at_s):
                self._block(device, at_s, phrase("it flooded the controller"))

    def _block(self, device: DeviceId, at_s: float, why: str) -> None:
        self._blocked_at_s = [before for before in self._blocked_at_s if before > at_s - self.WITHIN_S]
        if not self.blocks or len(self._blocked_at_s) >= self.MOST:
            return
        with tried_next_turn("block a box that floods"), self.store.write() as tx:
            box = tx.boxes.get([device]).get(device)
            if box is None or box.state is not BoxState.ENROLLED:
                return
            block_box(tx, box, Author(BLOCKED_BY, self.clock()), why=why)
            tx.notes.alarm(BLOCKED, device=device, text=_blocked_text(why, box.name), now_s=self.clock())
            self._blocked_at_s.append(at_s)

    def tell(self, sender: GuardSender, *, leads: bool) -> None:
        """Tell the guard which boxes are blocked, where that has changed; `leads`: this controller is to do it."""
        if not leads:
            self.forget_told()
        if not (leads and self.guarded):
            return
        with self.store.read() as tx:
            changes = tx.notes.number(CHANGES)
            if self._told is not None and self._told[0] == changes:
                return
            wanted = blocked_list(tx.boxes.blocked())
        if (self._told is None or self._told[1] != wanted) and sender.publish(BLOCKED_TOPIC, wanted) is None:
            return  # the link takes nothing now: at the next turn
        self._told = (changes, wanted)

    def forget_told(self) -> None:
        """Tell the guard anew: another broker may answer, or another controller has told it meanwhile."""
        self._told = None


@dataclass(slots=True)
class DropCounter:
    """The counter's last value, to see it rise; a broker that was started anew counts from 0 again."""

    last: int | None = None

    def rose(self, payload: bytes) -> int:
        """Return by how much the counter has risen since the last value; 0 where it has not, or is no number."""
        try:
            now = int(payload)
        except ValueError:
            return 0
        before, self.last = self.last, now
        return max(0, now - before) if before is not None else 0


@dataclass(frozen=True, slots=True)
class BrokerAlarm:
    """An alarm by what the broker has told; `device` is empty where it is no box's."""

    kind: str
    device: str
    text: str


@dataclass(slots=True)
class BrokerNotices:
    """What the broker tells controllers, as alarms."""

    brake: FloodBrake
    drops: DropCounter = field(default_factory=DropCounter)
    before: int | None = None

    def alarm(self, event: MessageArrived, *, at_s: float) -> BrokerAlarm | None:
        """Return the alarm that a message of the broker is a reason for; a box that floods is blocked."""
        self.before = self.drops.last
        if event.topic == TOPIC:
            count = self.drops.rose(event.payload)
            return BrokerAlarm("broker.DROPPED", "", _dropped_text(count)) if count else None
        refused = refused_of_box(event.topic, event.payload)
        if refused is None:
            return None
        self.brake.on_refused(refused, at_s)
        return BrokerAlarm(FLOOD, refused.device, _refused_text(refused))

    def take_back(self) -> int | None:
        """Take the last count back until its alarm is stored, and return it."""
        seen, self.drops.last = self.drops.last, self.before
        return seen


def _dropped_text(count: int) -> str:
    return phrase(
        "the broker has dropped %(count)s messages: something is away longer, or slower, than it has room for",
        count=count,
    )


def _blocked_text(why: str, name: str) -> str:
    return phrase(
        "the box is blocked: %(why)s. Nothing it says counts; look at it, then `edgegpu-cloud boxes unblock %(box)s`",
        why=why,
        box=name,
    )


def _refused_text(refused: RefusedOfBox) -> str:
    return phrase(
        "in 10 s the broker refused %(messages)s messages and %(filters)s filters of the box, more than a box needs: "
        "look at it; `edgegpu-cloud boxes block BOX` takes it off the broker",
        messages=refused.messages,
        filters=refused.filters,
    )
