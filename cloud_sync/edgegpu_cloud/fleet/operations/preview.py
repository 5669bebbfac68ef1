"""What an operation would do: how many boxes it is for, and the verdict of the preview on the first of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.limits.targets import ClusterTarget, cluster_target
from edgegpu_cloud.fleet.listing import BoxFilter, PageOrder
from edgegpu_cloud.fleet.present.amounts import UNKNOWN, PresentLimits, key_of, present_in, whole_in
from edgegpu_cloud.fleet.preview.limits import preview
from edgegpu_cloud.fleet.preview.sharing import check_settings, preview_settings
from edgegpu_cloud.fleet.reports import read_latest
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings, desired_items, with_settings
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.store.summaries.box_list import BoxCounts
from edgegpu_core.limits.verdict import FitResult
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.telemetry import Inventory
from edgegpu_sync.topics import TopicKind

SAMPLE = 20
"""Boxes that are judged before an operation begins: the reports of thousands are not loaded for one page."""

Change = LimitsPatch | SharingSettings


class OperationVerdict(StrEnum):
    """What a box would probably do with the change."""

    FITS = "fits"
    AFTER_STOP = "after_stop"
    REFUSES = "refuses"
    NOT_KNOWN = "not_known"


_OF_FIT = {
    FitResult.FITS: OperationVerdict.FITS,
    FitResult.AFTER_STOP: OperationVerdict.AFTER_STOP,
    FitResult.NEVER: OperationVerdict.REFUSES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxVerdict:
    """The verdict on one box, and why; `asked` is the box of its cluster that applies limits.

    `unit_mib`: the MiB of a unit there; 0 where it is not known. `before` and `after`: what a container has, and would
    have; `after` is None where that is not known.
    """

    device: str
    name: str
    asked: str
    verdict: OperationVerdict
    text: str
    unit_mib: int
    before: PresentLimits = UNKNOWN
    after: RequestedAmounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPreview:
    """The boxes of an operation as numbers; of the first ones by name, what they would do."""

    counts: BoxCounts
    sample: Sequence[BoxVerdict]

    @property
    def boxes(self) -> int:
        """How many boxes it is for."""
        return self.counts.boxes

    def number(self, verdict: OperationVerdict) -> int:
        """Return how many of the sample have a verdict."""
        return sum(one.verdict == verdict for one in self.sample)


def preview_operation(fleet: Fleet, where: BoxFilter, change: Change | None) -> OperationPreview:
    """Return what a change of a filter's boxes would do; `SAMPLE` of them are judged, in their whole clusters.

    Args:
        fleet: as the person sees it.
        where: the boxes.
        change: limits or settings; None: a change that no preview knows.

    Raises:
        CloudError: the filter's selector is none.
    """
    counts = fleet.counts(where)
    if change is None:
        return OperationPreview(counts=counts, sample=())
    targets: dict[str, ClusterTarget] = {}
    found = []
    for listed in fleet.page(where, PageOrder(limit=SAMPLE)).boxes:
        if isinstance(change, SharingSettings):
            found.append(_of_settings(fleet.details(listed.device), change))
            continue
        target = targets.get(listed.device) or cluster_target(fleet, listed.device)
        targets |= {one.box.device: target for one in target.boxes}
        found.append(_of_limits(listed.device, listed.name, target, change))
    return OperationPreview(counts=counts, sample=found)


def _of_limits(device: str, name: str, target: ClusterTarget, limits: LimitsPatch) -> BoxVerdict:
    asked, after = target.asked, None
    try:
        whole = whole_in(limits, asked, target.others)
        after = RequestedAmounts(whole.memory_units, whole.core)
        judged = preview(asked, target.others, whole)
        verdict, text = _OF_FIT[judged.answer], judged.text
    except CloudError as error:
        verdict, text = OperationVerdict.NOT_KNOWN, error.text
    return BoxVerdict(
        device=device,
        name=name,
        asked=asked.box.name if asked.box.device != device else "",
        verdict=verdict,
        text=text,
        unit_mib=_unit_mib(asked),
        before=present_in(asked, target.others, key_of(limits)),
        after=after,
    )


def _of_settings(details: BoxDetails, settings: SharingSettings) -> BoxVerdict:
    try:
        judged = preview_settings(details, desired_items(with_settings(Spec(), settings)))
        text = next((one.text for one in judged.values() if not one.good), "") or _refusal(details, settings)
        verdict = OperationVerdict.REFUSES if text else OperationVerdict.FITS
    except CloudError as error:
        verdict, text = OperationVerdict.NOT_KNOWN, error.text
    box = details.box
    return BoxVerdict(
        device=box.device, name=box.name, asked="", verdict=verdict, text=text, unit_mib=_unit_mib(details)
    )


def _refusal(details: BoxDetails, settings: SharingSettings) -> str:
    """Return why settings are not requested of a box at all; empty where they are."""
    try:
        check_settings(details, settings)
    except CloudError as error:
        return error.text
    return ""


def _unit_mib(details: BoxDetails) -> int:
    told: Inventory | None = read_latest(details.latest, TopicKind.INVENTORY)
    return told.unit_mib if told is not None else 0
