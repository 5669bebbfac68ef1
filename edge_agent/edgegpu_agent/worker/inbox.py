"""The inbox of messages from the controller: verify, read, judge, journal, and only then acknowledge."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace

from edgegpu_agent.journal.contents import HistoryEntry, JournalContents
from edgegpu_agent.journal.errors import BoxJournalError
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.messages import UplinkMessages
from edgegpu_agent.worker.sender import SPREAD_S, UplinkSender
from edgegpu_sync import topics
from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.link.events import MessageArrived
from edgegpu_sync.messages.downlink import Command, Desired, Keys, Receipt, RefreshRequest
from edgegpu_sync.messages.readers import read
from edgegpu_sync.messages.spec import asked
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.replay_guard import (
    ExpiredCommand,
    ForgottenCommand,
    KnownCommand,
    RefuseCommand,
    ReplayGuard,
    TakeCommand,
    Verdict,
)
from edgegpu_sync.signing import open_down
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.topics import CommandTopic
from edgegpu_sync.wire import digest

_LOG = logging.getLogger(__name__)


_LATE_S = 60
"""A receipt that is older than the newest one by more than this was replayed; its requests are ignored."""


class Inbox:
    """The handler of messages from the controller, one after the other."""

    def __init__(
        self,
        core: Core,
        messages: UplinkMessages,
        sender: UplinkSender,
        *,
        ask: Callable[[RefreshRequest, float], None],
        server_time: Callable[[int], bool],
    ) -> None:
        """Build the inbox.

        Args:
            core: the journal.
            messages: makes answers.
            sender: sends answers.
            ask: called with the telemetry that the controller wants, and within how many seconds.
            server_time: called with each signed time, which raises the clock floor; returns whether it can be right.
        """
        self._core, self._messages, self._sender = core, messages, sender
        self._ask, self._server_time = ask, server_time
        self._unbelieved = 0
        self.wanted_rev = 0
        """The controller's current revision, from a receipt."""

    def take(self, arrived: MessageArrived) -> None:
        """Handle a message; it is acknowledged when this returns.

        Raises:
            JournalFullError: the message was neither handled nor acknowledged.
        """
        try:
            self._open(arrived)
        except MessageRefusedError as error:
            self._core.refuse(error.why, f"{arrived.topic[:128]!r}: {error}")
        except BoxJournalError:
            raise
        except Exception:  # noqa: BLE001  (the border of a message: an unforeseen one must not end the agent)
            _LOG.exception("cannot take what came under %r", arrived.topic[:128])
            self._core.refuse(RefusalReason.MALFORMED, f"{arrived.topic[:128]!r}: see the log")
        if self._sender.link is not None:
            self._sender.link.ack(arrived)

    def _open(self, arrived: MessageArrived) -> None:
        topic = topics.parse(arrived.topic)
        if arrived.retained and not topic.kind.retained:
            raise MessageRefusedError(RefusalReason.UNKNOWN_TOPIC, "a command or a receipt is never retained")
        body = open_down(topic, arrived.payload, me=self._core.me.device, ring=self._core.held.ring)
        message = read(topic.kind, body)
        match message:
            case Desired():
                self._on_desired(message)
            case Command() if isinstance(topic, CommandTopic):
                self._on_command(topic, message)
            case Receipt():
                self._on_receipt(message)
            case Keys():
                self._on_keys(message)
            case _:
                raise MessageRefusedError(RefusalReason.UNKNOWN_TOPIC, f"{topic.kind} does not come down")

    # --- desired state, keys

    def _on_desired(self, desired: Desired) -> None:
        held = self._core.held
        text = digest(desired.spec)
        seen = held.desired_state.seen.observe(desired, digest=text, enrolment=held.replay_guard.enrolment)
        if seen is None:
            return
        desired_state = held.desired_state.observe(seen, asked(desired.spec, desired.rev))
        told = HistoryEntry(kind="desired", about=f"revision {desired.rev}", state="OBSERVED", text=text)
        self._core.save(replace(held, desired_state=desired_state, spec=desired.spec), told=(told,), spare=True)
        self._sender.report()

    def _on_keys(self, keys: Keys) -> None:
        held = self._core.held
        if hashlib.sha256(keys.chain[-1].set.encode()).hexdigest() == held.ring.digest:
            return  # the message is retained: it comes at each connection
        ring = held.ring.follow(keys.chain)
        told = HistoryEntry(
            kind="keys", about=f"key set {ring.version}", state="TAKEN", text=f"after {held.ring.version}"
        )
        self._core.save(replace(held, ring=ring), told=(told,), spare=True)
        self._sender.birth_again()

    # --- receipts

    def _on_receipt(self, receipt: Receipt) -> None:
        held = self._core.held
        if receipt.enrolment != held.replay_guard.enrolment:
            why = (
                RefusalReason.OLD_ENROLMENT
                if receipt.enrolment < held.replay_guard.enrolment
                else RefusalReason.NEWER_ENROLMENT
            )
            raise MessageRefusedError(why, f"{receipt.enrolment}, this box has {held.replay_guard.enrolment}")
        if receipt.one_result_topic != self._messages.one_result_topic:
            self._messages.one_result_topic = receipt.one_result_topic
            self._sender.results_again()  # what was sent under the other topic may have reached nobody
        believed = self._believed(receipt.server_time)
        outbox = held.outbox.receipted(receipt)
        if outbox != held.outbox:
            gone = {*held.outbox.results, *held.outbox.refusals} - {*outbox.results, *outbox.refusals}
            records = {id_: one for id_, one in held.records.items() if id_ not in gone}
            self._core.save(self._forgetting(replace(held, outbox=outbox, records=records)))
        if outbox.events != held.outbox.events:
            self._sender.events_changed()
        if believed and self._core.hear_time(receipt.server_time) <= _LATE_S:
            self.wanted_rev = receipt.rev
            self._asked(receipt)

    def _believed(self, server_time: int) -> bool:
        """Return whether a signed time can be right; log each one that cannot, once."""
        if self._server_time(server_time):
            return True
        if server_time != self._unbelieved:
            self._unbelieved = server_time
            _LOG.warning(
                "the controller's time, %d, is more than a year ahead of what this box knows: not believed; look at "
                "the controller's clock, then at this box's (enrol it anew if the controller's is right)",
                server_time,
            )
        return False

    def _forgetting(self, held: JournalContents) -> JournalContents:
        seq = self._core.journal.forgettable(held)
        return held if seq is None else replace(held, replay_guard=held.replay_guard.forgets(seq))

    def _asked(self, receipt: Receipt) -> None:
        within_s = SPREAD_S if receipt.spread else 0.0
        for name in receipt.ask:
            match name:
                case RefreshRequest.STATUS:
                    self._sender.birth_again()
                case RefreshRequest.REPORTED:
                    self._sender.report(within_s)
                case RefreshRequest.INVENTORY | RefreshRequest.ALLOC | RefreshRequest.HEALTH | RefreshRequest.METRICS:
                    self._ask(RefreshRequest(name), within_s)

    # --- commands

    def _on_command(self, topic: CommandTopic, command: Command) -> None:
        core, id_ = self._core, topic.id
        known = core.held.records.get(id_) or core.journal.recall(id_)
        verdict = core.held.replay_guard.judge(command, known=known is not None, now_s=core.now_s)
        if isinstance(verdict, TakeCommand | ExpiredCommand) and not self._can_refuse():
            verdict = RefuseCommand(ResultCode.OUTBOX_FULL)
        if isinstance(verdict, TakeCommand | ExpiredCommand):  # a known command may be a replay
            core.record_contact()
        self._judged(topic, command, verdict, known=known)

    def _can_refuse(self) -> bool:
        """Return whether the outbox has room for one more refusal, besides those of commands that are only RECEIVED."""
        held = self._core.held
        received = sum(one.state is CommandState.RECEIVED for one in held.records.values())
        return len(held.outbox.refusals) + received < held.outbox.limits.refusals

    def _judged(self, topic: CommandTopic, command: Command, verdict: Verdict, *, known: CommandRecord | None) -> None:
        match verdict:
            case TakeCommand(guard, until_s):
                self._take(guard, self._record(topic, command, until_s), by=command.by)
            case ExpiredCommand(guard):
                self._take(guard, self._record(topic, command, 0.0).expired(), by=command.by)
            case KnownCommand(guard, until_s) if known is not None:
                self._known(guard, known, until_s)
            case KnownCommand(guard) | ForgottenCommand(guard):
                self._save_guard(guard)
                self._sender.answer(*self._messages.result(self._forgotten(topic, command)))
            case RefuseCommand(code):
                answer = self._messages.rejected(topic.id, topic.op, code, for_seq=command.seq)
                self._sender.answer(*answer)

    def _record(self, topic: CommandTopic, command: Command, until_s: float) -> CommandRecord:
        left_s = until_s - self._core.now_s
        return CommandRecord(
            id=topic.id,
            op=topic.op,
            seq=command.seq,
            args=command.args,
            until_s=until_s,
            left_s=left_s,
            boot=self._core.clock.boot,
        )

    def _forgotten(self, topic: CommandTopic, command: Command) -> CommandRecord:
        text = "so old that its id is forgotten: it may have been done"
        record = self._record(topic, command, 0.0)
        return replace(record, state=CommandState.UNKNOWN, code=ResultCode.FORGOTTEN, text=text)

    def _take(self, guard: ReplayGuard, record: CommandRecord, *, by: str) -> None:
        """Journal a command: its seq is used and its id known, in one write."""
        held = replace(self._core.held, replay_guard=guard)
        if record.state.terminal:
            held = replace(held, outbox=held.outbox.ended(record.id))
        held = replace(held, records={**held.records, record.id: record})
        told = HistoryEntry(kind="command", about=record.id, state=record.state, text=record.op, by=by)
        self._core.save(self._forgetting(held), told=(told,), spare=True)
        self._sender.changed(record.id)

    def _known(self, guard: ReplayGuard, known: CommandRecord, until_s: float) -> None:
        core = self._core
        if known.id not in core.held.records:
            self._save_guard(guard)
            self._sender.answer(*self._messages.result(known))
            return
        renewed = known.renewed(until_s, boot=core.clock.boot, now_s=core.now_s)
        if renewed != known or guard != core.held.replay_guard:
            core.save(replace(core.held, replay_guard=guard, records={**core.held.records, known.id: renewed}))
        self._sender.changed(known.id)

    def _save_guard(self, guard: ReplayGuard) -> None:
        if guard != self._core.held.replay_guard:
            self._core.save(replace(self._core.held, replay_guard=guard))
