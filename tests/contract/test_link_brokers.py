"""What the link needs of any broker, on each that there is: mosquitto, and the embedded one of demos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kits.amqtt import Amqtt
from kits.faultproxy import FaultProxy
from kits.linkrun import LinkRun
from kits.mqtt import Mosquitto

from edgegpu_sync.link.events import LinkDown, LinkUp, MessageArrived
from edgegpu_sync.link.rules import V5, V311, SpokenVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BOX = "k3f9x2m7q1w8e5r4"
DESIRED = f"edgegpu/v1/{BOX}/down/desired"
STATUS = f"edgegpu/v1/{BOX}/up/status"
CONTROLLER = ["edgegpu/v1/+/up/#"]


@pytest.fixture(params=["mosquitto", "amqtt"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mosquitto | Amqtt]:
    if request.param == "amqtt":
        with Amqtt(tmp_path / "amqtt") as embedded:
            yield embedded
    else:
        real = Mosquitto(tmp_path / "mqtt")
        real.start()
        yield real
        real.stop()


def recall_for(broker: Mosquitto | Amqtt) -> Callable[[], SpokenVersion | None]:
    """amqtt does not answer MQTT 5 at all, which takes the link two long waits to believe."""
    return (lambda: SpokenVersion(since=0.0)) if isinstance(broker, Amqtt) else lambda: None


def taken(run: LinkRun) -> bytes:
    """Return what comes next, acknowledged: amqtt waits five seconds for that before it goes on."""
    came = run.next(MessageArrived)
    run.link.ack(came)
    return came.payload


def test_both_ways_retained_and_after_a_cut(broker: Mosquitto | Amqtt) -> None:
    more: dict[str, Any] = {"recall": recall_for(broker), "wall": lambda: 1.0}
    will = (STATUS, b"gone")
    with FaultProxy(broker.port) as proxy, LinkRun(broker.controller(), CONTROLLER, **more) as cloud:
        assert cloud.next(LinkUp).protocol == (V311 if isinstance(broker, Amqtt) else V5)
        cloud.send(DESIRED, b"first", retain=True)
        with LinkRun(broker.box(BOX, port=proxy.port), will=lambda: will, **more) as box:
            box.next(LinkUp)
            came = box.next(MessageArrived)
            assert (came.payload, came.retained) == (b"first", True)
            box.link.ack(came)
            box.send(STATUS, b"birth", retain=True)
            assert taken(cloud) == b"birth"
            proxy.cut()
            box.next(LinkDown)
            assert taken(cloud) == b"gone"
            box.next(LinkUp)
            cloud.send(DESIRED, b"second", retain=True)
            while taken(box) != b"second":  # the first one is retained: it may come again before
                pass
            box.send(STATUS, b"birth again", retain=True)
            assert taken(cloud) == b"birth again"
