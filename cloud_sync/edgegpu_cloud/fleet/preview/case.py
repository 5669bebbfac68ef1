"""New limits of an app as the change that the core judges, by the last reports of its cluster's boxes; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.fleet.limits.apps import is_pod_of
from edgegpu_cloud.fleet.present.amounts import PresentLimits, key_of, present_in
from edgegpu_cloud.fleet.reports import CardReports, card_reports
from edgegpu_cloud.fleet.specs import ContainerLimits, check_app
from edgegpu_cloud.fleet.views import BoxDetails, reports_to_preview
from edgegpu_cloud.phrases import phrase
from edgegpu_core.inventory import CardCapacity
from edgegpu_core.limits.capacity import NewPod, NodeRoom, OwnPod
from edgegpu_core.limits.verdict import LimitsChange
from edgegpu_core.limits.workload import UpdateStrategy, Workload, WorkloadKind
from edgegpu_core.model import CORE_PER_CARD, ResourceModel
from edgegpu_core.placement import Policy, Share, parse_policy
from edgegpu_core.request import ContainerRequest, ContainerRole, RequestedAmounts
from edgegpu_sync.messages.spec import AppLimits
from edgegpu_sync.messages.telemetry import CardShare, PodAlloc

_NO_SHARING = phrase("GPU sharing is not installed there")

Limits = ContainerLimits | AppLimits
"""New limits, or those of a desired document."""


@dataclass(frozen=True, slots=True)
class PreviewCase:
    """New limits as a change that the core judges: the reports it is made of, and the app's pods there, by uid."""

    change: LimitsChange
    reports: Sequence[CardReports]
    own: Mapping[str, PodAlloc]
    before: PresentLimits
    """What the container has now."""


def preview_case(box: BoxDetails, others: Iterable[BoxDetails], wanted: Limits) -> PreviewCase:
    """Return new limits as the change that a preview judges; the app counts as one that stops its pods first.

    Raises:
        CloudError: the box has not reported its cards yet, or no box accepts such limits.
    """
    check_app(wanted.namespace, wanted.app, wanted.container)
    beside = list(others)
    reports = [reports_to_preview(box)]
    reports += [found for other in beside if (found := card_reports(other.latest)) is not None]
    own = {uid: pod for one in reports for uid, pod in one.pods.items() if is_pod_of(pod, wanted.namespace, wanted.app)}
    nodes = {uid: one.inventory.node for one in reports for uid in one.pods}
    replicas = max(1, len(own))
    request = RequestedAmounts(wanted.memory_units, wanted.core)
    change = LimitsChange(
        workload=Workload(
            kind=WorkloadKind.DEPLOYMENT, strategy=UpdateStrategy.RECREATE, replicas=replicas, unavailable=replicas
        ),
        request=request,
        before=amounts_held(own).get(wanted.container, RequestedAmounts(0, 0)),
        pod=NewPod(containers=_containers(own, wanted, request)),
        own=tuple(OwnPod(uid=uid, node=nodes[uid]) for uid in sorted(own)),
        rooms=tuple(_room(one) for one in reports),
    )
    return PreviewCase(change, reports, own, present_in(box, beside, key_of(wanted)))


def _room(report: CardReports) -> NodeRoom:
    cards = report.inventory
    slots = tuple(
        CardCapacity(card.uuid, card.label, card.units, card.healthy) for card in cards.cards if not card.excluded
    )
    units = {slot.uuid: slot.units for slot in slots}
    held = {uid: tuple(_share(piece, units) for piece in pod.pieces) for uid, pod in report.pods.items()}
    return NodeRoom(
        name=cards.node,
        slots=slots,
        held=held,
        model=ResourceModel(unit_mib=cards.unit_mib),
        policy=_policy(cards.policy),
        problem="" if cards.sharing else _NO_SHARING,
    )


def _share(piece: CardShare, units: Mapping[str, int]) -> Share:
    """Return a container's share of a card; a whole card is all of its units, whatever was asked for."""
    whole = piece.core >= CORE_PER_CARD
    return Share(piece.card, units.get(piece.card, 0) if whole else piece.memory_units, min(piece.core, CORE_PER_CARD))


def _policy(name: str) -> Policy:
    try:
        return parse_policy(name)
    except ValueError:
        return Policy.FIRST_FIT


def amounts_held(own: Mapping[str, PodAlloc]) -> dict[str, RequestedAmounts]:
    """Return what each container of one of the app's pods holds, summed over its cards."""
    found: dict[str, RequestedAmounts] = {}
    for piece in next(iter(own.values())).pieces if own else ():
        before = found.get(piece.container, RequestedAmounts(0, 0))
        found[piece.container] = RequestedAmounts(before.memory_units + piece.memory_units, before.core + piece.core)
    return found


def _containers(own: Mapping[str, PodAlloc], wanted: Limits, request: RequestedAmounts) -> tuple[ContainerRequest, ...]:
    amounts = {**amounts_held(own), wanted.container: request}
    return tuple(
        ContainerRequest(name, ContainerRole.APP, one) for name, one in amounts.items() if one.memory_units or one.core
    )
