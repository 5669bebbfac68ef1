"""Summaries of boxes, and which have changed; the labels and apps by which boxes are found."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from edgegpu_cloud.store.convert import record_of, values_of
from edgegpu_cloud.store.notes import next_number
from edgegpu_cloud.store.schema import BoxRow, table
from edgegpu_cloud.store.summaries.schema import AppRow, LabelRow, SummaryRow
from edgegpu_sync.ids import DeviceId

_BOXES, _SUMMARIES, _LABELS, _APPS = table(BoxRow), table(SummaryRow), table(LabelRow), table(AppRow)

SUMMARIES = "summaries"
"""The number of the last transaction that changed a summary."""

KEPT_CHANGES = 10_000
"""For so many transactions it is remembered that a box was forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSummary:
    """What lists show of a box and filter by, beside what its row in `boxes` has.

    `health` is its last report: ok, warn, bad, or empty before the first. `cards` is None before it has reported them;
    `units` and `free_units` are those of shared cards. `open_items` and `open_commands` are requests that it has not
    done yet, `waiting` both together; `problems` counts the items that it refused or failed at. `left`: why its last
    link ended; empty while it lasts.
    """

    device: DeviceId
    health: str = ""
    agent: str = ""
    plugin: str = ""
    k3s: str = ""
    driver: str = ""
    cards: int | None = None
    shared_cards: int = 0
    units: int = 0
    free_units: int = 0
    sharing: bool = False
    open_items: int = 0
    open_commands: int = 0
    waiting: int = 0
    problems: int = 0
    cluster: str = ""
    holder: bool = False
    left: str = ""


class SummaryTable:
    """The summaries of one transaction.

    What is put or marked is written when the transaction ends, under one number for all: so the counter's row is held
    for a moment only, and whoever has seen a number has seen all that was written under lower ones.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._put: dict[DeviceId, BoxSummary] = {}
        self._marked: set[DeviceId] = set()

    def get(self, devices: Collection[DeviceId]) -> dict[DeviceId, BoxSummary]:
        """Return the summaries of those of these boxes that exist."""
        query = select(_SUMMARIES).where(_SUMMARIES.c.device.in_(devices))
        rows = self._connection.execute(query).mappings().all()
        found = {DeviceId(row["device"]): record_of(BoxSummary, row) for row in rows}
        return found | {device: one for device in found if (one := self._put.get(device)) is not None}

    def put(self, summaries: Iterable[BoxSummary]) -> None:
        """Replace summaries when the transaction ends."""
        self._put.update({one.device: one for one in summaries})

    def mark(self, devices: Iterable[DeviceId]) -> None:
        """Count boxes as changed when the transaction ends: something that lists show has changed in another table."""
        self._marked.update(devices)

    def finish(self) -> None:
        """Write what was put and marked."""
        marked = self._marked.difference(self._put)
        if not self._put and not marked:
            return
        number = next_number(self._connection, SUMMARIES)
        if self._put:
            rows = [{"at_device": one.device, **values_of(one), "changed": number} for one in self._put.values()]
            at = _SUMMARIES.c.device == bindparam("at_device")
            self._connection.execute(update(_SUMMARIES).where(at), rows)
        if marked:
            where = _SUMMARIES.c.device.in_(sorted(marked))
            self._connection.execute(update(_SUMMARIES).where(where).values(changed=number))
        self._put.clear()
        self._marked.clear()

    def changed_since(self, number: int, *, limit: int) -> list[tuple[int, DeviceId]]:
        """Return the boxes that have changed since this number, forgotten ones too, the oldest change first.

        Args:
            number: that of the last box of the previous answer; 0 for all.
            limit: about so many boxes; all that have changed in one transaction come together.
        """
        c = _SUMMARIES.c
        since = select(c.changed, c.device).where(c.changed > number).order_by(c.changed, c.device)
        found = [(changed, DeviceId(device)) for changed, device in self._connection.execute(since.limit(limit))]
        if len(found) == limit:
            rest = since.where(c.changed == found[-1][0], c.device > found[-1][1])
            found += [(changed, DeviceId(device)) for changed, device in self._connection.execute(rest)]
        return found

    def tidy(self, number: int) -> None:
        """Drop the rows of boxes that were forgotten `KEPT_CHANGES` before this number."""
        there = select(_BOXES.c.device)
        old = (_SUMMARIES.c.changed < number - KEPT_CHANGES) & _SUMMARIES.c.device.not_in(there)
        self._connection.execute(delete(_SUMMARIES).where(old))

    # labels and apps

    def put_labels(self, device: DeviceId, labels: Mapping[str, str]) -> None:
        """Replace the labels by which a box is found."""
        self._connection.execute(delete(_LABELS).where(_LABELS.c.device == device))
        rows = [{"device": device, "key": key, "value": value} for key, value in labels.items()]
        if rows:
            self._connection.execute(insert(_LABELS), rows)

    def put_apps(self, apps: Mapping[DeviceId, Collection[str]], *, requested: bool) -> None:
        """Replace the apps by which boxes are found: those whose pods hold shares, or those with requested limits."""
        c = _APPS.c
        query = select(c.device, c.app).where(c.device.in_(apps), c.requested == requested)
        before = {(DeviceId(device), app) for device, app in self._connection.execute(query)}
        after = {(device, app) for device, names in apps.items() for app in names}
        for device in {device for device, _ in before - after}:
            gone = sorted(app for of, app in before - after if of == device)
            where = (c.device == device) & (c.requested == requested) & c.app.in_(gone)
            self._connection.execute(delete(_APPS).where(where))
        rows = [{"device": device, "app": app, "requested": requested} for device, app in sorted(after - before)]
        if rows:
            self._connection.execute(insert(_APPS), rows)

    def add(self, device: DeviceId, labels: Mapping[str, str]) -> None:
        """Begin the summary of a new box."""
        self._connection.execute(insert(_SUMMARIES).values(values_of(BoxSummary(device=device)) | {"changed": 0}))
        self.put_labels(device, labels)
        self.mark([device])

    def forget(self, device: DeviceId) -> None:
        """Drop the labels and apps of a box; its summary stays until `tidy`, marked as changed."""
        for rows in (_LABELS, _APPS):
            self._connection.execute(delete(rows).where(rows.c.device == device))
        self.mark([device])
