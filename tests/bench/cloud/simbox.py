"""A box as its controller sees it: what it says at a birth, and how it answers; without agent, cards and journal.

It applies whatever is desired at once. It does not verify what comes down: that is the work of ten thousand machines in
the field, and of this one alone here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgegpu_sync.keys import public_text
from edgegpu_sync.messages.spec import asked
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.messages.telemetry import Alloc, BoxHealth, CardReport, CardShare, Inventory, PodAlloc
from edgegpu_sync.messages.uplink import Birth, BoxVersions, ItemState, LastWill, Reported
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import PlainTopic, TopicKind
from edgegpu_sync.wire import digest

if TYPE_CHECKING:
    from pydantic import BaseModel

    from edgegpu_sync.ids import DeviceId
    from edgegpu_sync.topics import PlainKind

Said = tuple[str, bytes, bool]
"""Topic, payload, and whether the broker retains it."""

CARDS, UNITS, PODS = 2, 64, 6
BOOT = "4a3c9f1e-8a6f-4a34-9d2d-6a0f0b7c1d2e"


def sign_key(device: DeviceId) -> Ed25519PrivateKey:
    """Return the key that a box signs with: the controller's store is filled with its public half."""
    return Ed25519PrivateKey.from_private_bytes(device.encode().rjust(32, b"b"))


def public_of(device: DeviceId) -> str:
    """Return the public half of `sign_key`."""
    return public_text(sign_key(device))


def instance_of(device: DeviceId) -> str:
    """Return the machine's instance."""
    return device.encode().hex().ljust(64, "0")


class SimBox:
    """One box; every method returns what it says."""

    __slots__ = ("_count", "_n", "_signer", "_status", "device", "items", "observed_hash", "rev")

    def __init__(self, device: DeviceId) -> None:
        self.device = device
        self._signer = Signer.of(sign_key(device))
        self._count = self._n = self.rev = 0
        self._status = PlainTopic(device, TopicKind.STATUS)
        self.observed_hash = ""
        self.items: dict[str, Any] = {}

    @property
    def _cluster(self) -> str:
        return f"3c8f2c55-0d0e-4a57-9a0e-{self.device[-12:]}"

    def _up(self) -> dict[str, Any]:
        self._n += 1
        return {"enrolment": 1, "epoch": Epoch(self._count, f"{self._count:016x}"), "n": self._n}

    def _say(self, kind: PlainKind, body: BaseModel) -> Said:
        topic = PlainTopic(self.device, kind)
        data = body.model_dump_json(exclude_none=True).encode()
        return str(topic), self._signer.seal(topic, data), kind.retained

    def will(self) -> tuple[str, bytes]:
        """Begin a birth; return the will that is left with the broker."""
        self._count, self._n = self._count + 1, 0
        up = self._up() | {"n": 2}
        self._n = 0
        topic, payload, _ = self._say(TopicKind.STATUS, LastWill(**up, state="will"))
        return topic, payload

    def birth(self) -> Said:
        """Say that it is there."""
        up = self._up()
        self._n = max(self._n, 2)
        numbers = {"seq": 0, "floor": 0, "observed_rev": self.rev, "key_set": 1}
        versions = BoxVersions(agent="0.2.0", plugin="0.2.0", k3s="v1.31.4+k3s1", driver="550.90.07", os="Debian 12")
        more = {"capabilities": ("doctor.run", "k3s.restart", "app_limits"), "versions": versions, **numbers}
        instance = instance_of(self.device)
        birth = Birth.model_validate({**up, **more, "state": "birth", "instance": instance, "boot": BOOT})
        return self._say(TopicKind.STATUS, birth)

    def measurements(self) -> list[Said]:
        """Say what cards it has, who holds them, and how it is."""
        node = f"node-{self.device}"
        cards = tuple(
            CardReport(uuid=f"GPU-{at}", label=str(at), name="NVIDIA T4", memory_mib=16_384, units=UNITS, healthy=True)
            for at in range(CARDS)
        )
        more: dict[str, Any] = {"sharing": True, "unit_mib": 256, "mode": "none", "policy": "first-fit"}
        inventory = Inventory(**self._up(), node=node, cluster=self._cluster, role="server", cards=cards, **more)
        pods = {
            f"pod-{at}": PodAlloc(
                namespace="default",
                name=f"app-{at}-7d9f8b6c5d-x2x4z",
                phase="Running",
                pieces=(CardShare(container="main", card=f"GPU-{at % CARDS}", memory_units=4 + at, core=10),),
            )
            for at in range(PODS)
        }
        return [
            self._say(TopicKind.INVENTORY, inventory),
            self._say(TopicKind.ALLOC, Alloc(**self._up(), pods=pods)),
            self._say(TopicKind.HEALTH, BoxHealth(**self._up(), state="ok", parts=())),
        ]

    def reported(self) -> Said:
        """Say how far it has applied what is desired."""
        numbers = {"observed_rev": self.rev, "applied_rev": self.rev, "seq": 0, "floor": 0}
        more = {"observed_hash": self.observed_hash, "items": self.items, "cluster": self._cluster, "holder": True}
        return self._say(TopicKind.REPORTED, Reported.model_validate({**self._up(), **numbers, **more}))

    def desired(self, payload: bytes) -> Said | None:
        """Apply a desired document; None where it is known."""
        body = json.loads(payload.partition(b"\n")[2])
        if body["rev"] <= self.rev:
            return None
        self.rev, self.observed_hash = body["rev"], digest(body["spec"])
        self.items = {
            one.name: {"state": ItemState.APPLIED, "rev": one.key.rev, "hash": one.key.digest, "retry": one.key.retry}
            for one in asked(body["spec"], body["rev"])
        }
        return self.reported()

    def receipt(self, payload: bytes) -> tuple[list[Said], bool]:
        """Read a receipt; return what it asks for, and whether the box may take its time."""
        body = json.loads(payload.partition(b"\n")[2])
        asks = body.get("ask", ())
        said = [self.birth()] if "status" in asks else []
        said += [self.reported()] if "reported" in asks else []
        return said, bool(body.get("spread", False))
