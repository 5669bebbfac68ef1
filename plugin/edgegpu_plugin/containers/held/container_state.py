"""The state of a container: what it is held to, and what it has counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgegpu_plugin.containers.held.bypass import ContainerKey

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ContainerIsolation:
    """The state of one container: `enforced`, `degraded` with a reason, or `off`; amounts are by card, in bytes.

    A limit below what it holds (`held`) is a live one. `core`: percent of each card's time that it is held to; a card
    that is missing there has no such limit. `unit_bytes`: the bytes of a unit of memory. `refusals`: how often its
    programs were told that there is no memory, since its start. `limiter`: the version that it started with. `tables`:
    the UUIDs of the driver's private tables that they have asked for. `notes`: what its people should know, whatever
    holds it.
    """

    state: str
    reason: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    core: Mapping[str, int] = field(default_factory=dict)
    unit_bytes: int = MIB
    refusals: Mapping[str, int] = field(default_factory=dict)
    limiter: str = ""
    tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it for the status document."""
        cards = [
            {
                "card": card,
                "limit_mib": limit // MIB,
                "counted_mib": -(-self.counted.get(card, 0) // MIB),
                "limit_units": limit // self.unit_bytes,
                "held_units": self.held.get(card, limit) // self.unit_bytes,
                "core_percent": self.core.get(card, 0),
                "refusals": self.refusals.get(card, 0),
            }
            for card, limit in self.limits.items()
        ]
        return {
            "state": self.state,
            "reason": self.reason,
            "limiter": self.limiter,
            "private_tables": list(self.tables),
            "notes": list(self.notes),
            "cards": cards,
        }


@dataclass(frozen=True, slots=True)
class TimedContainer:
    """A container that is held to a part of the time of cards: its usage files, and the percent by card."""

    key: ContainerKey
    usage: tuple[Path, ...]
    core: Mapping[str, int]
    elastic: bool
