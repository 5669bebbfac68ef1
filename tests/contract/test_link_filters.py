"""Filters that a controller adds and gives up while it is connected, on a real mosquitto: asserted on what arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.linkrun import LinkRun
from kits.mqtt import Mosquitto

from edgegpu_sync.ids import DeviceId
from edgegpu_sync.link.events import FiltersGranted, LinkDown, LinkUp, MessageArrived
from edgegpu_sync.link.link import MOST_FILTERS
from edgegpu_sync.link.rules import V5, V311, Protocol, SpokenVersion
from edgegpu_sync.topics import uplink_filter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINE, OTHER = DeviceId("k3f9x2m7q1w8e5r4"), DeviceId("a1b2c3d4e5f6g7h8")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    one = Mosquitto(tmp_path / "mqtt")
    one.start()
    yield one
    one.stop()


def subscribed(run: LinkRun, *devices: DeviceId) -> None:
    """Subscribe to what these boxes send, and wait until the broker has granted it."""
    token = run.link.subscribe([uplink_filter(device) for device in devices])
    assert token is not None
    run.next(FiltersGranted, where=lambda one: one.token == token)


def heard(run: LinkRun, payload: bytes) -> list[bytes]:
    """All that has come until this payload."""
    last = run.next(MessageArrived, where=lambda one: one.payload == payload)
    run.link.ack(last)
    return [one.payload for one in run.so_far(MessageArrived)]


@pytest.mark.parametrize("version", [V5, V311])
def test_a_controller_hears_the_boxes_that_it_has_subscribed_to_and_no_others(
    broker: Mosquitto, version: Protocol
) -> None:
    spoken = SpokenVersion(0.0) if version == V311 else None
    with (
        LinkRun(broker.controller(), [], session_s=0, wall=lambda: 1.0, recall=lambda: spoken) as run,
        LinkRun(broker.box(MINE)) as mine,
        LinkRun(broker.box(OTHER)) as other,
    ):
        for one in (run, mine, other):
            one.next(LinkUp)
        mine.send(f"edgegpu/v1/{MINE}/up/status", b"retained before", retain=True)
        other.send(f"edgegpu/v1/{OTHER}/up/status", b"of another", retain=True)
        subscribed(run, MINE)
        mine.send(f"edgegpu/v1/{MINE}/up/health", b"live")
        other.send(f"edgegpu/v1/{OTHER}/up/health", b"live of another")
        mine.send(f"edgegpu/v1/{MINE}/up/health", b"last")
        assert heard(run, b"last") == [b"retained before", b"live", b"last"]

        subscribed(run, OTHER)
        run.link.unsubscribe([uplink_filter(MINE)])
        subscribed(run, OTHER)  # the broker takes packets in their order: it has taken the one before
        mine.send(f"edgegpu/v1/{MINE}/up/health", b"not heard")
        other.send(f"edgegpu/v1/{OTHER}/up/health", b"end")
        assert b"not heard" not in heard(run, b"end")
        assert run.so_far(LinkUp)[0].protocol == version
        assert run.so_far(LinkDown) == []


def test_the_filters_of_ten_thousand_boxes_are_granted_in_packets_that_the_broker_takes(broker: Mosquitto) -> None:
    devices = [DeviceId(f"{number:016d}") for number in range(10_000)]
    with LinkRun(broker.controller(), [], session_s=0) as run, LinkRun(broker.box(devices[-1])) as last:
        run.next(LinkUp)
        last.next(LinkUp)
        for at in range(0, len(devices), MOST_FILTERS):
            subscribed(run, *devices[at : at + MOST_FILTERS])
        last.send(f"edgegpu/v1/{devices[-1]}/up/health", b"heard")
        assert heard(run, b"heard") == [b"heard"]
        assert run.so_far(LinkDown) == []


def test_more_filters_than_a_packet_may_have_are_refused_here(broker: Mosquitto) -> None:
    with LinkRun(broker.controller(), [], session_s=0) as run:
        run.next(LinkUp)
        many = [f"edgegpu/v1/{number:016d}/up/#" for number in range(MOST_FILTERS + 1)]
        with pytest.raises(ValueError, match="at most 500"):
            run.link.subscribe(many)
        with pytest.raises(ValueError, match="at most 500"):
            run.link.unsubscribe(many)


def test_nothing_is_subscribed_while_the_link_is_down_or_anew(broker: Mosquitto) -> None:
    """Whoever subscribes does so again after each `LinkUp`: with a session of 0 s the broker has forgotten all."""
    with LinkRun(broker.controller(), [], session_s=0) as run, LinkRun(broker.box(MINE)) as mine:
        assert run.link.subscribe([uplink_filter(MINE)]) is None or run.so_far(LinkUp)
        run.next(LinkUp)
        mine.next(LinkUp)
        subscribed(run, MINE)
        broker.kill()
        run.next(LinkDown)
        assert run.link.subscribe([uplink_filter(MINE)]) is None
        broker.start()
        run.next(LinkUp)
        mine.next(LinkUp)
        mine.send(f"edgegpu/v1/{MINE}/up/health", b"not heard")
        subscribed(run, MINE)
        mine.send(f"edgegpu/v1/{MINE}/up/health", b"heard")
        assert b"not heard" not in heard(run, b"heard")
