"""Lists of boxes: selected, searched, sorted, counted and paged by the database."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, Select, and_, case, func, not_, or_, select, true

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.labels import has_label
from edgegpu_cloud.store.records import UNINSTALLED, BoxState, LabelTerm
from edgegpu_cloud.store.schema import BoxRow, table
from edgegpu_cloud.store.summaries.schema import AppRow, LabelRow, SummaryRow
from edgegpu_cloud.store.summaries.tables import BoxSummary
from edgegpu_sync.ids import DeviceId

_BOXES, _SUMMARIES, _LABELS, _APPS = table(BoxRow), table(SummaryRow), table(LabelRow), table(AppRow)

UNKNOWN_HEALTH, _WELL = "unknown", "ok"
"""The health of a box that is not connected, or has not reported any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxQuery:
    """The conditions on boxes, all of which have to hold; those that are empty, None, False or 0 do not count.

    `present_since_s` is no condition: a box whose link is up and that was heard since then counts as connected.
    `scope` are the terms by which a person sees boxes at all. `search` is looked for in names, hosts, labels and apps,
    in small and capital letters, or is a device id. `health` may hold `UNKNOWN_HEALTH`. `askable`: enrolled, and
    edgegpu was not taken off it. `one_of_each_cluster`: in the place of the boxes of a cluster that are found, the box
    that applies its app limits, which need not be one of them but is in the scope; where none is known to, the first.
    """

    present_since_s: float
    scope: Sequence[LabelTerm] = ()
    labels: Sequence[LabelTerm] = ()
    search: str = ""
    names: str = ""
    """The beginning of the name or the device id."""
    devices: Collection[DeviceId] | None = None
    app: str = ""
    apps: Collection[str] = ()
    clusters: Collection[str] = ()
    health: Collection[str] = ()
    agent: str = ""
    states: Collection[BoxState] = ()
    free_units: int = 0
    connected: bool | None = None
    problems: bool = False
    waiting: bool = False
    restored: bool = False
    askable: bool = False
    holder: bool = False
    one_of_each_cluster: bool = False


class BoxSort(StrEnum):
    """The value by which boxes are sorted; those with equal values by name."""

    NAME = "name"
    SEEN = "seen"
    HEALTH = "health"
    CARDS = "cards"
    FREE = "free"
    PROBLEMS = "problems"
    WAITING = "waiting"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class BoxPlace:
    """A place in a sorted list: behind (or before) the box with this value and name, which need not exist any more."""

    value: str | float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOrder:
    """The part of a sorted list that is asked for: `limit` boxes after or before a place, or from the beginning."""

    sort: BoxSort = BoxSort.NAME
    descending: bool = False
    limit: int = 50
    after: BoxPlace | None = None
    before: BoxPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBox:
    """A box in a list. Times are seconds since 1970; `health` is as `shown_health` returns it.

    `left`: why its link ended; empty while it is connected. `changed`: the number of its last change. The fields of
    `summary` are as the box has reported them last.
    """

    device: DeviceId
    name: str
    host: str
    labels: Mapping[str, str]
    state: BoxState
    connected: bool
    health: str
    left: str
    restored: bool
    seen_at_s: float
    enrolled_at_s: float
    rev: int
    observed_rev: int
    applied_rev: int
    changed: int
    sort_value: str | float
    """The value by which the list is sorted."""
    summary: BoxSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxCounts:
    """How many boxes there are of each kind that a list can be filtered by; `units` of all of them.

    `free_units`: of those that are connected, for nobody can use others; `offline_units`: the units of the others.

    `agents`: how many boxes run each version of the agent; the version is empty before a box has connected.
    """

    boxes: int = 0
    connected: int = 0
    offline: int = 0
    healthy: int = 0
    warn: int = 0
    bad: int = 0
    unknown: int = 0
    problems: int = 0
    waiting: int = 0
    with_room: int = 0
    restored: int = 0
    ignored: int = 0
    units: int = 0
    free_units: int = 0
    offline_units: int = 0
    agents: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppHolder:
    """A box that has an app. One that has reported no cluster is one of its own."""

    name: str
    device: DeviceId
    cluster: str


class BoxList:
    """The lists of boxes of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, query: BoxQuery, order: BoxOrder) -> list[ListedBox]:
        """Return the boxes of one page, in order."""
        value = _sort_value(order.sort, query)
        backwards = order.before is not None
        downwards = order.descending is not backwards
        columns = [*(_BOXES.c[name] for name in _OWN), *(_SUMMARIES.c[name] for name in _SUMMARY)]
        connected = case((is_connected(query), 1), else_=0).label("connected")
        found = boxes_of(select(*columns, connected, value.label("sort_value")), query)
        if place := order.before or order.after:
            found = found.where(_beyond(value, place, downwards=downwards))
        keys = (_BOXES.c.name,) if order.sort is BoxSort.NAME else (value, _BOXES.c.name)
        found = found.order_by(*(key.desc() if downwards else key.asc() for key in keys)).limit(order.limit)
        rows = [_listed(dict(row)) for row in self._connection.execute(found).mappings().all()]
        return rows[::-1] if backwards else rows

    def devices(self, query: BoxQuery, *, after: str = "", limit: int) -> list[tuple[str, DeviceId]]:
        """Return names and ids of boxes by name, those whose names come after `after`."""
        found = boxes_of(select(_BOXES.c.name, _BOXES.c.device), query).where(_BOXES.c.name > after)
        rows = self._connection.execute(found.order_by(_BOXES.c.name).limit(limit))
        return [(name, DeviceId(device)) for name, device in rows]

    def device_page(self, query: BoxQuery, *, after: str, limit: int) -> tuple[list[DeviceId], str]:
        """Return ids of boxes by name, those after `after`, and `after` of the next page; empty where there is none."""
        found = self.devices(query, after=after, limit=limit + 1)
        return [device for _, device in found[:limit]], found[limit - 1][0] if len(found) > limit else ""

    def ids(self, query: BoxQuery) -> list[DeviceId]:
        """Return the device ids of all boxes of a query, and nothing more of them."""
        return [DeviceId(device) for device in self._connection.execute(devices_where(query)).scalars()]

    def apps(self, query: BoxQuery, *, words: str, after: str = "", limit: int) -> list[str]:
        """Return the apps (NAMESPACE/APP) of the query's boxes by name, after `after`, whose names hold these words."""
        app = _APPS.c.app
        found = boxes_of(select(app).distinct(), query).where(_APPS.c.device == _BOXES.c.device, app > after)
        if words:
            found = found.where(app.icontains(words, autoescape=True))
        return list(self._connection.execute(found.order_by(app).limit(limit)).scalars())

    def holders(self, clusters: Collection[str]) -> dict[str, list[DeviceId]]:
        """Return the boxes that say that they settle the app limits of each cluster, by name, where their link is up.

        More than one says so for moments, and where one lies.
        """
        s, b = _SUMMARIES.c, _BOXES.c
        query = select(s.cluster, b.device).join(_BOXES, b.device == s.device).order_by(b.name)
        where = and_(s.cluster.in_(clusters), s.holder, b.online, b.state == BoxState.ENROLLED.value)
        found: dict[str, list[DeviceId]] = {}
        for cluster, device in self._connection.execute(query.where(where)):
            found.setdefault(cluster, []).append(DeviceId(device))
        return found

    def with_apps(
        self, query: BoxQuery, apps: Collection[str], *, requested: bool, after: str = "", limit: int
    ) -> list[AppHolder]:
        """Return boxes of the query's clusters that have one of these apps, by name, those after `after`.

        `requested`: limits of it were requested there; else: its pods hold shares there.
        """
        b, asked = _BOXES.c, boxes_of(select(_BOXES.c.device, _SUMMARIES.c.cluster), query).cte()
        there = BoxQuery(present_since_s=query.present_since_s, scope=query.scope, states=[BoxState.ENROLLED])
        have = select(_APPS.c.device).where(_APPS.c.app.in_(sorted(apps)), _APPS.c.requested == requested)
        found = boxes_of(select(b.name, b.device, own_cluster().label("cluster")), there)
        found = found.where(_is_beside(asked), b.device.in_(have), b.name > after).order_by(b.name).limit(limit)
        return [record_of(AppHolder, row) for row in self._connection.execute(found).mappings().all()]

    def number(self, query: BoxQuery) -> int:
        """Return how many boxes there are."""
        return int(self._connection.execute(boxes_of(select(func.count()), query)).scalar_one())

    def counts(self, query: BoxQuery) -> BoxCounts:
        """Return how many boxes there are of each kind: one query goes through them, once for all kinds."""
        connected, s = is_connected(query), _SUMMARIES.c
        enrolled = _BOXES.c.state == BoxState.ENROLLED.value
        kinds: dict[str, ColumnElement[bool]] = {
            "boxes": true(),
            "connected": connected,
            "offline": and_(enrolled, not_(connected)),
            "healthy": _has_health("ok", connected),
            "warn": _has_health("warn", connected),
            "bad": _has_health("bad", connected),
            "unknown": _has_health(UNKNOWN_HEALTH, connected),
            "problems": s.problems > 0,
            "waiting": s.waiting > 0,
            "with_room": and_(connected, s.free_units > 0),
            "restored": _BOXES.c.restored,
            "ignored": not_(enrolled),
        }
        sums = [func.sum(case((where, 1), else_=0)).label(name) for name, where in kinds.items()]
        sums += [func.sum(s.units).label("units")]
        sums += [func.sum(case((connected, s.free_units), else_=0)).label("free_units")]
        sums += [func.sum(case((connected, 0), else_=s.units)).label("offline_units")]
        by_agent = boxes_of(select(s.agent, *sums), query).group_by(s.agent).order_by(s.agent)
        rows = self._connection.execute(by_agent).mappings().all()
        whole = {one.name: sum(int(row[one.name]) for row in rows) for one in sums}
        return BoxCounts(**whole, agents={row["agent"]: int(row["boxes"]) for row in rows})


_OWN = (
    *("device", "name", "host", "labels", "state", "restored", "seen_at_s", "enrolled_at_s", "rev"),
    *("observed_rev", "applied_rev"),
)
_SUMMARY = ("changed", *(one.name for one in fields(BoxSummary) if one.name != "device"))


def _listed(row: dict[str, object]) -> ListedBox:
    connected = bool(row["connected"])
    summary = record_of(BoxSummary, row)
    return record_of(
        ListedBox,
        row,
        state=BoxState(str(row["state"])),
        connected=connected,
        health=shown_health(summary.health, connected=connected),
        left="" if connected else summary.left,
        summary=summary,
    )


def shown_health(health: str, *, connected: bool) -> str:
    """Return the health of a box by its last word: an offline one keeps its problems, and is not known to be well."""
    return health if health and (connected or health != _WELL) else UNKNOWN_HEALTH


def _has_health(health: str, connected: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition that `shown_health` is this."""
    reported = _SUMMARIES.c.health
    if health == UNKNOWN_HEALTH:
        return or_(reported == "", and_(not_(connected), reported == _WELL))
    return and_(connected, reported == _WELL) if health == _WELL else reported == health


def is_connected(query: BoxQuery) -> ColumnElement[bool]:
    """Return the condition that a box counts as connected."""
    return and_(_BOXES.c.online, _BOXES.c.seen_at_s > query.present_since_s)


def settles_first(query: BoxQuery) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Return the order in which a box of a cluster is asked for app limits: who applies them, then who is connected."""
    connected = is_connected(query)
    return case((and_(_SUMMARIES.c.holder, connected), 0), else_=1), case((connected, 0), else_=1)


def own_cluster() -> ColumnElement[Any]:
    """Return a box's cluster; a box that has reported none is one of its own."""
    return func.coalesce(func.nullif(_SUMMARIES.c.cluster, ""), _BOXES.c.device)


def _is_beside(asked: CTE) -> ColumnElement[bool]:
    """Return the condition that a box is one of these, or in the cluster of one."""
    clusters = select(asked.c.cluster).where(asked.c.cluster != "")
    return or_(_BOXES.c.device.in_(select(asked.c.device)), _SUMMARIES.c.cluster.in_(clusters))


def _one_of_each_cluster(query: BoxQuery) -> Select[Any]:
    """Return the device ids of the boxes that are asked for app limits in the place of the boxes of a query."""
    b, asked = _BOXES.c, boxes_of(select(_BOXES.c.device, _SUMMARIES.c.cluster), query).cte()
    there = BoxQuery(present_since_s=query.present_since_s, scope=query.scope)
    settles = and_(_SUMMARIES.c.holder, is_connected(query), b.state == BoxState.ENROLLED.value)
    place = func.row_number().over(partition_by=own_cluster(), order_by=(*settles_first(query), b.name))
    found = boxes_of(select(b.device, place.label("place")), there)
    beside = found.where(_is_beside(asked), or_(settles, b.device.in_(select(asked.c.device)))).subquery()
    return select(beside.c.device).where(beside.c.place == 1)


def _sort_value(sort: BoxSort, query: BoxQuery) -> ColumnElement[Any]:
    """Return the value by which boxes are sorted; it is never NULL."""
    s = _SUMMARIES.c
    ranks = ((s.health == one, rank) for rank, one in enumerate(_WORST_FIRST))
    values: Mapping[BoxSort, ColumnElement[Any]] = {
        BoxSort.NAME: _BOXES.c.name,
        BoxSort.SEEN: _BOXES.c.seen_at_s,
        BoxSort.HEALTH: case(
            (_has_health(UNKNOWN_HEALTH, is_connected(query)), len(_WORST_FIRST)), *ranks, else_=len(_WORST_FIRST)
        ),
        BoxSort.CARDS: func.coalesce(s.cards, -1),
        BoxSort.FREE: case((is_connected(query), s.free_units), else_=-1),
        BoxSort.PROBLEMS: s.problems,
        BoxSort.WAITING: s.waiting,
        BoxSort.AGENT: s.agent,
    }
    return values[sort]


_WORST_FIRST = ("bad", "warn", "ok")


def _beyond(value: ColumnElement[Any], place: BoxPlace, *, downwards: bool) -> ColumnElement[bool]:
    name = _BOXES.c.name
    if value is name:
        return name < place.name if downwards else name > place.name
    further = value < place.value if downwards else value > place.value
    return further | ((value == place.value) & (name < place.name if downwards else name > place.name))


def devices_where(query: BoxQuery) -> Select[Any]:
    """Return the device ids of the boxes of a query, to be used in another query of this package."""
    return boxes_of(select(_BOXES.c.device), query)


def boxes_of(found: Select[Any], query: BoxQuery) -> Select[Any]:
    """Return a query over boxes and their summaries with all of these conditions."""
    both = found.select_from(_BOXES.join(_SUMMARIES, _SUMMARIES.c.device == _BOXES.c.device))
    if query.one_of_each_cluster:
        return both.where(_BOXES.c.device.in_(_one_of_each_cluster(replace(query, one_of_each_cluster=False))))
    return both.where(*_conditions(query))


def _conditions(query: BoxQuery) -> Iterator[ColumnElement[bool]]:
    b, s = _BOXES.c, _SUMMARIES.c
    yield from (has_label(b.device, term) for term in (*query.scope, *query.labels))
    if query.search:
        yield _found(query.search)
    if query.names:
        yield b.device.startswith(query.names, autoescape=True) | b.name.startswith(query.names, autoescape=True)
    if query.devices is not None:
        yield b.device.in_(query.devices)
    if query.app:
        yield b.device.in_(select(_APPS.c.device).where(_APPS.c.app == query.app))
    if query.apps:
        yield b.device.in_(select(_APPS.c.device).where(_APPS.c.app.in_(sorted(query.apps))))
    if query.clusters:
        yield s.cluster.in_(query.clusters)
    if query.agent:
        yield s.agent == query.agent
    if query.states:
        yield b.state.in_([state.value for state in query.states])
    yield from _quantities(query)
    if query.askable:
        gone = not_(is_connected(query)) & (s.left == UNINSTALLED)
        yield and_(b.state == BoxState.ENROLLED.value, not_(gone))


def _quantities(query: BoxQuery) -> Iterator[ColumnElement[bool]]:
    s, connected = _SUMMARIES.c, is_connected(query)
    if query.connected is not None:
        yield connected if query.connected else not_(connected)
    if query.health:
        yield or_(*(_has_health(health, connected) for health in sorted(query.health)))
    if query.free_units:
        yield and_(connected, s.free_units >= query.free_units)
    if query.problems:
        yield s.problems > 0
    if query.waiting:
        yield s.waiting > 0
    if query.restored:
        yield _BOXES.c.restored
    if query.holder:
        yield s.holder


def _found(search: str) -> ColumnElement[bool]:
    """Return the condition that a box is found by this text."""
    label = _LABELS.c.key + "=" + _LABELS.c.value
    return or_(
        _BOXES.c.name.icontains(search, autoescape=True),
        _BOXES.c.device == search,
        _BOXES.c.host.icontains(search, autoescape=True),
        _BOXES.c.device.in_(select(_LABELS.c.device).where(label.icontains(search, autoescape=True))),
        _BOXES.c.device.in_(select(_APPS.c.device).where(_APPS.c.app.in_(_apps_with(search)))),
    )


def _apps_with(search: str) -> Select[Any]:
    """Return the names of apps that hold a text: each is looked at once, not for each box that has it.

    The index gives one name after the other (neither database does so for DISTINCT by itself).
    """
    app = _APPS.c.app
    first = select(func.min(app).label("app")).cte("app_names", recursive=True)
    after = select(func.min(app)).where(app > first.c.app).correlate(first).scalar_subquery()
    names = first.union_all(select(after).select_from(first).where(first.c.app.is_not(None)))
    return select(names.c.app).where(names.c.app.icontains(search, autoescape=True))
