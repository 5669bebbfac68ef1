"""Apps by the values of their limits, with how many boxes have each; and the boxes of one value."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.details import box_details
from edgegpu_cloud.fleet.limits.app_values import (
    AppOnBox,
    AppValue,
    AppValues,
    CountedValue,
    app_on_box,
    read_value,
    values_on,
)
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.reports import by_box, pods_of
from edgegpu_cloud.fleet.views import BoxView
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.topics import TopicKind

APPS, BOXES = 25, 50
"""Apps on one page, and boxes of one value."""

_AT_ONCE = 500
_KINDS = (TopicKind.ALLOC, TopicKind.INVENTORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppQuery:
    """What is looked for: words in NAMESPACE/APP, a selector over the boxes' labels, and the page.

    `after` is the last app of the page before.
    """

    words: str = ""
    selector: str = ""
    after: str = ""
    limit: int = APPS


@dataclass(frozen=True, slots=True)
class AppPage:
    """The containers of a page of apps; `next` is `after` of the next page, empty where there is none."""

    apps: Sequence[AppValues]
    next: str


@dataclass(frozen=True, slots=True)
class BoxWithApp:
    """A box, and an app's container there."""

    box: BoxView
    app: AppOnBox


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxValue:
    """A box, and the value that an app's container has there."""

    device: DeviceId
    box: str
    connected: bool
    value: AppValue


@dataclass(frozen=True, slots=True)
class BoxesWithApp:
    """Boxes that have an app's container, by name; `next` is `after` of the next page, empty where there is none."""

    boxes: Sequence[BoxWithApp]
    next: str


_Page = TypeVar("_Page", AppPage, BoxesWithApp)


class FleetApps:
    """One person's view of the apps: those of the boxes in the scope."""

    def __init__(
        self, store: ControllerStore, query: Callable[[BoxFilter], BoxQuery], *, clock: Callable[[], float]
    ) -> None:
        """Take a store, and the function that makes a filter a query over the boxes in the person's scope."""
        self._store, self._query, self._clock = store, query, clock

    def page(self, where: AppQuery) -> AppPage:
        """Return a page of apps with their values; all boxes that have one are counted.

        Raises:
            CloudError: the selector is none.
        """
        query, words, after = self._query(BoxFilter(selector=where.selector)), _clean(where.words), _clean(where.after)
        with self._store.read() as tx:
            found = tx.list.apps(query, words=words, after=after, limit=where.limit + 1)
            apps = found[: where.limit]
            counts: defaultdict[ContainerKey, Counter[AppValue]] = defaultdict(Counter)
            for _, _, values in _walk(tx, replace(query, apps=apps)) if apps else ():
                for key, value in values.items():
                    if f"{key.namespace}/{key.app}" in apps:
                        counts[key][value] += 1
        keys = sorted(counts, key=lambda key: (key.namespace, key.app, key.container))
        rows = [AppValues(key=key, values=_counted(counts[key])) for key in keys]
        return AppPage(rows, apps[-1] if len(found) > where.limit else "")

    def boxes(
        self, key: ContainerKey, *, value: str = "", selector: str = "", after: str = "", limit: int = BOXES
    ) -> BoxesWithApp:
        """Return boxes that have a container, or of them those with one value (its key); by name, after `after`.

        Raises:
            CloudError: the selector is none, or the value.
        """
        wanted = read_value(value) if value else None
        if value and wanted is None:
            raise CloudError(
                phrase("cannot find boxes with the value %(value)r: it is none", value=value),
                remedy=phrase("take one from the list of apps"),
            )
        app = _clean(f"{key.namespace}/{key.app}")
        query = replace(self._query(BoxFilter(selector=selector)), apps=[app])
        found: list[tuple[str, DeviceId]] = []
        with self._store.read() as tx:
            for name, device, values in _walk(tx, query, after=_clean(after)):
                if key in values and (wanted is None or values[key] == wanted):
                    found.append((name, device))
                    if len(found) > limit:
                        break
            devices = [device for _, device in found[:limit]]
            records = tx.boxes.get(devices)
            details = box_details(tx, [records[one] for one in devices], now_s=self._clock(), orphans=False)
        boxes = [BoxWithApp(one.box, app_on_box(one, key)) for one in details]
        return BoxesWithApp(boxes, found[limit - 1][0] if len(found) > limit else "")

    def all(self, words: str = "", selector: str = "") -> list[AppValues]:
        """Return every app with its values; CloudError as `page`."""
        query = AppQuery(words=words, selector=selector, limit=_AT_ONCE)
        pages = _pages(lambda after: self.page(replace(query, after=after)))
        return [app for page in pages for app in page.apps]

    def all_boxes(self, key: ContainerKey, *, value: str = "", selector: str = "") -> list[BoxValue]:
        """Return every box that has a container, or of them those with one value; CloudError as `boxes`."""
        pages = _pages(lambda after: self.boxes(key, value=value, selector=selector, after=after, limit=_AT_ONCE))
        return [
            BoxValue(device=one.box.device, box=one.box.name, connected=one.box.online, value=one.app.value)
            for page in pages
            for one in page.boxes
        ]


def _pages(read: Callable[[str], _Page]) -> Iterator[_Page]:
    """Yield all pages, each read from where the one before ended."""
    after: str | None = ""
    while after is not None:
        page = read(after)
        yield page
        after = page.next or None


def _counted(values: Mapping[AppValue, int]) -> list[CountedValue]:
    """Return values with their counts, the most frequent first, in an order that does not change by itself."""
    return [CountedValue(one, values[one]) for one in sorted(values, key=lambda one: (-values[one], one.key))]


def _walk(
    tx: Transaction, query: BoxQuery, *, after: str = ""
) -> Iterator[tuple[str, DeviceId, Mapping[ContainerKey, AppValue]]]:
    """Yield the boxes of a query by name with the values of their containers, some hundred read at a time."""
    while boxes := tx.list.devices(query, after=after, limit=_AT_ONCE):
        devices = [device for _, device in boxes]
        records, latest = tx.boxes.get(devices), by_box(tx.boxes.latest(devices, _KINDS), devices)
        specs = tx.boxes.specs([(device, records[device].spec_rev) for device in devices])
        for name, device in boxes:
            spec = Spec.model_validate_json(json.dumps(specs.get(device, {})))
            inventory = latest[device].get(TopicKind.INVENTORY)
            unit_mib = int(inventory.body.get("unit_mib", 0)) if inventory is not None else 0
            pods = pods_of(latest[device]) if inventory is not None else {}
            yield name, device, values_on(spec.app_limits, pods, unit_mib=unit_mib)
        after = boxes[-1][0]


def _clean(words: str) -> str:
    """Return a text without the one character that PostgreSQL has in no text."""
    return words.replace("\0", "")
