"""The schedule of uplinks: the birth first, results and events until their receipt, reported state when it is due."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgegpu_agent.ports import ClusterIdentity, LinkPort
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.messages import UplinkMessages
from edgegpu_sync.ids import CommandId
from edgegpu_sync.link.events import LinkUp, PublishAcknowledged
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.outbox import KeptMessage
from edgegpu_sync.topics import PlainKind, Topic, TopicKind

_LOG = logging.getLogger(__name__)

RESEND_S = (10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
"""Seconds without a receipt until a result or an event is sent again; the last value repeats for ever."""

REPORT_S = 600.0
SPREAD_S = 5.0
"""A request to thousands of boxes is answered at a random time within these seconds."""

_BLOCKED_S = 1.0
_METRICS_INFLIGHT = 4


@dataclass(frozen=True, slots=True)
class SendSchedule:
    """When a message is sent next, and how often it was sent since it last changed."""

    at_s: float = 0.0
    tries: int = 0


class UplinkSender:
    """The sender of everything that is due, as far as the link accepts it."""

    def __init__(
        self,
        core: Core,
        messages: UplinkMessages,
        *,
        rng: random.Random,
        cluster: Callable[[], ClusterIdentity],
        holds: Callable[[CommandRecord], bool],
    ) -> None:
        """Build the uplink sender.

        Args:
            core: the journal and the stamps.
            messages: makes the messages.
            rng: for jitter.
            cluster: returns the cluster, in each round; the reported state is sent again when it changes.
            holds: returns whether a command's state must wait for something else to go up before it.
        """
        self._core, self._messages, self._rng, self._cluster = core, messages, rng, cluster
        self._holds = holds
        self.link: LinkPort | None = None
        self.connection: int | None = None
        """The number of the present connection; None while there is none."""
        self.why_down = "not connected yet"
        self._fresh_epoch = False
        self._birth_due = False
        self._birth_stamp: Stamp | None = None
        self._results: dict[CommandId, SendSchedule] = {}
        self._event = SendSchedule()
        self._report_at_s = 0.0
        self._told_cluster: ClusterIdentity | None = None
        self._told_at_s = -SPREAD_S
        self._metrics: dict[int, Stamp] = {}
        self._blocked_until_s = 0.0

    # --- the connection

    def will(self) -> tuple[str, bytes]:
        """Begin an epoch for the next try to connect, and return the topic and payload of its will."""
        self._core.born()
        self._fresh_epoch = True
        topic = self._messages.topic(TopicKind.STATUS)
        return str(topic), self._messages.payload(topic, self._messages.will())

    def on_connected(self, event: LinkUp) -> None:
        """Begin a connection: schedule the birth, and all that waits."""
        if not self._fresh_epoch:
            self._core.born()
        self._fresh_epoch = False
        self.connection, self.why_down, self._birth_due = event.connection, "", True
        self._birth_stamp = self._core.birth_stamp
        self.results_again()
        self._event, self._report_at_s, self._blocked_until_s = SendSchedule(), 0.0, 0.0
        self._metrics.clear()

    def on_disconnected(self, why: str) -> None:
        """End a connection; nothing is sent until the next one."""
        if self.connection is not None or why != self.why_down:
            _LOG.warning("not on the link: %s", why)
        self.connection, self.why_down = None, why
        self._metrics.clear()

    def delivered(self, event: PublishAcknowledged) -> None:
        """Go on sending; remove measurements from the outbox that the broker has acknowledged."""
        self._blocked_until_s = 0.0
        stamp = self._metrics.pop(event.token, None)
        if stamp is not None:
            held = self._core.held
            self._core.save(replace(held, outbox=held.outbox.metrics_sent(stamp)))

    def send_goodbye(self, why: str) -> None:
        """Send the goodbye message."""
        if self.connection is not None and not self._birth_due:
            topic = self._messages.topic(TopicKind.STATUS)
            self._publish(topic, self._messages.goodbye(why), retain=True)

    # --- what is due

    def changed(self, id_: CommandId) -> None:
        """Schedule a command's state to be sent at once."""
        self._results[id_] = SendSchedule()

    def results_again(self) -> None:
        """Schedule the states of all commands to be sent at once."""
        self._results = {id_: SendSchedule() for id_ in self._core.held.records}

    def report(self, within_s: float = 0.0) -> None:
        """Schedule the reported state, at once or at a random time within some seconds."""
        self._report_at_s = min(self._report_at_s, self._at(within_s))

    def birth_again(self) -> None:
        """Schedule the birth again: it was missed, or its contents have changed."""
        self._birth_due = True

    def events_changed(self) -> None:
        """Schedule the oldest event at once, since the one before it was stored."""
        self._event = SendSchedule()

    def _at(self, within_s: float) -> float:
        return self._core.now_s + (self._rng.uniform(0, within_s) if within_s else 0.0)

    # --- sending

    def answer(self, topic: Topic, body: bytes) -> int | None:
        """Send a message once, now; it is lost where it cannot be sent."""
        if self.connection is None or self._birth_due:
            return None
        return self._publish(topic, body)

    def plain(self, kind: PlainKind, body: bytes) -> int | None:
        """Send a message of which only the newest counts, once, now; None: it cannot be sent now."""
        return self.answer(self._messages.topic(kind), body)

    def _publish(self, topic: Topic, body: bytes, *, retain: bool = False) -> int | None:
        if self.link is None or self._core.now_s < self._blocked_until_s:
            return None
        payload = self._messages.payload(topic, body)
        token = self.link.publish(str(topic), payload, retain=retain, connection=self.connection)
        if token is None:
            self._blocked_until_s = self._core.now_s + _BLOCKED_S
        return token

    def pump_birth(self) -> None:
        """Send the birth if it is due."""
        if self.connection is not None:
            self._send_birth()

    def pump(self) -> None:
        """Send what is due, until the link accepts no more."""
        if self.connection is None:
            return
        for send in (self._send_birth, self._send_results, self._send_report, self._send_event, self._send_metrics):
            if not send():
                return

    def _send_birth(self) -> bool:
        if self._birth_due:
            body = self._messages.birth(self._birth_stamp)
            if self._publish(self._messages.topic(TopicKind.STATUS), body, retain=True) is None:
                return False
            self._birth_due, self._birth_stamp = False, None
        return True

    def _send_results(self) -> bool:
        now_s = self._core.now_s
        for id_, due in list(self._results.items()):
            record = self._core.held.records.get(id_)
            if record is None:
                del self._results[id_]
            elif due.at_s <= now_s and not self._holds(record):
                if self._publish(*self._messages.result(record)) is None:
                    return False
                self._sent(record, due)
        return True

    def _sent(self, record: CommandRecord, due: SendSchedule) -> None:
        """Schedule a terminal state again until its receipt; the controller asks for other states that it misses."""
        if record.state.terminal:
            self._results[record.id] = self._next(due)
        else:
            del self._results[record.id]

    def _next(self, due: SendSchedule) -> SendSchedule:
        wait_s = RESEND_S[min(due.tries, len(RESEND_S) - 1)] * self._rng.uniform(0.9, 1.1)
        return SendSchedule(self._core.now_s + wait_s, due.tries + 1)

    def _send_report(self) -> bool:
        cluster, now_s = self._cluster(), self._core.now_s
        if cluster != self._told_cluster:  # at the birth the cluster may not be known yet
            self._report_at_s = min(self._report_at_s, self._told_at_s + SPREAD_S)
        if self._report_at_s > now_s:
            return True
        if self.plain(TopicKind.REPORTED, self._messages.reported(cluster)) is None:
            return False
        self._told_cluster, self._told_at_s = cluster, now_s
        self._report_at_s = now_s + REPORT_S * self._rng.uniform(0.9, 1.1)
        return True

    def _send_event(self) -> bool:
        """Send only the oldest event: the store accepts only rising stamps, so an event must not overtake another."""
        events = self._core.held.outbox.events
        if not events or self._event.at_s > self._core.now_s:
            return True
        if self._send_kept(TopicKind.EVENT, events[0]) is None:
            return False
        self._event = self._next(self._event)
        return True

    def _send_metrics(self) -> bool:
        under_way = set(self._metrics.values())
        for kept in self._core.held.outbox.metrics[: _METRICS_INFLIGHT + len(under_way)]:
            if len(self._metrics) >= _METRICS_INFLIGHT:
                break
            if kept.stamp in under_way:
                continue
            token = self._send_kept(TopicKind.METRICS, kept)
            if token is None:
                return False
            self._metrics[token] = kept.stamp
        return True

    def _send_kept(self, kind: PlainKind, kept: KeptMessage) -> int | None:
        body = self._core.journal.body(kept.stamp)
        return None if body is None else self.plain(kind, body)
