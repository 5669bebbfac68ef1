"""What the link promises, on a real mosquitto behind a network that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.faultproxy import FaultProxy
from kits.linkrun import LinkRun, held_in
from kits.mqtt import Mosquitto, wait_for

from edgegpu_cloud.broker.config import BrokerLimits
from edgegpu_sync.errors import TooLargeError
from edgegpu_sync.link.events import LinkDown, LinkUp, MessageArrived, PublishAcknowledged
from edgegpu_sync.link.rules import SpokenVersion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOX = "k3f9x2m7q1w8e5r4"
DOWN = f"edgegpu/v1/{BOX}/down"
UP = f"edgegpu/v1/{BOX}/up"
CONTROLLER = ["edgegpu/v1/+/up/#"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    one = Mosquitto(tmp_path / "mqtt", limits=BrokerLimits(max_packet_size=40_000))
    one.start()
    yield one
    one.stop()


@pytest.fixture
def proxy(broker: Mosquitto) -> Iterator[FaultProxy]:
    with FaultProxy(broker.port) as one:
        yield one


@pytest.fixture
def cloud(broker: Mosquitto) -> Iterator[LinkRun]:
    with LinkRun(broker.controller(), CONTROLLER) as one:
        one.next(LinkUp)
        yield one


def test_delivers_both_ways_and_what_is_acknowledged_comes_once(broker: Mosquitto, cloud: LinkRun) -> None:
    address = broker.box(BOX)
    with LinkRun(address) as box:
        up = box.next(LinkUp)
        assert (up.session_present, up.protocol) == (False, 5)
        cloud.send(f"{DOWN}/receipt", b"hello")
        came = box.next(MessageArrived)
        assert (came.topic, came.payload, came.retained) == (f"{DOWN}/receipt", b"hello", False)
        box.link.ack(came)
        box.link.ack(came)  # twice is as once
        box.send(f"{UP}/health", b"fine", connection=up.connection)
        assert cloud.next(MessageArrived).payload == b"fine"
    with LinkRun(address) as box:
        assert box.next(LinkUp).session_present
        cloud.send(f"{DOWN}/receipt", b"next")
        assert box.next(MessageArrived).payload == b"next"


def test_what_is_not_acknowledged_comes_again_after_a_cut(broker: Mosquitto, proxy: FaultProxy, cloud: LinkRun) -> None:
    with LinkRun(broker.box(BOX, port=proxy.port)) as box:
        box.next(LinkUp)
        cloud.send(f"{DOWN}/cmd/k3s.restart/01j9zq4v7m2c8x5n", b"do")
        first = box.next(MessageArrived)
        proxy.cut()
        box.next(LinkDown)
        assert box.next(LinkUp).session_present
        again = box.next(MessageArrived)
        assert (again.topic, again.payload) == (first.topic, b"do")
        assert again.connection > first.connection
        box.link.ack(first)  # of a connection that is gone: nothing
        proxy.cut()
        box.next(LinkUp)
        box.link.ack(box.next(MessageArrived))
        cloud.send(f"{DOWN}/receipt", b"mark")
        assert box.next(MessageArrived).payload == b"mark"


def test_a_process_that_dies_before_it_acknowledges_gets_it_again(broker: Mosquitto, cloud: LinkRun) -> None:
    address = broker.box(BOX)
    for _ in range(2):
        with LinkRun(address) as box:
            box.next(LinkUp)
            if not box.so_far(MessageArrived):
                cloud.link.publish(f"{DOWN}/receipt", b"once")
            assert box.next(MessageArrived).payload == b"once"


def test_what_waits_at_the_broker_outlives_its_kill(broker: Mosquitto) -> None:
    address, controller = broker.box(BOX), broker.controller()
    with LinkRun(address) as box:
        box.next(LinkUp)
    with LinkRun(controller, CONTROLLER) as cloud:
        cloud.next(LinkUp)
        cloud.send(f"{DOWN}/receipt", b"kept")
        broker.saved()
        broker.kill()
        cloud.next(LinkDown)
        assert cloud.link.publish(f"{DOWN}/receipt", b"not up") is None
        broker.start()
        assert cloud.next(LinkUp).session_present
        cloud.send(f"{DOWN}/receipt", b"for one who has not come back yet")
        with LinkRun(address) as box:
            assert box.next(LinkUp).session_present
            assert box.next(MessageArrived).payload == b"kept"
            assert box.next(MessageArrived).payload == b"for one who has not come back yet"


def test_a_broker_that_has_forgotten_everything_is_subscribed_to_anew(broker: Mosquitto, cloud: LinkRun) -> None:
    with LinkRun(broker.box(BOX)) as box:
        box.next(LinkUp)
        broker.kill()
        broker.wipe()
        broker.start()
        assert not box.next(LinkUp).session_present
        cloud.next(LinkUp)
        cloud.send(f"{DOWN}/receipt", b"again")
        assert box.next(MessageArrived).payload == b"again"


def test_a_cut_in_the_middle_of_a_message_either_way(broker: Mosquitto, proxy: FaultProxy, cloud: LinkRun) -> None:
    with LinkRun(broker.box(BOX, port=proxy.port)) as box:
        box.next(LinkUp)
        proxy.cut_after("down", 5_000)
        cloud.send(f"{DOWN}/desired", bytes(30_000), retain=True)
        box.next(LinkDown)
        box.next(LinkUp)
        assert len(box.next(MessageArrived).payload) == 30_000
        proxy.cut_after("up", 5_000)
        assert box.link.publish(f"{UP}/health", bytes(30_000)) is not None
        box.next(LinkDown)
        box.next(LinkUp)
        assert box.so_far(PublishAcknowledged) == []  # nothing is sent again by the link: the outbox does that
        box.send(f"{UP}/health", bytes(30_000))
        assert len(cloud.next(MessageArrived).payload) == 30_000


def test_the_will_is_told_when_it_dies_and_not_when_it_is_stopped(
    broker: Mosquitto, proxy: FaultProxy, cloud: LinkRun
) -> None:
    wills = iter([b"first", b"second", b"third"])
    with LinkRun(broker.box(BOX, port=proxy.port), will=lambda: (f"{UP}/status", next(wills))) as box:
        box.next(LinkUp)
        proxy.cut()
        assert cloud.next(MessageArrived).payload == b"first"
        box.next(LinkUp)
        proxy.cut()
        assert cloud.next(MessageArrived).payload == b"second"
        box.next(LinkUp)
        box.link.publish(f"{UP}/status", b"bye", retain=True)
    assert cloud.next(MessageArrived).payload == b"bye"
    with LinkRun(broker.controller("controller-2"), CONTROLLER) as late:
        late.next(LinkUp)
        last = late.next(MessageArrived)
        assert (last.payload, last.retained) == (b"bye", True)


def test_an_idle_link_lives_by_heartbeats_that_reach_nobody(
    broker: Mosquitto, proxy: FaultProxy, cloud: LinkRun
) -> None:
    with LinkRun(broker.box(BOX, port=proxy.port), keepalive_s=2) as box:
        box.next(LinkUp)
        counted = proxy.counted
        before = counted.up_bytes
        wait_for(lambda: counted.up_bytes > before, what="a heartbeat")
        first = counted.up_bytes  # another one comes only after the first was answered
        wait_for(lambda: counted.up_bytes > first, what="a second heartbeat")
        wait_for(lambda: box.link.alive_s < 1, what="a proof that the loop lives")
        assert (box.so_far(PublishAcknowledged), box.so_far(LinkDown)) == ([], [])
    assert cloud.so_far(MessageArrived) == []


def test_a_broker_that_is_silent_is_given_up(broker: Mosquitto, proxy: FaultProxy) -> None:
    with LinkRun(broker.box(BOX, port=proxy.port), keepalive_s=1) as box:
        box.next(LinkUp)
        proxy.stall("down")
        assert "not answered" in box.next(LinkDown).why
        proxy.flow()
        box.next(LinkUp)


@pytest.mark.parametrize("spoken", [None, SpokenVersion(since=0.0)], ids=["5", "3.1.1"])
def test_what_the_broker_closes_the_connection_on_is_left_alone_and_the_rest_goes_on(
    broker: Mosquitto, cloud: LinkRun, spoken: SpokenVersion | None
) -> None:
    big, small = (f"{UP}/metrics", bytes(50_000)), (f"{UP}/metrics", b"small")  # over this broker's limit, under ours
    with LinkRun(broker.box(BOX), recall=lambda: spoken, wall=lambda: 1.0) as box:
        inflight = box.link._inflight  # noqa: SLF001  (nobody else asks what is held)
        while not held_in(inflight.quarantine):
            assert len(box.so_far(LinkDown)) < 5
            pumped(box, [(f"{UP}/status", b"birth"), small, big, small])
        assert [one.topic for one in held_in(inflight.quarantine)] == [f"{UP}/metrics"]
        up = box.next(LinkUp)
        box.send(f"{UP}/status", b"birth", connection=up.connection)
        token = box.link.publish(*big, connection=up.connection)
        assert "quarantined" in box.next(PublishAcknowledged, where=lambda one: one.token == token).refused
        box.send(*small)
        downs = len(box.so_far(LinkDown))
        cloud.next(MessageArrived, where=lambda one: one.payload == b"small")
        assert len(box.so_far(LinkDown)) == downs


def pumped(box: LinkRun, messages: list[tuple[str, bytes]]) -> None:
    """Send these in order on the next connection, as soon as each can go, until it ends."""
    up = box.next(LinkUp)
    for topic, payload in messages:
        while box.link.publish(topic, payload, connection=up.connection) is None:
            if isinstance(box.following(), LinkDown):
                return
    box.next(LinkDown)


def test_no_more_than_the_window_is_under_way(broker: Mosquitto, proxy: FaultProxy) -> None:
    with LinkRun(broker.box(BOX, port=proxy.port), max_inflight=3) as box:
        assert box.link.publish(f"{UP}/health", b"too early") is None
        up = box.next(LinkUp)
        proxy.stall("down")
        tokens = [box.link.publish(f"{UP}/health", b"x") for _ in range(5)]
        assert [token is None for token in tokens] == [False, False, False, True, True]
        proxy.flow()
        assert [box.next(PublishAcknowledged).token for _ in range(3)] == tokens[:3]
        assert box.link.publish(f"{UP}/health", b"of another connection", connection=up.connection - 1) is None
        assert box.link.publish(f"{UP}/health", b"of this one", connection=up.connection) is not None


def test_too_large_a_message_is_refused_before_it_is_sent(broker: Mosquitto) -> None:
    with LinkRun(broker.box(BOX)) as box:
        box.next(LinkUp)
        with pytest.raises(TooLargeError, match="the limit is 65536"):
            box.link.publish(f"{UP}/health", bytes(65_537))
        with pytest.raises(ValueError, match="wildcards"):
            box.link.publish("edgegpu/v1/+/up/health", b"")


def test_a_broker_that_refuses_connections_is_reached_when_it_is_back(broker: Mosquitto, proxy: FaultProxy) -> None:
    with LinkRun(broker.box(BOX, port=proxy.port)) as box:
        box.next(LinkUp)
        proxy.refuse()
        box.next(LinkDown)
        assert "cannot connect" in box.next(LinkDown).why
        proxy.accept()
        box.link.wake()
        box.next(LinkUp)
