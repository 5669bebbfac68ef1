"""Admission: whether a container may start on the devices that kubelet booked for it, checked at each start."""

from collections.abc import Iterator
from dataclasses import dataclass

from edgegpu_core import reasons
from edgegpu_core.choices.pod_choice import start_refusal
from edgegpu_core.deviceid import DeviceKind, count_by_card
from edgegpu_core.ledger import Grant, free_after
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.nodeview import NodeView, WaitingContainer, asked, has_room, planned
from edgegpu_core.placement import Placement, Share, held_of
from edgegpu_core.podview import PodView
from edgegpu_core.request import ContainerRequest, ImpossibleRequest, PlaceableRequest, classify


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """Admitted on these cards, or refused with the reason."""

    cards: tuple[str, ...]
    reason: str = ""
    card_missing: bool = False
    """Refused because the node does not offer the card (any more), which may pass."""

    @property
    def admitted(self) -> bool:
        """Whether the container may start."""
        return not self.reason


def admission_verdict(pod: PodView, container: ContainerRequest, view: NodeView) -> AdmissionVerdict:
    """Return the verdict whether a container may start, or why not.

    It must have been given what its pod chooses. Its devices must be sound. They must also lie on the promised cards,
    or take nothing from an older claim. Pods that our extender did not place (nodeName, static pods, another scheduler)
    are promised nothing.
    """
    given = view.given.get((pod.kubelet_uid, container.name))
    if given is not None and (why := start_refusal(pod.choice, given, view.allowed)):
        return AdmissionVerdict(view.ledger.grant(pod.kubelet_uid, container.name).cards(), why)
    return _device_verdict(pod, container, view)


def _device_verdict(pod: PodView, container: ContainerRequest, view: NodeView) -> AdmissionVerdict:
    uid = pod.kubelet_uid
    grant = view.ledger.grant(uid, container.name)
    cards = grant.cards()
    ask = classify(container.request, view.model)
    if isinstance(ask, ImpossibleRequest):
        return AdmissionVerdict(cards, reasons.impossible(container.name, ask))
    known = {slot.uuid: slot for slot in view.slots}
    missing = [card for card in cards if card not in known]
    if missing:
        why = f"its card {missing[0]} is not offered on this node: it is not there any more, or excluded"
        return AdmissionVerdict(cards, why, card_missing=True)
    if not _is_sound(grant, ask, container):
        return AdmissionVerdict(cards, _no_room(pod, container, ask, view))
    promised = view.promises.get(uid, {}).get(container.name, ())
    if tuple(sorted(promised)) == cards:
        return AdmissionVerdict(cards)
    free = free_after(view.slots, [*_older_claims(pod, view), *_other_containers(pod, container, view)])
    if not has_room(free, held_of(ask, cards, view.slots)):
        return AdmissionVerdict(cards, _no_room(pod, container, ask, view))
    return AdmissionVerdict(cards)


def would_fit(pod: PodView, view: NodeView) -> bool:
    """Return whether a refused pod would fit if it gave its devices back and were placed anew."""
    return isinstance(view.place_anew(pod), Placement)


def admission_failure(want: WaitingContainer, view: NodeView) -> str:
    """Return why a pod shall fail at once when kubelet asks for its devices; empty when it goes on.

    The pod fails when no extender placed it, no card has room for it or the node does not allow what it chooses, and
    it has no controller. It could not start, and while it waited the scheduler would count its devices, which no other
    pod could have. kubelet itself fails a pod for which the node's sum is too small. A pod with a controller goes on
    and is refused at its start: a ReplicaSet answers each failed pod with a new one. A static pod goes on too: its file
    would bring it back.
    """
    pod = want.pod
    if pod.controlled or pod.is_static or want.started or view.promises.get(pod.kubelet_uid) or not view.slots:
        return ""
    placed = view.place_anew(pod)
    return "" if isinstance(placed, Placement) else placed.reason


def is_split_share(grant: Grant) -> bool:
    """Return whether the devices lie on several cards that are not all whole: no request allows that."""
    cards, core = grant.cards(), count_by_card(grant.ids.get(DeviceKind.CORE, ()))
    return len(cards) > 1 and any(core.get(card) != CORE_PER_CARD for card in cards)


def _is_sound(grant: Grant, ask: PlaceableRequest, container: ContainerRequest) -> bool:
    """Return whether the ids match the request: their number, a share on one card, whole cards with memory spread."""
    memory, core = (count_by_card(grant.ids.get(kind, ())) for kind in (DeviceKind.MEMORY, DeviceKind.CORE))
    if any(asked(container, kind) != len(grant.ids.get(kind, ())) for kind in DeviceKind):
        return False
    if not ask.whole:
        return len(memory.keys() | core.keys()) == 1
    if len(core) != ask.cards or any(count != CORE_PER_CARD for count in core.values()):
        return False
    spread = [memory.get(card, 0) for card in core]
    return memory.keys() <= core.keys() and (not ask.memory_units or max(spread) - min(spread) <= 1)


def _older_claims(pod: PodView, view: NodeView) -> list[tuple[Share, ...]]:
    """Return what pods with an older claim hold: those with a promise, and unpromised ones that were made earlier."""
    mine = (pod.created, pod.uid)
    found = []
    for uid, shares in view.holdings(without=pod.kubelet_uid).items():
        other = view.pods.get(uid)
        if other is None or view.promises.get(uid) or (other.created, other.uid) < mine:
            found.append(shares)
    return found


def _other_containers(pod: PodView, container: ContainerRequest, view: NodeView) -> Iterator[tuple[Share, ...]]:
    """Yield what the pod's other containers hold: two containers of one pod may not share a whole card either."""
    plan = planned(pod.containers, view.model)
    if isinstance(plan, ImpossibleRequest) or plan.one_card:
        return
    for other, ask in plan.containers:
        if other.name != container.name:
            yield held_of(ask, view.ledger.grant(pod.kubelet_uid, other.name).cards(), view.slots)


def _no_room(pod: PodView, container: ContainerRequest, ask: PlaceableRequest, view: NodeView) -> str:
    free = view.free(without=pod.kubelet_uid)
    who = reasons.of_container(container.name) if len(pod.containers) > 1 else ""
    return reasons.no_card(ask, free, view.model, who=who)
