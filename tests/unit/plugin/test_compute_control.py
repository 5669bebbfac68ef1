"""The control of shares: when it works, what it writes, and that it ends by itself."""

import itertools
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.compute.control import VALID_MS, ComputeControl
from edgegpu_plugin.containers.container_folder import Charge
from edgegpu_plugin.containers.held.bypass import ContainerKey
from edgegpu_plugin.containers.held.container_state import TimedContainer
from edgegpu_plugin.containers.usage_file import USAGE_BYTES, bucket_levels
from edgegpu_plugin.errors import NvmlError, NvmlProblem

CARD = "GPU-00112233-4455-6677-8899-aabbccddeeff"
DIGITS = CARD.removeprefix("GPU-").replace("-", "")
DEADLINE_S = 20.0
_HEAD = struct.Struct("=4I2Q2I256s144x1024s")

Charges = Mapping[ContainerKey, Mapping[str, Charge]]


def write_usage(path: Path, level: int) -> None:
    """Write a usage file with one card, whose bucket has this level."""
    head = _HEAD.pack(0x45474C4D, 5, USAGE_BYTES, 512, 0, 0, 0, 1, bytes.fromhex(DIGITS), struct.pack("=Q", level))
    path.write_bytes(head.ljust(USAGE_BYTES, b"\0"))


def in_debt(ms: int = 50) -> int:
    """Return a level that is in debt for so long."""
    return (time.monotonic_ns() + ms * 1_000_000) // 8 << 7 | 30


@dataclass
class Node:
    """Containers whose buckets move at each look while they are `busy`, and a driver that answers `used`."""

    folder: Path
    cores: dict[str, int]
    elastic: bool = False
    busy: set[str] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)
    """By container, how much of what the limiter measures is its own: so much it has of its core, by its charge."""
    unlimited: int = 0
    """The percent that a process without a limit has of the card; its number is 99."""
    hopping: str = ""
    """The container whose process has another number at each question, for the last one has ended."""
    fails: bool = False
    mute: bool = False
    asked: int = 0
    charged: Charges = field(default_factory=dict)
    written: SimpleQueue[Charges] = field(default_factory=SimpleQueue)

    def charge(self, charges: Charges) -> None:
        self.charged = charges
        self.written.put(charges)

    def had(self, name: str) -> int:
        if name not in self.own:
            return self.used.get(name, 0)
        cards = self.charged.get(("pod", name), {})
        return round(self.cores[name] * self.own[name] * 1000 / (cards[CARD].permille if cards else 1000))

    def usage(self, name: str) -> Path:
        return self.folder / name

    def containers(self) -> list[TimedContainer]:
        for name in tuple(self.busy):  # the test changes it meanwhile
            write_usage(self.usage(name), in_debt())
        return [
            TimedContainer(("pod", name), (self.usage(name),), {CARD: core}, self.elastic)
            for name, core in self.cores.items()
        ]

    def shares(self, cards: Collection[str]) -> Mapping[str, Mapping[int, int] | None]:
        self.asked += 1
        if self.fails:
            raise NvmlError(NvmlProblem.HANGS, "the driver does not answer")
        numbers = {name: 100 + self.asked if name == self.hopping else at for at, name in enumerate(self.cores)}
        pids = {number: self.had(name) for name, number in numbers.items()}
        pids |= {99: self.unlimited} if self.unlimited else {}
        return dict.fromkeys(cards, None if self.mute else pids)

    def container_of(self, pid: int) -> ContainerKey | None:
        if pid >= 100:
            return ("pod", self.hopping) if pid == 100 + self.asked else None
        return None if pid == 99 else ("pod", list(self.cores)[pid])

    def take(self, count: int, name: str) -> list[int]:
        """Return what a container is charged in the next writings."""
        seen: list[int] = []

        def is_last(charged: dict[str, int]) -> bool:
            seen.append(charged.get(name, 1000))
            return len(seen) == count

        self.until(is_last)
        return seen

    def until(self, wanted: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        """Wait for a writing with these permille by container, and return them."""
        deadline = time.monotonic() + DEADLINE_S
        seen = []
        while (left := deadline - time.monotonic()) > 0:
            try:
                charges = self.written.get(timeout=left)
            except Empty:
                break
            seen.append({key[1]: cards[CARD].permille for key, cards in charges.items()})
            if wanted(seen[-1]):
                return seen[-1]
        pytest.fail(f"not written within {DEADLINE_S} s: {seen[-5:]}")


@contextmanager
def running(node: Node) -> Iterator[ComputeControl]:
    for name in node.cores:
        write_usage(node.usage(name), 0)
    control = ComputeControl(
        containers=node.containers, shares=node.shares, container_of=node.container_of, charge=node.charge
    )
    thread = threading.Thread(target=control.run)
    thread.start()
    try:
        yield control
    finally:
        control.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def look(control: ComputeControl, times: int = 2, *, pids: Collection[int] = (0,)) -> None:
    """Have the control look at the card's processes as the plugin does; one look knows of no movement."""
    for _ in itertools.repeat(None, times):
        control.look({CARD: [CardProcess(pid, 1) for pid in pids]})


def test_who_gets_less_than_its_share_is_charged_less(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a", "b"}, used={"a": 30, "b": 45})
    with running(node) as control:
        look(control)
        found = node.until(lambda charged: charged.get("b", 1000) < 800)
    assert found["a"] > 900


def test_what_was_changed_and_is_not_seen_yet_is_not_changed_once_more(tmp_path: Path) -> None:
    """The driver's samples are smoothed: by those alone b would come to 67 percent before it comes to 60."""
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a", "b"}, used={"a": 30}, own={"b": 0.6})
    with running(node) as control:
        look(control)
        assert 570 <= min(node.take(32, "b")) <= 630


def test_what_an_elastic_container_had_beyond_its_guarantee_is_not_held_against_it(tmp_path: Path) -> None:
    """Its mean of ten seconds is of a time in which the card was its own."""
    node = Node(tmp_path, {"a": 30, "b": 60}, elastic=True, busy={"a"}, used={"a": 95})
    with running(node) as control:
        look(control)
        node.take(12, "a")
        node.busy, node.used = {"a", "b"}, {"a": 20, "b": 70}
        assert node.take(20, "a")[-1] < 900


def test_a_charge_holds_for_seconds_only(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a", "b"}, used={"a": 30, "b": 45})
    with running(node) as control:
        look(control)
        while not (charges := node.written.get(timeout=DEADLINE_S)):
            pass
        now_ms = time.monotonic_ns() // 1_000_000
    assert {now_ms - 1000 <= one[CARD].until_ms <= now_ms + VALID_MS for one in charges.values()} == {True}


def test_it_ends_when_one_is_left_and_works_again_when_another_comes(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a", "b"}, used={"a": 30, "b": 45})
    with running(node) as control:
        look(control)
        node.until(lambda charged: charged.get("b", 1000) < 900)
        node.busy.discard("b")
        node.until(lambda charged: not charged)
        asked = node.asked
        look(control, 5)  # one container that computes needs nothing
        node.busy.add("b")
        look(control)
        node.until(lambda charged: charged.get("b", 1000) < 900)
        assert node.asked > asked


def test_a_container_competes_with_a_process_that_has_no_limit(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30}, busy={"a"}, used={"a": 20}, unlimited=60)
    with running(node) as control:
        look(control, 5)
        assert node.asked == 0
        look(control, pids=(0, 99))
        node.until(lambda charged: charged.get("a", 1000) < 800)
        look(control)
        node.until(lambda charged: not charged)


def test_a_container_competes_with_one_whose_bucket_stands_still_while_it_computes(tmp_path: Path) -> None:
    """Who writes its usage file can have that, and takes as many turns all the same."""
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a"}, used={"a": 20, "b": 60})
    with running(node) as control:
        look(control, 5)
        assert node.asked == 0
        look(control, pids=(0, 1))
        found = node.until(lambda charged: charged.get("a", 1000) < 800)
    assert "b" not in found


def test_who_hands_work_from_process_to_process_is_not_believed_to_lack_its_share(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a", "b"}, used={"a": 5, "b": 40}, hopping="a")
    with running(node) as control:
        look(control)
        found = node.until(lambda charged: charged.get("b", 1000) < 700)
        assert found["a"] > 900
        node.hopping = ""
        node.until(lambda charged: charged.get("a", 1000) < 800)


def test_nothing_is_looked_at_while_nothing_competes(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a"})
    with running(node) as control:
        look(control, 5)
    assert node.asked == 0
    assert node.until(lambda charged: not charged) == {}  # of its end


def test_an_elastic_container_alone_is_charged_for_its_part_of_a_whole_card(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, elastic=True, busy={"a"}, used={"a": 90})
    with running(node) as control:
        look(control)
        node.until(lambda charged: "b" not in charged and 200 < charged.get("a", 1000) <= 310)
        node.busy.add("b")
        found = node.until(lambda charged: charged.get("a", 0) > 800)
    assert "b" in found


def test_without_the_drivers_count_everything_is_charged(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a", "b"}, used={"a": 30, "b": 45}, fails=True)
    with running(node) as control:
        look(control)
        found = [node.written.get(timeout=DEADLINE_S) for _ in range(6)]
    assert found == [{}] * len(found)


def test_a_card_that_never_tells_is_asked_once(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a", "b"}, used={"a": 30, "b": 45}, mute=True)
    with running(node) as control:
        look(control)
        node.until(lambda charged: not charged and node.asked > 0)
        look(control, 5)
    assert node.asked == 1


def test_a_driver_that_stops_to_answer_ends_what_was_corrected(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": 30, "b": 60}, busy={"a", "b"}, used={"a": 30, "b": 45})
    with running(node) as control:
        look(control)
        node.until(lambda charged: charged.get("b", 1000) < 900)
        node.fails = True
        node.until(lambda charged: not charged)
        node.fails = False
        node.until(lambda charged: charged.get("b", 1000) < 900)


def test_levels_of_a_file_that_is_none(tmp_path: Path) -> None:
    assert bucket_levels(tmp_path / "none") == {}
    (tmp_path / "short").write_bytes(b"EGLM")
    assert bucket_levels(tmp_path / "short") == {}
    write_usage(tmp_path / "usage", 77)
    assert bucket_levels(tmp_path / "usage") == {DIGITS: 77}
