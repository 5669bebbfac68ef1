"""The boxes of a rollout that is planned: chosen, counted and put into their order by the database."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Subquery,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    type_coerce,
)

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.schema import BoxRow, table
from edgegpu_cloud.store.summaries.box_list import BoxQuery, boxes_of, is_connected, own_cluster, settles_first
from edgegpu_cloud.store.summaries.schema import SummaryRow
from edgegpu_sync.ids import DeviceId

_BOXES, _SUMMARIES = table(BoxRow), table(SummaryRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuery:
    """The boxes of a planned rollout: those of `boxes`, those in `first` before the others, in their order.

    `one_of_each_cluster`: of the boxes of a cluster the one that applies its app limits, else one that is connected. A
    box that has reported no cluster is one of its own.
    """

    boxes: BoxQuery
    first: Sequence[DeviceId] = ()
    one_of_each_cluster: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts:
    """How many boxes a plan has, how many of them are offline, and how many have reported no cluster."""

    boxes: int
    away: int
    without_cluster: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """A box of a plan; `position` is its place in the order, from 0."""

    device: DeviceId
    name: str
    present: bool
    cluster: str
    position: int


class PlanTable:
    """The plans of rollouts in one transaction: nothing of them is stored."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def counts(self, plan: PlanQuery) -> PlanCounts:
        """Return how many boxes a plan has."""
        c = planned(plan).c
        away, unknown = (
            func.coalesce(func.sum(one), 0) for one in (1 - c.present, case((c.cluster == "", 1), else_=0))
        )
        row = self._connection.execute(select(func.count(c.device), away, unknown)).one()
        return PlanCounts(boxes=int(row[0]), away=int(row[1]), without_cluster=int(row[2]))

    def first_of(self, plan: PlanQuery) -> frozenset[DeviceId]:
        """Return those of the boxes that come first that are among the boxes of a plan."""
        if not plan.first:
            return frozenset()
        c = planned(plan).c
        found = self._connection.execute(select(c.device).where(c.device.in_(plan.first))).scalars()
        return frozenset(map(DeviceId, found))

    def part(self, plan: PlanQuery, positions: Sequence[range]) -> list[PlannedRow]:
        """Return the boxes at some positions, in order."""
        if not positions:
            return []
        of = planned(plan)
        place = of.c.position
        where = or_(*(and_(place >= one.start, place < one.stop) for one in positions))
        rows = self._connection.execute(select(of).where(where).order_by(place)).mappings().all()
        return [record_of(PlannedRow, row, present=bool(row["present"])) for row in rows]

    def members(self, plan: PlanQuery, clusters: Collection[str]) -> dict[str, list[DeviceId]]:
        """Return the boxes of clusters, those too that the plan does not name: pods of an app may be there."""
        if not clusters:
            return {}
        found: dict[str, list[DeviceId]] = {}
        query = boxes_of(select(_SUMMARIES.c.cluster, _BOXES.c.device), members_query(plan, clusters))
        for cluster, device in self._connection.execute(query.order_by(_BOXES.c.name)):
            found.setdefault(cluster, []).append(DeviceId(device))
        return found


def members_query(plan: PlanQuery, clusters: Collection[str] = ()) -> BoxQuery:
    """Return the query for the boxes of clusters of which something can be asked, in whatever scope they are."""
    return BoxQuery(present_since_s=plan.boxes.present_since_s, clusters=clusters, askable=True)


def planned(plan: PlanQuery) -> Subquery:
    """Return the boxes of a plan, to be used in another query: `device`, `name`, `present`, `cluster`, `position`.

    After those that come first those that are connected, then the others, each by name. `present` is 1 or 0.
    """
    b, s, first = _BOXES.c, _SUMMARIES.c, {device: at for at, device in enumerate(plan.first)}
    present = is_connected(plan.boxes)
    place: ColumnElement[Any] = case(first, value=b.device, else_=len(first)) if first else literal(0)
    here = case((present, 1), else_=0).label("present")
    columns: list[ColumnElement[Any]] = [b.device, b.name, s.cluster, here, place.label("place")]
    if plan.one_of_each_cluster:
        begins = case((b.device.in_(plan.first), 0), else_=1)
        rank = func.row_number().over(partition_by=own_cluster(), order_by=(*settles_first(plan.boxes), begins, b.name))
        columns.append(rank.label("rank"))
    found = boxes_of(select(*columns), plan.boxes).subquery("found").c
    number = func.row_number().over(order_by=(found.place, found.present.desc(), found.name))
    position = type_coerce(number - 1, BigInteger).label("position")
    chosen = select(found.device, found.name, found.cluster, found.present, position)
    if plan.one_of_each_cluster:
        chosen = chosen.where(found.rank == 1)
    return chosen.subquery("planned")
