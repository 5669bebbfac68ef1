"""A worker on its own thread, on the real link and a real mosquitto with TLS; its acts on threads of their own."""

import contextlib
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kits.mqtt import Mosquitto
from kits.sync import limits
from kits.worker import ROOM, SMALL, fast_folder
from kits.workercontroller import BOX_KEY, DEVICE, INSTANCE, LOGS, LOGS_ARGS, REFRESH, RESTART, ROOT, Controller
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

from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.ports import BoxContext, Clock
from edgegpu_agent.worker.refreshes import PATIENCE_S
from edgegpu_agent.worker.worker import Worker, WorkerParts
from edgegpu_sync.keys import public_text
from edgegpu_sync.link.events import LinkEvent, LinkUp, MessageArrived
from edgegpu_sync.link.link import Link
from edgegpu_sync.messages.spec import AppLimits, Sharing, Spec
from edgegpu_sync.messages.uplink import BoxVersions, ItemState
from edgegpu_sync.signing import Signer
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import CONTROLLER_FILTER, box_filter, parse


class RealTime(World):
    """The simulated box, with real clocks."""

    @property
    def boottime_s(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()


class RealBox:
    """Worker, link and their threads; started again on the same journal after `stop`."""

    def __init__(self, folder: Path, broker: Mosquitto, world: World) -> None:
        self.folder, self.world = folder, world
        self.address = broker.box(DEVICE)

    def start(self) -> None:
        world = self.world
        self.journal = BoxJournal(self.folder / "journal.db", limits=SMALL, room=ROOM, wall_s=time.time)
        versions = BoxVersions(agent="0.2.0")
        me = BoxContext(
            device=DEVICE, enrolment=3, instance=INSTANCE, signer=Signer.of(BOX_KEY), versions=lambda: versions
        )
        self.worker = Worker(
            WorkerParts(
                journal=self.journal,
                root=public_text(ROOT),
                me=me,
                clock=Clock(boot=world.boot, boot_s=time.monotonic, wall_s=time.time),
                rng=random.Random(3),
                acts={
                    RESTART: RestartAct(world),
                    REFRESH: CountedAct(world, world.refreshed_by),
                    LOGS: CountedAct(world, world.uploads),
                },
                settlers={Sharing: SharingSettler(world), AppLimits: LimitsSettler(world)},
                sharing=SharingUnseen(),
                telemetry=NoTelemetry(),
                clean=BY_FORM,
            )
        )
        self.link = Link(
            lambda: self.address,
            subscribe=[box_filter(DEVICE)],
            will=self.worker.will,
            put=self.worker.put,
            rng=random.Random(4),
            clock=time.monotonic,
        )
        self.worker.attach(self.link)
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self.worker.run, self.link.run)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.worker.stop()
        self.threads[0].join(30)
        self.link.stop()
        self.threads[1].join(30)
        self.journal.close()


class RealController:
    """The model of the controller on a link of its own; the test's thread is its loop."""

    def __init__(self, broker: Mosquitto, world: World) -> None:
        self.model = Controller(world)
        self.world = world
        self.events: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
        address = broker.controller()
        self.link = Link(
            lambda: address,
            subscribe=[CONTROLLER_FILTER],
            will=lambda: None,
            put=self.events.put,
            rng=random.Random(5),
            clock=time.monotonic,
            max_inflight=64,
        )
        self.waiting: list[tuple[str, bytes]] = []
        self.thread = threading.Thread(target=self.link.run, daemon=True)
        self.thread.start()

    def until(self, done: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
        end = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < end, (self.model.tracked, self.model.refused, self.waiting, self.model.events)
            self.world.clock_s = time.monotonic()
            with contextlib.suppress(queue.Empty):
                self.take(self.events.get(timeout=0.05))
            self.waiting += self.model.sends()
            while self.waiting and self.send(*self.waiting[0]):
                self.waiting.pop(0)

    def take(self, event: LinkEvent) -> None:
        match event:
            case LinkUp():
                self.waiting += [self.model.keys(), *self.model.desired_message()]
            case MessageArrived():
                self.waiting += self.model.hear(event.topic, event.payload)
                self.link.ack(event)
            case _:
                pass

    def send(self, topic: str, payload: bytes) -> bool:
        return self.link.publish(topic, payload, retain=parse(topic).kind.retained) is not None

    def stop(self) -> None:
        self.link.stop()
        self.thread.join(30)


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as path:
        yield path


@pytest.fixture
def broker(folder: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(folder / "broker")
    broker.start()
    yield broker
    broker.stop()


def test_commands_and_desired_state_over_a_broker_that_dies_and_forgets(folder: Path, broker: Mosquitto) -> None:
    world = RealTime(clock_s=time.monotonic())
    box, controller = RealBox(folder / "agent", broker, world), RealController(broker, world)
    model = controller.model
    box.start()
    rev, install = model.sharing(installed=True)
    ids = [install, *(model.command(op, LOGS_ARGS if op == LOGS else None) for op in (RESTART, REFRESH, LOGS) * 4)]
    controller.until(lambda: all(model.tracked[id_].ended for id_ in ids))
    epoch = model.sequence.epoch
    broker.kill()
    broker.wipe()
    broker.start()
    controller.until(lambda: model.sequence.epoch != epoch)
    box.worker.send_event("broker.gone", "it was away")
    rev = model.desire(Spec(sharing=Sharing(rev=rev, installed=True), app_limits=(limits("asr", units=4),)))
    ids += [model.command(op) for op in (RESTART, REFRESH) * 2]
    controller.until(lambda: all(model.tracked[id_].ended for id_ in ids) and bool(model.events))
    box.stop()
    ids += [model.command(RESTART)]
    box.start()
    controller.until(lambda: model.tracked[ids[-1]].ended)
    controller.until(lambda: model.reported is not None and model.reported.applied_rev == rev)
    # a refresh whose receipt came too late for the stop waits for telemetry, which this box has not
    controller.until(lambda: box.worker.status().results_waiting == 0, timeout_s=PATIENCE_S + 20)
    assert model.ends == {id_: [CommandState.SUCCEEDED] for id_ in ids}
    assert set(world.restarted_by.values()) == {1}
    assert len(world.restarted_by) == 7
    assert model.reported is not None
    assert {item.state for item in model.reported.items.values()} == {ItemState.APPLIED}
    assert model.events == ["it was away"]
    box.stop()
    controller.stop()
