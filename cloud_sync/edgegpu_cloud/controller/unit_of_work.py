"""One transaction of the controller: what came is stored, what is due gets its seq and is written, then it is sent."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgegpu_base.records import replace
from edgegpu_cloud.controller.box_session import BoxSession
from edgegpu_cloud.controller.outgoing import (
    OutgoingMessage,
    command_message,
    desired_message,
    keys_message,
    receipt_messages,
)
from edgegpu_cloud.controller.rules import BEHIND_MOST_S, BEHIND_S, accepts_commands, events_upto, has_spec, next_send_s
from edgegpu_cloud.fleet.changes import end_all
from edgegpu_cloud.fleet.history.settlements import record_settlements
from edgegpu_cloud.fleet.operations.outcomes import settle_commands, settle_items
from edgegpu_cloud.fleet.summaries import KINDS_OF_SUMMARY, is_listed_differently, refresh
from edgegpu_cloud.fleet.views import SET_ASIDE_MEANWHILE, reported_items
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.notes import FLOOD
from edgegpu_cloud.store.records import BoxRecord, BoxState, Latest, StoredCommand
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.messages.downlink import KeySetLink, RefreshRequest
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.rules.tracking import prepare_send
from edgegpu_sync.states import ResultCode
from edgegpu_sync.topics import TopicKind

MOST_UNDER_WAY = 128
"""Commands of one box that have a seq and have not ended.

With as many whose receipt is on its way they take the 256 places of its outbox, where the next one would be REJECTED.
"""

MOST_DUE = 1_000
"""Commands that are sent in one transaction."""

ASK_AGAIN_S = 10
"""Seconds in which a box is asked for its birth once."""

MISSED = (RefreshRequest.INVENTORY, RefreshRequest.ALLOC, RefreshRequest.HEALTH)
"""What a box sends once, when it changes: whoever may have missed it asks for it."""

MOST_LINKS = 50
"""Key sets in one message, which stays below 64 KiB; a box that is further behind gets the next at its birth."""

RECENT_S = 600
"""A controller that starts repeats the receipts of results that came in so many seconds: they may be lost."""


@dataclass(frozen=True, slots=True)
class BirthTimes:
    """When the births of the boxes were, by the controller's clock; a restart or another birth voids it."""

    at_s: dict[DeviceId, tuple[Epoch, float]] = field(default_factory=dict)
    asked_s: dict[DeviceId, float] = field(default_factory=dict)
    """When a box was asked for its birth."""

    def known(self, box: BoxRecord) -> BoxRecord:
        """Return a box of the store with the known time of its birth."""
        epoch, at_s = self.at_s.get(box.device, (None, 0.0))
        if epoch is None or epoch != box.sequence.epoch:
            return box
        return replace(box, sequence=replace(box.sequence, born_at_s=at_s))

    def forget(self, devices: Iterable[DeviceId]) -> None:
        """Forget boxes: another controller works for them, or this one begins anew with them."""
        for device in devices:
            self.at_s.pop(device, None)
            self.asked_s.pop(device, None)

    def note(self, boxes: Iterable[BoxRecord], asked: Iterable[DeviceId], now_s: float) -> None:
        """Keep what was learned, and which boxes were asked; call it when the transaction is on the disk."""
        self.asked_s.update(dict.fromkeys(asked, now_s))
        for box in boxes:
            sequence = box.sequence
            if sequence.epoch is None or sequence.born_at_s is None:
                self.at_s.pop(box.device, None)
            else:
                self.at_s[box.device] = (sequence.epoch, sequence.born_at_s)


@dataclass(slots=True)
class UnitOfWork:
    """A transaction under way; `outgoing` are the messages that are sent when it is on the disk.

    `chain` is the controllers' keys. `boxes` are those that were loaded, as they are now.
    """

    tx: Transaction
    now_s: float
    births: BirthTimes
    chain: Sequence[KeySetLink]
    outgoing: list[OutgoingMessage] = field(default_factory=list)
    boxes: dict[DeviceId, BoxRecord] = field(default_factory=dict)
    stored: dict[DeviceId, BoxRecord] = field(default_factory=dict)
    loaded: dict[DeviceId, BoxRecord] = field(default_factory=dict)
    """As `stored`, with the known times of births."""
    asked: set[DeviceId] = field(default_factory=set)
    """Boxes that are asked for their birth."""
    events: int = 0
    """How many events were stored."""
    heard: dict[DeviceId, dict[TopicKind, Latest]] = field(default_factory=dict)
    """The last messages of boxes that were stored."""
    ended: set[DeviceId] = field(default_factory=set)
    """Boxes that have ended a command."""

    def load(self, devices: Collection[DeviceId]) -> dict[DeviceId, BoxRecord]:
        """Return the boxes that are enrolled and not revoked; they are held until the end of the transaction."""
        missing = [device for device in devices if device not in self.boxes]
        for device, box in self.tx.boxes.get(missing).items() if missing else ():
            if box.state is BoxState.ENROLLED and (number := box.sequence.out_of_reach):
                self.set_aside(device, phrase("its stored %(what)s", what=number))
            elif box.state is BoxState.ENROLLED:
                self.stored[device] = box
                self.boxes[device] = self.loaded[device] = self.births.known(box)
        return {device: self.boxes[device] for device in devices if device in self.boxes}

    def set_aside(self, device: DeviceId, why: str) -> None:
        """Ignore a box from now on: its numbers cannot be followed. Its open commands end UNKNOWN."""
        for boxes in (self.boxes, self.stored, self.loaded):
            boxes.pop(device, None)
        end_all(self.tx, device, now_s=self.now_s, code=ResultCode.SET_ASIDE, text=SET_ASIDE_MEANWHILE)
        self.tx.boxes.set_aside(device)
        refresh(self.tx, self.tx.boxes.get([device]).values(), counted=[device])
        told = phrase(
            "the box was set aside, its numbers cannot be followed (%(why)s): look at it, then "
            "`edgegpu-cloud boxes forget %(device)s` and enrol it anew",
            why=why,
            device=device,
        )
        self.tx.notes.alarm("SET_ASIDE", device=device, text=told, now_s=self.now_s)

    def save(self) -> None:
        """Write the boxes that have changed, and what lists show of them."""
        changed = {device: box for device, box in self.boxes.items() if box != self.loaded[device]}
        self.tx.boxes.put_state(changed.values())
        listed = {device for device, box in changed.items() if is_listed_differently(self.stored[device], box)}
        self.tx.summaries.mark(listed)
        concerned = listed.union(self.heard, self.ended).intersection(self.boxes)
        reported = {
            device: one.body for device, of in self.heard.items() if (one := of.get(TopicKind.REPORTED)) is not None
        }
        if reported:
            items = {device: reported_items(body) for device, body in reported.items()}
            enrolments = {device: int(body.get("enrolment", 0)) for device, body in reported.items()}
            settle_items(self.tx, items)
            record_settlements(self.tx, items, enrolments, now_s=self.now_s)
        if concerned:
            boxes = [self.boxes[device] for device in sorted(concerned)]
            refresh(self.tx, boxes, heard=self.heard, counted=self.ended.intersection(self.boxes))

    # messages to boxes

    def desired(self, devices: Iterable[DeviceId]) -> None:
        """Send the desired documents of boxes that may have them; they are retained, so absent boxes get them too."""
        boxes = [box for box in map(self.boxes.__getitem__, devices) if has_spec(box)]
        specs = self.tx.boxes.specs([(box.device, box.spec_rev) for box in boxes]) if boxes else {}
        for box in boxes:
            self.outgoing.append(desired_message(box, specs[box.device]))
            self.boxes[box.device] = replace(box, told_rev=box.sequence.rev)

    def keys(self, devices: Iterable[DeviceId]) -> None:
        """Send the controllers' keys to boxes that do not have the newest, as far as is known."""
        for device in devices:
            has = self.boxes[device].sequence.key_set
            if has < len(self.chain):
                self.outgoing.append(keys_message(device, self.chain[has : has + MOST_LINKS]))

    def receipts(
        self,
        ask: Mapping[DeviceId, Collection[RefreshRequest]],
        *,
        events: Mapping[DeviceId, Latest],
        results: Mapping[DeviceId, Sequence[CommandId]] | None = None,
        spread: bool = False,
    ) -> None:
        """Send receipts to the boxes of `ask`; `events` are the last stored ones of those of them that have any."""
        if not ask:
            return
        server_times = self.tx.leases.server_times(ask, self.now_s)
        for device, wanted in ask.items():
            box = self.boxes[device]
            self.outgoing += receipt_messages(
                box,
                upto=events_upto(box, events.get(device)),
                server_time=server_times[device],
                results=(results or {}).get(device, ()),
                ask=wanted,
                spread=spread,
            )

    def dispatch(self, devices: Collection[DeviceId]) -> bool:
        """Send the commands to these boxes that are due; return whether more of them may be."""
        boxes = self.load(devices)
        ready = [device for device, box in boxes.items() if accepts_commands(box)]
        if len(ready) < len(devices):
            self.tx.commands.park(set(devices).difference(ready))
        if not ready:
            return False
        due = self.tx.commands.due(ready, self.now_s, limit=MOST_DUE)
        outstanding = self.tx.commands.outstanding(ready)
        changed, full = [], set()
        for one in due:
            lowest, number = outstanding.get(one.device, (None, 0))
            if one.tracked.seq is None and number >= MOST_UNDER_WAY:
                full.add(one.device)
                continue
            after = self._prepare(one, lowest)
            changed.append(after)
            if one.tracked.seq is None and (seq := after.tracked.seq) is not None:
                outstanding[one.device] = (seq if lowest is None else min(lowest, seq), number + 1)
        self.tx.commands.put(changed)
        for device in full:
            self.tx.commands.park_unsigned(device)
        return len(due) == MOST_DUE

    def _prepare(self, one: StoredCommand, lowest: int | None) -> StoredCommand:
        """Queue a command if it is due; return it as it is to be written."""
        sequence = self.boxes[one.device].sequence
        at_s = next_send_s(one.tracked, sequence)
        if at_s is None or at_s > self.now_s:
            return replace(one, next_at_s=at_s)
        prepared = prepare_send(
            one.tracked, sequence, outstanding=() if lowest is None else (lowest,), now_s=self.now_s
        )
        if prepared is None:
            return replace(one, next_at_s=None)
        self.boxes[one.device] = replace(self.boxes[one.device], sequence=prepared.sequence)
        after = replace(
            one,
            tracked=prepared.tracked,
            next_at_s=next_send_s(prepared.tracked, prepared.sequence),
            sent_at_s=one.sent_at_s or self.now_s,
        )
        self.outgoing.append(command_message(after, prepared.body))
        return after

    # work that is due

    def settle(self, sessions: Sequence[BoxSession]) -> bool:
        """Write the outcome of messages, answer them, and send what they make due; return whether more may be due."""
        tx, now_s = self.tx, self.now_s
        for session in sessions:
            if session.set_aside_reason:
                self.set_aside(session.box.device, session.set_aside_reason)
        sessions = [session for session in sessions if not session.set_aside_reason]
        for session in sessions:
            self._alarms(session)
            self._commands(session)
            self.boxes[session.box.device] = session.box
            if kinds := session.changed & KINDS_OF_SUMMARY:
                self.heard[session.box.device] = {kind: session.latest[kind] for kind in kinds}
            if session.ended or session.steps:
                self.ended.add(session.box.device)
            if session.news:
                self.tx.summaries.mark([session.box.device])
        changed = [(session.latest[kind], kind in session.known) for session in sessions for kind in session.changed]
        tx.boxes.add_latest([latest for latest, known in changed if not known])
        tx.boxes.put_latest([latest for latest, known in changed if known])
        tx.boxes.add_births([(c.box.device, c.box.sequence.enrolment, e, now_s) for c in sessions for e in c.births])
        self.events += sum(len(session.events) for session in sessions)
        tx.notes.add_events([event for session in sessions for event in session.events])
        tx.telemetry.add_use({session.box.device: session.moments for session in sessions if session.moments})
        for session in sessions:
            if session.evidence:
                tx.telemetry.put_evidence(session.box.device, session.evidence, now_s=now_s)
        tx.commands.add_orphans([orphan for session in sessions for orphan in session.orphans])
        tx.commands.heard([line for session in sessions for line in session.heard])
        born = [session.box.device for session in sessions if session.born]
        self.keys(born)
        self._keys_ahead(born)
        for session in sessions:
            session.ask = self._without_repeated_birth_request(session)
        told = [session for session in sessions if session.answer or session.receipts or session.ask]
        results = {session.box.device: session.receipts for session in told}
        ask = {session.box.device: session.ask for session in told}
        events = {session.box.device: one for session in told if (one := session.latest.get(TopicKind.EVENT))}
        self.receipts(ask, events=events, results=results, spread=len(told) > 1)
        self.desired(born)
        return self.dispatch(self._with_due_work(sessions))

    def _keys_ahead(self, devices: Iterable[DeviceId]) -> None:
        """Raise an alarm for boxes that hold key sets which this store, being from a backup, does not have."""
        for device in devices:
            has = self.boxes[device].sequence.key_set
            if has > len(self.chain):
                text = phrase(
                    "the box holds key set %(has)s, the sets here end with %(num)s: add the missing ones",
                    has=has,
                    num=len(self.chain),
                )
                self.tx.notes.alarm("KEYS_AHEAD", device=device, text=text, now_s=self.now_s)

    def _with_due_work(self, sessions: Sequence[BoxSession]) -> list[DeviceId]:
        """Return boxes for which something may be due now: commands can be signed, or there is room for more."""
        woken = []
        for session in sessions:
            device = session.box.device
            before = self.loaded[device]
            anew = not accepts_commands(before) or before.sequence.epoch != session.box.sequence.epoch
            if accepts_commands(session.box) and (anew or session.born):
                woken.append(device)
        if woken:
            self.tx.commands.wake(woken)
        ended = [session.box.device for session in sessions if session.ended and session.box.device not in woken]
        for device in self.tx.commands.waiting(ended) if ended else ():
            self.tx.commands.wake_unsigned(device, limit=MOST_UNDER_WAY)
            woken.append(device)
        renumbered = {one.device for session in sessions for one in session.answered.values() if one.next_at_s == 0.0}
        return [*woken, *renumbered.difference(woken)]

    def _without_repeated_birth_request(self, session: BoxSession) -> set[RefreshRequest]:
        """Leave out a question for a birth that was sent a moment ago: the box has not had time to answer."""
        device = session.box.device
        if RefreshRequest.STATUS not in session.ask:
            return session.ask
        if self.now_s - self.births.asked_s.get(device, -ASK_AGAIN_S) < ASK_AGAIN_S:
            return session.ask - {RefreshRequest.STATUS}
        self.asked.add(device)
        return session.ask

    def _alarms(self, session: BoxSession) -> None:
        for alarm in session.alarms:
            self.tx.notes.alarm(alarm.kind, device=session.box.device, text=alarm.text, now_s=self.now_s)

    def _commands(self, session: BoxSession) -> None:
        """Write answered commands; where the box's numbers were ahead, correct all that are open."""
        changed = dict(session.answered)
        if session.steps:
            for one in self.tx.commands.open(session.box.device):
                changed.setdefault(one.id, one)
        for before, after in session.steps:
            anew = after.enrolment > before.enrolment
            for id_, one in changed.items():
                tracked = one.tracked.reimaged() if anew else one.tracked.learned(before, after)
                if tracked is not one.tracked:
                    changed[id_] = replace(one, tracked=tracked, ended_at_s=self.now_s if tracked.ended else None)
                    if anew:
                        session.heard.append(changed[id_].history_line(self.now_s))
        self.tx.commands.put(changed.values())
        settle_commands(self.tx, changed.values())

    def send_keys(self, devices: Sequence[DeviceId]) -> bool:
        """Send boxes a new key set; nothing more is due then."""
        self.keys(self.load(devices))
        return False

    def flood_alarms(self, floods: Mapping[DeviceId, int], devices: Sequence[DeviceId]) -> bool:
        """Raise an alarm at boxes that have sent too many messages within a minute; nothing more is due then."""
        for device in devices:
            text = phrase(
                "the box sent %(count)s messages within a minute, more than a box needs: look at it; "
                "`edgegpu-cloud boxes block BOX` takes it off the broker",
                count=floods[device],
            )
            self.tx.notes.alarm(FLOOD, device=device, text=text, now_s=self.now_s)
        return False

    def ask_behind(self, devices: Sequence[DeviceId]) -> bool:
        """Ask boxes that are behind their revision, and send it once more; nothing more is due then."""
        boxes = self.load(devices)
        for device, box in boxes.items():
            wait_s = min(BEHIND_MOST_S, BEHIND_S * 2 ** min(box.looks + 1, 10))
            self.boxes[device] = replace(box, look_at_s=self.now_s + wait_s, looks=box.looks + 1)
        self.keys(boxes)
        self.desired(boxes)
        ask = dict.fromkeys(boxes, (RefreshRequest.REPORTED,))
        self.receipts(ask, events=self._last_events(ask), spread=len(boxes) > 1)
        return False

    def apply_changes(self, devices: Sequence[DeviceId]) -> bool:
        """Do what people have asked for since: new boxes, new revisions, new commands; return whether more is due."""
        boxes = self.load(devices)
        self.keys(device for device, box in boxes.items() if box.sequence.epoch is None)
        self._send_new_specs(boxes.values())
        return self.dispatch(list(boxes))

    def _send_new_specs(self, boxes: Iterable[BoxRecord]) -> None:
        """Send desired documents that were not sent yet, and schedule a check that they are observed."""
        fresh = [box for box in boxes if box.told_rev != box.sequence.rev and has_spec(box)]
        self.desired([box.device for box in fresh])
        for box in fresh:
            if box.online and box.observed_rev < box.sequence.rev:
                after = self.boxes[box.device]
                self.boxes[box.device] = replace(after, look_at_s=self.now_s + BEHIND_S, looks=0)

    def resume(self, devices: Sequence[DeviceId]) -> bool:
        """Resume work on boxes that were passed over; return whether more is due."""
        self.tx.commands.wake(devices)
        self.begin(devices, {}, spread=False)
        return self.dispatch(devices)

    def begin(
        self,
        devices: Sequence[DeviceId],
        recent: Mapping[DeviceId, Sequence[CommandId]],
        *,
        spread: bool,
        missed: bool = False,
    ) -> None:
        """Ask boxes for their state, as a controller does that has just connected.

        Args:
            devices: the boxes.
            recent: commands that ended lately, whose receipts may be lost.
            spread: whether they are many, so that each answers with a delay.
            missed: whether nobody has kept what the boxes sent lately, so that they are asked for all of it.
        """
        boxes = self.load(devices)
        self.keys(boxes)
        self._send_new_specs(boxes.values())
        always = (RefreshRequest.REPORTED, *(MISSED if missed else ()))
        ask = {
            device: always if box.sequence.epoch is not None else (*always, RefreshRequest.STATUS)
            for device, box in boxes.items()
        }
        self.receipts(ask, events=self._last_events(ask), results=recent, spread=spread)

    def _last_events(self, devices: Collection[DeviceId]) -> dict[DeviceId, Latest]:
        stored = self.tx.boxes.latest(devices, [TopicKind.EVENT]) if devices else {}
        return {device: one for (device, _), one in stored.items()}
