"""The node report: the annotation of a Node in which its plugin publishes its cards and what is held of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from edgegpu_core.choices.pod_choice import AllowedChoices, read_allowed
from edgegpu_core.inventory import CardCapacity
from edgegpu_core.placement import Policy, Share, parse_policy

REPORT_ANNOTATION = "edgegpu.io/cards-of-node"
"""The annotation's name. Each write replaces the whole value, so that its parts agree with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node's cards and who holds what, as its plugin last wrote it.

    `held` maps the API UID of a pod to its shares. They come from its device ids, or for a pod in `waiting` from its
    promise. A pod whose devices kubelet has not written down yet is in `waiting` too: after a crash kubelet would
    forget them and ask anew. Readers believe the report before a pod's annotation, which may have been swapped with
    another pod's.
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
    allowed: AllowedChoices | None = None
    """What pods may choose on the node; None from a plugin that knows no choice."""

    def units(self) -> int:
        """Return the memory units of the healthy cards, which the node's allocatable must equal."""
        return sum(slot.units for slot in self.slots if slot.healthy)


def write_report(report: NodeReport) -> str:
    """Return the annotation's text; shares name cards by index in the list of cards, to keep it short."""
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
    if report.allowed is not None:
        value["allowed"] = report.allowed.to_json()
    return json.dumps(value, separators=(",", ":"))


def read_report(text: str | None) -> NodeReport | None:
    """Read the annotation; None when it is missing, unreadable or of another version."""
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
            allowed=read_allowed(value["allowed"]) if "allowed" in value else None,
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError):
        return None


def _count(value: object) -> int:
    """Return a number that is not negative: as an index a negative one would name another card."""
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"no count: {value!r}")
    return value
