"""A box that enrols over HTTPS and lives on a real broker: the protocol's rules, with keys of its own, over a link."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import urllib3
from kits.enrol import Box
from kits.modelbox import ModelBox, World

from edgegpu_base.x509 import key_pem
from edgegpu_cloud.enrolment.bodies import EnrolmentGranted
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.keys import KeyRing
from edgegpu_sync.link.events import Address, LinkDown, LinkEvent, LinkUp, MessageArrived
from edgegpu_sync.link.link import Link
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.messages.telemetry import Alloc, Inventory
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from pathlib import Path

TICK_S = 0.05


def post(url: str, ca: Path, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """Send a request as a box does; returns status and answer."""
    with urllib3.PoolManager(ca_certs=str(ca), retries=False, timeout=30) as pool:
        answer = pool.request("POST", url + path, body=body, headers=headers)
        return answer.status, json.loads(answer.data)


def enrol(url: str, ca: Path, box: Box) -> EnrolmentGranted:
    """Exchange the box's token for an identity."""
    status, answer = post(url, ca, "/v1/enrol", json.dumps(box.ask()).encode())
    assert status == 200, answer
    return EnrolmentGranted.model_validate_json(json.dumps(answer))


class LiveBox:
    """A context manager: the box is on the link while it is open."""

    def __init__(self, folder: Path, hand: Box, granted: EnrolmentGranted) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._granted = folder, granted
        for name, text in {
            "tls.crt": granted.certificate,
            "tls.key": key_pem(hand.tls),
            "ca.crt": granted.broker_ca,
        }.items():
            (folder / name).write_text(text)
        self.world = World(now_s=time.monotonic())
        self.box = ModelBox(self.world, DeviceId(granted.device), enrolment=granted.enrolment, instance=hand.instance)
        self.box.signer = Signer.of(hand.sign)
        self.box.ring = KeyRing.pinned(granted.root).follow(granted.keys)
        self.ups, self.downs = 0, list[str]()
        self._events: queue.SimpleQueue[LinkEvent | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.link = Link(
            self._address,
            subscribe=[f"edgegpu/v1/{granted.device}/down/#"],
            will=self._will,
            put=self._events.put,
            rng=random.Random(1),
            clock=time.monotonic,
        )
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self.link.run, self._run)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            bye = json.dumps({**self._stamp(), "state": "bye", "why": "stop"})
            topic = self.box.plain(TopicKind.STATUS)
            self.link.publish(str(topic), self.box.signer.seal(topic, bye.encode()), retain=True)
        self.link.stop()
        self._events.put(None)
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def cluster(self, uid: str) -> None:
        """Be in another cluster from now on."""
        with self._lock:
            self.box.cluster = uid
            self.box.say_reported()

    def _address(self) -> Address:
        return Address(
            host=self._granted.broker.host,
            port=self._granted.broker.port,
            client_id=self._granted.device,
            ca=self._folder / "ca.crt",
            cert=self._folder / "tls.crt",
            key=self._folder / "tls.key",
        )

    def _will(self) -> tuple[str, bytes]:
        with self._lock:
            self.world.now_s = time.monotonic()
            topic, payload, _ = self.box.born()
            return topic, payload

    def _run(self) -> None:
        up = False
        while True:
            try:
                event = self._events.get(timeout=TICK_S)
                if event is None:
                    return
            except queue.Empty:
                event = None
            with self._lock:
                self.world.now_s = time.monotonic()
                match event:
                    case LinkUp():
                        up = True
                        self.ups += 1
                        self._tell()
                    case LinkDown(why):
                        up = False
                        self.downs.append(why)
                    case MessageArrived():
                        self.box.receive(event.topic, event.payload)
                        self.link.ack(event)
                    case _:
                        pass
                self.box.work()
                while up and self.box.outgoing:
                    topic, payload, retain = self.box.outgoing[0]
                    if self.link.publish(topic, payload, retain=retain) is None:
                        break
                    self.box.outgoing.pop(0)

    def _tell(self) -> None:
        """Say which cards there are and who holds what: two of 60 units, `asr` with 4 of the first."""
        cards = [
            {
                "uuid": f"GPU-{at}",
                "label": str(at),
                "name": "NVIDIA T4",
                "memory_mib": 15_360,
                "units": 60,
                "healthy": True,
            }
            for at in range(2)
        ]
        plain = {"node": "box-1", "role": "server", "sharing": True, "unit_mib": 256, "mode": "none"}
        inventory = {**self._stamp(), **plain, "policy": "first-fit", "cards": cards}
        self.box.say(self.box.plain(TopicKind.INVENTORY), Inventory.model_validate_json(json.dumps(inventory)))
        pieces = [{"container": "main", "card": "GPU-0", "memory_units": 4, "core": 1}]
        pod = {"namespace": "default", "name": "asr-7d9cb5f6d8-x2x4z", "phase": "Running", "pieces": pieces}
        alloc = {**self._stamp(), "pods": {"0f3c6e0a": pod}}
        self.box.say(self.box.plain(TopicKind.ALLOC), Alloc.model_validate_json(json.dumps(alloc)))

    def _stamp(self) -> dict[str, object]:
        self.box.stamps, stamp = self.box.stamps.next()
        epoch: Epoch = stamp.epoch
        return {
            "enrolment": stamp.enrolment,
            "epoch": {"count": epoch.count, "nonce": epoch.nonce},
            "n": stamp.n,
            "age_s": self.box.age_s,
        }
