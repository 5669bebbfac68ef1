"""A model of the controller on the pure rules: sequence, tracked commands, receipts."""

from collections import Counter as Tally

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kits.workerworld import World

from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.ids import CommandId, OpName, command_id, device_id, op_name
from edgegpu_sync.keys import next_link, public_text
from edgegpu_sync.messages.downlink import Command, Desired, Keys, KeySetLink, Receipt
from edgegpu_sync.messages.readers import Message, read, result_id
from edgegpu_sync.messages.spec import Sharing, Spec
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.telemetry import Event
from edgegpu_sync.messages.uplink import Birth, CommandNotTaken, CommandResult, Reported
from edgegpu_sync.rules.sequence import CommandSequence, check_stamp
from edgegpu_sync.rules.tracking import TrackedCommand, prepare_send
from edgegpu_sync.signing import Signer, bare, open_up
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import CommandTopic, PlainKind, PlainTopic, Topic, TopicKind, parse
from edgegpu_sync.wire import Json, MessageBody, digest, encode

DEVICE = device_id("k3f9x2m7q1w8e5r4")
INSTANCE = "ab" * 32
RESTART, REFRESH, LOGS = op_name("k3s.restart"), op_name("inventory.refresh"), op_name("logs.collect")
INSTALL, UNINSTALL = op_name("sharing.install"), op_name("sharing.uninstall")
ROOT = Ed25519PrivateKey.from_private_bytes(bytes(32))
CONTROLLER = Ed25519PrivateKey.from_private_bytes(bytes([1] * 32))
BOX_KEY = Ed25519PrivateKey.from_private_bytes(bytes([2] * 32))
LOGS_ARGS: Json = {"url": "https://cloud.example/uploads/"}


class Controller:
    """A model of the controller on the pure rules: sequence, tracked commands, receipts; signs with its key."""

    def __init__(self, world: World, enrolment: int = 3) -> None:
        self.world = world
        self.sequence = CommandSequence(enrolment=enrolment, instance=INSTANCE)
        self.signer = Signer.of(CONTROLLER)
        self.chain: list[KeySetLink] = [next_link(ROOT, keys=[public_text(CONTROLLER)])]
        self.tracked: dict[CommandId, TrackedCommand] = {}
        self.ends: dict[CommandId, list[CommandState]] = {}
        self.desired: Desired | None = None
        self.last: dict[object, Stamp] = {}
        self.reported: Reported | None = None
        self.refused: Tally[str] = Tally()
        self.seen: list[Message] = []
        self.events: list[str] = []
        self.stored: list[Event] = []
        self.results: dict[CommandId, CommandResult] = {}
        self.made = 0
        self.one_result_topic = True

    # --- what a person does

    def command(self, op: OpName, args: Json | None = None, *, wait_s: float = 3_600) -> CommandId:
        self.made += 1
        id_ = command_id(f"command-{self.made:04d}")
        self.tracked[id_] = TrackedCommand(id=id_, op=op, args=args or {}, due_at_s=self.world.clock_s + wait_s)
        return id_

    def desire(self, spec: Spec) -> int:
        text = spec.to_json()
        self.sequence = self.sequence.give_rev(digest(text))
        self.desired = Desired(enrolment=self.sequence.enrolment, rev=self.sequence.rev, spec=text)
        return self.sequence.rev

    def sharing(self, *, installed: bool) -> tuple[int, CommandId]:
        rev = self.desire(Spec(sharing=Sharing(rev=self.sequence.rev + 1, installed=installed)))
        return rev, self.command(INSTALL if installed else UNINSTALL, {"min_rev": rev})

    # --- what it sends

    def _down(self, kind: PlainKind, body: MessageBody) -> tuple[str, bytes]:
        topic = PlainTopic(DEVICE, kind)
        return str(topic), self.signer.seal(topic, encode(body))

    def keys(self) -> tuple[str, bytes]:
        return str(PlainTopic(DEVICE, TopicKind.KEYS)), bare(encode(Keys(chain=tuple(self.chain))))

    def desired_message(self) -> list[tuple[str, bytes]]:
        return [] if self.desired is None else [self._down(TopicKind.DESIRED, self.desired)]

    def receipt(
        self,
        results: tuple[CommandId, ...] = (),
        *,
        ask: tuple[str, ...] = (),
        spread: bool = False,
        ahead_s: int = 0,
    ) -> tuple[str, bytes]:
        stored = self.last.get(TopicKind.EVENT)  # never a newer one: the box drops events up to it
        receipt = Receipt(
            enrolment=self.sequence.enrolment,
            epoch=stored.epoch if stored else Epoch(0, "0" * 16),
            n=stored.n if stored else 0,
            results=results,
            rev=self.sequence.rev,
            server_time=int(1_800_000_000 + self.world.clock_s + ahead_s),
            ask=ask,
            spread=spread,
            one_result_topic=self.one_result_topic,
        )
        return self._down(TopicKind.RECEIPT, receipt)

    def sends(self) -> list[tuple[str, bytes]]:
        """Return what is due to be sent."""
        now_s = self.world.clock_s
        out: list[tuple[str, bytes]] = []
        for tracked in list(self.tracked.values()):
            at_s = tracked.send_at_s(self.sequence)
            if at_s is not None and at_s <= now_s:
                out += self._sign(tracked)
        return out

    def _sign(self, tracked: TrackedCommand) -> list[tuple[str, bytes]]:
        outstanding = [one.seq for one in self.tracked.values() if one.seq is not None and not one.ended]
        signed = prepare_send(tracked, self.sequence, outstanding=outstanding, now_s=self.world.clock_s)
        if signed is None:
            return []
        self.sequence, self.tracked[tracked.id] = signed.sequence, signed.tracked
        return [self.command_message(tracked.op, tracked.id, signed.body)]

    def command_message(self, op: OpName, id_: CommandId, body: Command) -> tuple[str, bytes]:
        topic = CommandTopic(DEVICE, op, id_)
        return str(topic), self.signer.seal(topic, encode(body))

    # --- what it hears

    def hear(self, topic: str, payload: bytes) -> list[tuple[str, bytes]]:
        """Take an uplink; returns what it answers at once."""
        try:
            return self._hear(parse(topic), payload)
        except MessageRefusedError as error:
            self.refused[error.why] += 1
            known = error.why is RefusalReason.OLD_STAMP and parse(topic).kind is TopicKind.EVENT
            return [self.receipt()] if known else []

    def _hear(self, topic: Topic, payload: bytes) -> list[tuple[str, bytes]]:
        message = read(topic.kind, open_up(topic, payload, public=public_text(BOX_KEY)))
        if not isinstance(message, Command | Desired | Receipt | Keys):
            key = result_id(topic, message) or topic.kind
            check_stamp(message.stamp, self.last.get(key), enrolment=self.sequence.enrolment)
            self.last[key] = message.stamp
        self.seen.append(message)
        return self._act_on(topic, message)

    def _act_on(self, topic: Topic, message: Message) -> list[tuple[str, bytes]]:
        now_s = self.world.clock_s
        answers: list[tuple[str, bytes]] = []
        match message:
            case Birth():
                self.sequence = self.sequence.on_birth(message, now_s=now_s, live=True)
                answers = [self.keys(), self.receipt(), *self.desired_message(), *self.sends()]
            case Reported():
                self.sequence = self.sequence.on_uplink(message, now_s=now_s)
                self.reported = message
                answers = self.desired_message() if message.observed_rev < self.sequence.rev else []
            case CommandResult() if (id_ := result_id(topic, message)) is not None:
                answers = self._on_result(id_, message)
            case CommandNotTaken() if (id_ := result_id(topic, message)) is not None:
                self.sequence = self.sequence.on_uplink(message, now_s=now_s)
                self.tracked[id_] = self.tracked[id_].on_not_taken(message)
            case Event():
                self.events.append(message.text)
                self.stored.append(message)
                answers = [self.receipt()]
            case _:
                pass
        return answers

    def _on_result(self, id_: CommandId, result: CommandResult) -> list[tuple[str, bytes]]:
        before = self.tracked[id_]
        after = self.tracked[id_] = before.on_result(result, now_s=self.world.clock_s)
        if result.state.terminal:
            self.results[id_] = result
            ends = self.ends.setdefault(id_, [])
            if not before.ended or result.state not in ends:
                ends.append(result.state)
        return [self.receipt((id_,))] if after.ended else []
