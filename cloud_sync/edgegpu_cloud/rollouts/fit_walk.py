"""A walk over all boxes of a rollout of limits, part by part: each is judged once, whoever goes offline between."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.rollouts.fit import PlannedFit, fits_of
from edgegpu_cloud.store.rollouts.planned import PlannedRow, PlanQuery
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxOrder, BoxPlace
from edgegpu_sync.ids import DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBox:
    """A box of a rollout with what it would make of its limits."""

    device: DeviceId
    name: str
    fit: PlannedFit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPart:
    """A part of the walk, and `after` of the next one; empty where this is the last."""

    boxes: Sequence[JudgedBox]
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A cluster of the walk, or a box without one (`cluster` is empty): its first box, how many boxes it has."""

    device: DeviceId
    name: str
    cluster: str
    boxes: int


def judged_part(
    tx: Transaction, plan: PlanQuery, limits: LimitsPatch, *, after: str, limit: int, now_s: float
) -> JudgedPart:
    """Return the boxes after a name with what they would make of limits: so many that `limit` boxes are loaded.

    The order is that of the names of each cluster's first box in the plan, which do not move: the box that applies the
    limits of a cluster changes with who is online, and so does the order of the rollout.
    """
    steps, loaded, more = list[_Step](), 0, ""
    for step in _steps(tx, plan, after=after, limit=limit):
        if steps and loaded + step.boxes > limit:
            more = steps[-1].name
            break
        steps.append(step)
        loaded += step.boxes
    chosen = _chosen(tx, plan, [step.cluster for step in steps if step.cluster])
    boxes = [(row.device, row.name) if (row := chosen.get(one.cluster)) else (one.device, one.name) for one in steps]
    fits = fits_of(tx, plan.boxes, [device for device, _ in boxes], limits, now_s=now_s)
    return JudgedPart(
        boxes=[JudgedBox(device=device, name=name, fit=fits.get(device)) for device, name in boxes], next=more
    )


def _steps(tx: Transaction, plan: PlanQuery, *, after: str, limit: int) -> Iterator[_Step]:
    """Yield the clusters whose first box comes after a name; of the boxes `limit` are listed at one time."""
    known = set[str]()
    while rows := tx.list.page(plan.boxes, BoxOrder(limit=limit, after=BoxPlace(after, after) if after else None)):
        new = {row.summary.cluster for row in rows} - known - {""}
        known |= new
        first = _first_boxes(tx, plan, new)
        for row in rows:
            cluster = row.summary.cluster
            if not cluster or (cluster in first and first[cluster][0] == row.device):
                boxes = first[cluster][1] if cluster else 1
                yield _Step(device=row.device, name=row.name, cluster=cluster, boxes=boxes)
        if len(rows) < limit:
            return
        after = rows[-1].name


def _first_boxes(tx: Transaction, plan: PlanQuery, clusters: Collection[str]) -> Mapping[str, tuple[DeviceId, int]]:
    """Return the first box by name that the plan has of each cluster, and how many boxes the cluster has."""
    if not clusters:
        return {}
    planned = frozenset(tx.list.ids(replace(plan.boxes, clusters=sorted(clusters))))
    members = tx.rollout_plans.members(plan, sorted(clusters))
    return {
        cluster: (next(one for one in boxes if one in planned), len(boxes))
        for cluster, boxes in members.items()
        if not planned.isdisjoint(boxes)
    }


def _chosen(tx: Transaction, plan: PlanQuery, clusters: Sequence[str]) -> Mapping[str, PlannedRow]:
    """Return the box that would be asked of each cluster."""
    if not clusters:
        return {}
    of = replace(plan, boxes=replace(plan.boxes, clusters=clusters))
    return {row.cluster: row for row in tx.rollout_plans.part(of, [range(len(clusters))])}
