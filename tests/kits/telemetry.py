"""A box with one card as its worker sees it; the test changes what is seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kits.worker import Wire

from edgegpu_agent.ports import ClusterIdentity
from edgegpu_sync.messages.telemetry import (
    CardReport,
    CardSample,
    CardShare,
    HealthPart,
    MemoryUse,
    PendingPods,
    PodAlloc,
    Sample,
)

UUID = "GPU-7d2f0c1e-3a44-4b6e-9d55-0a1b2c3d4e5f"

CLUSTER = ClusterIdentity("3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11", holder=True)


def pod(name: str) -> PodAlloc:
    piece = CardShare(container="main", card=UUID, memory_units=4, core=1)
    return PodAlloc(namespace="default", name=name, phase="Running", pieces=(piece,))


@dataclass
class Source:
    """A box with one card; the test changes what is seen."""

    clock: Any = None
    period_s: int = 60
    pods: dict[str, PodAlloc] = field(default_factory=dict)
    waiting: PendingPods | None = None
    parts: tuple[HealthPart, ...] = (HealthPart(name="plugin", state="ok"),)
    node: str = "box-1"
    taken: int = 0
    asked: int = 0
    here: ClusterIdentity = CLUSTER
    blind: bool = False
    silent: bool = False
    memory_use: tuple[MemoryUse, ...] | None = None

    def cluster(self) -> ClusterIdentity:
        return self.here

    def inventory(self) -> Mapping[str, Any] | None:
        self.asked += 1
        if self.blind:
            return None
        card = CardReport(uuid=UUID, label="0", name="T4", memory_mib=15_360, units=60, healthy=True)
        return {
            "node": self.node,
            "role": "server",
            "sharing": True,
            "unit_mib": 256,
            "mode": "none",
            "policy": "first-fit",
            "cards": (card,),
        }

    def alloc(self) -> Mapping[str, PodAlloc] | None:
        return None if self.blind or self.silent else dict(self.pods)

    def pending(self) -> PendingPods | None:
        return None if self.blind or self.silent else self.waiting

    def health_parts(self) -> tuple[HealthPart, ...]:
        return self.parts

    def samples(self) -> list[Sample]:
        now = int(self.clock()) // 60 if self.clock else 0
        new, self.taken = now - self.taken if self.taken else 0, now
        cards = (CardSample(uuid=UUID, core_used=1.5, memory_used_mib=9),)
        return [Sample(at=60 * now, cards=cards, memory_use=self.memory_use)] * min(new, 60)


def seen(wire: Wire, kind: type) -> list[Any]:
    """Return what the controller has got of a kind, and forget it."""
    found = [one for one in wire.controller.seen if isinstance(one, kind)]
    wire.controller.seen = [one for one in wire.controller.seen if not isinstance(one, kind)]
    return found
