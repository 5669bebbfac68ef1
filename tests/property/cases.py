"""Builders that the core's unit and property tests share."""

from edgegpu_core.deviceid import DeviceKind, core_ids, memory_ids
from edgegpu_core.inventory import CardCapacity
from edgegpu_core.ledger import Ledger
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodeview import NodeView
from edgegpu_core.placement import PodPlan, Policy, plan_pod
from edgegpu_core.podview import Cards, PodView
from edgegpu_core.request import ContainerRequest, ContainerRole, RequestedAmounts

MODEL = ResourceModel()
NODE = "box-1"


def slots_of(*units: int) -> tuple[CardCapacity, ...]:
    """Cards `GPU-0`, `GPU-1`, … of so many units each."""
    return tuple(CardCapacity(f"GPU-{index}", str(index), count) for index, count in enumerate(units))


def box(name: str, memory_units: int, core: int, role: ContainerRole = ContainerRole.APP) -> ContainerRequest:
    """One container of a pod."""
    return ContainerRequest(name, role, RequestedAmounts(memory_units, core))


def plan_of(*containers: ContainerRequest, model: ResourceModel = MODEL) -> PodPlan:
    """Plan a pod that can be planned."""
    plan = plan_pod(containers, model)
    assert isinstance(plan, PodPlan), plan
    return plan


def one(memory_units: int, core: int = 1) -> PodPlan:
    """Plan a pod of one container."""
    return plan_of(box("main", memory_units, core))


def pod_of(
    uid: str,
    *containers: ContainerRequest,
    cards: Cards | None = None,
    created: str = "",
    controlled: bool = False,
    phase: str = "Pending",
) -> PodView:
    """Return a pod bound to the node, promised `cards` by its annotation."""
    return PodView(
        uid=uid,
        namespace="ns",
        name=uid,
        node=NODE,
        containers=containers,
        cards=cards,
        created=created,
        kubelet_uid=uid,
        controlled=controlled,
        phase=phase,
    )


class Book:
    """A ledger that hands out a card's ids in order, as kubelet would."""

    def __init__(self, slots: tuple[CardCapacity, ...]) -> None:
        self.slots = slots
        self.ledger = Ledger()
        self._left = {
            (slot.uuid, kind): list(ids)
            for slot in slots
            for kind, ids in (
                (DeviceKind.MEMORY, memory_ids(slot.uuid, slot.units)),
                (DeviceKind.CORE, core_ids(slot.uuid)),
            )
        }

    def give(self, uid: str, container: str, kind: DeviceKind, counts: dict[str, int]) -> tuple[str, ...]:
        """Book so many devices of each card; returns their ids."""
        ids: list[str] = []
        for card, count in counts.items():
            left = self._left[card, kind]
            assert len(left) >= count, "the test gives more than a card has"
            ids += left[:count]
            del left[:count]
        self.ledger.add(uid, container, kind, tuple(ids))
        return tuple(ids)

    def share(self, uid: str, card: str, memory_units: int, core: int, *, container: str = "main") -> None:
        """Book both resources of one container on one card."""
        if memory_units:
            self.give(uid, container, DeviceKind.MEMORY, {card: memory_units})
        if core:
            self.give(uid, container, DeviceKind.CORE, {card: core})


def view_of(
    slots: tuple[CardCapacity, ...],
    *pods: PodView,
    ledger: Ledger | None = None,
    model: ResourceModel = MODEL,
    policy: Policy = Policy.FIRST_FIT,
) -> NodeView:
    """Return a node at one moment; promises are the pods' annotations."""
    return NodeView(
        model=model,
        policy=policy,
        slots=slots,
        pods={pod.kubelet_uid: pod for pod in pods},
        ledger=ledger or Ledger(),
        promises={pod.kubelet_uid: pod.cards for pod in pods if pod.cards is not None},
    )
