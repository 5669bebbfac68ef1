"""A box as its controller sees it: what it says at a birth, and how it answers; without agent, cards and journal.

It applies whatever is desired at once. It does not verify what comes down: that is the work of ten thousand machines in
the field, and of this one alone here.
"""

import json
import math
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel

from edgegpu_sim.manyboxes.profiles import UNIT_MIB, Profile
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.keys import public_text
from edgegpu_sync.messages.spec import LIMITER, AppLimits, AskedItem, PolicyItem, Sharing, asked
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.messages.telemetry import (
    Alloc,
    BoxHealth,
    CardReport,
    CardSample,
    CardShare,
    HealthPart,
    Inventory,
    Metrics,
    PendingPods,
    PodAlloc,
    Sample,
)
from edgegpu_sync.messages.uplink import Birth, BoxVersions, ItemState, LastWill, Reported
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import PlainKind, PlainTopic, TopicKind
from edgegpu_sync.wire import digest

Said = tuple[str, bytes, bool]
"""Topic, payload, and whether the broker retains it."""

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

    def __init__(self, device: DeviceId, profile: Profile) -> None:
        self.device, self.profile = device, profile
        self._signer = Signer.of(sign_key(device))
        self._count = self._n = self.rev = 0
        self._status = PlainTopic(device, TopicKind.STATUS)
        self.observed_hash = ""
        self.items: dict[str, Any] = {}
        self._apps = {one.name: one for one in profile.apps}
        self._policy, self._shares = "first-fit", True

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
        more = {"capabilities": ("doctor.run", "k3s.restart", "app_limits", LIMITER), "versions": versions, **numbers}
        instance = instance_of(self.device)
        birth = Birth.model_validate({**up, **more, "state": "birth", "instance": instance, "boot": BOOT})
        return self._say(TopicKind.STATUS, birth)

    def measurements(self) -> list[Said]:
        """Say what cards it has, who holds them, and how it is."""
        trouble = self.profile.trouble
        part = HealthPart(name="cards", state="bad", text=trouble)
        health = BoxHealth(**self._up(), state="bad" if trouble else "ok", parts=(part,) if trouble else ())
        return [self._inventory(), self._alloc(), self._say(TopicKind.HEALTH, health)]

    def _inventory(self) -> Said:
        of = self.profile
        cards = tuple(
            CardReport(
                uuid=self._uuid(at),
                label=str(at),
                name=of.card_name,
                memory_mib=of.units * UNIT_MIB,
                units=of.units,
                healthy=not (of.trouble and at == of.cards - 1),
                text=of.trouble if at == of.cards - 1 else "",
            )
            for at in range(of.cards)
        )
        more: dict[str, Any] = {
            "sharing": self._shares,
            "unit_mib": UNIT_MIB,
            "mode": "none",
            "policy": self._policy,
            "role": "server",
        }
        node = f"node-{self.device}"
        body = Inventory(**self._up(), node=node, cluster=self._cluster, cards=cards, **more)
        return self._say(TopicKind.INVENTORY, body)

    def _alloc(self) -> Said:
        pods = {
            f"pod-{at}": PodAlloc(
                namespace=self.profile.namespace,
                name=f"{one.name}-7d9f8b6c5d-x2x4z",
                phase="Running",
                pieces=(CardShare(container="main", card=self._uuid(one.card), memory_units=one.units, core=one.core),),
            )
            for at, one in enumerate(self._apps.values())
        }
        return self._say(TopicKind.ALLOC, Alloc(**self._up(), pods=pods, pending=PendingPods(cluster=True)))

    def metrics(self, now_s: float, period_s: float) -> Said:
        """Say what its cards do: more and less, each box and card by its own time."""
        of, phase = self.profile, int(self.device) % 97
        cards = []
        for at in range(of.cards):
            units = sum(one.units for one in self._apps.values() if one.card == at)
            wave = math.sin(now_s / 300 + phase + at)
            used = round(100 * units / of.units * (0.6 + 0.3 * wave), 1)
            memory_mib = int(units * UNIT_MIB * (0.7 + 0.2 * wave))
            cards.append(
                CardSample(
                    uuid=self._uuid(at), core_used=used, memory_used_mib=memory_mib, temperature_c=40 + int(used / 3)
                )
            )
        sample = Sample(at=int(now_s), cards=tuple(cards))
        return self._say(TopicKind.METRICS, Metrics(**self._up(), period_s=int(period_s), samples=(sample,)))

    def _uuid(self, card: int) -> str:
        return f"GPU-{int(self.device):08x}-{card}"

    def reported(self) -> Said:
        """Say how far it has applied what is desired."""
        numbers = {"observed_rev": self.rev, "applied_rev": self.rev, "seq": 0, "floor": 0}
        more = {"observed_hash": self.observed_hash, "items": self.items, "cluster": self._cluster, "holder": True}
        return self._say(TopicKind.REPORTED, Reported.model_validate({**self._up(), **numbers, **more}))

    def desired(self, payload: bytes) -> list[Said]:
        """Apply a desired document; nothing where it is known."""
        body = json.loads(payload.partition(b"\n")[2])
        if body["rev"] <= self.rev:
            return []
        self.rev, self.observed_hash = body["rev"], digest(body["spec"])
        before = dict(self._apps), self._policy, self._shares
        self.items = {one.name: self._applied(one) for one in asked(body["spec"], body["rev"])}
        if before == (self._apps, self._policy, self._shares):
            return [self.reported()]
        return [self._inventory(), self._alloc(), self.reported()]

    def _applied(self, one: AskedItem) -> dict[str, Any]:
        """Apply an item; return how it stands. Limits that the app's card has no room for are refused."""
        key = {"rev": one.key.rev, "hash": one.key.digest, "retry": one.key.retry}
        match one.item:
            case AppLimits(app=name, memory_units=units, core=core) if units and (app := self._apps.get(name)):
                others = sum(each.units for each in self._apps.values() if each.card == app.card and each != app)
                if others + units > self.profile.units:
                    free = self.profile.units - others
                    text = f"needs {units} vcuda-memory on one card; card {app.card} has {free} free"
                    return {**key, "state": ItemState.REJECTED, "code": "NO_ROOM", "text": text}
                self._apps[name] = replace(app, units=units, core=core)
            case PolicyItem(policy=policy):
                self._policy = policy
            case Sharing(installed=installed):
                self._shares = installed
            case _:
                pass
        return {**key, "state": ItemState.APPLIED}

    def receipt(self, payload: bytes) -> tuple[list[Said], bool]:
        """Read a receipt; return what it asks for, and whether the box may take its time."""
        body = json.loads(payload.partition(b"\n")[2])
        asks = body.get("ask", ())
        said = [self.birth()] if "status" in asks else []
        said += [self.reported()] if "reported" in asks else []
        return said, bool(body.get("spread", False))
