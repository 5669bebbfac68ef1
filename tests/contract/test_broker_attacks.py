"""What the root of a box does to a broker with the box's own certificate: a real mosquitto, with the guard.

Each attack is tried without the guard too where that takes no long time: so the test would see it.
"""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from kits.linkrun import LinkRun
from kits.mqtt import Mosquitto, wait_for
from kits.rawmqtt import RawMqtt, publish_packet

from edgegpu_cloud.controller.broker_drops import REFUSED_FILTER, TOPIC, refused_of_box
from edgegpu_sync.link.events import LinkDown, LinkUp, MessageArrived, PublishAcknowledged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VICTIM, ROOTED = "k3f9x2m7q1w8e5r4", "a1b2c3d4e5f6g7h8"
SUBSCRIPTIONS = "$SYS/broker/subscriptions/count"
PACKETS, BURST, PER_S = 300_000, 1_000, 20


@contextmanager
def running(folder: Path, *, guard: bool) -> Iterator[Mosquitto]:
    broker = Mosquitto(folder / "mqtt", guard=guard)
    config = broker.folder / "mosquitto.conf"
    config.write_text(config.read_text().replace("sys_interval 10", "sys_interval 1"))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def newest(run: LinkRun, topic: str) -> int:
    """Return the number that the broker sends next under a topic of its own; it counts before that."""
    run.next(MessageArrived, where=lambda one: one.topic == topic)
    return int(run.next(MessageArrived, where=lambda one: one.topic == topic and not one.retained).payload)


@pytest.mark.parametrize("guard", [True, False])
def test_a_box_has_its_own_filters_alone_over_a_restart_too(tmp_path: Path, *, guard: bool) -> None:
    own = [f"edgegpu/v1/{ROOTED}/down/#", f"edgegpu/v1/{ROOTED}/down/keys"]
    stray = ["#", f"edgegpu/v1/{VICTIM}/down/#", f"edgegpu/v1/{ROOTED}/down/x", f"$share/x/{own[0]}"]
    with running(tmp_path, guard=guard) as broker:
        with RawMqtt(broker.box(ROOTED)) as rooted:
            assert rooted.subscribe(own) == [1, 1]
            assert rooted.subscribe(stray) == [128 if guard else 1] * len(stray)
            for part in range(100):  # mosquitto 2.0.21 ends the connection at 1 000 filters in one packet
                rooted.subscribe([f"x{part}/{number}" for number in range(200)])
        broker.stop()
        broker.start()
        with LinkRun(broker.controller(), [SUBSCRIPTIONS], session_s=0) as controller:
            controller.next(LinkUp)
            assert (newest(controller, SUBSCRIPTIONS) < 100) is guard


def test_a_box_with_the_guard_is_served_as_without(tmp_path: Path) -> None:
    """The link's own filter, will, messages and results; and a controller's visitor takes the box's place."""
    with (
        running(tmp_path, guard=True) as broker,
        LinkRun(broker.controller(), ["edgegpu/v1/+/up/#"]) as cloud,
        LinkRun(broker.box(VICTIM)) as box,
    ):
        cloud.next(LinkUp)
        box.next(LinkUp)
        for kind in ("status", "reported", "result", "health"):
            box.send(f"edgegpu/v1/{VICTIM}/up/{kind}", kind.encode(), retain=kind == "status")
            cloud.link.ack(cloud.next(MessageArrived, where=lambda one, last=kind: one.topic.endswith(last)))  # type: ignore[misc]
        with LinkRun(broker.box(VICTIM), [f"edgegpu/v1/{VICTIM}/down/keys"], session_s=0) as visitor:
            visitor.next(LinkUp)
            box.next(LinkDown)


class Flood(threading.Thread):
    """A rooted box that sends as fast as it can, over one connection, or a new one for each so many packets."""

    def __init__(self, broker: Mosquitto, *, packets_each: int) -> None:
        super().__init__(name="flood")
        self._address, self._each = broker.box(ROOTED), packets_each
        self.sent, self.took_s = 0, 0.0

    def run(self) -> None:
        chunk = publish_packet(f"edgegpu/v1/{ROOTED}/up/health", b"x" * 20) * 100
        began_s = time.monotonic()
        while self.sent < PACKETS:
            with suppress(OSError), RawMqtt(self._address) as rooted:  # mosquitto 2.0.21 cuts it now and then
                for _ in range(self._each // 100):
                    rooted.send(chunk)
                    self.sent += 100
        self.took_s = time.monotonic() - began_s


def commands_during(flood: Flood, cloud: LinkRun, box: LinkRun) -> list[float]:
    """Send commands to the other box while the flood lasts, and at least 50; return how long each took."""
    took_s: list[float] = []
    while flood.is_alive() or len(took_s) < 50:
        mark, began_s = f"command {len(took_s)}".encode(), time.monotonic()
        cloud.send(f"edgegpu/v1/{VICTIM}/down/receipt", mark)
        box.link.ack(box.next(MessageArrived, where=lambda one, wanted=mark: one.payload == wanted))  # type: ignore[misc]
        took_s.append(time.monotonic() - began_s)
    return took_s


def is_told(box: LinkRun, heard: LinkRun) -> bool:
    """Send one message of the other box; whether the guard has told of the flood. It does so when messages come."""
    box.send(f"edgegpu/v1/{VICTIM}/up/health", b"mine")
    heard.next(MessageArrived, where=lambda one: one.payload == b"mine")
    return any(refused_of_box(one.topic, one.payload) for one in heard.so_far(MessageArrived))


class Taking(threading.Thread):
    """A controller that acknowledges all that comes, as `edgegpu-cloud serve` does."""

    def __init__(self, run: LinkRun) -> None:
        super().__init__(name="taking", daemon=True)
        self._run, self.ended = run, threading.Event()

    def run(self) -> None:
        seen = 0
        while not self.ended.wait(0.01):
            events = list(self._run.events)
            for event in events[seen:]:
                if isinstance(event, MessageArrived):
                    self._run.link.ack(event)
            seen = len(events)


@pytest.mark.parametrize("packets_each", [PACKETS, 10_000], ids=["one connection", "thirty connections"])
def test_one_boxs_flood_delays_nobodys_commands_loses_nothing_of_theirs_and_is_told(
    tmp_path: Path, packets_each: int
) -> None:
    with (
        running(tmp_path, guard=True) as broker,
        LinkRun(broker.controller(), ["edgegpu/v1/+/up/#", TOPIC, REFUSED_FILTER]) as heard,
        LinkRun(broker.controller("controller-2", client_id="controller-2.77aa"), []) as cloud,
        LinkRun(broker.box(VICTIM)) as box,
    ):
        for run in (heard, cloud, box):
            run.next(LinkUp)
        taking, flood = Taking(heard), Flood(broker, packets_each=packets_each)
        taking.start()
        began_s = time.monotonic()
        flood.start()
        took_s = commands_during(flood, cloud, box)
        flood.join()
        wait_for(partial(is_told, box, heard), what="the guard has told")
        taking.ended.set()
        taking.join()
        refused = [refused_of_box(one.topic, one.payload) for one in heard.so_far(MessageArrived)]
        assert {one.device for one in refused if one is not None} == {ROOTED}
        assert {one.payload for one in heard.so_far(MessageArrived) if one.topic == TOPIC} == {b"0"}
        arrived = [one for one in heard.so_far(MessageArrived) if one.payload == b"mine"]
        assert len(arrived) == len([one for one in box.so_far(PublishAcknowledged) if not one.refused])
        passed = sum(ROOTED in one.topic and "/up/" in one.topic for one in heard.so_far(MessageArrived))
        assert BURST <= passed <= BURST + PER_S * (time.monotonic() - began_s)
        assert box.so_far(LinkDown) == cloud.so_far(LinkDown) == heard.so_far(LinkDown) == []
        p95_s = statistics.quantiles(took_s, n=20)[-1]
        assert p95_s < 3.0, f"{flood.sent} packets in {flood.took_s:.1f} s, {len(took_s)} commands"
