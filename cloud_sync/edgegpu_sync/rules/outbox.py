"""The outbox: what waits to be sent, and what is dropped when there is no more room: metrics first, results never."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.downlink import Receipt
from edgegpu_sync.messages.stamps import Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSizes:
    """The sizes of the outbox's parts. Its file has full size from the start, so that a full disk loses no result."""

    results: int = 256
    """Results with a body of up to 8 KiB."""
    refusals: int = 1_024
    """Refusals, of which a state and a code are kept; as many as `replay_guard.WINDOW`."""
    events_bytes: int = 1_048_576
    metrics_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """An event or a metrics message, whose stamp stays the same however often it is sent."""

    stamp: Stamp
    size_bytes: int
    alarm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """The messages that a box keeps, oldest first. `open` are commands without a result yet: each has its place."""

    limits: OutboxSizes = field(default_factory=OutboxSizes)
    open: frozenset[CommandId] = frozenset()
    results: tuple[CommandId, ...] = ()
    refusals: tuple[CommandId, ...] = ()
    events: tuple[KeptMessage, ...] = ()
    metrics: tuple[KeptMessage, ...] = ()
    dropped_events: int = 0
    dropped_metrics: int = 0

    @property
    def has_room(self) -> bool:
        """Whether a new command may be accepted; otherwise it is REJECTED, OUTBOX_FULL."""
        return len(self.open) + len(self.results) < self.limits.results

    @property
    def can_refuse(self) -> bool:
        """Whether a refusal can be kept; otherwise the command is not taken, and its controller sends it again."""
        return len(self.refusals) < self.limits.refusals

    def reserve(self, id_: CommandId) -> "Outbox":
        """Return the outbox with a place for the result of an accepted command.

        Raises:
            ValueError: there is no place; the caller has to check `has_room` before.
        """
        if id_ in self.open or id_ in self.results:
            return self
        if not self.has_room:
            raise ValueError(f"cannot accept {id_}: no place for its result")
        return replace(self, open=self.open | {id_})

    def ended(self, id_: CommandId) -> "Outbox":
        """Return the outbox with a terminal result that waits for its receipt, in the place that was reserved."""
        if id_ in self.results or id_ in self.refusals:
            return self
        if id_ in self.open:
            return replace(self, open=self.open - {id_}, results=(*self.results, id_))
        return self._refused(id_)

    def _refused(self, id_: CommandId) -> "Outbox":
        if not self.can_refuse:
            raise ValueError(f"cannot keep the refusal of {id_}: ask can_refuse before it is taken")
        return replace(self, refusals=(*self.refusals, id_))

    def add_event(self, event: KeptMessage) -> "Outbox":
        """Return the outbox with an event; without room metrics are dropped, then the oldest events, alarms last."""
        events = (*self.events, event)
        room = self.limits.events_bytes + self.limits.metrics_bytes
        over = _size(events) + _size(self.metrics) - room
        metrics = _without_oldest(self.metrics, over)
        over = _size(events) + _size(metrics) - room
        kept = _without_oldest(events, over)
        return replace(
            self,
            events=kept,
            metrics=metrics,
            dropped_events=self.dropped_events + len(events) - len(kept),
            dropped_metrics=self.dropped_metrics + len(self.metrics) - len(metrics),
        )

    def add_metrics(self, sample: KeptMessage) -> "Outbox":
        """Return the outbox with measurements; without room the oldest are dropped, and never anything else."""
        metrics = (*self.metrics, sample)
        room = self.limits.events_bytes + self.limits.metrics_bytes - _size(self.events)
        kept = _without_oldest(metrics, _size(metrics) - min(room, self.limits.metrics_bytes))
        dropped = self.dropped_metrics + len(metrics) - len(kept)
        return replace(self, metrics=kept, dropped_metrics=dropped)

    def metrics_sent(self, stamp: Stamp) -> "Outbox":
        """Return the outbox after the broker has acknowledged measurements, which have no receipt."""
        return replace(self, metrics=tuple(one for one in self.metrics if one.stamp != stamp))

    def receipted(self, receipt: Receipt) -> "Outbox":
        """Return the outbox without what the controller has stored: the named results, and events up to the stamp."""
        stored = frozenset(receipt.results)
        upto = Stamp(enrolment=receipt.enrolment, epoch=receipt.epoch, n=receipt.n)
        return replace(
            self,
            results=tuple(one for one in self.results if one not in stored),
            refusals=tuple(one for one in self.refusals if one not in stored),
            events=tuple(one for one in self.events if one.stamp != upto and not upto.after(one.stamp)),
        )

    @property
    def used(self) -> float:
        """How full the most important part is, that of the results: 0 to 1."""
        return (len(self.open) + len(self.results)) / self.limits.results


def _size(kept: Iterable[KeptMessage]) -> int:
    return sum(one.size_bytes for one in kept)


def _without_oldest(kept: tuple[KeptMessage, ...], over_bytes: int) -> tuple[KeptMessage, ...]:
    """Leave out the oldest until `over_bytes` are free; alarms go only when nothing else is left."""
    gone: set[int] = set()
    for place, one in sorted(enumerate(kept), key=lambda each: (each[1].alarm, each[0])):
        if over_bytes <= 0:
            break
        gone.add(place)
        over_bytes -= one.size_bytes
    return tuple(one for place, one in enumerate(kept) if place not in gone)
