"""A box and a controller on the pure rules, each with a journal that survives it, and a world that keeps its own count.

What is sent is returned as a list; the state machine between them loses, doubles, delays and replays it.
"""

from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kits.sync import birth as a_birth

from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.ids import CommandId, OpName, op_name
from edgegpu_sync.messages.downlink import Command, Receipt
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.uplink import Birth, CommandNotTaken, CommandResult, Reported
from edgegpu_sync.rules.commands import (
    CommandRecord,
    EndStep,
    RecoveryProbe,
    RecoveryStep,
    after_crash,
    to_begin,
)
from edgegpu_sync.rules.ops import UnitRun
from edgegpu_sync.rules.replay_guard import (
    ExpiredCommand,
    ForgottenCommand,
    KnownCommand,
    RefuseCommand,
    ReplayGuard,
    StampCounter,
    TakeCommand,
)
from edgegpu_sync.rules.sequence import CommandSequence, check_stamp
from edgegpu_sync.rules.tracking import TrackedCommand, prepare_send
from edgegpu_sync.states import CommandState, ResultCode

RESTART, REFRESH = op_name("k3s.restart"), op_name("inventory.refresh")
ABLE = frozenset({RESTART, REFRESH})
REMEMBERED = 1

Down = tuple[CommandId, OpName, Command] | Receipt
Up = tuple[CommandId, CommandResult | CommandNotTaken] | Birth | Reported


@dataclass
class World:
    """What really happens: restarts of k3s, by whom, and the box's clock."""

    clock_s: float = 0.0
    boot: str = "boot-0"
    booted_s: float = 0.0
    restarts: int = 0
    done: Tally[CommandId] = field(default_factory=Tally)
    begun_at_s: dict[CommandId, float] = field(default_factory=dict)
    boots: int = 0

    @property
    def boottime_s(self) -> float:
        return self.clock_s - self.booted_s

    def unit(self) -> UnitRun:
        return UnitRun(self.boot, str(self.restarts))

    def reboot(self) -> None:
        self.boots += 1
        self.boot, self.booted_s = f"boot-{self.boots}", self.clock_s


class SimBox:
    """A box: guard, records, tokens and receipts are its journal, everything else is lost when it dies."""

    def __init__(self, world: World, enrolment: int) -> None:
        self.world = world
        self.guard = ReplayGuard(enrolment=enrolment, epoch=Epoch(0, "0" * 16), born_s=0.0)
        self.records: dict[CommandId, CommandRecord] = {}
        self.tokens: dict[CommandId, UnitRun] = {}
        self.receipted: set[CommandId] = set()
        self.acted: set[CommandId] = set()
        self.stamps = StampCounter(enrolment=enrolment, epoch=self.guard.epoch)

    def start(self) -> list[Up]:
        """Begin or begin again after a crash, and connect."""
        self.acted.clear()
        for record in list(self.records.values()):
            self._resume(record)
        return self.connect()

    def connect(self) -> list[Up]:
        nonce = f"{self.guard.epoch.count + 1:016x}"
        self.guard = self.guard.born(nonce=nonce, now_s=self.world.boottime_s)
        self.stamps = StampCounter(enrolment=self.guard.enrolment, epoch=self.guard.epoch)
        numbers = {"seq": self.guard.highest, "floor": self.guard.floor, "observed_rev": 0}
        stamp = self._stamp()
        where = {"enrolment": stamp.enrolment, "epoch": stamp.epoch, "n": stamp.n}
        return [a_birth().model_copy(update={**where, **numbers}), *self.unreceipted()]

    def unreceipted(self) -> list[Up]:
        ends = (one for one in self.records.values() if one.state.terminal and one.id not in self.receipted)
        return [self.result(one) for one in ends]

    def _stamp(self) -> Stamp:
        self.stamps, stamp = self.stamps.next()
        return stamp

    def result(self, record: CommandRecord) -> Up:
        stamp = self._stamp()
        state, code = record.state, record.code or None
        result = CommandResult(
            enrolment=stamp.enrolment, epoch=stamp.epoch, n=stamp.n, op=record.op, state=state, code=code
        )
        return record.id, result

    def reported(self) -> Up:
        stamp = self._stamp()
        return Reported(
            enrolment=stamp.enrolment,
            epoch=stamp.epoch,
            n=stamp.n,
            age_s=int(self.world.boottime_s - self.guard.born_s),
            observed_rev=0,
            applied_rev=0,
            seq=self.guard.highest,
            floor=self.guard.floor,
            items={},
        )

    def receive(self, message: Down) -> list[Up]:
        if isinstance(message, Receipt):
            self.receipted |= {one for one in message.results if one in self.records}
            self._forget()
            return [self.reported()] if message.ask else []
        id_, op, command = message
        try:
            verdict = self.guard.judge(command, known=id_ in self.records, now_s=self.world.boottime_s)
        except MessageRefusedError:
            return []
        record = CommandRecord(id=id_, op=op, seq=command.seq, args={}, until_s=0, left_s=0, boot=self.world.boot)
        match verdict:
            case TakeCommand(guard, until_s):
                self.guard = guard
                self.records[id_] = record.renewed(until_s, boot=self.world.boot, now_s=self.world.boottime_s)
            case ExpiredCommand(guard):
                self.guard = guard
                self.records[id_] = record.expired()
            case KnownCommand(guard, until_s):
                self.guard = guard
                known = self.records[id_]
                self.records[id_] = known.renewed(until_s, boot=self.world.boot, now_s=self.world.boottime_s)
            case ForgottenCommand(guard):
                self.guard = guard
                return [self.result(replace(record, state=CommandState.UNKNOWN, code=ResultCode.FORGOTTEN))]
            case RefuseCommand(code):
                return [self._not_taken(id_, op, code, for_seq=command.seq)]
        return [self.result(self.records[id_])]

    def _not_taken(self, id_: CommandId, op: OpName, code: ResultCode, *, for_seq: int) -> Up:
        stamp = self._stamp()
        answer = CommandNotTaken(
            enrolment=stamp.enrolment,
            epoch=stamp.epoch,
            n=stamp.n,
            age_s=int(self.world.boottime_s - self.guard.born_s),
            op=op,
            state="NOT_TAKEN",
            code=code,
            for_seq=for_seq,
            seq=self.guard.highest,
            floor=self.guard.floor,
            observed_rev=0,
        )
        return id_, answer

    def _forget(self) -> None:
        old = sorted(
            (one.seq, id_) for id_, one in self.records.items() if id_ in self.receipted and one.seq <= self.guard.floor
        )
        held = min((one.seq for id_, one in self.records.items() if id_ not in self.receipted), default=2**53)
        for seq, id_ in old[:-REMEMBERED]:
            if seq < held:
                self.guard = self.guard.forgets(seq)
                del self.records[id_]

    def step(self, id_: CommandId) -> list[Up]:
        """Do the next thing for one command; each call is a point at which the box can die."""
        before = self.records[id_]
        record = self._next(before)
        self.records[id_] = record
        return [] if record is before else [self.result(record)]

    def _next(self, record: CommandRecord) -> CommandRecord:
        if record.state.terminal:
            return record
        if not record.state.begun:
            in_time = record.may_begin(self.world.boot, self.world.boottime_s)
            if not in_time:
                return record if in_time is None else record.expired()
        if record.state is CommandState.RECEIVED:
            return record.admitted(ABLE, room=True)
        if record.state is CommandState.ACCEPTED:
            here, now_s = self.world.boot, self.world.boottime_s
            if record not in to_begin(self.records.values(), boot=here, now_s=now_s):
                return record
            self.tokens[record.id] = self.world.unit()
            self.world.begun_at_s[record.id] = self.world.clock_s
            return record.begun("token" if record.op == RESTART else "")
        return self._act(record) if record.state is CommandState.RUNNING else record.ended(CommandState.SUCCEEDED)

    def _act(self, record: CommandRecord) -> CommandRecord:
        if record.id in self.acted:
            return record.verifying()
        self.acted.add(record.id)
        self.world.done[record.id] += 1
        self.world.restarts += record.op == RESTART
        return record

    def _resume(self, record: CommandRecord) -> None:
        token = self.tokens.get(record.id, self.world.unit())
        evidence = token.evidence(self.world.unit())
        decision = after_crash(
            record, RecoveryProbe(boot=self.world.boot, now_s=self.world.boottime_s, evidence=evidence)
        )
        match decision:
            case RecoveryStep.ACT_AGAIN:
                self.records[record.id] = record.again()
            case RecoveryStep.VERIFY if record.state is CommandState.RUNNING:
                self.records[record.id] = record.verifying()
            case EndStep(state, code, text):
                self.records[record.id] = record.ended(state, code, text)


@dataclass
class Store:
    """What a controller keeps; a backup is a copy of it."""

    sequence: CommandSequence
    tracked: dict[CommandId, TrackedCommand] = field(default_factory=dict)
    orphans: dict[CommandId, CommandState] = field(default_factory=dict)

    def copy(self) -> "Store":
        return Store(self.sequence, dict(self.tracked), dict(self.orphans))


class SimController:
    """A controller: its store, and the clock that is passed in."""

    def __init__(self, store: Store, world: World) -> None:
        self.store = store
        self.world = world

    def outstanding(self) -> list[int]:
        return [one.seq for one in self.store.tracked.values() if one.seq is not None and not one.ended]

    def ask(self) -> list[Down]:
        """Return a receipt that asks for what the numbers are, as at a controller's start."""
        return [self._receipt((), ask=("reported",))]

    def _receipt(self, results: tuple[CommandId, ...], ask: tuple[str, ...] = ()) -> Receipt:
        sequence = self.store.sequence
        epoch = sequence.epoch or Epoch(0, "0" * 16)
        return Receipt(enrolment=sequence.enrolment, epoch=epoch, n=0, results=results, rev=0, server_time=0, ask=ask)

    def step(self) -> list[Down]:
        """Sign and send what is due."""
        return list(self._send())

    def _send(self) -> Iterator[Down]:
        for id_ in list(self.store.tracked):
            at_s = self.store.tracked[id_].send_at_s(self.store.sequence)
            if at_s is None or at_s > self.world.clock_s:
                continue
            send = prepare_send(
                self.store.tracked[id_],
                self.store.sequence,
                outstanding=self.outstanding(),
                now_s=self.world.clock_s,
            )
            if send is not None:
                self.store.sequence, self.store.tracked[id_] = send.sequence, send.tracked
                yield id_, send.tracked.op, send.body

    def receive(self, message: Up, *, live: bool = True) -> list[Down]:
        try:
            return self._receive(message, live=live)
        except MessageRefusedError:
            return []

    def _receive(self, message: Up, *, live: bool) -> list[Down]:
        now_s, sequence = self.world.clock_s, self.store.sequence
        if isinstance(message, Birth):
            self._learn(sequence.on_birth(message, now_s=now_s, live=live))
            return []
        if isinstance(message, Reported):
            self._learn(sequence.on_uplink(message, now_s=now_s))
            return []
        id_, answer = message
        tracked = self.store.tracked.get(id_)
        check_stamp(answer.stamp, tracked.stamp if tracked else None, enrolment=sequence.enrolment)
        if isinstance(answer, CommandNotTaken):
            self._learn(sequence.on_uplink(answer, now_s=now_s))
            if tracked is not None:
                self.store.tracked[id_] = self.store.tracked[id_].on_not_taken(answer)
            return []
        if tracked is not None:
            self.store.tracked[id_] = tracked.on_result(answer, now_s=now_s)
        elif answer.state.terminal:
            self.store.orphans[id_] = answer.state
        return [self._receipt((id_,))] if answer.state.terminal else []

    def _learn(self, after: CommandSequence) -> None:
        before, self.store.sequence = self.store.sequence, after
        for id_, one in self.store.tracked.items():
            anew = after.enrolment > before.enrolment
            self.store.tracked[id_] = one.reimaged() if anew else one.learned(before, after)
