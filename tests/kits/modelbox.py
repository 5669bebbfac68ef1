"""A box made of the protocol's rules, and a world that keeps its own count of what was really done."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel

from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.keys import KeyRing, next_link, public_text
from edgegpu_sync.messages.downlink import Command, Desired, Keys, KeySetLink, Receipt, RefreshRequest
from edgegpu_sync.messages.readers import read
from edgegpu_sync.messages.spec import asked
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.telemetry import Event
from edgegpu_sync.messages.uplink import Birth, BoxVersions, CommandNotTaken, CommandResult, LastWill, Reported
from edgegpu_sync.rules.commands import (
    CommandRecord,
    EndStep,
    RecoveryProbe,
    RecoveryStep,
    after_crash,
    to_begin,
)
from edgegpu_sync.rules.ops import OPS, Evidence, RestartRule
from edgegpu_sync.rules.replay_guard import (
    ExpiredCommand,
    ForgottenCommand,
    KnownCommand,
    RefuseCommand,
    ReplayGuard,
    SeenRevision,
    TakeCommand,
)
from edgegpu_sync.rules.replay_guard import StampCounter as Stamps
from edgegpu_sync.rules.settle import DesiredState, ItemEnd, Settlement, sharing_command
from edgegpu_sync.signing import Signer, open_down
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.topics import CommandTopic, PlainKind, PlainTopic, Topic, TopicKind, parse
from edgegpu_sync.wire import digest, encode

ROOT = Ed25519PrivateKey.from_private_bytes(b"r" * 32)
SIGNING = Ed25519PrivateKey.from_private_bytes(b"c" * 32)
CHAIN: tuple[KeySetLink, ...] = (next_link(ROOT, keys=[public_text(SIGNING)]),)
CLUSTER = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
START_S, RESEND_S, REPORT_S = 1_790_000_000.0, 40.0, 600.0
Payload = tuple[str, bytes, bool]


@dataclass
class World:
    """Time as it goes by, how far the controller's clock was set back, and what was really done."""

    now_s: float = START_S
    back_s: float = 0.0
    done: Counter[tuple[DeviceId, CommandId]] = field(default_factory=Counter)

    def clock(self) -> float:
        return self.now_s - self.back_s


def box_key(device: DeviceId, enrolment: int = 1) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(f"{device}{enrolment:016d}".encode())


def instance_of(device: DeviceId) -> str:
    return device.encode().hex().ljust(64, "0")


class ModelBox:
    """A box: what `died` keeps is its journal. It says what it sends; the network carries it."""

    def __init__(self, world: World, device: DeviceId, *, enrolment: int = 1, instance: str = "") -> None:
        self.world, self.device = world, device
        self.instance = instance or instance_of(device)
        self.signer = Signer.of(box_key(device, enrolment))
        self.ring = KeyRing.pinned(public_text(ROOT)).follow(CHAIN)
        self.guard = ReplayGuard(enrolment=enrolment, epoch=Epoch(0, "0" * 16), born_s=0.0)
        self.stamps = Stamps(enrolment=enrolment, epoch=self.guard.epoch)
        self.desired_state = DesiredState()
        self.records: dict[CommandId, CommandRecord] = {}
        self.receipted: set[CommandId] = set()
        self.acted: set[CommandId] = set()
        self.events: list[Event] = []
        self.refused: Counter[str] = Counter()
        self.outgoing: list[Payload] = []
        self.server_time = 0
        self.resend_at_s = self.report_at_s = 0.0
        self.rng = random.Random(f"{device}{enrolment}")
        self.cluster = CLUSTER
        self.capabilities: tuple[str, ...] = tuple(OPS)
        self.answers: dict[str, dict[str, Any]] = {}
        """By op: what its result holds as data."""
        self.ends: dict[str, tuple[CommandState, ResultCode, str]] = {}
        """By op: how it ends, where not well."""
        self.agent = "0.2.0"
        self.verdict: Callable[[str], Settlement] = lambda _: Settlement.applied()

    # what goes up

    def _up(self) -> dict[str, object]:
        self.stamps, stamp = self.stamps.next()
        return {"enrolment": stamp.enrolment, "epoch": stamp.epoch, "n": stamp.n, "age_s": self.age_s}

    @property
    def age_s(self) -> int:
        return int(self.world.now_s - self.guard.born_s)

    def say(self, topic: Topic, body: BaseModel) -> None:
        data = body.model_dump_json(exclude_none=True).encode()
        self.outgoing.append((str(topic), self.signer.seal(topic, data), topic.kind.retained))

    def plain(self, kind: PlainKind) -> PlainTopic:
        return PlainTopic(self.device, kind)

    def born(self) -> Payload:
        """Begin a birth; returns the will that goes to the broker with it."""
        self.guard = self.guard.born(nonce=f"{self.rng.getrandbits(64):016x}", now_s=self.world.now_s)
        self.stamps = Stamps(enrolment=self.guard.enrolment, epoch=self.guard.epoch)
        self.outgoing.clear()
        self.say_birth()
        self.stamps, stamp = self.stamps.next()
        will = LastWill(enrolment=stamp.enrolment, epoch=stamp.epoch, n=stamp.n, state="will")
        self.say_reported()
        self.say_results(list(self.records))
        return str(self.plain(TopicKind.STATUS)), self.signer.seal(self.plain(TopicKind.STATUS), encode(will)), True

    def say_birth(self) -> None:
        birth = Birth.model_validate(
            {
                **self._up(),
                "state": "birth",
                "instance": self.instance,
                "boot": "4a3c9f1e-8a6f-4a34-9d2d-6a0f0b7c1d2e",
                "versions": BoxVersions(agent=self.agent),
                "capabilities": self.capabilities,
                "seq": self.guard.highest,
                "floor": self.guard.floor,
                "observed_rev": self.desired_state.seen.rev,
                "key_set": self.ring.version,
                "one_result_topic": True,
            }
        )
        self.say(self.plain(TopicKind.STATUS), birth)

    def say_reported(self) -> None:
        self.report_at_s = self.world.now_s + REPORT_S
        reported = Reported.model_validate(
            {
                **self._up(),
                "observed_rev": self.desired_state.seen.rev,
                "observed_hash": self.desired_state.seen.digest,
                "applied_rev": self.desired_state.applied_rev,
                "seq": self.guard.highest,
                "floor": self.guard.floor,
                "items": self.desired_state.report(),
                "cluster": self.cluster,
            }
        )
        self.say(self.plain(TopicKind.REPORTED), reported)

    def say_results(self, ids: list[CommandId], *, again: bool = False) -> None:
        for id_ in ids:
            one = self.records[id_]
            if id_ not in self.receipted or again:
                fields: dict[str, Any] = {
                    "op": one.op,
                    "state": one.state,
                    "code": one.code or None,
                    "text": one.text or None,
                }
                if one.state.terminal and one.op in self.answers:
                    fields["data"] = self.answers[one.op]
                self.say(
                    self.plain(TopicKind.RESULT), CommandResult.model_validate({**self._up(), "id": id_, **fields})
                )

    def happen(self, text: str, level: str = "warning", kind: str = "card.lost") -> None:
        event = Event.model_validate({**self._up(), "kind": kind, "level": level, "text": text, "at": 1})
        self.events.append(event)
        self.say(self.plain(TopicKind.EVENT), event)

    # what comes down

    def receive(self, topic_text: str, payload: bytes) -> None:
        try:
            topic = parse(topic_text)
            message = read(topic.kind, open_down(topic, payload, me=self.device, ring=self.ring))
            match message:
                case Keys():
                    self.ring = self.ring.follow(message.chain)
                    self.say_birth()
                case Desired():
                    self._desired(message)
                case Receipt():
                    self._receipt(message)
                case Command():
                    assert isinstance(topic, CommandTopic)
                    self._command(topic, message)
        except MessageRefusedError as error:
            self.refused[error.why] += 1

    def _desired(self, desired: Desired) -> None:
        seen = SeenRevision(self.desired_state.seen.rev, self.desired_state.seen.digest)
        new = seen.observe(desired, digest=digest(desired.spec), enrolment=self.guard.enrolment)
        if new is not None:
            self.desired_state = self.desired_state.observe(new, asked(desired.spec, desired.rev))
        self.say_reported()

    def _receipt(self, receipt: Receipt) -> None:
        if receipt.enrolment != self.guard.enrolment:
            return
        self.server_time = max(self.server_time, receipt.server_time)
        self.receipted |= {one for one in receipt.results if one in self.records}
        upto = Stamp(enrolment=receipt.enrolment, epoch=receipt.epoch, n=receipt.n)
        self.events = [one for one in self.events if one.stamp != upto and not upto.after(one.stamp)]
        if RefreshRequest.STATUS in receipt.ask:
            self.say_birth()
        if RefreshRequest.REPORTED in receipt.ask:
            self.say_reported()

    def _command(self, topic: CommandTopic, command: Command) -> None:
        now_s = self.world.now_s
        verdict = self.guard.judge(command, known=topic.id in self.records, now_s=now_s)
        new = CommandRecord(
            id=topic.id, op=topic.op, seq=command.seq, args=command.args, until_s=0, left_s=0, boot="boot"
        )
        match verdict:
            case TakeCommand(guard, until_s):
                self.guard, self.records[topic.id] = guard, new.renewed(until_s, boot="boot", now_s=now_s)
            case ExpiredCommand(guard):
                self.guard, self.records[topic.id] = guard, new.expired()
            case KnownCommand(guard, until_s):
                self.guard = guard
                self.records[topic.id] = self.records[topic.id].renewed(until_s, boot="boot", now_s=now_s)
            case ForgottenCommand(guard):
                self.guard = guard
                body = {"id": topic.id, "op": topic.op, "state": CommandState.UNKNOWN, "code": ResultCode.FORGOTTEN}
                self.say(self.plain(TopicKind.RESULT), CommandResult.model_validate({**self._up(), **body}))
                return
            case RefuseCommand(code):
                self._not_taken(topic, command, code)
                return
        self.say_results([topic.id], again=True)

    def _not_taken(self, topic: CommandTopic, command: Command, code: ResultCode) -> None:
        body = {
            **self._up(),
            "id": topic.id,
            "op": topic.op,
            "state": "NOT_TAKEN",
            "code": code,
            "for_seq": command.seq,
            "seq": self.guard.highest,
            "floor": self.guard.floor,
            "observed_rev": self.desired_state.seen.rev,
        }
        self.say(self.plain(TopicKind.RESULT), CommandNotTaken.model_validate(body))

    # what it does

    def work(self) -> None:
        """Do the next thing of each kind, and say again what waits for its receipt."""
        self._settle_one()
        for id_ in list(self.records):
            before = self.records[id_]
            self.records[id_] = after = self._next(before)
            if after is not before:
                self.say_results([id_])
        if self.world.now_s >= self.resend_at_s:
            self.resend_at_s = self.world.now_s + RESEND_S
            self.say_results([id_ for id_, one in self.records.items() if one.state.terminal])
            for event in self.events:
                self.say(self.plain(TopicKind.EVENT), event)
        if self.world.now_s >= self.report_at_s:
            self.say_reported()

    def _settle_one(self) -> None:
        one = self.desired_state.next()
        if one is not None:
            self.desired_state = self.desired_state.begin(one).settle(one.name, one.key, self.verdict(one.name))
            self.say_reported()

    def _next(self, record: CommandRecord) -> CommandRecord:
        if record.state.terminal:
            return record
        if not record.state.begun and record.may_begin("boot", self.world.now_s) is False:
            return record.expired()
        return self._forward(record)

    def _forward(self, record: CommandRecord) -> CommandRecord:
        if record.state is CommandState.RECEIVED:
            return record.admitted(OPS, room=True)
        if record.op.startswith("sharing."):
            return self._sharing(record)
        if record.state is CommandState.ACCEPTED:
            return self._begin(record)
        return self._act(record) if record.state is CommandState.RUNNING else self._ended(record)

    def _begin(self, record: CommandRecord) -> CommandRecord:
        if record not in to_begin(self.records.values(), boot="boot", now_s=self.world.now_s):
            return record
        return record.begun("token" if OPS[record.op].settling is RestartRule.VERIFIABLE else "")

    def _act(self, record: CommandRecord) -> CommandRecord:
        if record.id in self.acted:
            return record.verifying()
        self.acted.add(record.id)
        self.world.done[self.device, record.id] += 1
        return record

    def _ended(self, record: CommandRecord) -> CommandRecord:
        """End a command as `ends` has it, else well: after an upgrade another version of the agent says the birth."""
        if record.op in self.ends:
            return record.ended(*self.ends[record.op])
        if record.op == "agent.upgrade":
            self.agent = str(record.args["version"])
            self.say_birth()
        return record.ended(CommandState.SUCCEEDED)

    def _sharing(self, record: CommandRecord) -> CommandRecord:
        if record.state is CommandState.ACCEPTED:
            return record.begun("transaction")
        minimum = record.args["min_rev"]
        assert isinstance(minimum, int)
        stands = sharing_command(record.op, minimum, self.desired_state)
        return record.ended(stands.state, stands.code, stands.text) if isinstance(stands, ItemEnd) else record

    def died(self) -> None:
        """Lose what is not in the journal, and settle what was under way."""
        self.outgoing.clear()
        acted, self.acted = self.acted, set()
        for record in list(self.records.values()):
            evidence = Evidence.DONE if record.id in acted else Evidence.NOT_DONE
            match after_crash(record, RecoveryProbe(boot="boot", now_s=self.world.now_s, evidence=evidence)):
                case RecoveryStep.ACT_AGAIN:
                    self.records[record.id] = record.again()
                case RecoveryStep.VERIFY if record.state is CommandState.RUNNING:
                    self.records[record.id] = record.verifying()
                case EndStep(state, code, text):
                    self.records[record.id] = record.ended(state, code, text)
