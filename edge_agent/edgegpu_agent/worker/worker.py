"""The worker: the one thread that owns the journal, and carries out commands and desired state."""

import logging
import queue
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from edgegpu_agent.actions.redact import RedactBody
from edgegpu_agent.journal.errors import JournalFullError
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.ports import (
    ActionStopped,
    Acts,
    BoxContext,
    Clock,
    DriftChecks,
    LinkPort,
    Settlers,
    SharingProbe,
    TelemetrySource,
)
from edgegpu_agent.worker import answers
from edgegpu_agent.worker.answers import JournalAnswer, StatusAnswer
from edgegpu_agent.worker.commands import SHARING, ActionRunner, CommandQueue, CommandStates
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.desired_items import DesiredItems
from edgegpu_agent.worker.executor import Executor, ThreadExecutor
from edgegpu_agent.worker.inbox import Inbox
from edgegpu_agent.worker.messages import UplinkMessages
from edgegpu_agent.worker.refreshes import OwedRefreshes
from edgegpu_agent.worker.sender import UplinkSender
from edgegpu_agent.worker.telemetry import TelemetrySender
from edgegpu_agent.worker.transactions import TransactionReporter
from edgegpu_installer.transaction.ended import EndedTransaction
from edgegpu_sync.link.events import (
    FiltersGranted,
    LinkDown,
    LinkEvent,
    LinkUp,
    MessageArrived,
    PublishAcknowledged,
)
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.messages.spec import LIMITER, MPS, AppLimits, Isolation, Sharing, TryKey
from edgegpu_sync.messages.uplink import Condition
from edgegpu_sync.rules.outbox import KeptMessage
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.wire import clipped

_LOG = logging.getLogger(__name__)

_IDLE_S = 1.0
_RETRY_S = 1.0
"""Seconds until work that found the journal full is tried again."""

_MOST_AT_ONCE = 64

Call = Callable[[], None]
Why = Literal["stop", "upgrade", "uninstall", "identity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """The parts of a worker; the defaults are a random nonce, threads for actions, and no use of the server's time."""

    journal: BoxJournal
    root: str
    """The public root key that was pinned at enrolment."""
    keys: Sequence[KeySetLink] = ()
    """The key sets of the enrolment; a new journal does not accept older ones."""
    me: BoxContext
    clock: Clock
    rng: random.Random
    acts: Acts
    settlers: Settlers
    sharing: SharingProbe
    telemetry: TelemetrySource
    lacks: Callable[[], Collection[str]] = tuple
    """Returns the capabilities that are missing now, at each round; when they change, the birth is sent again."""
    clean: RedactBody
    """Takes secrets out of messages that the box sends."""
    executor: Executor | None = None
    nonce: Callable[[], str] = lambda: secrets.token_hex(8)
    transactions: Callable[[], Sequence[EndedTransaction]] = tuple
    """Returns the installer's transactions that have ended, oldest first; the same object while nothing has changed."""
    server_time: Callable[[int], bool] = lambda _seconds: True
    """Called on the worker's thread with each time that a controller has signed, in seconds since 1970."""


class Worker:
    """The worker of one box: the link gets `put` and `will`, `attach` gets the link, and `run` needs a thread."""

    def __init__(self, parts: WorkerParts) -> None:
        """Load the journal, and build all parts.

        Raises:
            BoxJournalError: the journal cannot be read, or is of a later enrolment.
        """
        self._queue: queue.SimpleQueue[LinkEvent | Call | None] = queue.SimpleQueue()
        self._later: deque[LinkEvent | Call] = deque()
        self._retry_at_s = 0.0
        self._full = False
        self._stopping: Why | None = None
        held = parts.journal.load(enrolment=parts.me.enrolment, root=parts.root)
        held = replace(held, ring=held.ring.no_older(parts.keys))
        put = self._queue.put
        self._core = Core(journal=parts.journal, held=held, me=parts.me, clock=parts.clock, nonce=parts.nonce, put=put)
        self._all, self._lacks = _capabilities(parts), parts.lacks
        self.began, self.finished = threading.Event(), self._core.ended
        """Set after the worker's first round, and after its end."""
        self._round_at_s = time.monotonic()
        self._notified: object = None
        self._listeners: list[Call] = []
        self._build(parts, parts.executor or ThreadExecutor(put))

    def _build(self, parts: WorkerParts, executor: Executor) -> None:
        core = self._core
        self._messages = messages = UplinkMessages(core, self._capabilities_now(), clean=parts.clean)
        refreshes = OwedRefreshes(core, rng=parts.rng)
        self._sender = sender = UplinkSender(
            core, messages, rng=parts.rng, cluster=parts.telemetry.cluster, holds=refreshes.holds
        )
        self._telemetry = TelemetrySender(
            core, messages, sender, refreshes=refreshes, source=parts.telemetry, rng=parts.rng
        )
        self._transactions = TransactionReporter(core, messages, parts.transactions)
        states = CommandStates(core, sender, ended=refreshes.ended)
        acting = ActionRunner(states, acts=parts.acts, executor=executor)
        self._items = DesiredItems(core, sender, settlers=parts.settlers, sharing=parts.sharing, executor=executor)
        self._commands = CommandQueue(states, acting, capabilities=self._all)
        self._inbox = Inbox(core, messages, sender, ask=refreshes.ask, server_time=parts.server_time)
        core.born()

    # --- for any thread

    @property
    def age_s(self) -> float:
        """Seconds since the last round."""
        return time.monotonic() - self._round_at_s

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities in the birth."""
        return self._messages.capabilities

    @property
    def drift_checks(self) -> DriftChecks:
        """The calls of the drift checks of app limits."""
        return DriftChecks(
            settled=self._items.settled,
            landed=self.landed,
            noticed=self.noticed,
            again=self._items.again,
            on_change=self._listeners.append,
        )

    def attach(self, link: LinkPort) -> None:
        """Set the link; call this before `run`."""
        self._sender.link = link

    def put(self, event: LinkEvent) -> None:
        """Queue an event of the link; never blocks."""
        self._queue.put(event)

    def will(self) -> tuple[str, bytes] | None:
        """Begin an epoch for the next try to connect; return the topic and payload of its will.

        This waits for the worker, which writes the epoch first. None: the worker has ended.
        """
        try:
            return self._core.ask(self._sender.will)
        except ActionStopped:
            return None

    def stop(self, why: Why = "stop") -> None:
        """Let `run` end, after a goodbye message with the reason."""
        self._stopping = why
        self._queue.put(None)

    def send_event(
        self, kind: str, text: str, *, level: Literal["info", "warning", "alarm"] = "info", about: str = ""
    ) -> None:
        """Send an event to the controller; it is kept until the controller has it, unless room runs out."""
        fields = {"kind": kind, "level": level, "text": clipped(text), "about": clipped(about, 253)}
        at = max(0, int(self._core.clock.wall_s()))
        self._queue.put(lambda: self._keep_event({**fields, "at": at}))

    def landed(self, name: str, key: TryKey, settlement: Settlement) -> None:
        """Queue the new settlement of a Pending item."""
        self._queue.put(lambda: self._items.landed(name, key, settlement))

    def noticed(self, name: str, conditions: tuple[Condition, ...]) -> None:
        """Queue the conditions of an item; an empty tuple removes them."""
        self._queue.put(lambda: self._items.noticed(name, conditions))

    def status(self) -> StatusAnswer:
        """Return the status of the agent.

        Raises:
            ActionStopped: the worker has ended.
        """
        return self._core.ask(
            lambda: answers.status(
                self._core,
                self._sender,
                capabilities=self.capabilities,
                wanted_rev=self._inbox.wanted_rev,
                full=self._full,
            )
        )

    def history(self, limit: int) -> JournalAnswer:
        """Return the newest lines of the history.

        Raises:
            ActionStopped: the worker has ended.
        """
        return self._core.ask(lambda: answers.history(self._core, limit))

    def measured(self) -> None:
        """Queue a read of the telemetry's source, which has changed."""
        self._queue.put(self._telemetry.on_changed)

    # --- the worker's thread

    def run(self) -> None:
        """Run rounds until `stop`.

        Raises:
            BoxJournalError: the journal cannot be written or read; the agent must restart.
        """
        self._round_at_s = time.monotonic()
        try:
            self.run_round()
            while self._stopping is None:
                try:
                    event = self._queue.get(timeout=_IDLE_S)
                except queue.Empty:
                    event = None
                self.run_round(event)
            self._sender.send_goodbye(self._stopping)
        finally:
            self.finished.set()
            self.began.set()

    def run_round(self, first: LinkEvent | Call | None = None) -> None:
        """Do one round: handle what has come, then do all that can be done now; it blocks only on the disk."""
        self._core.thread = threading.get_ident()
        self._update_capabilities()
        if first is not None:
            self._try(first)
        for _ in range(_MOST_AT_ONCE):
            try:
                event = self._queue.get_nowait()
            except queue.Empty:
                break
            if event is not None:
                self._try(event)
        self._again()
        for pump in (
            self._pump_commands,
            self._pump_items,
            self._pump_commands,
            self._transactions.pump,
            self._sender.pump_birth,
            self._telemetry.pump_asked,
            self._sender.pump,
            self._telemetry.pump,
            self._core.write_loose,
        ):
            self._guarded(pump)
        self._notify()
        self._round_at_s = time.monotonic()
        self.began.set()

    def _pump_commands(self) -> None:
        self._commands.pump(items_busy=self._items.busy)

    def _pump_items(self) -> None:
        self._items.pump(alone_busy=self._commands.alone_busy)

    def _update_capabilities(self) -> None:
        now = self._capabilities_now()
        if now != self._messages.capabilities:
            self._messages.capabilities = now
            self._sender.birth_again()

    def _capabilities_now(self) -> tuple[str, ...]:
        lacking = self._lacks()
        return tuple(one for one in self._all if one not in lacking)

    def _notify(self) -> None:
        """Call the listeners when the desired state has changed."""
        desired_state = self._core.held.desired_state
        if desired_state is not self._notified:
            self._notified = desired_state
            for tell in self._listeners:
                tell()

    def _try(self, event: LinkEvent | Call) -> None:
        if not self._guarded(lambda: self._take(event)):
            self._later.append(event)

    def _again(self) -> None:
        """Try events again that found the journal full, in their order."""
        if not self._later or self._core.now_s < self._retry_at_s:
            return
        waiting, self._later = self._later, deque()
        for event in waiting:
            self._try(event)

    def _guarded(self, call: Call) -> bool:
        """Call a function; return False when the journal is full, and nothing has changed."""
        try:
            call()
        except JournalFullError as error:
            if not self._full:
                _LOG.error("%s; it is tried again", error)
            self._full, self._retry_at_s = True, self._core.now_s + _RETRY_S
            return False
        if self._full and not self._later:
            self._full = False
        return True

    def _take(self, event: LinkEvent | Call) -> None:
        match event:
            case LinkUp():
                self._sender.on_connected(event)
                self._telemetry.on_connected()
            case LinkDown(why):
                self._sender.on_disconnected(why)
            case MessageArrived():
                self._inbox.take(event)
            case PublishAcknowledged():
                self._sender.delivered(event)
            case FiltersGranted():
                pass  # a box has its one filter from the beginning
            case _ if callable(event):
                event()
            case _:
                assert_never(event)

    def _keep_event(self, fields: dict[str, str | int]) -> None:
        core, stamp = self._core, self._core.stamp()
        body = self._messages.event(stamp, fields)
        outbox = core.held.outbox.add_event(KeptMessage(stamp, len(body), alarm=fields["level"] == "alarm"))
        try:
            core.save(replace(core.held, outbox=outbox), bodies={stamp: body}, spare=True)
        except JournalFullError:
            _LOG.warning("an event is lost, the journal is full: %s %s", fields["kind"], fields["text"])


def _capabilities(parts: WorkerParts) -> tuple[str, ...]:
    """Return all capabilities for the birth: the ops that have actions, and the items that have settlers."""
    able = set(parts.acts) - SHARING
    if Sharing in parts.settlers:
        able |= SHARING
    limits = {"app_limits"} if AppLimits in parts.settlers else set()
    isolation = {LIMITER, MPS} if Isolation in parts.settlers else set()
    return tuple(sorted({*able, *limits, *isolation}))
