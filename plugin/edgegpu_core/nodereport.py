"""The node report: the annotation of a Node in which its plugin publishes its cards and what is held of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgegpu_core.inventory import CardCapacity
from edgegpu_core.ledger import free_after
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodeview import place_pod, planned
from edgegpu_core.placement import Placement, PodPlan, Policy, Share, footprint, parse_policy
from edgegpu_core.podview import PodView

REPORT_ANNOTATION = "edgegpu.io/cards-of-node"
"""The annotation's name. Each write replaces the whole value, so that its parts agree with each other."""

_NONE: Mapping[str, tuple[Share, ...]] = {}


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

    def units(self) -> int:
        """Return the memory units of the healthy cards, which the node's allocatable must equal."""
        return sum(slot.units for slot in self.slots if slot.healthy)


def shares_held(
    report: NodeReport,
    pods: Iterable[PodView],
    model: ResourceModel,
    in_flight: Mapping[str, tuple[Share, ...]] = _NONE,
) -> dict[str, tuple[Share, ...]]:
    """Return what each pod on a node holds, by API UID; empty for one that fits on no card: its plugin refuses it.

    What a pod holds comes from the first of these that has it: the plugin's report, which knows device ids; the pod's
    own annotation; our binding `in_flight`; and for a pod that another scheduler bound, a guess by first fit. A pod
    that has ended holds nothing unless the report says that kubelet still books its devices.
    """
    held = dict(report.held)
    unknown: list[PodView] = []
    for pod in pods:
        if pod.is_terminal or pod.uid in held:
            continue
        plan = planned(pod.containers, model)
        if isinstance(plan, PodPlan) and pod.cards is not None:
            held[pod.uid] = footprint(plan, pod.cards, report.slots)
        elif pod.uid in in_flight:
            held[pod.uid] = in_flight[pod.uid]
        else:
            unknown.append(pod)
    for pod in sorted(unknown, key=lambda pod: (pod.created, pod.uid)):
        placed = place_pod(pod.containers, free_after(report.slots, held.values()), Policy.FIRST_FIT, model)
        held[pod.uid] = placed.held if isinstance(placed, Placement) else ()
    return held


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
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError):
        return None


def _count(value: object) -> int:
    """Return a number that is not negative: as an index a negative one would name another card."""
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"no count: {value!r}")
    return value
