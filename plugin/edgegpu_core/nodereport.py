"""What a node's plugin publishes in one annotation of its Node object: its cards, and what is held of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from edgegpu_core.inventory import CardCapacity
from edgegpu_core.placement import Policy, Share, parse_policy

REPORT_ANNOTATION = "edgegpu.io/cards-of-node"
"""The annotation's name. It is written at once and whole: what stands in it is true together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node's cards and who holds what, as its plugin last wrote it.

    `held` knows pods by API UID: those that have their devices by their device ids, those in `waiting` by what they
    are promised; `waiting` are also those whose devices kubelet has not written down yet, since it would forget them in
    a crash and ask anew. It is believed before a pod's own annotation, which may have been swapped with another's.
    """

    boot: str
    generation: int
    time: str
    policy: Policy
    unit_mib: int
    core_required: bool
    slots: tuple[CardCapacity, ...]
    held: Mapping[str, tuple[Share, ...]]
    waiting: frozenset[str] = frozenset()

    def units(self) -> int:
        """Return the memory units that are healthy, which the node's allocatable must equal."""
        return sum(slot.units for slot in self.slots if slot.healthy)


def write_report(report: NodeReport) -> str:
    """Return the annotation's text; cards are named by their place in the list to keep it short."""
    place = {slot.uuid: index for index, slot in enumerate(report.slots)}
    value = {
        "v": 1,
        "boot": report.boot,
        "gen": report.generation,
        "time": report.time,
        "policy": report.policy.value,
        "unit": report.unit_mib,
        "core_required": report.core_required,
        "cards": [[slot.uuid, slot.label, slot.units, int(slot.healthy)] for slot in report.slots],
        "held": {
            uid: [[place[s.card], s.memory_units, s.core] for s in shares if s.card in place]
            for uid, shares in report.held.items()
        },
        "waiting": sorted(report.waiting),
    }
    return json.dumps(value, separators=(",", ":"))


def read_report(text: str | None) -> NodeReport | None:
    """Read the annotation; None when there is none or it is not of this version."""
    if not text:
        return None
    try:
        value = json.loads(text)
        if value["v"] != 1:
            return None
        slots = tuple(CardCapacity(str(c[0]), str(c[1]), _count(c[2]), bool(c[3])) for c in value["cards"])
        return NodeReport(
            boot=str(value["boot"]),
            generation=int(value["gen"]),
            time=str(value["time"]),
            policy=parse_policy(value["policy"]),
            unit_mib=int(value["unit"]),
            core_required=bool(value["core_required"]),
            slots=slots,
            held={
                str(uid): tuple(
                    Share(slots[_count(p)].uuid, _count(memory), _count(core)) for p, memory, core in shares
                )
                for uid, shares in value["held"].items()
            },
            waiting=frozenset(str(uid) for uid in value["waiting"]),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError):
        return None


def _count(value: object) -> int:
    """Take a whole number that is not negative: a place counted from the end would be another card."""
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"no count: {value!r}")
    return value
