"""Placement of a pod's containers on the cards of one node, by policy, or the reason why they do not fit."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

from edgegpu_core import reasons
from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.model import CORE_PER_CARD, ResourceModel
from edgegpu_core.request import ContainerRequest, ContainerRole, ImpossibleRequest, PlaceableRequest, classify


class Policy(Enum):
    """How to choose among the cards on which a container fits; set per node, and per pod by annotation."""

    FIRST_FIT = "first-fit"
    BEST_FIT = "best-fit"
    SPREAD = "spread"


def parse_policy(text: str) -> Policy:
    """Read a policy's name.

    Raises:
        ValueError: there is no such policy; the text lists the names.
    """
    try:
        return Policy(text)
    except ValueError:
        names = ", ".join(policy.value for policy in Policy)
        raise ValueError(f"no placement policy {text!r}: choose one of {names}") from None


def _tightest(free: FreeAmounts, position: int) -> tuple[int, int, int]:
    return (free.memory[position], free.core[position], position)


def _emptiest(free: FreeAmounts, position: int) -> tuple[float, int]:
    units = free.slots[position].units or 1
    used = max(1 - free.memory[position] / units, 1 - free.core[position] / CORE_PER_CARD)
    return (used, position)


_KEYS: dict[Policy, Callable[[FreeAmounts, int], tuple[float, ...]]] = {
    Policy.BEST_FIT: _tightest,
    Policy.SPREAD: _emptiest,
}


def in_order(policy: Policy, free: FreeAmounts, positions: list[int]) -> list[int]:
    """Return `positions` (in PCI order) in the order in which the policy tries them."""
    key = _KEYS.get(policy)
    return positions if key is None else sorted(positions, key=lambda position: key(free, position))


_MOST_STEPS = 5_000
"""Bound on the search over the cards for pods of many GPU containers; a single container never comes near it."""
_MOST_SETS = 64


@dataclass(frozen=True, slots=True)
class Share:
    """What a pod or container holds of one card."""

    card: str
    memory_units: int
    core: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod goes: the cards of each GPU container, and what the pod as a whole holds of each card."""

    cards: dict[str, tuple[str, ...]]
    held: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class PlacementRefusal:
    """Why a pod does not fit on a node; `never` when it would not fit on the empty node either."""

    reason: str
    never: bool
    tells_free: bool = field(default=False, compare=False)
    """Whether the reason tells what is free on the cards, and not how large they are."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod's GPU containers in kubelet's order, with what each asks for; made once and tried on many nodes."""

    containers: tuple[tuple[ContainerRequest, PlaceableRequest], ...]
    one_card: bool
    """Whether all containers share one set of cards: the later ones reuse a GPU init container's devices."""
    model: ResourceModel


def plan_pod(containers: tuple[ContainerRequest, ...], model: ResourceModel) -> PodPlan | ImpossibleRequest:
    """Return the plan of a pod, or why none is possible, from its GPU containers (one or more) in kubelet's order.

    kubelet's order has init containers first. It gives an init container's devices to the later containers at random
    and before it asks us, so whole cards after an init container only work when every GPU container asks for the same.
    """
    planned: list[tuple[ContainerRequest, PlaceableRequest]] = []
    for container in containers:
        ask = classify(container.request, model)
        if isinstance(ask, ImpossibleRequest):
            return ImpossibleRequest(reasons.impossible(container.name, ask))
        planned.append((container, ask))
    one_card = any(container.role is ContainerRole.INIT for container, _ in planned)
    several = any(ask.cards > 1 for _, ask in planned)
    if one_card and several:
        staying = [ask for container, ask in planned if container.role is not ContainerRole.INIT]
        if len(staying) > 1 or len({ask for _, ask in planned}) > 1:
            return ImpossibleRequest(reasons.INIT_BESIDE_WHOLE)
    return PodPlan(tuple(planned), one_card, model)


def place(plan: PodPlan, free: FreeAmounts, policy: Policy) -> Placement | PlacementRefusal:
    """Place a pod on a node, or return why it does not fit; `free` stays unchanged."""
    placed = _placed(plan, free.copy(), policy)
    if placed is not None:
        return placed
    empty = FreeAmounts(free.slots)
    never = _placed(plan, empty.copy(), policy) is None
    supposed = never and (empty.memory, empty.core) != (free.memory, free.core)
    why = _why(plan, empty if supposed else free, policy, supposed=supposed)
    return PlacementRefusal(why, never, tells_free=not supposed)


def fits(plan: PodPlan, free: FreeAmounts) -> bool:
    """Return whether a pod fits; the policy does not matter for that."""
    if len(plan.containers) == 1:
        return next(_choices(plan.containers[0][1], free, Policy.FIRST_FIT), None) is not None
    return _placed(plan, free.copy(), Policy.FIRST_FIT) is not None


def place_container(ask: PlaceableRequest, free: FreeAmounts, policy: Policy) -> tuple[Share, ...] | None:
    """Place one container by itself, as the plugin does where no scheduler chose its card."""
    chosen = next(_choices(ask, free, policy), None)
    return None if chosen is None else tuple(Share(free.slots[p].uuid, memory, core) for p, memory, core in chosen)


def held_of(ask: PlaceableRequest, cards: tuple[str, ...], slots: tuple[CardCapacity, ...]) -> tuple[Share, ...]:
    """Return what a container holds of its cards; a whole card counts with all its units."""
    units = {slot.uuid: slot.units for slot in slots}
    if ask.whole:
        return tuple(Share(card, units.get(card, 0), CORE_PER_CARD) for card in cards)
    return tuple(Share(card, ask.memory_units, ask.core) for card in cards[:1])


def footprint(plan: PodPlan, cards: dict[str, tuple[str, ...]], slots: tuple[CardCapacity, ...]) -> tuple[Share, ...]:
    """Return what a pod holds of each card when its containers got `cards`; reused devices count once."""
    if plan.one_card:
        together = next((cards[container.name] for container, _ in plan.containers if cards.get(container.name)), ())
        return held_of(_joint_request(plan), together, slots)
    return sum_by_card(
        share for container, ask in plan.containers for share in held_of(ask, cards.get(container.name, ()), slots)
    )


def sum_by_card(shares: Iterable[Share]) -> tuple[Share, ...]:
    """Return one share for each card, in the order in which the cards come first."""
    sums: dict[str, tuple[int, int]] = {}
    for share in shares:
        memory, core = sums.get(share.card, (0, 0))
        sums[share.card] = (memory + share.memory_units, core + share.core)
    return tuple(Share(card, memory, core) for card, (memory, core) in sums.items())


_Chosen = tuple[tuple[int, int, int], ...]
"""Positions of cards with the memory and core to book there."""


def _choices(ask: PlaceableRequest, free: FreeAmounts, policy: Policy) -> Iterator[_Chosen]:
    """Yield the cards that a container could get, with the amounts, in the policy's order."""
    if not ask.whole:
        memory, core = free.memory, free.core
        positions = [
            p
            for p, have in enumerate(memory)
            if have >= ask.memory_units and core[p] >= ask.core and free.slots[p].healthy
        ]
        for position in in_order(policy, free, positions):
            yield ((position, ask.memory_units, ask.core),)
        return
    if ask.cards > len(free.slots):
        return  # the number that a pod asks for may be larger than any list of cards
    parts = ask.memory_parts()
    empty = [p for p, slot in enumerate(free.slots) if free.is_empty(p) and slot.units >= parts[-1]]
    large = frozenset(p for p in empty if free.slots[p].units >= parts[0])
    sets = _sets(in_order(policy, free, empty), ask.cards, large, parts.count(parts[0]))
    for chosen in islice(sets, _MOST_SETS):
        yield tuple((p, free.slots[p].units, CORE_PER_CARD) for p in chosen)


def _sets(order: list[int], count: int, large: frozenset[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of `count` positions with at least `most` large ones, in order; every branch yields a set."""
    if count == 0:
        yield ()
        return
    for at, position in enumerate(order[: len(order) - count + 1]):
        rest = order[at + 1 :]
        wanted = max(0, most - (position in large))
        if wanted < count and wanted <= sum(p in large for p in rest):
            for others in _sets(rest, count - 1, large, wanted):
                yield (position, *others)


def _placed(plan: PodPlan, free: FreeAmounts, policy: Policy) -> Placement | None:
    return (_place_together if plan.one_card else _place_each)(plan, free, policy)


def _place_each(plan: PodPlan, free: FreeAmounts, policy: Policy) -> Placement | None:
    """Search cards for all containers, in the policy's order; if there are none, `free` is unchanged in the end."""
    chosen: list[_Chosen] = []
    steps = 0

    def search(index: int) -> bool:
        nonlocal steps
        if index == len(plan.containers):
            return True
        for choice in _choices(plan.containers[index][1], free, policy):
            steps += 1
            if steps > _MOST_STEPS:
                return False
            for booking in choice:
                free.take(*booking)
            chosen.append(choice)
            if search(index + 1):
                return True
            chosen.pop()
            for booking in choice:
                free.give(*booking)
        return False

    if not search(0):
        return None
    cards = {
        container.name: tuple(free.slots[p].uuid for p, _, _ in choice)
        for (container, _), choice in zip(plan.containers, chosen, strict=True)
    }
    return Placement(cards, footprint(plan, cards, free.slots))


def _joint_request(plan: PodPlan) -> PlaceableRequest:
    """Return what a pod with a GPU init container holds of its cards; above 100 of core on each it fits nowhere.

    Follows kubelet (devicemanager, 1.33): an init container's devices go to a pool that later containers take from
    first; sidecars and app containers keep what they take.
    """
    need = {"memory": 0, "core": 0}
    pool = {"memory": 0, "core": 0}
    for container, ask in plan.containers:
        for resource, amount in (("memory", ask.memory_units), ("core", ask.core * ask.cards)):
            reused = min(pool[resource], amount)
            need[resource] += amount - reused
            pool[resource] += amount - reused if container.role is ContainerRole.INIT else -reused
    cards = max(ask.cards for _, ask in plan.containers)
    core = -(-need["core"] // cards)
    return PlaceableRequest(cards, need["memory"], core, any(ask.whole for _, ask in plan.containers))


def _place_together(plan: PodPlan, free: FreeAmounts, policy: Policy) -> Placement | None:
    """Place a pod with a GPU init container: all its containers on one card, or on one set of whole cards."""
    joint = _joint_request(plan)
    held = None if joint.core > CORE_PER_CARD else place_container(joint, free, policy)
    if held is None:
        return None
    uuids = tuple(share.card for share in held)
    return Placement({container.name: uuids for container, _ in plan.containers}, held)


def _why(plan: PodPlan, free: FreeAmounts, policy: Policy, *, supposed: bool) -> str:
    """Return the reason for the first container that finds no room, with what each card has free.

    With `supposed`, `free` is that of the node without its pods, and a card's size is not called free.
    """
    seen = free.copy()
    if plan.one_card:
        return reasons.no_card(_joint_request(plan), seen, plan.model, who=reasons.WITH_INIT, supposed=supposed)
    for container, ask in plan.containers:
        choice = next(_choices(ask, seen, policy), None)
        if choice is None:
            who = reasons.of_container(container.name) if len(plan.containers) > 1 else ""
            return reasons.no_card(ask, seen, plan.model, who=who, supposed=supposed)
        for booking in choice:
            seen.take(*booking)
    return reasons.NOT_TOGETHER
