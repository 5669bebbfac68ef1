"""A worker in simulated time: a clock, a link in memory, threads that run when the test says so."""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kits.workercontroller import BOX_KEY, DEVICE, INSTANCE, LOGS, REFRESH, RESTART, ROOT, Controller
from kits.workerworld import (
    BY_FORM,
    CountedAct,
    LimitsSettler,
    NoTelemetry,
    RestartAct,
    SharingSettler,
    SharingUnseen,
    World,
)

from edgegpu_agent.journal.disk_space import JournalPages
from edgegpu_agent.journal.journal import BoxJournal, Hook
from edgegpu_agent.ports import Acts, BoxContext, Clock, Settlers, SharingProbe, TelemetrySource
from edgegpu_agent.worker.executor import RaisedError, caught
from edgegpu_agent.worker.worker import Worker, WorkerParts
from edgegpu_installer.transaction.ended import EndedTransaction
from edgegpu_sync.keys import public_text
from edgegpu_sync.link.events import LinkDown, LinkUp, MessageArrived, PublishAcknowledged
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.messages.spec import AppLimits, Sharing
from edgegpu_sync.messages.uplink import BoxVersions
from edgegpu_sync.rules.outbox import OutboxSizes
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import TopicKind, parse

SMALL = OutboxSizes(results=16, refusals=32, events_bytes=16_384, metrics_bytes=16_384)
ROOM = JournalPages(pages=700, log_pages=260)

T = TypeVar("T")


class SimExecutor:
    """Runs nothing by itself: the test says when, and everything on one thread."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Callable[[], None]]] = []
        self.names: list[str] = []

    def start(self, name: str, work: Callable[[], T], then: Callable[[T | RaisedError], None]) -> None:
        self.names.append(name)
        self.jobs.append((name, partial(self._run, name, work, then)))

    @staticmethod
    def _run(name: str, work: Callable[[], T], then: Callable[[T | RaisedError], None]) -> None:
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
        self.acked: list[MessageArrived] = []
        self.connection: int | None = None
        self.room = 10_000
        self.tokens = 0
        self.delivered: list[int] = []

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, connection: int | None = None) -> int | None:
        assert retain == (parse(topic).kind is TopicKind.STATUS)
        if self.connection is None or connection != self.connection or len(self.sent) >= self.room:
            return None
        self.sent.append((topic, payload))
        self.tokens += 1
        self.delivered.append(self.tokens)
        return self.tokens

    def ack(self, arrived: MessageArrived) -> None:
        self.acked.append(arrived)


@dataclass
class Box:
    """A worker on a journal; `crash` leaves nothing of it but the file."""

    folder: Path
    world: World = field(default_factory=World)
    enrolment: int = 3
    telemetry: TelemetrySource = field(default_factory=NoTelemetry)
    limits: OutboxSizes = SMALL
    room: JournalPages = ROOM
    hook: Hook = lambda _when, _change: None
    seed: int = 7
    turns: int = 0
    epochs: int = 0
    times: list[int] = field(default_factory=list)
    most_time: int = 2**53
    """Later times are not believed."""
    keys: Sequence[KeySetLink] = ()
    """The key sets that came with its enrolment."""
    ended: tuple[EndedTransaction, ...] = ()
    """The transactions of its installer that have ended."""

    def start(self) -> "Box":
        world = self.world
        self.journal = BoxJournal(
            self.folder / "journal.db",
            limits=self.limits,
            room=self.room,
            wall_s=lambda: 1_790_000_000 + world.clock_s,
            hook=self.hook,
        )
        self.executor, self.link = SimExecutor(), SimLink()
        self.worker = Worker(
            WorkerParts(
                journal=self.journal,
                root=public_text(ROOT),
                keys=self.keys,
                me=BoxContext(
                    device=DEVICE,
                    enrolment=self.enrolment,
                    instance=INSTANCE,
                    signer=Signer.of(BOX_KEY),
                    versions=lambda: BoxVersions(agent="0.2.0"),
                ),
                clock=Clock(boot=world.boot, boot_s=lambda: world.boottime_s, wall_s=lambda: 1_790_000_000.0),
                rng=random.Random(self.seed),
                acts=self.acts(),
                settlers=self.settlers(),
                sharing=self.sharing(),
                telemetry=self.telemetry,
                clean=BY_FORM,
                executor=self.executor,
                nonce=self._nonce,
                server_time=self._believes,
                transactions=lambda: self.ended,
            )
        )
        self.worker.attach(self.link)
        self.worker.run_round()
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

    def sharing(self) -> SharingProbe:
        return SharingUnseen()

    def _believes(self, time_s: int) -> bool:
        self.times.append(time_s)
        return time_s <= self.most_time

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
        self.link.connection = self.turns
        self.worker.put(LinkUp(session_present=True, protocol=5, connection=self.turns))
        self.worker.run_round()
        return will[1]

    def disconnect(self) -> None:
        self.link.connection = None
        self.link.sent.clear()
        self.link.delivered.clear()
        self.worker.put(LinkDown("cut"))
        self.worker.run_round()

    def arrive(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        self.worker.put(MessageArrived(topic=topic, payload=payload, retained=retained, mid=1, connection=self.turns))
        self.worker.run_round()

    def deliver(self) -> None:
        """The broker acknowledges all that was published."""
        tokens, self.link.delivered = self.link.delivered, []
        for token in tokens:
            self.worker.put(PublishAcknowledged(token))
        self.worker.run_round()

    def settle(self, most: int = 1_000) -> None:
        """Let everything that can be done now be done."""
        for _ in range(most):
            self.worker.run_round()
            if not self.executor.run():
                self.worker.run_round()
                if not self.executor.jobs:
                    return
        raise AssertionError(f"it does not come to rest: {self.executor.names[-9:]}")

    def wait(self, seconds: float) -> None:
        self.world.clock_s += seconds
        self.settle()


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


def wired(box: Path | Box, **made_with: Any) -> Wire:  # noqa: ANN401  (the fields of Box)
    """Return a box that is connected to a controller, keys and birth exchanged."""
    made = Box(box, **made_with) if isinstance(box, Path) else box
    wire = Wire(made.start(), Controller(made.world))
    wire.connect()
    wire.exchange()
    return wire


@contextmanager
def fast_folder() -> Iterator[Path]:
    """Yield a folder in memory where there is one: thousands of fsyncs are no part of what is tested."""
    shm = Path("/dev/shm")  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="eg-", dir=shm if os.access(shm, os.W_OK) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
