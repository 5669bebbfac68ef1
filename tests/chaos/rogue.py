"""Somebody with full rights on the broker: hears all, and publishes it again, elsewhere, changed, or made up."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as mqtt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paho.mqtt.enums import CallbackAPIVersion

from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import parse

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 4_000
_AT_ONCE = 8
_DEVICE = re.compile(r"^edgegpu/v1/([a-z0-9]{16})/")


@dataclass(frozen=True, slots=True)
class Heard:
    """A message as it was on the wire."""

    topic: str
    payload: bytes

    @property
    def device(self) -> str:
        found = _DEVICE.match(self.topic)
        return found[1] if found else ""

    @property
    def retained(self) -> bool:
        return self.topic.endswith(("/desired", "/keys", "/status"))


class Rogue:
    """`act` does one bad thing, and counts it; nothing while the broker is away or nothing was heard yet."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._rng = rng
        self._heard: deque[Heard] = deque(maxlen=_MOST)
        self._mine: deque[Heard] = deque(maxlen=_MOST)
        self._lock = threading.Lock()
        self._signer = Signer.of(Ed25519PrivateKey.generate())
        self.done: Counter[str] = Counter()
        self._acts: tuple[Callable[[], list[Heard]], ...] = (
            self._duplicated,
            self._reordered,
            self._replayed,
            self._redirected,
            self._corrupted,
            self._forged,
        )
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="rogue")
        self._client.on_connect = lambda client, *_: client.subscribe("edgegpu/v1/#", qos=0)
        self._client.on_message = self._on_message
        self._client.reconnect_delay_set(1, 1)
        self._client.connect_async("127.0.0.1", port)
        self._client.loop_start()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _on_message(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        one = Heard(message.topic, bytes(message.payload))
        with self._lock:
            if one in self._mine:
                self._mine.remove(one)
            elif not one.topic.endswith("/beat"):
                self._heard.append(one)

    @property
    def heard(self) -> int:
        return len(self._heard)

    def act(self) -> None:
        """Do one of all the bad things."""
        act = self._rng.choice(self._acts)
        with self._lock:
            lies = act() if self._heard else []
        for lie in lies:
            self._say(lie)
        if lies:
            self.done[act.__name__.strip("_")] += len(lies)

    def _say(self, one: Heard) -> None:
        if not self._client.is_connected():
            return
        with self._lock:
            self._mine.append(one)
        retain = one.retained and self._rng.random() < 0.3
        self._client.publish(one.topic, one.payload, qos=1, retain=retain)

    # --- lies; the lock is held

    def _newest(self) -> list[Heard]:
        return list(self._heard)[-20:]

    def _some(self) -> list[Heard]:
        return self._rng.sample(list(self._heard), min(_AT_ONCE, len(self._heard)))

    def _duplicated(self) -> list[Heard]:
        one = self._rng.choice(self._newest())
        return [one] * self._rng.randint(1, 4)

    def _reordered(self) -> list[Heard]:
        return self._rng.sample(self._newest(), min(_AT_ONCE, len(self._heard)))

    def _replayed(self) -> list[Heard]:
        return self._some()

    def _redirected(self) -> list[Heard]:
        """Send payloads under topics that are not theirs: another box, another op, another id, another kind."""
        return [Heard(self._elsewhere(one.topic), one.payload) for one in self._some()]

    def _elsewhere(self, topic: str) -> str:
        other = self._rng.choice(list(self._heard)).topic
        words, others = topic.split("/"), other.split("/")
        at = self._rng.randrange(2, len(words))
        if at < len(others) and others[at] != words[at]:
            words[at] = others[at]
            return "/".join(words)
        return other

    def _corrupted(self) -> list[Heard]:
        return [Heard(one.topic, self._bent(one.payload)) for one in self._some()]

    def _bent(self, payload: bytes) -> bytes:
        if not payload or self._rng.random() < 0.1:
            return self._rng.randbytes(self._rng.randint(0, 200))
        bent = bytearray(payload)
        match self._rng.randrange(3):
            case 0:
                bent[self._rng.randrange(len(bent))] ^= 1 << self._rng.randrange(8)
            case 1:
                del bent[self._rng.randrange(len(bent)) :]
            case _:
                bent += self._rng.randbytes(9)
        return bytes(bent)

    def _forged(self) -> list[Heard]:
        """Make up ends of commands that were seen going down, signed by a key of our own, and by an old signature."""
        commands = [one for one in self._heard if "/down/cmd/" in one.topic][-12:]
        results = [one for one in self._heard if one.topic.endswith("/up/result")][-50:]
        if not commands or not results:
            return []
        lies = []
        for one in self._rng.sample(commands, min(3, len(commands))):
            id_ = one.topic.rpartition("/")[2]
            topic = f"edgegpu/v1/{one.device}/up/" + self._rng.choice(("result", f"cmd/{id_}"))
            line, _, body = self._rng.choice(results).payload.partition(b"\n")
            lies += [Heard(topic, payload) for payload in self._lies(topic, line, body, id_)]
        return lies

    def _lies(self, topic: str, line: bytes, body: bytes, id_: str) -> list[bytes]:
        try:
            told: dict[str, Any] = json.loads(body)
            parsed = parse(topic)
        except ValueError:
            return []
        told |= {
            "id": id_,
            "state": self._rng.choice(["SUCCEEDED", "FAILED", "EXPIRED"]),
            "n": int(told.get("n", 1)) + 1_000,
        }
        text = json.dumps(told).encode()
        return [self._signer.seal(parsed, text), line + b"\n" + text]


def wait_heard(rogue: Rogue, *, timeout_s: float = 10.0) -> None:
    """Wait until it has heard anything."""
    end = time.monotonic() + timeout_s
    while not rogue.heard and time.monotonic() < end:
        time.sleep(0.05)
