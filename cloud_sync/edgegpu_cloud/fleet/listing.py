"""The list of boxes for people: searched, filtered, sorted, counted and paged by the database."""

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.selectors import read_selector
from edgegpu_cloud.fleet.views import PRESENT_S
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import BoxState, Json, LabelTerm
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxOrder, BoxPlace, BoxQuery, BoxSort, ListedBox
from edgegpu_sync.ids import DeviceId

PAGE, MOST_ON_PAGE = 50, 500
"""How many boxes a page has, and at most."""

AT_ONCE = 500
"""Boxes that are read together where all of them are gone through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxFilter:
    """The boxes that are asked for; fields that are empty, None, False or 0 do not count.

    `selector` is one over labels, as `kubectl -l` has it. `search` is looked for in names, hosts, labels and apps, or
    is a device id; `names` is the beginning of a name or device id. `app` is NAMESPACE/APP; `apps`: any of these.
    `health`: ok, warn, bad, unknown. `agent` is the version of the agent. `free_units`: so many are free at least.
    `problems`, `waiting`, `restored`: only those with any, or that are so. `askable`: those of which something can be
    asked. `one_of_each_cluster`: in the place of the boxes of a cluster the one that applies its app limits.
    """

    selector: str = ""
    search: str = ""
    names: str = ""
    app: str = ""
    apps: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    health: frozenset[str] = frozenset()
    agent: str = ""
    states: frozenset[BoxState] = frozenset()
    free_units: int = 0
    connected: bool | None = None
    problems: bool = False
    waiting: bool = False
    restored: bool = False
    askable: bool = False
    one_of_each_cluster: bool = False
    devices: frozenset[DeviceId] | None = None
    """Only these: for the rows of a page that have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOrder:
    """How a list is sorted, and which page of it is asked for: `cursor` is `next` or `previous` of another page."""

    sort: BoxSort = BoxSort.NAME
    descending: bool = False
    limit: int = PAGE
    cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPage:
    """A page of boxes, and the cursors of its neighbours; a cursor is empty where there is none."""

    boxes: tuple[ListedBox, ...]
    next: str
    previous: str


_LARGEST = 2**53
EVERY_BOX, FIRST_PAGE = BoxFilter(), PageOrder()


def query_of(where: BoxFilter, *, now_s: float, scope: Sequence[LabelTerm] = ()) -> BoxQuery:
    """Return the database's query for a filter.

    Args:
        where: the filter.
        now_s: the present time, seconds since 1970.
        scope: the terms of the boxes that the person may see at all; empty: every box.

    Raises:
        CloudError: the filter's selector is none.
    """
    return BoxQuery(
        present_since_s=now_s - PRESENT_S,
        scope=scope,
        labels=_terms(where.selector),
        search=_text(where.search),
        names=_text(where.names),
        devices=where.devices,
        app=_text(where.app),
        apps=where.apps,
        clusters=where.clusters,
        health=where.health,
        agent=_text(where.agent),
        states=where.states,
        free_units=where.free_units,
        connected=where.connected,
        problems=where.problems,
        waiting=where.waiting,
        restored=where.restored,
        askable=where.askable,
        one_of_each_cluster=where.one_of_each_cluster,
    )


def filter_json(where: BoxFilter) -> Json:
    """Return the fields of a filter that count, as an operation stores them, without boxes that were named."""
    found: Json = {}
    for one in fields(where):
        value = getattr(where, one.name)
        if one.name != "devices" and value != one.default:
            found[one.name] = sorted(map(str, value)) if isinstance(value, frozenset) else _stored(value)
    return found


def _stored(value: str | int | None) -> str | int | None:
    return _text(value) if isinstance(value, str) else value


def _text(words: str) -> str:
    """Return a text without the one character that PostgreSQL has in no text."""
    return words.replace("\0", "")


def _terms(selector: str) -> tuple[LabelTerm, ...]:
    return read_selector(selector).terms if selector else ()


def page_of(tx: Transaction, query: BoxQuery, order: PageOrder) -> BoxPage:
    """Return a page; boxes that come, go or change meanwhile neither repeat nor hide others of the neighbour pages.

    Raises:
        CloudError: the cursor belongs to no page, or to one that is sorted otherwise.
    """
    limit = max(1, min(order.limit, MOST_ON_PAGE))
    place, backwards = _place(order) if order.cursor else (None, False)
    found = tx.list.page(
        query,
        BoxOrder(
            sort=order.sort,
            descending=order.descending,
            limit=limit + 1,
            after=None if backwards else place,
            before=place if backwards else None,
        ),
    )
    more = len(found) > limit
    boxes = found[-limit:] if backwards else found[:limit]
    has_next, has_previous = (True, more) if backwards else (more, place is not None)
    return BoxPage(
        boxes=tuple(boxes),
        next=_cursor(order, boxes[-1], backwards=False) if boxes and has_next else "",
        previous=_cursor(order, boxes[0], backwards=True) if boxes and has_previous else "",
    )


def _cursor(order: PageOrder, box: ListedBox, *, backwards: bool) -> str:
    value = [order.sort.value, order.descending, backwards, box.sort_value, box.name]
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _place(order: PageOrder) -> tuple[BoxPlace, bool]:
    """Return where a cursor points to, and whether the page ends there."""
    try:
        text = base64.urlsafe_b64decode(order.cursor + "=" * (-len(order.cursor) % 4))
        sort, descending, backwards, value, name = json.loads(text)
        if (sort, descending) == (order.sort.value, order.descending) and _is_value(order.sort, value):
            return BoxPlace(value, _text(str(name))), bool(backwards)
    except (ValueError, TypeError, binascii.Error):
        pass
    raise CloudError(
        phrase("cannot show this page: its cursor belongs to no page of this list"),
        remedy=phrase("open the first page"),
    )


def _is_value(sort: BoxSort, value: object) -> bool:
    texts = sort in {BoxSort.NAME, BoxSort.AGENT}
    if texts:
        return isinstance(value, str) and "\0" not in value
    return isinstance(value, int | float) and abs(value) < _LARGEST


def all_devices(tx: Transaction, query: BoxQuery) -> Iterator[list[DeviceId]]:
    """Yield all boxes of a query, by name, `AT_ONCE` at a time."""
    after = ""
    while found := tx.list.devices(query, after=after, limit=AT_ONCE):
        yield [device for _, device in found]
        after = found[-1][0]
