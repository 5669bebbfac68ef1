"""A client with full rights on the broker: it hears what is said, and says whatever it likes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import paho.mqtt.client as mqtt
from fuzz.material import Heard
from paho.mqtt.enums import CallbackAPIVersion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuzz.lies import Lie

_ALL = "edgegpu/v1/#"


class Mouth:
    """`heard` grows until `deafen`."""

    def __init__(self, port: int) -> None:
        self.heard: list[Heard] = []
        self.drops = 0
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="fuzz", protocol=mqtt.MQTTv5)
        self._client.max_inflight_messages_set(100)
        self._up = threading.Event()
        self._client.on_connect = lambda client, *_: client.subscribe(_ALL, qos=1)
        self._client.on_subscribe = lambda *_: self._up.set()
        self._client.on_disconnect = self._down
        self._client.on_message = self._came
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        if not self._up.wait(60):
            raise TimeoutError("the broker does not take a client that may do all")

    def _down(self, *_: object) -> None:
        self.drops += 1

    def _came(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        if message.payload and not message.topic.endswith("/beat"):
            self.heard.append(Heard(message.topic, bytes(message.payload)))

    def deafen(self) -> None:
        """Hear no more: what is said from now on is our own."""
        self._client.unsubscribe(_ALL)

    def say(self, lies: Iterable[Lie], *, timeout_s: float = 60.0) -> None:
        """Publish them in this order; return when the broker has all of them."""
        said = [self._client.publish(one.topic, one.payload, qos=1, retain=one.retain) for one in lies]
        end = time.monotonic() + timeout_s
        for one in said:
            one.wait_for_publish(max(0.1, end - time.monotonic()))
            if not one.is_published():
                raise TimeoutError("the broker does not take what is published")

    def close(self) -> None:
        self._client.on_disconnect = None
        self._client.disconnect()
        self._client.loop_stop()
