"""One box and its new messages: what becomes of its records, and what is to be sent to it. Imports no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from pydantic import TypeAdapter

from edgegpu_base.records import replace
from edgegpu_cloud.controller.measured import evidence_in, moments_in
from edgegpu_cloud.controller.rules import BEHIND_S, next_send_s
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import (
    AlarmNote,
    BoxEvent,
    BoxRecord,
    CommandHistoryLine,
    Json,
    Latest,
    Orphan,
    StoredCommand,
)
from edgegpu_cloud.store.telemetry.records import CardMoment
from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.downlink import Command, Desired, Keys, Receipt, RefreshRequest
from edgegpu_sync.messages.evidence import ContainerEvidence
from edgegpu_sync.messages.readers import Message, result_id
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.telemetry import (
    TRANSACTION,
    Alloc,
    BoxHealth,
    Event,
    Inventory,
    Metrics,
    PodAlloc,
    merged,
)
from edgegpu_sync.messages.uplink import Birth, CommandNotTaken, CommandResult, Goodbye, LastWill, Reported, UplinkBody
from edgegpu_sync.rules.sequence import CommandSequence, check_stamp
from edgegpu_sync.topics import Topic, TopicKind

SEEN_EVERY_S = 30
"""How exactly the store knows when a box was heard last."""

_NOT_SHOWN = frozenset(
    {"enrolment", "epoch", "n", "age_s", "seq", "floor", "controller_unseen_s", "outbox_used", "refused"}
)

_NO_TRANSACTION = "machine.note"
"""The kind of an event that calls itself a transaction's and reports none: lists of changes read what is reported."""
_PODS = TypeAdapter(dict[str, PodAlloc])


class UnknownBirthError(Exception):
    """An uplink of an unknown birth: the box is asked for its birth, and what matters of the uplink comes again."""


@dataclass(slots=True, kw_only=True)
class BoxSession:
    """A box with its records in the store, changed by each message that is taken.

    `latest` are its last messages, of which those of the kinds in `known` are in the store. `commands` are those that
    the messages answer. `remembered` says which of the older births the box has really had. The fields from `changed`
    on are what is to be written and sent when all messages are taken.
    """

    box: BoxRecord
    now_s: float
    latest: dict[TopicKind, Latest]
    commands: dict[CommandId, StoredCommand]
    remembered: Mapping[Epoch, bool] = field(default_factory=dict)
    known: frozenset[TopicKind] = frozenset()
    changed: set[TopicKind] = field(default_factory=set)
    answered: dict[CommandId, StoredCommand] = field(default_factory=dict)
    events: list[BoxEvent] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    heard: list[CommandHistoryLine] = field(default_factory=list)
    alarms: list[AlarmNote] = field(default_factory=list)
    births: list[Epoch] = field(default_factory=list)
    evidence: list[ContainerEvidence] = field(default_factory=list)
    moments: list[CardMoment] = field(default_factory=list)
    steps: list[tuple[CommandSequence, CommandSequence]] = field(default_factory=list)
    receipts: list[CommandId] = field(default_factory=list)
    answer: bool = False
    born: bool = False
    ended: bool = False
    news: bool = False
    """Whether anything was said that a page of the box shows; measurements do not count."""
    set_aside_reason: str = ""
    """Why the box cannot be followed; all else of the session is void then."""
    ask: set[RefreshRequest] = field(default_factory=set)

    def take(self, topic: Topic, message: Message, *, live: bool) -> None:
        """Take one message, whose signature is verified.

        Args:
            topic: under which it came.
            message: as it was read.
            live: False for a message that the broker had retained.

        Raises:
            MessageRefusedError: it changes nothing; a receipt may be due all the same.
            UnknownBirthError: it changes nothing, and the box is asked for its birth.
        """
        match message:
            case Birth():
                self._birth(message, live=live)
            case LastWill() | Goodbye():
                self._gone(message, live=live)
            case Reported():
                self._reported(message)
            case CommandResult() | CommandNotTaken():
                self._answer(topic, message)
            case Event():
                self._event(message)
            case Alloc():
                self._alloc(message)
            case Metrics():
                self._metrics(message)
            case Inventory() | BoxHealth():
                self._check(message, topic.kind)
                self._keep(topic.kind, message, message.model_dump(mode="json"))
            case Desired() | Command() | Receipt() | Keys():
                raise MessageRefusedError(RefusalReason.UNKNOWN_TOPIC, "it does not come up")
            case _:
                assert_never(message)

    # common to all messages

    def _check(self, message: UplinkBody, kind: TopicKind, last: Stamp | None = None) -> None:
        """Refuse a message that is not of the current birth, or not newer than what is stored."""
        held = self.latest.get(kind)
        check_stamp(message.stamp, last or (held.stamp if held else None), enrolment=self.box.sequence.enrolment)
        epoch = self.box.sequence.epoch
        if message.epoch == epoch:
            return
        if epoch is None or message.epoch.count > epoch.count:
            self.ask.add(RefreshRequest.STATUS)
            raise UnknownBirthError
        if isinstance(message, Event | Metrics) and message.epoch.count < epoch.count:
            return  # it has waited in the outbox over births, and keeps its stamp
        raise MessageRefusedError(RefusalReason.OLD_EPOCH, f"{message.epoch.count}, the box has {epoch.count} since")

    def _keep(self, kind: TopicKind, message: UplinkBody, body: Json) -> None:
        self._hold(kind, message, body)
        self._seen()

    def _hold(self, kind: TopicKind, message: UplinkBody, body: Json) -> None:
        before = self.latest.get(kind)
        self.news |= kind is not TopicKind.METRICS and (before is None or _shown(before.body) != _shown(body))
        self.latest[kind] = Latest(device=self.box.device, kind=kind, stamp=message.stamp, at_s=self.now_s, body=body)
        self.changed.add(kind)

    def _seen(self) -> None:
        if not self.box.online or self.now_s - self.box.seen_at_s >= SEEN_EVERY_S or self.now_s < self.box.seen_at_s:
            self.box = replace(self.box, online=True, seen_at_s=self.now_s)

    def _learn(self, after: CommandSequence) -> None:
        before = self.box.sequence
        if after.restored and not before.restored:
            text = phrase("the box knows more than this store, which came from a backup: look at both, then confirm")
            self.alarms.append(AlarmNote("RESTORED", text))
        if after.enrolment != before.enrolment or after.next_seq != before.next_seq:
            self.steps.append((before, after))
        self.box = replace(self.box, sequence=after)

    # birth and end

    def _birth(self, birth: Birth, *, live: bool) -> None:
        try:
            after = self.box.sequence.on_birth(birth, now_s=self.now_s, live=live)
        except MessageRefusedError as error:
            self._refused_birth(birth, error)
            raise
        held = self.latest.get(TopicKind.STATUS)
        check_stamp(birth.stamp, held.stamp if held else None, enrolment=birth.enrolment)
        if birth.epoch != self.box.sequence.epoch or birth.enrolment != self.box.sequence.enrolment:
            self.births.append(birth.epoch)
        self._learn(after)
        self._hold(TopicKind.STATUS, birth, birth.model_dump(mode="json"))
        seen_at_s = self.now_s if live else self.box.seen_at_s  # a retained birth may be old
        self.box = replace(self.box, observed_rev=birth.observed_rev, online=True, seen_at_s=seen_at_s)
        self.born = self.answer = True
        if not live:
            self.ask.add(RefreshRequest.REPORTED)
        self._schedule_revision_check()

    def _refused_birth(self, birth: Birth, error: MessageRefusedError) -> None:
        """Raise an alarm where a person has to enrol the box anew; a replay of a known birth raises none."""
        if error.why is RefusalReason.CLONED:
            text = phrase(
                "another machine (%(instance)s) has this box's identity: enrol it anew, as a box of its own",
                instance=birth.instance[:12],
            )
            self.alarms.append(AlarmNote("CLONED", text))
        elif error.why is RefusalReason.OLD_EPOCH and not self.remembered.get(birth.epoch, False):
            text = phrase("the box's journal was put back or copied: enrol the box anew")
            self.alarms.append(AlarmNote("OLD_EPOCH", text))

    def _gone(self, message: LastWill | Goodbye, *, live: bool) -> None:
        """Note that a box has gone.

        The will of the present birth counts whenever it comes: it was left with the broker at the connection. Since
        then the birth may have been asked for, and sent once more with a higher stamp.
        """
        held = self.latest.get(TopicKind.STATUS)
        again = held is not None and held.stamp.epoch == message.epoch and held.body.get("state") != "birth"
        if isinstance(message, Goodbye) or again or held is None or message.epoch != self.box.sequence.epoch:
            self._check(message, TopicKind.STATUS)
        end = message.model_dump(mode="json", include={"state", "why"})
        self._hold(TopicKind.STATUS, message, {**(held.body if held else {}), **end})
        if held is not None and held.stamp.after(message.stamp):
            self.latest[TopicKind.STATUS] = replace(self.latest[TopicKind.STATUS], stamp=held.stamp)
        said = isinstance(message, Goodbye) and live  # a will comes from the broker, about a box that was heard before
        seen_at_s = self.now_s if said else self.box.seen_at_s
        self.box = replace(self.box, online=False, seen_at_s=seen_at_s, look_at_s=None)

    # reported state

    def _reported(self, message: Reported) -> None:
        self._check(message, TopicKind.REPORTED)
        self._learn(self.box.sequence.on_uplink(message, now_s=self.now_s))
        self._keep(TopicKind.REPORTED, message, message.model_dump(mode="json", exclude_none=True))
        self.box = replace(self.box, observed_rev=message.observed_rev, applied_rev=message.applied_rev)
        self.answer = True
        self._schedule_revision_check()

    def _schedule_revision_check(self) -> None:
        """Schedule the next question to a box that has not observed its revision, or none where it has."""
        box = self.box
        if box.observed_rev >= box.sequence.rev or box.sequence.restored:
            self.box = replace(box, look_at_s=None, looks=0)
        elif box.look_at_s is None:
            self.box = replace(box, look_at_s=self.now_s + BEHIND_S, looks=0)

    # results

    def _answer(self, topic: Topic, message: CommandResult | CommandNotTaken) -> None:
        id_ = result_id(topic, message)
        if id_ is None:
            raise MessageRefusedError(RefusalReason.MALFORMED, "a result that names no command")
        command = self.commands.get(id_)
        if command is None:
            self._unknown(id_, message)
        else:
            self._known(command, message)

    def _known(self, command: StoredCommand, message: CommandResult | CommandNotTaken) -> None:
        tracked = command.tracked
        if message.op != tracked.op:
            raise MessageRefusedError(RefusalReason.MALFORMED, f"{command.id} is {tracked.op}, not {message.op}")
        if tracked.ended and message.enrolment == self.box.sequence.enrolment:
            self._receipt(command.id)
        self._check(message, TopicKind.RESULT, tracked.stamp)
        self._seen()
        if isinstance(message, CommandNotTaken):
            before = self.box.sequence
            self._learn(before.on_uplink(message, now_s=self.now_s))
            self._put(replace(command, tracked=tracked.on_not_taken(message)), again=True)
            return
        after = tracked.on_result(message, now_s=self.now_s)
        if after is tracked:
            return
        command = replace(command, tracked=after, attempts=message.attempts)
        if after.state is not tracked.state:
            self.heard.append(command.history_line(self.now_s))
        if message.data is not None:
            command = replace(command, data=message.data)
        if after.ended:
            command = replace(command, ended_at_s=self.now_s)
            self.ended = True
            self.evidence += evidence_in(command)
            self._receipt(command.id)
        self._put(command)

    def _put(self, command: StoredCommand, *, again: bool = False) -> None:
        unsigned = again and command.tracked.seq is None
        next_at_s = 0.0 if unsigned else next_send_s(command.tracked, self.box.sequence)
        self.news = True
        self.commands[command.id] = self.answered[command.id] = replace(command, next_at_s=next_at_s)

    def _receipt(self, id_: CommandId) -> None:
        if id_ not in self.receipts:
            self.receipts.append(id_)

    def _unknown(self, id_: CommandId, message: CommandResult | CommandNotTaken) -> None:
        self._check(message, TopicKind.RESULT)
        self._seen()
        if isinstance(message, CommandNotTaken):
            self._learn(self.box.sequence.on_uplink(message, now_s=self.now_s))
        elif message.state.terminal:
            orphan = Orphan(
                device=self.box.device,
                id=id_,
                op=message.op,
                state=message.state,
                code=message.code or "",
                text=message.text or "",
                at_s=self.now_s,
            )
            self.orphans.append(orphan)
            self._receipt(id_)

    # events and measurements

    def _event(self, event: Event) -> None:
        self.answer = self.answer or event.enrolment == self.box.sequence.enrolment
        self._check(event, TopicKind.EVENT)
        told = event.transaction
        kind = _NO_TRANSACTION if event.kind == TRANSACTION else event.kind
        self.events.append(
            BoxEvent(
                device=self.box.device,
                kind=kind if told is None else TRANSACTION,
                level=event.level,
                text=event.text,
                about=event.about if told is None else told.id,
                box_at=event.at,
                at_s=self.now_s,
                transaction=None if told is None else told.model_dump(mode="json"),
            )
        )
        if event.level == "alarm":
            self.alarms.append(AlarmNote(event.kind, event.text))
        self._keep(TopicKind.EVENT, event, event.model_dump(mode="json"))

    def _metrics(self, message: Metrics) -> None:
        self._check(message, TopicKind.METRICS)
        self.moments += moments_in(message, now_s=self.now_s, live=message.epoch == self.box.sequence.epoch)
        self._keep(TopicKind.METRICS, message, message.model_dump(mode="json"))

    def _alloc(self, message: Alloc) -> None:
        self._check(message, TopicKind.ALLOC)
        held = self.latest.get(TopicKind.ALLOC)
        pods: dict[str, PodAlloc] = {}
        pending: Json | None = None
        if message.base is not None:
            if held is None or held.stamp.epoch != message.epoch or held.stamp.n != message.base:
                self.ask.add(RefreshRequest.ALLOC)
                raise MessageRefusedError(
                    RefusalReason.OLD_STAMP, f"it changes message {message.base}, which is not what is stored"
                )
            pods = _PODS.validate_python(held.body["pods"], strict=False)
            pending = held.body.get("pending")
        whole = message.model_copy(update={"pods": merged(pods, message), "gone": (), "base": None})
        body = whole.model_dump(mode="json")
        self._keep(TopicKind.ALLOC, message, {**body, "pending": body["pending"] or pending})


def _shown(body: Json) -> Json:
    """Return what pages show of a message: not where it stands among the others, nor counters that always move."""
    return {name: value for name, value in body.items() if name not in _NOT_SHOWN}
