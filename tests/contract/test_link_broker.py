"""What the link does with a broker that refuses, falls silent, or sends what it should not: a fake, over real TLS."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest
from kits.fakebroker import CONNACK, PUBLISH, SUBACK, FakeBroker, Packet, Peer, obliging, packed, publish
from kits.linkrun import LinkRun
from kits.mqttcerts import TestCa

from edgegpu_sync.link.events import Address, LinkDown, LinkEvent, LinkUp, MessageArrived, PublishAcknowledged
from edgegpu_sync.link.rules import DAY_S, V5, V311, SpokenVersion

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BOX = "k3f9x2m7q1w8e5r4"
TOPIC = f"edgegpu/v1/{BOX}/down/receipt"


def connected(peer: Peer) -> Packet:
    packet = peer.read()
    assert packet is not None
    return packet


def subscribed(peer: Peer) -> None:
    """Answer CONNECT and SUBSCRIBE."""
    peer.welcome(connected(peer))
    peer.grant(connected(peer))


def only_3_1_1(refusal: bytes | None) -> Callable[[Peer], None]:
    """A broker that answers MQTT 5 with `refusal`, or closes the connection."""

    def script(peer: Peer) -> None:
        connect = connected(peer)
        if connect.protocol == V5:
            if refusal:
                peer.say(refusal)
            return
        peer.welcome(connect)
        obliging(peer)

    return script


@pytest.mark.parametrize(
    "refusal", [packed(CONNACK, b"\0\x01"), packed(CONNACK, b"\0\x84\0"), None], ids=["as 3.1.1", "as 5", "closes"]
)
def test_a_broker_that_speaks_3_1_1_alone_is_spoken_to_so_and_remembered(tmp_path: Path, refusal: bytes | None) -> None:
    told: list[SpokenVersion | None] = []
    with FakeBroker(tmp_path, only_3_1_1(refusal)) as broker:
        with LinkRun(broker.address(BOX), wall=lambda: 1000.0, remember=told.append) as run:
            assert run.next(LinkUp).protocol == V311
            run.send(f"edgegpu/v1/{BOX}/up/health", b"x")
        assert told == [SpokenVersion(since=1000.0)]
        with LinkRun(broker.address(BOX), wall=lambda: 1001.0, recall=lambda: told[0]) as run:
            run.next(LinkUp)
            assert run.so_far(LinkDown) == []


def test_5_is_tried_again_on_the_next_day_and_the_memory_goes_when_it_is_taken(tmp_path: Path) -> None:
    told: list[SpokenVersion | None] = []
    with (
        FakeBroker(tmp_path, obliging) as broker,
        LinkRun(
            broker.address(BOX), wall=lambda: DAY_S, recall=lambda: SpokenVersion(0.0), remember=told.append
        ) as run,
    ):
        assert run.next(LinkUp).protocol == V5
        assert told == [None]


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"\0\x87\0", "Not authorized"), (b"\0\x89\0", "Server busy"), (b"\0\x85\0", "Client identifier not valid")],
)
def test_a_refusal_is_told_as_it_was_said_and_changes_no_version(tmp_path: Path, answer: bytes, said: str) -> None:
    spoken = []

    def script(peer: Peer) -> None:
        spoken.append(connected(peer).protocol)
        if len(spoken) < 2:
            peer.say(packed(CONNACK, answer))
            peer.read()
        else:
            peer.welcome(Packet(1, 0, b"\0\4MQTT\5"))
            obliging(peer)

    with FakeBroker(tmp_path, script) as broker, LinkRun(broker.address(BOX)) as run:
        assert said in run.next(LinkDown).why
        run.next(LinkUp)
        assert spoken == [V5] * 2


def test_up_is_told_after_suback_and_what_came_before_it_after_that(tmp_path: Path) -> None:
    events: list[LinkEvent] = []

    def script(peer: Peer) -> None:
        peer.welcome(connected(peer))
        subscribe = connected(peer)
        peer.say(publish(TOPIC, b"early", mid=7, five=True))
        time.sleep(0.05)  # not a wait for anything: Up must not come in this time
        events.extend(run.events)
        peer.grant(subscribe)
        obliging(peer)

    with FakeBroker(tmp_path, script) as broker:
        run = LinkRun(broker.address(BOX))
        with run:
            run.next(LinkUp)
            assert run.next(MessageArrived).payload == b"early"
    assert events == []


@pytest.mark.parametrize(("five", "code"), [(True, 0x87), (False, 0x80)])
def test_a_refused_subscription_is_no_link(tmp_path: Path, five: bool, code: int) -> None:  # noqa: FBT001
    def script(peer: Peer) -> None:
        peer.welcome(connected(peer))
        peer.grant(connected(peer), code)
        peer.read()

    recall = (lambda: None) if five else (lambda: SpokenVersion(0.0))
    with FakeBroker(tmp_path, script) as broker, LinkRun(broker.address(BOX), recall=recall, wall=lambda: 1.0) as run:
        assert "grants no subscription" in run.next(LinkDown).why
        assert run.so_far(LinkUp) == []


def test_a_publish_that_the_broker_refuses_is_told_with_its_words(tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        subscribed(peer)
        peer.say(packed(4, connected(peer).mid + b"\x87"))
        obliging(peer)

    with FakeBroker(tmp_path, script) as broker, LinkRun(broker.address(BOX)) as run:
        run.next(LinkUp)
        token = run.link.publish(f"edgegpu/v1/{BOX}/up/health", b"x")
        assert run.next(PublishAcknowledged) == PublishAcknowledged(token or 0, "Not authorized")


RUBBISH = {
    "no packet of MQTT": b"\xff\xff\xff\xff\xff\xff",
    "a packet without its fields": packed(PUBLISH, b"\0", flags=2),
    "a topic that is no text": packed(PUBLISH, struct.pack("!H", 2) + b"\xff\xfe\0\1\0x", flags=2),
    "an acknowledgement of nothing": packed(4, b"\0\x63"),
    "a property that there is not": packed(PUBLISH, b"\0\1a\0\1\x02\xfe\xfe", flags=2),
    "an unasked SUBACK": packed(SUBACK, b"\0\x09\0\x01"),
    "a second CONNACK": packed(CONNACK, b"\0\0\0"),
    "QoS 2": packed(PUBLISH, b"\0\1a\0\1\0x", flags=4),
    "QoS 0": packed(PUBLISH, b"\0\1a\0x", flags=0),
    "a length that has no end": b"\x30\xff\xff\xff\xff\xff",
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH.keys())
def test_rubbish_ends_at_most_the_connection(tmp_path: Path, rubbish: bytes) -> None:
    first = [True]

    def script(peer: Peer) -> None:
        subscribed(peer)
        if first.pop():
            first.append(False)
            peer.say(rubbish)
            return
        first.append(False)
        peer.say(publish(TOPIC, b"sound", mid=1, five=peer.five))
        obliging(peer)

    with FakeBroker(tmp_path, script) as broker, LinkRun(broker.address(BOX)) as run:
        run.next(LinkDown)
        assert run.next(MessageArrived, where=lambda one: one.topic == TOPIC).payload == b"sound"
        assert len(run.so_far(LinkUp)) == 2


def test_a_message_over_the_limit_ends_the_connection_unread_and_the_session_is_begun_anew(tmp_path: Path) -> None:
    clean: list[bool] = []

    def script(peer: Peer) -> None:
        connect = connected(peer)
        clean.append(bool(connect.rest[7] & 2))
        peer.welcome(connect)
        peer.grant(connected(peer))
        if len(clean) == 1:
            peer.say(b"\x32\xff\xff\xff\x7f" + bytes(300_000))
        obliging(peer)

    with FakeBroker(tmp_path, script) as broker, LinkRun(broker.address(BOX)) as run:
        run.next(LinkUp)
        assert "more than" in run.next(LinkDown).why
        run.next(LinkUp)
    assert clean == [False, True]


def test_what_put_raises_ends_the_run_and_is_seen(tmp_path: Path) -> None:
    class FullError(Exception):
        pass

    def put(_: LinkEvent) -> None:
        raise FullError

    with FakeBroker(tmp_path, obliging) as broker:
        run = LinkRun(broker.address(BOX))
        run.link = type(run.link)(
            lambda: broker.address(BOX),
            subscribe=[TOPIC],
            will=lambda: None,
            put=put,
            rng=run.rng,
            clock=time.monotonic,
        )
        with run:
            assert isinstance(run.ended(), FullError)
            assert run.link.publish(TOPIC, b"") is None


def drain(sock: socket.socket) -> None:
    while sock.recv(65_536):
        pass


def test_it_stops_at_once_while_it_connects_and_while_it_waits(tmp_path: Path) -> None:
    ca = TestCa("x")
    shown = ca.issue(tmp_path, "x")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        address = Address(
            host="127.0.0.1",
            port=silent.getsockname()[1],
            client_id=BOX,
            ca=ca.write(tmp_path / "ca"),
            cert=shown.cert,
            key=shown.key,
        )
        with LinkRun(address):
            taken, _ = silent.accept()
        taken.settimeout(0)
        with pytest.raises(BlockingIOError):  # still open: it has not waited until the handshake was given up
            drain(taken)
        taken.close()
    with LinkRun(address, clock=lambda: 0.0) as run:  # by this clock no wait is ever over
        run.next(LinkDown)  # nobody listens there any more


def test_missing_certificates_are_told_and_tried_again(tmp_path: Path) -> None:
    with FakeBroker(tmp_path, obliging) as broker:
        address = broker.address(BOX)
        kept = address.cert.rename(tmp_path / "aside")
        with LinkRun(address) as run:
            assert "cannot use the certificates" in run.next(LinkDown).why
            kept.rename(address.cert)
            run.link.wake()
            run.next(LinkUp)
