"""A worker in simulated time: a clock, a link in memory, acts with a ledger of their own, a model of the controller."""

import json
import random
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgegpu_agent.acts.act import Acts, Notes, Outcome, Settlers
from edgegpu_agent.daemon.executor import caught
from edgegpu_agent.daemon.worker import Parts, Worker
from edgegpu_agent.daemon.workerports import Clock, Me, NoTelemetry, Raised, TelemetrySource
from edgegpu_agent.journal.journal import Hook, Journal
from edgegpu_agent.journal.room import Room
from edgegpu_sync.book import Book, check_stamp
from edgegpu_sync.down import Command, Desired, Keys, Link, Receipt
from edgegpu_sync.errors import RefusedError
from edgegpu_sync.ids import CommandId, OpName, command_id, device_id, op_name
from edgegpu_sync.keys import next_link, public_text
from edgegpu_sync.linkevents import Arrived, Delivered, Down, Up
from edgegpu_sync.messages import Message, read
from edgegpu_sync.ops import Args, Evidence, UnitRun
from edgegpu_sync.outbox import Limits
from edgegpu_sync.settle import Settlement
from edgegpu_sync.signing import Signer, bare, open_up
from edgegpu_sync.spec import AppLimits, Asked, Sharing, Spec
from edgegpu_sync.stamps import Stamp
from edgegpu_sync.states import State
from edgegpu_sync.topics import CommandTopic, Kind, PlainKind, PlainTopic, Topic, parse
from edgegpu_sync.tracking import Tracked, sign
from edgegpu_sync.up import Birth, Bye, NotTaken, Reported, Result, Versions, Will
from edgegpu_sync.wire import Body, Json, digest, encode

DEVICE = device_id("k3f9x2m7q1w8e5r4")
INSTANCE = "ab" * 32
RESTART, REFRESH, LOGS = op_name("k3s.restart"), op_name("inventory.refresh"), op_name("logs.collect")
INSTALL, UNINSTALL = op_name("sharing.install"), op_name("sharing.uninstall")
SMALL = Limits(results=16, refusals=32, events_bytes=16_384, metrics_bytes=16_384)
ROOM = Room(pages=700, log_pages=260)
ROOT = Ed25519PrivateKey.from_private_bytes(bytes(32))
CONTROLLER = Ed25519PrivateKey.from_private_bytes(bytes([1] * 32))
BOX_KEY = Ed25519PrivateKey.from_private_bytes(bytes([2] * 32))
LOGS_ARGS: Json = {"url": "https://cloud.example/uploads/"}

T = TypeVar("T")


class CutError(BaseException):
    """The agent was killed, or the power failed."""


@dataclass
class World:
    """What really happens on the box, and its clocks; it counts, whatever the agent believes."""

    clock_s: float = 1_000.0
    booted_s: float = 0.0
    boots: int = 0
    restarts: int = 0
    restarted_by: Tally[str] = field(default_factory=Tally)
    refreshed_by: Tally[str] = field(default_factory=Tally)
    uploads: Tally[str] = field(default_factory=Tally)
    transactions: Tally[str] = field(default_factory=Tally)
    patches: list[tuple[str, int]] = field(default_factory=list)
    installed: bool = False
    ready: bool = True
    cut_at: int = -1
    steps: int = 0

    def step(self) -> None:
        """A moment at which the agent may be killed."""
        self.steps += 1
        if self.steps == self.cut_at:
            raise CutError

    @property
    def boot(self) -> str:
        return f"{self.boots:08x}-0000-4000-8000-000000000000"

    @property
    def boottime_s(self) -> float:
        return self.clock_s - self.booted_s

    def unit(self) -> UnitRun:
        return UnitRun(self.boot, str(self.restarts))

    def reboot(self) -> None:
        self.boots += 1
        self.booted_s = self.clock_s


class RestartAct:
    """k3s.restart: verifiable by boot id and invocation."""

    def __init__(self, world: World) -> None:
        self.world = world

    def token(self, _id: CommandId, _args: Args) -> str:
        self.world.step()
        unit = self.world.unit()
        return json.dumps({"boot": unit.boot, "invocation": unit.invocation})

    def act(self, id_: CommandId, _args: Args, _token: str) -> Outcome:
        self.world.step()
        self.world.restarts += 1
        self.world.restarted_by[id_] += 1
        self.world.step()
        return Outcome(state=State.VERIFYING)

    def evidence(self, _id: CommandId, token: str) -> Evidence:
        self.world.step()
        return UnitRun(**json.loads(token)).evidence(self.world.unit())

    def verify(self, _id: CommandId, _args: Args, _token: str) -> Outcome | None:
        self.world.step()
        return Outcome(state=State.SUCCEEDED, data={"ready": True}) if self.world.ready else None


class CountedAct:
    """An idempotent op; how often it was done is counted by id."""

    def __init__(self, world: World, tally: Tally[str]) -> None:
        self.world, self.tally = world, tally

    def token(self, _id: CommandId, _args: Args) -> str:
        return ""

    def act(self, id_: CommandId, _args: Args, _token: str) -> Outcome:
        self.world.step()
        self.tally[id_] += 1
        self.world.step()
        return Outcome(state=State.SUCCEEDED, data={"done": True})

    def evidence(self, _id: CommandId, _token: str) -> Evidence:
        raise AssertionError("never asked of what is idempotent")

    def verify(self, _id: CommandId, _args: Args, _token: str) -> Outcome | None:
        raise AssertionError("never asked: it ends at once")


class SharingSettler:
    """Installs or uninstalls in a transaction, whose id it notes before."""

    def __init__(self, world: World) -> None:
        self.world = world

    def settle(self, one: Asked, notes: Notes) -> Settlement:
        assert isinstance(one.item, Sharing)
        self.world.step()
        note = notes.read()
        if note is None:
            note = {"tx": f"{one.key.rev}-{len(self.world.transactions)}"}
            notes.write(note)
        tx = str(note["tx"])
        self.world.step()
        if tx not in self.world.transactions:  # the installer itself knows its own journal
            self.world.transactions[tx] += 1
            self.world.installed = one.item.installed
        self.world.step()
        return Settlement.applied()


class LimitsSettler:
    """Patches an app; more than ten units never fit."""

    def __init__(self, world: World) -> None:
        self.world = world

    def settle(self, one: Asked, notes: Notes) -> Settlement:
        assert isinstance(one.item, AppLimits)
        self.world.step()
        if one.item.memory_units > 10:
            return Settlement.rejected("NO_ROOM", "no card has room")
        if notes.read() is None:
            notes.write({"before": 1})
        self.world.step()
        self.world.patches.append((one.item.app, one.item.memory_units))
        self.world.step()
        return Settlement.applied()


class SimExecutor:
    """Runs nothing by itself: the test says when, and everything on one thread."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Callable[[], None]]] = []
        self.names: list[str] = []

    def start(self, name: str, work: Callable[[], T], then: Callable[[T | Raised], None]) -> None:
        self.names.append(name)
        self.jobs.append((name, partial(self._run, name, work, then)))

    @staticmethod
    def _run(name: str, work: Callable[[], T], then: Callable[[T | Raised], None]) -> None:
        then(caught(name, work))

    def run(self) -> bool:
        """Run the oldest job; whether there was one."""
        if not self.jobs:
            return False
        self.jobs.pop(0)[1]()
        return True


class SimLink:
    """A link in memory: what is published lies in `sent` until somebody takes it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.acked: list[Arrived] = []
        self.turn: int | None = None
        self.room = 10_000
        self.tokens = 0
        self.delivered: list[int] = []

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, turn: int | None = None) -> int | None:
        assert retain == (parse(topic).kind is Kind.STATUS)
        if self.turn is None or turn != self.turn or len(self.sent) >= self.room:
            return None
        self.sent.append((topic, payload))
        self.tokens += 1
        self.delivered.append(self.tokens)
        return self.tokens

    def ack(self, arrived: Arrived) -> None:
        self.acked.append(arrived)


@dataclass
class Box:
    """A worker on a journal; `crash` leaves nothing of it but the file."""

    folder: Path
    world: World = field(default_factory=World)
    enrolment: int = 3
    telemetry: TelemetrySource = field(default_factory=NoTelemetry)
    limits: Limits = SMALL
    room: Room = ROOM
    hook: Hook = lambda _when, _number: None
    seed: int = 7
    turns: int = 0
    epochs: int = 0
    times: list[int] = field(default_factory=list)

    def start(self) -> "Box":
        world = self.world
        self.journal = Journal(
            self.folder / "journal.db",
            limits=self.limits,
            room=self.room,
            wall_s=lambda: 1_790_000_000 + world.clock_s,
            hook=self.hook,
        )
        self.executor, self.link = SimExecutor(), SimLink()
        self.worker = Worker(
            Parts(
                journal=self.journal,
                root=public_text(ROOT),
                me=Me(
                    device=DEVICE,
                    enrolment=self.enrolment,
                    instance=INSTANCE,
                    signer=Signer.of(BOX_KEY),
                    versions=lambda: Versions(agent="0.2.0"),
                ),
                clock=Clock(boot=world.boot, boot_s=lambda: world.boottime_s, wall_s=lambda: 1_790_000_000.0),
                rng=random.Random(self.seed),
                acts=self.acts(),
                settlers=self.settlers(),
                telemetry=self.telemetry,
                executor=self.executor,
                nonce=self._nonce,
                server_time=self.times.append,
            )
        )
        self.worker.attach(self.link)
        self.worker.turn()
        return self

    def acts(self) -> Acts:
        world = self.world
        return {
            RESTART: RestartAct(world),
            REFRESH: CountedAct(world, world.refreshed_by),
            LOGS: CountedAct(world, world.uploads),
        }

    def settlers(self) -> Settlers:
        return {Sharing: SharingSettler(self.world), AppLimits: LimitsSettler(self.world)}

    def _nonce(self) -> str:
        self.epochs += 1
        return f"{self.epochs:016x}"

    def crash(self) -> None:
        """Kill it; what was being written is rolled back, as SQLite does after a kill."""
        self.journal.close()

    def connect(self) -> bytes:
        """Make a connection; returns the payload of its will."""
        will = self.worker.will()
        assert will is not None
        self.turns += 1
        self.link.turn = self.turns
        self.worker.put(Up(session_present=True, protocol=5, turn=self.turns))
        self.worker.turn()
        return will[1]

    def disconnect(self) -> None:
        self.link.turn = None
        self.link.sent.clear()
        self.link.delivered.clear()
        self.worker.put(Down("cut"))
        self.worker.turn()

    def arrive(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        self.worker.put(Arrived(topic=topic, payload=payload, retained=retained, mid=1, turn=self.turns))
        self.worker.turn()

    def deliver(self) -> None:
        """The broker acknowledges all that was published."""
        tokens, self.link.delivered = self.link.delivered, []
        for token in tokens:
            self.worker.put(Delivered(token))
        self.worker.turn()

    def settle(self, most: int = 1_000) -> None:
        """Let everything that can be done now be done."""
        for _ in range(most):
            self.worker.turn()
            if not self.executor.run():
                self.worker.turn()
                if not self.executor.jobs:
                    return
        raise AssertionError(f"it does not come to rest: {self.executor.names[-9:]}")

    def wait(self, seconds: float) -> None:
        self.world.clock_s += seconds
        self.settle()


class Controller:
    """A model of the controller on the pure rules: book, tracked commands, receipts; signs with its key."""

    def __init__(self, world: World, enrolment: int = 3) -> None:
        self.world = world
        self.book = Book(enrolment=enrolment, instance=INSTANCE)
        self.signer = Signer.of(CONTROLLER)
        self.chain: list[Link] = [next_link(ROOT, keys=[public_text(CONTROLLER)])]
        self.tracked: dict[CommandId, Tracked] = {}
        self.ends: dict[CommandId, list[State]] = {}
        self.desired: Desired | None = None
        self.last: dict[object, Stamp] = {}
        self.reported: Reported | None = None
        self.refused: Tally[str] = Tally()
        self.seen: list[Message] = []
        self.events: list[str] = []
        self.results: dict[CommandId, Result] = {}
        self.made = 0

    # --- what a person does

    def command(self, op: OpName, args: Json | None = None, *, wait_s: float = 3_600) -> CommandId:
        self.made += 1
        id_ = command_id(f"command-{self.made:04d}")
        self.tracked[id_] = Tracked(id=id_, op=op, args=args or {}, due_at_s=self.world.clock_s + wait_s)
        return id_

    def desire(self, spec: Spec) -> int:
        text = spec.to_json()
        self.book = self.book.give_rev(digest(text))
        self.desired = Desired(enrolment=self.book.enrolment, rev=self.book.rev, spec=text)
        return self.book.rev

    def sharing(self, *, installed: bool) -> tuple[int, CommandId]:
        rev = self.desire(Spec(sharing=Sharing(rev=self.book.rev + 1, installed=installed)))
        return rev, self.command(INSTALL if installed else UNINSTALL, {"min_rev": rev})

    # --- what it sends

    def _down(self, kind: PlainKind, body: Body) -> tuple[str, bytes]:
        topic = PlainTopic(DEVICE, kind)
        return str(topic), self.signer.seal(topic, encode(body))

    def keys(self) -> tuple[str, bytes]:
        return str(PlainTopic(DEVICE, Kind.KEYS)), bare(encode(Keys(chain=tuple(self.chain))))

    def desired_message(self) -> list[tuple[str, bytes]]:
        return [] if self.desired is None else [self._down(Kind.DESIRED, self.desired)]

    def receipt(
        self,
        results: tuple[CommandId, ...] = (),
        *,
        n: int = 0,
        stamp: Stamp | None = None,
        ask: tuple[str, ...] = (),
        spread: bool = False,
    ) -> tuple[str, bytes]:
        epoch = stamp.epoch if stamp else self.book.epoch
        assert epoch is not None
        receipt = Receipt(
            enrolment=self.book.enrolment,
            epoch=epoch,
            n=stamp.n if stamp else n,
            results=results,
            rev=self.book.rev,
            server_time=int(1_800_000_000 + self.world.clock_s),
            ask=ask,
            spread=spread,
        )
        return self._down(Kind.RECEIPT, receipt)

    def sends(self) -> list[tuple[str, bytes]]:
        """Return what is due to be sent."""
        now_s = self.world.clock_s
        out: list[tuple[str, bytes]] = []
        for tracked in list(self.tracked.values()):
            at_s = tracked.send_at_s(self.book)
            if at_s is not None and at_s <= now_s:
                out += self._sign(tracked)
        return out

    def _sign(self, tracked: Tracked) -> list[tuple[str, bytes]]:
        outstanding = [one.seq for one in self.tracked.values() if one.seq is not None and not one.ended]
        signed = sign(tracked, self.book, outstanding=outstanding, now_s=self.world.clock_s)
        if signed is None:
            return []
        self.book, self.tracked[tracked.id] = signed.book, signed.tracked
        return [self.command_message(tracked.op, tracked.id, signed.body)]

    def command_message(self, op: OpName, id_: CommandId, body: Command) -> tuple[str, bytes]:
        topic = CommandTopic(DEVICE, op, id_)
        return str(topic), self.signer.seal(topic, encode(body))

    # --- what it hears

    def hear(self, topic: str, payload: bytes) -> list[tuple[str, bytes]]:
        """Take an uplink; returns what it answers at once."""
        try:
            return self._hear(parse(topic), payload)
        except RefusedError as error:
            self.refused[error.why] += 1
            return []

    def _hear(self, topic: Topic, payload: bytes) -> list[tuple[str, bytes]]:
        message = read(topic.kind, open_up(topic, payload, public=public_text(BOX_KEY)))
        if not isinstance(message, Command | Desired | Receipt | Keys):
            key = topic if topic.kind is Kind.RESULT else topic.kind
            if not (isinstance(message, Birth) and message.stamp == self.last.get(key)):
                check_stamp(message.stamp, self.last.get(key), enrolment=self.book.enrolment)
            self.last[key] = message.stamp
        self.seen.append(message)
        return self._act_on(topic, message)

    def _act_on(self, topic: Topic, message: Message) -> list[tuple[str, bytes]]:
        now_s = self.world.clock_s
        match message:
            case Birth():
                self.book = self.book.on_birth(message, now_s=now_s, live=True)
                return [self.keys(), *self.desired_message(), *self.sends()]
            case Reported():
                self.book = self.book.on_uplink(message, now_s=now_s)
                self.reported = message
                return self.desired_message() if message.observed_rev < self.book.rev else []
            case Result() if not isinstance(topic, CommandTopic | PlainTopic):
                return self._on_result(topic.id, message)
            case NotTaken() if not isinstance(topic, CommandTopic | PlainTopic):
                self.book = self.book.on_uplink(message, now_s=now_s)
                self.tracked[topic.id] = self.tracked[topic.id].on_not_taken(message)
                return []
            case Will() | Bye():
                return []
            case _ if topic.kind is Kind.EVENT:
                self.events.append(str(getattr(message, "text", "")))
                return [self.receipt(stamp=message.stamp)] if not isinstance(message, Command) else []
        return []

    def _on_result(self, id_: CommandId, result: Result) -> list[tuple[str, bytes]]:
        before = self.tracked[id_]
        after = self.tracked[id_] = before.on_result(result, now_s=self.world.clock_s)
        if result.state.terminal:
            self.results[id_] = result
            ends = self.ends.setdefault(id_, [])
            if not before.ended or result.state not in ends:
                ends.append(result.state)
        return [self.receipt((id_,))] if after.ended else []


@dataclass
class Wire:
    """What is under way between box and controller, perfect unless the test makes it otherwise."""

    box: Box
    controller: Controller
    down: list[tuple[str, bytes]] = field(default_factory=list)

    def connect(self) -> None:
        self.box.connect()
        self.down += [self.controller.keys(), *self.controller.desired_message()]

    def exchange(self, rounds: int = 50) -> None:
        """Carry everything both ways until nobody says anything more."""
        for _ in range(rounds):
            self.down += self.controller.sends()
            up, self.box.link.sent = self.box.link.sent, []
            self.box.deliver()
            for topic, payload in up:
                self.down += self.controller.hear(topic, payload)
            down, self.down = self.down, []
            for topic, payload in down:
                self.box.arrive(topic, payload)
            self.box.settle()
            if not up and not down and not self.box.link.sent:
                return
        raise AssertionError("they never stop talking")

    def pass_time(self, seconds: float, step_s: float = 1.0) -> None:
        end_s = self.box.world.clock_s + seconds
        while self.box.world.clock_s < end_s:
            self.box.wait(step_s)
            self.exchange()


def wired(folder: Path, **box: object) -> Wire:
    """Return a box that is connected to a controller, keys and birth exchanged."""
    made = replace(Box(folder), **box)  # type: ignore[arg-type]
    wire = Wire(made.start(), Controller(made.world))
    wire.connect()
    wire.exchange()
    return wire
