"""What a box can reach with its own certificate, whatever it says and whatever stands in it: nothing of another's.

Asserted on what arrives. Codes prove nothing: mosquitto grants subscriptions that then bring nothing, and
acknowledges publishes that it drops.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.linkrun import LinkRun
from kits.mqtt import Mosquitto

from edgegpu_cloud.broker.config import BrokerLimits
from edgegpu_sync.link.events import LinkDown, LinkUp, MessageArrived
from edgegpu_sync.link.rules import V5, V311, Protocol, SpokenVersion
from edgegpu_sync.topics import PLAIN_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgegpu_sync.link.events import Address

VICTIM = "k3f9x2m7q1w8e5r4"
THIEF = "a1b2c3d4e5f6g7h8"
ALL = ["edgegpu/v1/+/down/#", "edgegpu/v1/+/up/#"]
EVERYTHING = ["#", "$SYS/#", *ALL, f"edgegpu/v1/{VICTIM}/down/#", f"edgegpu/v1/{VICTIM}/up/#"]
DOWN, UP = f"edgegpu/v1/{VICTIM}/down/desired", f"edgegpu/v1/{VICTIM}/up/status"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    one = Mosquitto(tmp_path_factory.mktemp("acl") / "mqtt")
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def cloud(broker: Mosquitto) -> Iterator[LinkRun]:
    with LinkRun(broker.controller(), ["edgegpu/v1/+/up/#"]) as one:
        one.next(LinkUp)
        yield one


@pytest.fixture(scope="module")
def victim(broker: Mosquitto, cloud: LinkRun) -> Iterator[LinkRun]:
    assert cloud
    with LinkRun(broker.box(VICTIM)) as one:
        one.next(LinkUp)
        yield one


def marked(cloud: LinkRun, victim: LinkRun, mark: bytes) -> None:
    """Send something each way, retained, and see that it has come: all that came before it has come as well."""
    cloud.send(DOWN, mark, retain=True)
    victim.link.ack(victim.next(MessageArrived, where=lambda one: one.payload == mark))
    victim.send(UP, mark, retain=True)
    cloud.link.ack(cloud.next(MessageArrived, where=lambda one: one.payload == mark))


def settled(thief: LinkRun, cloud: LinkRun, name: str) -> list[MessageArrived]:
    """What the thief has got, once what is meant for it has reached it, or cannot."""
    if not set(name) & set("/+#"):
        cloud.send(f"edgegpu/v1/{name}/down/receipt", b"yours")
        thief.next(MessageArrived, where=lambda one: one.payload == b"yours")
    thief.send(UP, b"stolen")  # what was on its way to the thief comes before the answer to this
    return [one for one in thief.so_far(MessageArrived) if one.payload != b"yours"]


NAMES = [
    THIEF,
    "+",
    "#",
    f"{VICTIM}/down",
    f"{VICTIM}/down/#",
    f"{VICTIM}/#",
    "+/down",
    f"../{VICTIM}",
    "controller-1",
    "$SYS",
    "%u",
    "%c",
    VICTIM.upper(),
    f"{VICTIM} ",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("protocol", [V5, V311])
def test_reads_nothing_of_anothers_and_writes_nothing_to_it(
    broker: Mosquitto, cloud: LinkRun, victim: LinkRun, name: str, protocol: int
) -> None:
    before = len(victim.so_far(MessageArrived)), len(cloud.so_far(MessageArrived))
    recall = (lambda: None) if protocol == V5 else (lambda: SpokenVersion(since=1.0))
    with LinkRun(broker.box(name), EVERYTHING, recall=recall, wall=lambda: 2.0) as thief:
        up = thief.next(LinkUp)
        assert up.protocol == protocol
        for topic in (DOWN, UP, f"edgegpu/v1/{VICTIM}/up/result", f"edgegpu/v1/{VICTIM}/down/receipt"):
            thief.send(topic, b"stolen", retain=True)
        mark = f"{name} {protocol}".encode()
        marked(cloud, victim, mark)
        assert settled(thief, cloud, name) == []
    for run, count in ((victim, before[0]), (cloud, before[1])):
        assert [one.payload for one in run.so_far(MessageArrived)[count:] if one.payload == b"stolen"] == []


OWN = f"edgegpu/v1/{THIEF}"
STRAY = [f"{OWN}/up/{tail}" for tail in ("cmd/01j9zq4v7m2c8x5n", "x", "status/x", "a/b/c")] + [f"{OWN}/beat/x", OWN]


@pytest.mark.parametrize("protocol", [V5, V311])
def test_the_broker_keeps_of_a_box_what_stands_on_its_own_topics_alone(tmp_path: Path, protocol: Protocol) -> None:
    recall = (lambda: None) if protocol == V5 else (lambda: SpokenVersion(since=1.0))
    topics = [f"{OWN}/{kind}" for kind in PLAIN_KINDS if kind.startswith("up/")]
    will = (STRAY[0], b"will")
    broker = Mosquitto(tmp_path / "mqtt")
    broker.start()
    try:
        with LinkRun(broker.box(THIEF), recall=recall, wall=lambda: 2.0, will=lambda: will) as thief:
            assert thief.next(LinkUp).protocol == protocol
            for topic in (*STRAY, *topics):
                thief.send(topic, b"kept", retain=True)
            with LinkRun(broker.controller(client_id=THIEF), session_s=0) as other:
                other.next(LinkUp)  # it ends the thief's connection: the broker sends the will
            thief.next(LinkDown)
        with LinkRun(broker.controller(), [f"{OWN}/#"], session_s=0) as late:
            late.next(LinkUp)
            for _ in topics:
                late.next(MessageArrived)
            late.send(f"{OWN}/down/receipt", b"x")  # what more is retained comes before the answer to this
            assert sorted(one.topic for one in late.so_far(MessageArrived)) == sorted(topics)
    finally:
        broker.stop()


def test_a_client_id_of_anothers_takes_neither_its_place_nor_its_queue(
    broker: Mosquitto, cloud: LinkRun, victim: LinkRun
) -> None:
    downs = len(victim.so_far(LinkDown))
    thief_at = replace(broker.box(THIEF), client_id=VICTIM)
    with LinkRun(thief_at, [f"edgegpu/v1/{VICTIM}/down/#"]) as thief:
        thief.next(LinkUp)
        marked(cloud, victim, b"still mine")
        cloud.send(f"edgegpu/v1/{THIEF}/down/receipt", b"not even asked for")
        marked(cloud, victim, b"still mine, later")
        assert [one for one in thief.so_far(MessageArrived) if THIEF not in one.topic] == []
    assert len(victim.so_far(LinkDown)) == downs


def test_a_box_with_a_controllers_name_takes_not_its_queue(broker: Mosquitto, victim: LinkRun) -> None:
    name = "controller-1"
    away = broker.controller(client_id="controller-1.9d2e")
    with LinkRun(away, ["edgegpu/v1/+/up/#"]) as one:
        one.next(LinkUp)
    victim.send(UP, b"for the controller", retain=True)
    with LinkRun(broker.box(name), EVERYTHING) as thief:
        thief.next(LinkUp)
        thief.send(f"edgegpu/v1/{name}/up/health", b"mine")
        assert [one for one in thief.so_far(MessageArrived) if name not in one.topic] == []
    with LinkRun(away, ["edgegpu/v1/+/up/#"]) as one:
        assert one.next(LinkUp).session_present
        one.next(MessageArrived, where=lambda came: came.payload == b"for the controller")


@pytest.mark.parametrize("forced", [True, False])
def test_what_waits_for_a_box_is_there_after_another_came_with_its_client_id(tmp_path: Path, *, forced: bool) -> None:
    broker = Mosquitto(tmp_path / "mqtt")
    config = broker.folder / "mosquitto.conf"
    if not forced:  # then it is lost: the test would see it
        config.write_text(config.read_text().replace("use_username_as_clientid true", ""))
    broker.start()
    try:
        address = broker.box(VICTIM)
        with LinkRun(address) as victim:
            victim.next(LinkUp)
        with LinkRun(broker.controller(), ["edgegpu/v1/+/up/#"]) as cloud:
            cloud.next(LinkUp)
            cloud.send(DOWN, b"for the victim alone")
        with LinkRun(replace(broker.box(THIEF), client_id=VICTIM)) as thief:
            assert thief.next(LinkUp).session_present is not forced
            thief.send(UP, b"")
            assert thief.so_far(MessageArrived) == []
        with LinkRun(address) as victim:
            victim.next(LinkUp)
            victim.send(UP, b"")
            assert [one.payload for one in victim.so_far(MessageArrived)] == [b"for the victim alone"] * forced
    finally:
        broker.stop()


def refused(address: Address) -> str:
    """Why the broker, or TLS, does not take it."""
    with LinkRun(address) as run:
        why = run.next(LinkDown).why
        assert run.so_far(LinkUp) == []
        return why


def test_each_listener_takes_certificates_of_its_own_authority_alone(broker: Mosquitto) -> None:
    assert refused(replace(broker.box("controller-1"), port=broker.controller_port))
    assert refused(replace(broker.controller(), port=broker.port))


def test_a_revoked_certificate_does_not_come_in_again_after_the_list_was_read(
    broker: Mosquitto, cloud: LinkRun
) -> None:
    gone, stays = broker.box("gone567890123456"), broker.box("stays67890123456")
    with LinkRun(gone) as one:
        one.next(LinkUp)
    broker.boxes.crl(broker.crl, gone.cert)
    broker.send(signal.SIGHUP)
    cloud.send("edgegpu/v1/gone567890123456/down/receipt", b"x")  # answered: the signal was seen before
    assert refused(gone)
    with LinkRun(stays) as one:
        one.next(LinkUp)


def test_one_who_was_revoked_while_connected_is_put_out_by_a_controller(broker: Mosquitto, cloud: LinkRun) -> None:
    address = broker.box("gone234567890123")
    with LinkRun(address) as gone:
        gone.next(LinkUp)
        broker.boxes.crl(broker.crl, address.cert)
        broker.send(signal.SIGHUP)
        cloud.send("edgegpu/v1/gone234567890123/down/receipt", b"x")
        gone.send("edgegpu/v1/gone234567890123/up/health", b"still there")
        with LinkRun(broker.controller(client_id="gone234567890123"), session_s=0) as visitor:
            visitor.next(LinkUp)
        gone.next(LinkDown)
        gone.link.wake()
        gone.next(LinkDown)
        assert len(gone.so_far(LinkUp)) == 1


def test_no_box_can_put_another_out(broker: Mosquitto, victim: LinkRun, cloud: LinkRun) -> None:
    downs = len(victim.so_far(LinkDown))
    with LinkRun(replace(broker.box(THIEF), client_id=VICTIM), session_s=0) as visitor:
        visitor.next(LinkUp)
    marked(cloud, victim, b"after the visit")
    assert len(victim.so_far(LinkDown)) == downs


def test_controllers_can_read_what_the_broker_drops_and_boxes_cannot(tmp_path: Path) -> None:
    dropped = "$SYS/broker/publish/messages/dropped"
    broker = Mosquitto(tmp_path / "mqtt", limits=BrokerLimits(max_queued_messages=5, max_inflight_messages=1))
    config = broker.folder / "mosquitto.conf"
    config.write_text(config.read_text().replace("sys_interval 10", "sys_interval 1"))
    broker.start()
    try:
        address = broker.box(VICTIM)
        with LinkRun(address) as away:
            away.next(LinkUp)
        with LinkRun(broker.controller(), [dropped]) as cloud, LinkRun(broker.box(THIEF), [dropped]) as box:
            cloud.next(LinkUp)
            box.next(LinkUp)
            for _ in range(20):
                cloud.send(f"edgegpu/v1/{VICTIM}/down/receipt", b"x")
            assert cloud.next(MessageArrived, where=lambda one: int(one.payload) > 0)
            assert box.so_far(MessageArrived) == []
    finally:
        broker.stop()
