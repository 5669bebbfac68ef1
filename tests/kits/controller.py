"""A controller, boxes made of the protocol's rules, and a network between them that loses, doubles and reorders.

Time is simulated. What a box has really done stands in a ledger of its own, `Ledger`.
"""

import queue
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kits.modelbox import CHAIN, SIGNING, ModelBox, Payload, World, box_key, instance_of
from kits.stores import open_store

from edgegpu_cloud.controller.broker_drops import FloodBrake
from edgegpu_cloud.controller.controller import Controller
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.store.records import EnrolledBox
from edgegpu_cloud.store.store import CommitMoment, ControllerStore, Watcher
from edgegpu_sync.ids import CommandId, DeviceId, device_id
from edgegpu_sync.keys import public_text
from edgegpu_sync.link.events import LinkDown, LinkUp, MessageArrived, PublishAcknowledged
from edgegpu_sync.signing import Signer
from edgegpu_sync.states import CommandState

T = TypeVar("T")


class KilledError(BaseException):
    """The controller's process was killed: no handler in it may see this."""


@dataclass
class Killer:
    """Watches commits, and kills the process around some of them; `off` while people change things."""

    at: Callable[[int], bool]
    moments: int = 0
    kills: int = 0
    off: bool = False

    def __call__(self, _: CommitMoment) -> None:
        if self.off:
            return
        self.moments += 1
        if self.at(self.moments):
            self.kills += 1
            raise KilledError


@dataclass
class Faults:
    """How often the network does what to a message, 0 to 1."""

    lose: float = 0.0
    double: float = 0.0
    delay: float = 0.0


class Network:
    """Broker and wires: keeps retained messages and those that the controller has not acknowledged."""

    def __init__(self, rng: random.Random, faults: Faults | None = None) -> None:
        self.rng, self.faults = rng, faults or Faults()
        self.boxes: dict[DeviceId, ModelBox] = {}
        self.cut: set[DeviceId] = set()
        self.wills: dict[DeviceId, Payload] = {}
        self.retained: dict[str, bytes] = {}
        self.down: list[tuple[str, bytes]] = []
        self.up: list[Payload] = []
        self.unacked: dict[int, tuple[str, bytes]] = {}
        self.controller: Controller | None = None
        self.window: int | None = None
        self.tokens = 0
        self.mids = 0
        self.connection = 0
        self.seen_down: list[tuple[str, bytes]] = []

    # the controller's side

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        if self.controller is None or (self.window is not None and len(self.down) >= self.window):
            return None
        self.tokens += 1
        if retain:
            self.retained[topic] = payload
        self.down.append((topic, payload))
        self.seen_down.append((topic, payload))
        return self.tokens

    def subscribe(self, filters: Sequence[str]) -> int | None:
        raise AssertionError(f"the one controller hears all boxes: {filters}")

    def unsubscribe(self, filters: Sequence[str]) -> None:
        raise AssertionError(f"the one controller hears all boxes: {filters}")

    def ack(self, arrived: MessageArrived) -> None:
        self.unacked.pop(arrived.mid, None)

    def attach(self, controller: Controller) -> None:
        """Let a controller connect: it gets what is retained, and what was never acknowledged."""
        self.controller, self.connection = controller, self.connection + 1
        controller.inbox.put(LinkUp(session_present=True, protocol=5, connection=self.connection))
        for topic, payload in list(self.retained.items()):
            if "/up/" in topic:
                self._hand(topic, payload, retained=True)
        waiting, self.unacked = self.unacked, {}
        for topic, payload in waiting.values():
            self._hand(topic, payload, retained=False)

    def detach(self) -> None:
        if self.controller is not None:
            self.controller.inbox.put(LinkDown("cut"))
        self.controller = None

    def _hand(self, topic: str, payload: bytes, *, retained: bool) -> None:
        self.mids += 1
        self.unacked[self.mids] = (topic, payload)
        if self.controller is not None:
            self.controller.inbox.put(MessageArrived(topic, payload, retained, self.mids, self.connection))

    def replaced(self, controller: Controller) -> None:
        """Put an empty broker in the place of this one: who was connected connects anew."""
        self.detach()
        for lost in (self.retained, self.unacked, self.up, self.down):
            lost.clear()
        self.attach(controller)
        for device, box in self.boxes.items():
            if device not in self.cut:
                self.connect(box)

    # the boxes' side

    def connect(self, box: ModelBox) -> None:
        self.boxes[box.device] = box
        self.cut.discard(box.device)
        self.wills[box.device] = box.born()

    def cut_off(self, device: DeviceId) -> None:
        """Take a box off the network; the broker publishes its will."""
        self.cut.add(device)
        self.boxes[device].outgoing.clear()
        if device in self.wills:
            self.up.append(self.wills.pop(device))

    def carry(self) -> int:
        """Carry what there is, with faults; returns how much that was."""
        for device, box in self.boxes.items():
            if device not in self.cut:
                self.up += box.outgoing
                box.outgoing.clear()
        up, self.up = self._faulty(self.up)
        for topic, payload, retain in up:
            if retain:
                self.retained[topic] = payload
            self._hand(topic, payload, retained=False)
        down, self.down = self._faulty(self.down)
        for topic, payload in down:
            if topic.startswith("$"):
                continue  # for the broker itself
            device = device_id(topic.split("/")[2])
            if device in self.boxes and device not in self.cut:
                self.boxes[device].receive(topic, payload)
        if self.controller is not None and down:
            self.controller.inbox.put(PublishAcknowledged(self.tokens))
        return len(up) + len(down)

    def _faulty(self, messages: list[T]) -> tuple[list[T], list[T]]:
        now: list[T] = []
        later: list[T] = []
        for one in messages:
            if self.rng.random() < self.faults.lose:
                continue
            (later if self.rng.random() < self.faults.delay else now).append(one)
            if self.rng.random() < self.faults.double:
                (later if self.rng.random() < self.faults.delay else now).append(one)
        if self.faults.delay:
            self.rng.shuffle(now)
        return now, later


class Bed:
    """Controller, store, network, boxes, and a clock that `pass_time` moves."""

    def __init__(
        self,
        folder: Path,
        *,
        url: str = "",
        seed: int = 1,
        faults: Faults | None = None,
        boxes: int = 1,
        guarded: bool = False,
        blocks: bool = True,
    ) -> None:
        self.guarded, self.blocks = guarded, blocks
        self.folder, self.world = folder, World()
        self.network = Network(random.Random(seed), faults)
        self.path, self.signing = folder / "controller.db", SIGNING
        self.url = url or f"sqlite:///{self.path}"
        self.watcher: Watcher = lambda _: None
        self.store = self.open()
        with self.store.write() as tx:
            if not tx.notes.chain():
                tx.notes.add_link(1, CHAIN[0])
        self.fleet = Fleet(self.store, clock=self.world.clock, by="anna", sleep=self.pass_time)
        self.devices = [device_id(f"{number:016d}") for number in range(1, boxes + 1)]
        for device in self.devices:
            self.enrol(device, f"box-{int(device)}")
        self.controller = self.new_controller()

    def open(self) -> ControllerStore:
        def watch(moment: CommitMoment) -> None:
            self.watcher(moment)

        self.folder.mkdir(parents=True, exist_ok=True)
        return open_store(self.url, watcher=watch)

    def enrol(self, device: DeviceId, name: str, *, enrolment: int = 1) -> ModelBox:
        public = public_text(box_key(device, enrolment))
        enrolled = EnrolledBox(
            device=device, enrolment=enrolment, public=public, instance=instance_of(device), name=name
        )
        with self.store.write() as tx:
            add_box(tx, enrolled, Author("anna", self.world.clock()))
        box = ModelBox(self.world, device, enrolment=enrolment)
        self.network.boxes[device] = box
        self.network.cut.add(device)
        return box

    def step(self) -> None:
        """Let the controller work; where it is killed another one is started."""
        self.alive(self.controller.step)

    def alive(self, work: Callable[[], None]) -> None:
        try:
            work()
        except KilledError:
            self.alive(self.restart)

    def new_controller(self) -> Controller:
        controller = Controller(
            self.store,
            self.network,
            signer=lambda: Signer.of(self.signing),
            inbox=queue.SimpleQueue(),
            clock=self.world.clock,
            steady=lambda: self.world.now_s,
            brake=FloodBrake(self.store, guarded=self.guarded, blocks=self.blocks, clock=self.world.clock),
        )
        controller.begin()
        self.network.attach(controller)
        return controller

    def restart(self) -> None:
        """Kill the controller, and start another."""
        self.network.controller = None
        self.network.down.clear()
        self.controller = self.new_controller()

    def connect_all(self) -> None:
        for device in self.devices:
            self.network.connect(self.box(device))

    def box(self, device: DeviceId | None = None) -> ModelBox:
        return self.network.boxes[device or self.devices[0]]

    def pass_time(self, seconds: float = 1.0) -> None:
        """Let that much time go by, and everybody work."""
        self.world.now_s += seconds
        for device, box in self.network.boxes.items():
            if device not in self.network.cut:
                box.work()
        self.network.carry()
        self.step()

    def settle(self, seconds: float = 10.0, step_s: float = 0.5) -> None:
        end_s = self.world.now_s + seconds
        while self.world.now_s < end_s:
            self.pass_time(step_s)

    def until(self, true: Callable[[], bool], *, within_s: float = 1200.0, step_s: float = 1.0) -> None:
        end_s = self.world.now_s + within_s
        while not true():
            assert self.world.now_s < end_s, "it does not come true"
            self.pass_time(step_s)

    def state(self, id_: CommandId) -> CommandState | None:
        return self.fleet.one_command(id_).state

    def all_ended(self) -> bool:
        with self.store.read() as tx:
            return not tx.commands.open_count(self.devices)

    def restore(self, backup: bytes) -> None:
        """Put a copy of the database in the place of what there is, and start a controller on it."""
        self.store.close()
        for path in self.folder.glob("controller.db*"):
            path.unlink()
        self.path.write_bytes(backup)
        self.store = self.open()
        self.fleet = Fleet(self.store, clock=self.world.clock, by="anna", sleep=self.pass_time)
        self.restart()

    def backup(self) -> bytes:
        """Return the database as a file, without its log beside it."""
        self.store.close()
        return self.path.read_bytes()


NewBed = Callable[..., Bed]
"""What the fixture `new_bed` yields: it takes the options of `Bed`."""
