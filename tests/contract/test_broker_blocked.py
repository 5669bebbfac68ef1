"""A box that controllers have blocked: a real mosquitto with the guard, and boxes with their certificates."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest
from kits.faultproxy import FaultProxy
from kits.linkrun import LinkRun
from kits.mqtt import Mosquitto, wait_for
from kits.rawmqtt import RawMqtt, publish_packet

from edgegpu_cloud.broker.config import blocked_rights
from edgegpu_cloud.controller.broker_drops import (
    BLOCKED_FILTER,
    BLOCKED_TOPIC,
    REFUSED_FILTER,
    FloodMeter,
    blocked_list,
    refused_of_box,
)
from edgegpu_sync.ids import device_id
from edgegpu_sync.link.events import LinkDown, LinkUp, MessageArrived, PublishAcknowledged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

OTHER, ROOTED = "k3f9x2m7q1w8e5r4", "a1b2c3d4e5f6g7h8"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    made = Mosquitto(tmp_path / "mqtt", guard=True)
    made.start()
    yield made
    made.stop()


@contextmanager
def controller(broker: Mosquitto, more: Sequence[str] = ()) -> Iterator[LinkRun]:
    with LinkRun(broker.controller(), ["edgegpu/v1/+/up/#", BLOCKED_FILTER, *more], session_s=0) as run:
        run.next(LinkUp)
        yield run


def block(run: LinkRun, *devices: str) -> None:
    """Tell the broker which boxes are blocked, and wait for its word."""
    run.send(BLOCKED_TOPIC, blocked_list([device_id(device) for device in devices]))
    told = run.next(MessageArrived, where=lambda one: one.topic == BLOCKED_FILTER)
    assert int(told.payload) == len(devices)


def arrives(run: LinkRun, broker: Mosquitto, device: str, mark: bytes) -> bool:
    """Let a box send a message, then another box: whether that of the first has come when that of the second does."""
    with RawMqtt(broker.box(device)) as box:
        return arrives_from(box, run, broker, mark)


def test_a_blocked_box_is_cut_off_and_refused_and_lifted_it_is_back(broker: Mosquitto) -> None:
    own = [f"edgegpu/v1/{ROOTED}/down/#"]
    with controller(broker) as run:
        with LinkRun(broker.box(ROOTED)) as box, LinkRun(broker.box(OTHER)) as other:
            for link in (box, other):
                link.next(LinkUp)
            block(run, ROOTED)
            box.next(LinkDown)
            other.send(f"edgegpu/v1/{OTHER}/up/health", b"mine")
            run.next(MessageArrived, where=lambda one: one.payload == b"mine")
            assert other.so_far(LinkDown) == []
        with RawMqtt(broker.box(ROOTED)) as rooted:
            assert rooted.subscribe(own) == [128]
        assert not arrives(run, broker, ROOTED, b"blocked")
        block(run)
        with RawMqtt(broker.box(ROOTED)) as rooted:
            assert rooted.subscribe(own) == [1]
        assert arrives(run, broker, ROOTED, b"lifted")


def test_nothing_reaches_a_blocked_box_by_a_filter_of_before(broker: Mosquitto) -> None:
    with RawMqtt(broker.box(ROOTED)) as rooted:  # the broker keeps its session
        assert rooted.subscribe([f"edgegpu/v1/{ROOTED}/down/#"]) == [1]
    with controller(broker) as run:
        run.send(f"edgegpu/v1/{ROOTED}/down/receipt", b"waits for it")
        block(run, ROOTED)
        with RawMqtt(broker.box(ROOTED)) as rooted:
            run.send(f"edgegpu/v1/{ROOTED}/down/receipt", b"secret")
            assert not rooted.ping()


@pytest.mark.parametrize("how", ["restart", "kill", "reload"])
def test_the_broker_refuses_it_after_a_restart_without_a_controller(broker: Mosquitto, how: str) -> None:
    with controller(broker) as run:
        block(run, ROOTED)
    if how == "reload":
        broker.send(signal.SIGHUP)
    else:
        broker.kill() if how == "kill" else broker.stop()
        broker.start()
    with controller(broker) as run:
        assert not arrives(run, broker, ROOTED, b"blocked")


def test_a_box_blocks_nobody(broker: Mosquitto) -> None:
    """Neither another, nor by another's name, nor lifts itself: the topic is for the controllers' port alone."""
    with controller(broker) as run:
        for listed in (OTHER, ROOTED):
            with RawMqtt(broker.box(ROOTED)) as rooted:
                rooted.send(publish_packet(BLOCKED_TOPIC, listed.encode() + b"\n"))
                rooted.ping()
            assert arrives(run, broker, ROOTED, listed.encode() + b" is free")
        block(run, ROOTED)
        with RawMqtt(broker.box(ROOTED)) as rooted:
            rooted.send(publish_packet(BLOCKED_TOPIC, b""))
            rooted.ping()
        assert not arrives(run, broker, ROOTED, b"still blocked")


CUTS, WINDOW = 30, 16


def test_a_box_behind_a_link_that_breaks_all_the_time_is_far_from_a_flood(broker: Mosquitto) -> None:
    """It never waits before it connects again, sends its whole window each time, and repeats what was under way."""
    meter, floods = FloodMeter(), list[bool]()
    with FaultProxy(broker.port) as proxy, controller(broker, more=[REFUSED_FILTER]) as run:
        address = replace(broker.box(OTHER), port=proxy.port)
        with LinkRun(address, max_inflight=WINDOW) as box:
            for _ in range(CUTS):
                box.next(LinkUp)
                for number in range(WINDOW):  # as many as the link takes after it was cut
                    box.link.publish(f"edgegpu/v1/{OTHER}/up/health", str(number).encode())
                box.next(PublishAcknowledged)
                proxy.cut()
                box.next(LinkDown)
    for event in run.so_far(MessageArrived):
        if refused := refused_of_box(event.topic, event.payload):
            floods.append(meter.floods(refused.device, refused.messages + refused.filters, time.monotonic()))
    assert not any(floods)
    assert sum(state.level for state in meter._of.values()) < FloodMeter.SIZE / 10  # noqa: SLF001


def test_without_the_guard_the_access_list_refuses_it_on_the_connection_that_it_has(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "mqtt")
    broker.start()
    try:
        with controller(broker) as run, RawMqtt(broker.box(ROOTED)) as rooted:
            assert arrives_from(rooted, run, broker, b"before")
            with (broker.folder / "boxes.acl").open("a") as rights:
                rights.write(blocked_rights([ROOTED]))
            broker.send(signal.SIGHUP)
            tries = count()
            wait_for(lambda: not arrives_from(rooted, run, broker, b"%d" % next(tries)), what="it is refused")
    finally:
        broker.stop()


def arrives_from(box: RawMqtt, run: LinkRun, broker: Mosquitto, mark: bytes) -> bool:
    """Let a box send on the connection that it has, then another box."""
    box.send(publish_packet(f"edgegpu/v1/{ROOTED}/up/health", mark))
    box.ping()
    with RawMqtt(broker.box(OTHER)) as other:
        other.send(publish_packet(f"edgegpu/v1/{OTHER}/up/health", b"behind " + mark))
        run.next(MessageArrived, where=lambda one: one.payload == b"behind " + mark)
    return any(one.payload == mark for one in run.so_far(MessageArrived))


def test_what_a_blocked_box_sends_within_its_rate_is_told_of_as_no_flood(broker: Mosquitto) -> None:
    """It connects again and again as an agent does; what another box was refused is told meanwhile."""

    def told(run: LinkRun) -> set[str]:
        refused = (refused_of_box(event.topic, event.payload) for event in run.so_far(MessageArrived))
        return {one.device for one in refused if one is not None}

    with controller(broker, more=[REFUSED_FILTER]) as run, RawMqtt(broker.box(OTHER)) as other:
        block(run, ROOTED)
        with RawMqtt(broker.box(ROOTED)) as rooted:
            assert rooted.subscribe([f"edgegpu/v1/{ROOTED}/down/#"]) == [128]
            rooted.send(publish_packet(f"edgegpu/v1/{ROOTED}/up/health", b"here"))
            rooted.ping()
        wait_for(lambda: bool(other.subscribe(["stray"]) and OTHER in told(run)), what="refusals are told")
        block(run, ROOTED)  # what was told before this has come
        assert told(run) == {OTHER}
