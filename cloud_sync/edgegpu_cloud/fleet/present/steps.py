"""What a change of limits makes of what boxes have: from which amounts to which, and on how many boxes each."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.listing import all_devices
from edgegpu_cloud.fleet.names import CLUSTER_KINDS, check_holder, cluster_in
from edgegpu_cloud.fleet.present.amounts import PresentLimits, key_of, whole_limits
from edgegpu_cloud.fleet.present.stored import held_on, present_by
from edgegpu_cloud.fleet.reports import LatestMessages, by_box
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.store.records import BoxRecord, BoxState
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import Spec

MOST_JUDGED = 10_000
"""Boxes whose present limits are looked at for one preview."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsStep:
    """From which limits to which a change leads on `boxes` boxes; `after` is None where these refuse it.

    That is where an amount is not named, and what the box has of it is not known.
    """

    before: PresentLimits
    after: RequestedAmounts | None
    boxes: int

    def words(self) -> str:
        """Return the step as `12/10 -> 10/10 on 48 boxes`; `?` is not known."""
        new = "refused, for want of what it has" if self.after is None else _short(self.after)
        return f"{_short(self.before)} -> {new} on {self.boxes} {'box' if self.boxes == 1 else 'boxes'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSteps:
    """The steps of a change over all its boxes, the most frequent first.

    `not_asked`: boxes that are not asked, since another box of the cluster applies its limits, they have reported no
    cluster, or they were revoked. `not_judged`: boxes beyond those that are looked at.
    """

    steps: Sequence[LimitsStep]
    not_asked: int = 0
    not_judged: int = 0

    def lines(self) -> list[str]:
        """Return the steps as lines for people."""
        found = [step.words() for step in self.steps]
        if self.not_asked:
            found.append(f"not asked: {self.not_asked} (another box of the cluster is, or it has reported none)")
        if self.not_judged:
            found.append(f"not judged: {self.not_judged}")
        return found

    @classmethod
    def of(cls, found: Counter[tuple[PresentLimits, RequestedAmounts | None]], *, boxes: int, left: int) -> Self:
        """Return counted steps, of so many boxes, of which `left` were not looked at."""
        steps = [LimitsStep(before=before, after=after, boxes=number) for (before, after), number in found.items()]
        steps.sort(key=lambda one: (-one.boxes, one.after is None, one.words()))
        return cls(steps=steps, not_asked=boxes - left - found.total(), not_judged=left)


def _short(amounts: PresentLimits | RequestedAmounts) -> str:
    """Return amounts as `12/10`: units and hundredths of a card."""
    return "/".join("?" if one is None else str(one) for one in (amounts.memory_units, amounts.core))


def limits_steps(
    tx: Transaction, parts: Iterable[Sequence[DeviceId]], limits: LimitsPatch, *, boxes: int
) -> LimitsSteps:
    """Return what a change makes of what boxes have, by their last reports.

    Args:
        tx: reads.
        parts: the boxes, some at a time: so many are in memory together.
        limits: the change, with its container.
        boxes: how many they are.
    """
    found: Counter[tuple[PresentLimits, RequestedAmounts | None]] = Counter()
    judged = 0
    for part in parts:
        some = part[: MOST_JUDGED - judged]
        found.update(_steps_of(tx, some, limits))
        judged += len(some)
        if judged >= MOST_JUDGED:
            break
    return LimitsSteps.of(found, boxes=boxes, left=boxes - judged)


def steps_of_query(tx: Transaction, query: BoxQuery, limits: LimitsPatch) -> LimitsSteps:
    """Return what a change makes of what the boxes of a query have."""
    return limits_steps(tx, all_devices(tx, query), limits, boxes=tx.list.number(query))


def _steps_of(
    tx: Transaction, devices: Sequence[DeviceId], limits: LimitsPatch
) -> list[tuple[PresentLimits, RequestedAmounts | None]]:
    key = key_of(limits)
    return [(present, _after(limits, present)) for present in _presents(tx, devices, key)]


def _after(limits: LimitsPatch, present: PresentLimits) -> RequestedAmounts | None:
    try:
        whole = whole_limits(limits, present, box="")
    except CloudError:
        return None
    return RequestedAmounts(whole.memory_units, whole.core)


def _presents(tx: Transaction, devices: Sequence[DeviceId], key: ContainerKey) -> list[PresentLimits]:
    """Return what those boxes have that would be asked."""
    records = {device: box for device, box in tx.boxes.get(devices).items() if box.state is BoxState.ENROLLED}
    latest = by_box(tx.boxes.latest(list(records), CLUSTER_KINDS), records)
    clusters = _clusters(tx, records.values(), latest)
    specs = tx.boxes.specs([(device, records[device].spec_rev) for device in clusters])
    held = held_on(tx, list(clusters), key)
    return [
        present_by(
            Spec.model_validate_json(json.dumps(specs.get(device, {}))), latest[device], cluster, key, held.get(device)
        )
        for device, cluster in clusters.items()
    ]


def _clusters(
    tx: Transaction, boxes: Iterable[BoxRecord], latest: Mapping[DeviceId, LatestMessages]
) -> dict[DeviceId, str]:
    """Return the clusters of those boxes that apply the app limits of theirs."""
    found: dict[DeviceId, str] = {}
    summaries = tx.summaries.get(list(latest))
    for box in boxes:
        try:
            found[box.device] = cluster_in(box, latest[box.device], summaries[box.device])
        except CloudError:
            continue
    holders = tx.list.holders(sorted(set(found.values())))
    records = {box.device: box for box in boxes}
    return {
        device: cluster
        for device, cluster in found.items()
        if device in holders.get(cluster, [device]) or _settles(records[device], latest[device])
    }


def _settles(box: BoxRecord, latest: LatestMessages) -> bool:
    try:
        check_holder(box, latest, "")
    except CloudError:
        return False
    return True
