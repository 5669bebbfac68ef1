"""What the broker tells controllers alone: how many messages it has dropped, and what it has refused of a box."""

from dataclasses import dataclass, field

from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.notes import FLOOD
from edgegpu_sync.errors import SyncError
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.link.events import MessageArrived

TOPIC = "$SYS/broker/publish/messages/dropped"
"""The topic of mosquitto's counter: messages dropped since its start, sent every `sys_interval` seconds."""

OF_BROKER = "$SYS/"
"""How the topics begin under which the broker itself speaks."""

REFUSED_FILTER = "$SYS/broker/edgegpu/refused/+"
"""The topics of mosquitto's guard: under each box's name what was refused of it in 10 s, where there is any."""


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

    drops: DropCounter = field(default_factory=DropCounter)
    before: int | None = None

    def alarm(self, event: MessageArrived) -> BrokerAlarm | None:
        """Return the alarm that a message of the broker is a reason for."""
        self.before = self.drops.last
        if event.topic == TOPIC:
            count = self.drops.rose(event.payload)
            return BrokerAlarm("broker.DROPPED", "", _dropped_text(count)) if count else None
        refused = refused_of_box(event.topic, event.payload)
        return None if refused is None else BrokerAlarm(FLOOD, refused.device, _refused_text(refused))

    def take_back(self) -> int | None:
        """Take the last count back until its alarm is stored, and return it."""
        seen, self.drops.last = self.drops.last, self.before
        return seen


def _dropped_text(count: int) -> str:
    return phrase(
        "the broker has dropped %(count)s messages: something is away longer, or slower, than it has room for",
        count=count,
    )


def _refused_text(refused: RefusedOfBox) -> str:
    return phrase(
        "in 10 s the broker refused %(messages)s messages and %(filters)s filters of the box, more than a box needs: "
        "look at it; `edgegpu-cloud revoke` takes it off the broker",
        messages=refused.messages,
        filters=refused.filters,
    )
