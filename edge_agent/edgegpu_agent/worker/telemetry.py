"""The sending of inventory, allocations, health and metrics: changes only, rate limited, completely on request."""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError

from edgegpu_agent.journal.errors import JournalFullError
from edgegpu_agent.ports import TelemetrySource
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.messages import UplinkMessages
from edgegpu_agent.worker.refreshes import OwedRefreshes
from edgegpu_agent.worker.sender import UplinkSender
from edgegpu_sync.errors import TooLargeError
from edgegpu_sync.messages.downlink import RefreshRequest
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.messages.telemetry import (
    Alloc,
    BoxHealth,
    HealthPart,
    Inventory,
    Metrics,
    PendingPods,
    PodAlloc,
    Sample,
    difference,
)
from edgegpu_sync.rules.outbox import KeptMessage
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import clipped, encode

_LOG = logging.getLogger(__name__)

LOOK_S = 5.0
"""Seconds between two reads of the source that has told of no change."""

SOON_S = 1.0
"""Seconds between two reads at least, however often the source changes: nothing is sent more often."""

ALL_S = 600.0
"""Seconds after which inventory and health are sent although nothing has changed."""

BATCH = 15
"""Samples in one message: those of a quarter of an hour at one sample a minute."""

_PODS_PER_MESSAGE = 150


@dataclass(frozen=True, slots=True)
class SentAllocations:
    """The allocations that were sent last: what each pod holds and who waits, with the message's `n` and epoch."""

    epoch: Epoch
    n: int
    pods: Mapping[str, PodAlloc]
    pending: PendingPods | None = None


class TelemetrySender:
    """The sender of telemetry that differs from what was sent before."""

    def __init__(
        self,
        core: Core,
        messages: UplinkMessages,
        sender: UplinkSender,
        *,
        refreshes: OwedRefreshes,
        source: TelemetrySource,
        rng: random.Random,
    ) -> None:
        """Build the sender; nothing was sent yet.

        Args:
            core: the journal and the stamps.
            messages: makes the fields of an uplink.
            sender: sends the messages.
            refreshes: the requests to send something completely.
            source: the inventory and measurements.
            rng: for jitter.
        """
        self._core, self._messages, self._sender, self._source, self._rng = core, messages, sender, source, rng
        self._refreshes = refreshes
        self._look_at_s = self._looked_s = 0.0
        self._due: dict[TopicKind, float] = {}
        self._inventory: tuple[Epoch, Mapping[str, Any]] | None = None
        self._alloc: SentAllocations | None = None
        self._health: tuple[Epoch, object] | None = None
        self._samples: list[Sample] = []
        self._measured: frozenset[tuple[str, str | None, str | None]] = frozenset()
        self._unsayable: set[RefreshRequest] = set()

    def on_connected(self) -> None:
        """Read the source at once: after a birth everything is sent again."""
        self._look_at_s = 0.0
        self._refreshes.on_connected()

    def on_changed(self) -> None:
        """Read the source soon: it has changed."""
        self._look_at_s = min(self._look_at_s, self._looked_s + SOON_S)

    def pump_asked(self) -> None:
        """Send requested telemetry that is due; called before results are sent."""
        if self._refreshes.due():
            self.pump()

    def pump(self) -> None:
        """Gather samples, and send what has changed, is due or was requested."""
        now_s = self._core.now_s
        asked = self._refreshes.due()
        if now_s < self._look_at_s and not asked:
            return
        self._looked_s, self._look_at_s = now_s, now_s + LOOK_S
        self._gather(flush=RefreshRequest.METRICS in asked)
        self._refreshes.done(RefreshRequest.METRICS)
        if self._sender.connection is None:
            return
        for want, send in (
            (RefreshRequest.INVENTORY, self._send_inventory),
            (RefreshRequest.ALLOC, self._send_alloc),
            (RefreshRequest.HEALTH, self._send_health),
        ):
            if self._sends(want, send, whole=want in asked):
                self._refreshes.done(want)
        if self._refreshes.has_waiting:
            told = self._source
            self._refreshes.settle(inventory=told.inventory() is not None, alloc=told.alloc() is not None)

    def _sends(self, want: RefreshRequest, send: Callable[..., bool], *, whole: bool) -> bool:
        """Send one kind of telemetry; data that cannot be sent are logged, and do not end the agent."""
        try:
            return send(whole=whole)
        except (ValidationError, TooLargeError) as error:
            if want not in self._unsayable:
                _LOG.error("cannot send %s: %s", want, error)
            self._unsayable.add(want)
            return True

    def _is_due(self, kind: TopicKind) -> bool:
        return self._due.get(kind, 0.0) <= self._core.now_s

    def _was_sent(self, kind: TopicKind) -> None:
        self._due[kind] = self._core.now_s + ALL_S * self._rng.uniform(0.9, 1.1)

    # --- inventory

    def _send_inventory(self, *, whole: bool) -> bool:
        found, epoch = self._source.inventory(), self._core.held.replay_guard.epoch
        if found is None:
            return False
        if self._inventory == (epoch, found) and not whole and not self._is_due(TopicKind.INVENTORY):
            return False
        body = encode(Inventory(**self._messages.head(), **found))
        if self._sender.plain(TopicKind.INVENTORY, body) is None:
            return False
        self._inventory = (epoch, found)
        self._was_sent(TopicKind.INVENTORY)
        return True

    # --- allocations

    def _send_alloc(self, *, whole: bool) -> bool:
        """Send the difference to the allocations sent in this epoch, or all of them, in pieces that fit."""
        found, epoch = self._source.alloc(), self._core.held.replay_guard.epoch
        if found is None:
            return False
        sent = self._alloc
        if whole or sent is None or sent.epoch != epoch:
            sent = None
        pods, gone = difference(dict(sent.pods) if sent else {}, dict(found))
        changed = sent is None or bool(pods) or bool(gone)
        if changed and not self._send_pieces(sent, pods, gone):
            return False
        return self._send_pending() or changed

    def _send_pieces(self, sent: SentAllocations | None, pods: Mapping[str, PodAlloc], gone: Sequence[str]) -> bool:
        uids = list(pods)
        pieces = [uids[at : at + _PODS_PER_MESSAGE] for at in range(0, len(uids), _PODS_PER_MESSAGE)] or [[]]
        for place, piece in enumerate(pieces):
            left = tuple(gone[:1_000]) if place == 0 else ()
            head = self._messages.head()
            part = {uid: pods[uid] for uid in piece}
            alloc = Alloc(**head, base=None if sent is None else sent.n, pods=part, gone=left)
            if self._sender.plain(TopicKind.ALLOC, encode(alloc)) is None:
                return False
            before = {} if sent is None else sent.pods
            after = {uid: pod for uid, pod in {**before, **part}.items() if uid not in left}
            pending = None if sent is None else sent.pending
            sent = self._alloc = SentAllocations(head["epoch"], head["n"], after, pending)
        return True

    def _send_pending(self) -> bool:
        """Send who waits where that has changed, in a message of its own, and return whether it was sent.

        Where the message would be too long fewer pods are named: the controller shall have the others' number.
        """
        sent, found = self._alloc, self._source.pending()
        if sent is None or found is None or found == sent.pending:
            return False
        head = self._messages.head()
        body = _fitting(lambda pending: Alloc(**head, base=sent.n, pods={}, pending=pending), found)
        if self._sender.plain(TopicKind.ALLOC, body) is None:
            return False
        self._alloc = SentAllocations(head["epoch"], head["n"], sent.pods, found)
        return True

    # --- health

    def _send_health(self, *, whole: bool) -> bool:
        core = self._core
        parts = (*self._own_parts(), *self._source.health_parts())[:64]
        state = _worst(parts)
        now = (core.held.replay_guard.epoch, (state, parts))
        if now == self._health and not whole and not self._is_due(TopicKind.HEALTH):
            return False
        health = BoxHealth(
            **self._messages.head(),
            state=state,
            parts=parts,
            refused=core.refused,
            controller_unseen_s=core.contact_age_s,
            outbox_used=min(1.0, core.held.outbox.used),
        )
        if self._sender.plain(TopicKind.HEALTH, encode(health)) is None:
            return False
        self._health = now
        self._was_sent(TopicKind.HEALTH)
        return True

    def _own_parts(self) -> tuple[HealthPart, ...]:
        told = self._core.journal.told
        return (HealthPart(name="journal", state="bad", text=clipped(told)),) if told else ()

    # --- metrics

    def _gather(self, *, flush: bool) -> None:
        """Gather samples; keep them for sending when there are enough, and at the first that has other containers."""
        self._samples += self._source.samples()
        measured = _measured_in(self._samples)
        flush = flush or (measured is not None and measured != self._measured)
        while len(self._samples) >= BATCH or (flush and self._samples):
            batch, self._samples = self._samples[:BATCH], self._samples[BATCH:]
            self._measured = self._measured if measured is None else measured
            self._keep((*(one.model_copy(update={"memory_use": None}) for one in batch[:-1]), batch[-1]))

    def _keep(self, samples: tuple[Sample, ...]) -> None:
        """Put samples into the outbox; they are the first to be dropped where there is no room."""
        core, stamp = self._core, self._core.stamp()
        try:
            body = encode(Metrics(**self._messages.head(stamp), period_s=self._source.period_s, samples=samples))
        except TooLargeError:
            for part in _smaller(samples):
                self._keep(part)
            return
        outbox = core.held.outbox.add_metrics(KeptMessage(stamp, len(body)))
        try:
            core.save(replace(core.held, outbox=outbox), bodies={stamp: body}, spare=True)
        except JournalFullError:
            return


def _measured_in(samples: Sequence[Sample]) -> frozenset[tuple[str, str | None, str | None]] | None:
    """Return the containers of pods, with their cards, in the newest sample; None where it measured none."""
    use = samples[-1].memory_use if samples else None
    return None if use is None else frozenset((one.card, one.uid, one.container) for one in use if one.uid)


def _smaller(samples: tuple[Sample, ...]) -> tuple[tuple[Sample, ...], ...]:
    """Return samples that do not fit one message in parts; one that does not fit alone loses its containers."""
    if len(samples) > 1:
        half = len(samples) // 2
        return samples[:half], samples[half:]
    alone = samples[0]
    return () if alone.memory_use is None else ((alone.model_copy(update={"memory_use": None}),),)


def _fitting(message: Callable[[PendingPods], Alloc], pending: PendingPods) -> bytes:
    """Return a message about who waits, with as many of the pods as it has room for."""
    pods = pending.pods
    while True:
        part = pending.model_copy(update={"pods": pods, "more": pending.more + len(pending.pods) - len(pods)})
        try:
            return encode(message(part))
        except TooLargeError:
            if not pods:
                raise
            pods = pods[: len(pods) // 2]


def _worst(parts: Sequence[HealthPart]) -> Literal["ok", "warn", "bad"]:
    states = {part.state for part in parts}
    return "bad" if "bad" in states else "warn" if "warn" in states else "ok"
