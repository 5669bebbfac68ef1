"""Where an app's pods go under new limits, and what each card lacks for a pod that has no room."""

from dataclasses import dataclass

from edgegpu_core.limits.capacity import NewPod, PlacedPod, TrialPlacement
from edgegpu_core.limits.rollout import nodes_of_new_pods, without_own_pods
from edgegpu_core.limits.verdict import LimitsChange
from edgegpu_core.nodeview import planned
from edgegpu_core.placement import PodPlan, Share, held_of
from edgegpu_core.request import PlaceableRequest, classify


@dataclass(frozen=True, slots=True)
class PlannedShare:
    """What a container of a new pod gets of one card."""

    container: str
    share: Share


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A new pod: its node, and its containers' shares there. Whole cards count with all their units."""

    node: str
    shares: tuple[PlannedShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardShortage:
    """What a card lacks for one container.

    `free_*`: what is free there once the app's own pods have gone and those new ones that have room are placed.
    `in_use`: a whole card is asked for, and this one is not empty. All missing amounts are 0 on a card that is out of
    order, where `healthy` is false.
    """

    node: str
    uuid: str
    card: str
    free_units: int
    free_core: int
    missing_units: int
    missing_core: int
    in_use: bool
    healthy: bool


def planned_pods(change: LimitsChange, *, beside_old: bool) -> tuple[PlannedPod, ...] | None:
    """Return where the new pods go, in the order in which they are placed; None where one of them has no room.

    Args:
        change: the change that is judged.
        beside_old: whether the app's own pods stay meanwhile, as in a rolling update with surge, or have gone.
    """
    trial = TrialPlacement(change.rooms, change.workload.constraints, change.quota)
    if not beside_old:
        trial = without_own_pods(trial, change.workload, change.own)
    if not change.pod.containers:
        return ()
    found = []
    for node in nodes_of_new_pods(trial, change.workload):
        placed = trial.placed(change.pod, only=node)
        if placed is None:
            return None
        found.append(_planned(change.pod, placed))
    return tuple(found)


def _planned(pod: NewPod, placed: PlacedPod) -> PlannedPod:
    room, cards = placed.room, placed.placement.cards
    plan = planned(pod.containers, room.model)
    if not isinstance(plan, PodPlan) or plan.one_card:  # later containers reuse an init container's devices
        shares = tuple(PlannedShare(pod.containers[-1].name, share) for share in placed.placement.held)
        return PlannedPod(room.name, shares)
    shares = tuple(
        PlannedShare(container.name, share)
        for container, ask in plan.containers
        for share in held_of(ask, cards[container.name], room.slots)
    )
    return PlannedPod(room.name, shares)


def shortages(change: LimitsChange) -> tuple[CardShortage, ...]:
    """Return what each card lacks for the first new pod that has no room; empty where all have.

    The cards are compared with the amounts of the changed container alone. Empty too where no amount of room helps:
    the request means nothing, or no node takes the app's pods.
    """
    empty = TrialPlacement(change.rooms, change.workload.constraints, change.quota)
    trial = without_own_pods(empty, change.workload, change.own)
    for node in nodes_of_new_pods(trial, change.workload):
        if not trial.place(change.pod, only=node):
            return _missing(change, trial, only=node)
    return ()


def _missing(change: LimitsChange, trial: TrialPlacement, *, only: str) -> tuple[CardShortage, ...]:
    found = []
    for room, free in trial.free_of():
        ask = classify(change.request, room.model)
        if not isinstance(ask, PlaceableRequest) or room.problem or (only and room.name != only):
            continue
        need = ask.memory_parts()[0]
        for at, slot in enumerate(room.slots):
            shortage = CardShortage(
                node=room.name,
                uuid=slot.uuid,
                card=slot.label,
                free_units=free.memory[at],
                free_core=free.core[at],
                missing_units=max(0, need - free.memory[at]) if slot.healthy else 0,
                missing_core=max(0, ask.core - free.core[at]) if slot.healthy else 0,
                in_use=ask.whole and slot.healthy and not free.is_empty(at),
                healthy=slot.healthy,
            )
            found.append(shortage)
    return tuple(found)
