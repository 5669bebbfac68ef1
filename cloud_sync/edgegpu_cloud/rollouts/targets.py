"""The boxes of a rollout that is planned, in the order in which they are changed; the database finds them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.listing import AT_ONCE, BoxFilter, query_of
from edgegpu_cloud.fleet.names import find_box
from edgegpu_cloud.fleet.present.steps import LimitsSteps, limits_steps
from edgegpu_cloud.fleet.selectors import BoxSelector
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.phrases import listed, phrase, phrase_n
from edgegpu_cloud.rollouts.changes import RolloutChange
from edgegpu_cloud.rollouts.fit import PlannedFit, fits_of
from edgegpu_cloud.store.records import LabelTerm
from edgegpu_cloud.store.rollouts.planned import PlanCounts, PlanQuery
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_sync.ids import DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBox:
    """A box of a planned rollout; `others` are the devices of the same cluster, for app limits."""

    device: DeviceId
    name: str
    present: bool
    others: Sequence[DeviceId] = ()
    position: int = 0
    """Its place in the order of the rollout."""
    fit: PlannedFit | None = None
    """What it would make of the limits of the rollout; None where that was not asked, and of other changes."""


class BoxSelection(Protocol):
    """The part of a request that says which boxes are meant."""

    @property
    def change(self) -> RolloutChange:
        """What is changed."""
        ...

    @property
    def boxes(self) -> Sequence[str]:
        """Names or ids of boxes; empty: those of the selector."""
        ...

    @property
    def selector(self) -> str:
        """A selector over labels; empty: all boxes."""
        ...

    @property
    def first(self) -> Sequence[str]:
        """Names or ids of boxes that come first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTargets:
    """The boxes that a rollout is for: the query that finds and orders them, how many they are, notes for people."""

    plan: PlanQuery
    boxes: int
    notes: Sequence[str]


def targets_of(tx: Transaction, wanted: BoxSelection, scope: BoxSelector, *, now_s: float) -> RolloutTargets:
    """Return the boxes of a rollout.

    First come those that were named to be first, then those that are online, then the others; each by name. App limits
    are applied once in a cluster: of its boxes the one that applies them is taken, else an online one.

    Raises:
        NotFoundError: a box is not there for this person, or none is meant.
        CloudError: no selector, none of the boxes can be asked, or a first box is not among them.
    """
    query = _query(tx, wanted, scope, now_s=now_s)
    first = {name: find_box(tx, name, scope).device for name in wanted.first}
    once = isinstance(wanted.change, LimitsPatch)
    devices = tuple(dict.fromkeys(first.values()))
    plan = PlanQuery(boxes=replace(query, askable=True), first=devices, one_of_each_cluster=once)
    found, all_of_them = tx.list.number(plan.boxes), tx.list.number(query)
    if not found:
        _none(all_of_them, wanted)
    counts, there = tx.rollout_plans.counts(plan), tx.rollout_plans.first_of(plan)
    if strange := [name for name, device in first.items() if device not in there]:
        text = phrase("cannot begin with %(boxes)s: not among the boxes of this rollout", boxes=listed(strange))
        raise CloudError(
            text, remedy=phrase("name boxes that it concerns; app limits are applied by one box of a cluster")
        )
    notes = _notes(counts, found=found, all_of_them=all_of_them, once=once)
    return RolloutTargets(plan=plan, boxes=counts.boxes, notes=notes)


def boxes_at(tx: Transaction, targets: RolloutTargets, positions: Sequence[range]) -> list[PlannedBox]:
    """Return the boxes at some places of the order of a rollout, in this order."""
    plan = targets.plan
    rows = tx.rollout_plans.part(plan, positions)
    clusters = {row.cluster for row in rows if row.cluster} if plan.one_of_each_cluster else set[str]()
    members = tx.rollout_plans.members(plan, clusters)
    seen = seen_of(tx, [one for devices in members.values() for one in devices], plan.boxes.scope)
    return [
        PlannedBox(
            device=row.device,
            name=row.name,
            present=row.present,
            others=[one for one in members.get(row.cluster, ()) if one != row.device and one in seen],
            position=row.position,
        )
        for row in rows
    ]


def with_fits(
    tx: Transaction, targets: RolloutTargets, boxes: Sequence[PlannedBox], change: RolloutChange, *, now_s: float
) -> list[PlannedBox]:
    """Return boxes of a rollout, each with what it would make of its limits; of another change as they are."""
    if not isinstance(change, LimitsPatch):
        return list(boxes)
    fits = fits_of(tx, targets.plan.boxes, [box.device for box in boxes], change, now_s=now_s)
    return [replace(box, fit=fits.get(box.device)) for box in boxes]


def steps_of(tx: Transaction, targets: RolloutTargets, change: RolloutChange) -> LimitsSteps | None:
    """Return from which limits to which a rollout leads on all its boxes; None for another change."""
    if not isinstance(change, LimitsPatch):
        return None
    parts = (range(at, at + AT_ONCE) for at in range(0, targets.boxes, AT_ONCE))
    devices = ([row.device for row in tx.rollout_plans.part(targets.plan, [part])] for part in parts)
    return limits_steps(tx, devices, change, boxes=targets.boxes)


def seen_of(tx: Transaction, devices: Iterable[DeviceId], scope: Sequence[LabelTerm]) -> Collection[DeviceId]:
    """Return those of these boxes that a person with a scope sees; the plan and the rollout know all of them."""
    every = frozenset(devices)
    if not scope or not every:
        return every
    return {*tx.list.ids(BoxQuery(present_since_s=0.0, scope=scope, devices=every))}


def _notes(counts: PlanCounts, *, found: int, all_of_them: int, once: bool) -> list[str]:
    notes: list[str] = []
    if left := all_of_them - found:
        notes.append(
            phrase_n(
                "%(num)d box revoked, set aside, blocked or uninstalled: left out",
                "%(num)d boxes revoked, set aside, blocked or uninstalled: left out",
                left,
            )
        )
    if left := found - counts.boxes:
        notes.append(
            phrase_n(
                "%(num)d box left out: another box of the cluster applies its app limits",
                "%(num)d boxes left out: another box of the cluster applies its app limits",
                left,
            )
        )
    if once and counts.without_cluster:
        notes.append(
            phrase_n(
                "%(num)d box without a reported cluster: app limits are refused there",
                "%(num)d boxes without a reported cluster: app limits are refused there",
                counts.without_cluster,
            )
        )
    if counts.away:
        notes.append(phrase_n("%(num)d box offline now", "%(num)d boxes offline now", counts.away))
    return notes


def _query(tx: Transaction, wanted: BoxSelection, scope: BoxSelector, *, now_s: float) -> BoxQuery:
    if wanted.boxes and wanted.selector:
        raise CloudError(
            phrase("cannot select boxes by names and by labels at once"), remedy=phrase("give one of the two")
        )
    devices = frozenset(find_box(tx, name, scope).device for name in wanted.boxes) if wanted.boxes else None
    query = query_of(BoxFilter(selector=wanted.selector, devices=devices), now_s=now_s)
    return replace(query, scope=scope.terms)


def _none(all_of_them: int, wanted: BoxSelection) -> NoReturn:
    if all_of_them:
        text = phrase(
            "cannot start a rollout: %(boxes)s, all revoked, set aside, blocked or uninstalled",
            boxes=phrase_n("%(num)d box", "%(num)d boxes", all_of_them),
        )
        raise CloudError(text, remedy=phrase("`edgegpu-cloud boxes` shows their states"))
    text = phrase("cannot find such boxes")
    if wanted.selector:
        text = phrase("cannot find a box by %(selector)r: none has these labels", selector=wanted.selector)
    raise NotFoundError(text, remedy=phrase("`edgegpu-cloud boxes -o wide` shows labels"))


def check_number(boxes: int, expected: int | None) -> None:
    """Refuse a rollout of another number of boxes than the person has seen."""
    if expected is not None and expected != boxes:
        text = phrase(
            "cannot start the rollout: it concerns %(num)s boxes by now, not %(expect_boxes)s",
            num=boxes,
            expect_boxes=expected,
        )
        raise ConflictError(text, remedy=phrase("look at its waves again, then decide"))


def check_free(tx: Transaction, subject: str, number: int) -> None:
    """Refuse a rollout beside another one that changes the same on one of its boxes."""
    if found := tx.rollouts.active_beside(number, subject):
        other, name = found
        text = phrase(
            "cannot start the rollout: rollout %(number)s changes the same on %(name)s", number=other, name=name
        )
        raise ConflictError(
            text, remedy=phrase("wait for its end, or `edgegpu-cloud rollouts abort %(number)s`", number=other)
        )
