"""Summaries of boxes, and which have changed; the labels and apps by which boxes are found."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import Connection, Select, Text, bindparam, cast, delete, func, insert, literal, or_, select, update

from edgegpu_base.records import replace
from edgegpu_cloud.store.controllers.leases import ALL
from edgegpu_cloud.store.convert import record_of, values_of
from edgegpu_cloud.store.notes import next_numbers
from edgegpu_cloud.store.records import PARTITIONS, partition_of
from edgegpu_cloud.store.schema import BoxRow, MetaRow, table
from edgegpu_cloud.store.summaries.schema import AppRow, LabelRow, SummaryRow
from edgegpu_sync.ids import DeviceId

_BOXES, _SUMMARIES, _LABELS, _APPS = table(BoxRow), table(SummaryRow), table(LabelRow), table(AppRow)
_META = table(MetaRow)

_NUMBER_OF = "summaries/"
"""Before a partition: the key of the number of the last transaction that changed a summary there."""

_RAISED = (
    select(_META.c.value)
    .where(_META.c.key == literal(_NUMBER_OF) + cast(_SUMMARIES.c.partition, Text))
    .correlate(_SUMMARIES)
    .scalar_subquery()
)

KEPT_CHANGES = 10_000
"""For so many transactions of its partition it is remembered that a box was forgotten."""

ChangeNumbers = tuple[int, ...]
"""The number of the last change in each partition, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSummary:
    """What lists show of a box and filter by, beside what its row in `boxes` has.

    `health` is its last report: ok, warn, bad, or empty before the first. `cards` is None before it has reported them;
    `units` and `free_units` are those of shared cards. `open_items` and `open_commands` are requests that it has not
    done yet, `waiting` both together; `problems` counts the items that it refused or failed at. `cluster` is the one
    that counts, `claim` one that it reports and that does not. `left`: why its last link ended; empty while it lasts.
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
    claim: str = ""
    holder: bool = False
    left: str = ""


@dataclass(frozen=True, slots=True)
class BoxChanges:
    """Boxes that have changed, each partition's oldest change first, and the numbers up to which these are all."""

    numbers: ChangeNumbers
    boxes: Sequence[DeviceId]


class SummaryTable:
    """The summaries of one transaction.

    What is put or marked is written when the transaction ends, under one number for each of its partitions: so the
    counters' rows are held for a moment only, and whoever has seen a number of a partition has seen all that was
    written there under lower ones. A controller writes for boxes of its own partitions, so none waits for another;
    people's changes of many boxes raise the numbers of several partitions, in the order of `next_numbers`.
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

    def unbind(self, device: DeviceId) -> None:
        """Let the next report of a box name its cluster: it was enrolled anew."""
        if (summary := self.get([device]).get(device)) is not None:
            self.put([replace(summary, cluster="", claim="", holder=False)])

    def mark(self, devices: Iterable[DeviceId]) -> None:
        """Count boxes as changed when the transaction ends: something that lists show has changed in another table."""
        self._marked.update(devices)

    def finish(self) -> None:
        """Write what was put and marked."""
        marked = self._marked.difference(self._put)
        if not self._put and not marked:
            return
        partitions = {device: partition_of(device) for device in (*self._put, *marked)}
        numbers = self._next(set(partitions.values()))
        if self._put:
            rows = [
                {"at_device": device, **values_of(one), "changed": numbers[partitions[device]]}
                for device, one in self._put.items()
            ]
            at = _SUMMARIES.c.device == bindparam("at_device")
            self._connection.execute(update(_SUMMARIES).where(at), rows)
        if marked:
            where = _SUMMARIES.c.device.in_(sorted(marked))
            self._connection.execute(update(_SUMMARIES).where(where).values(changed=_RAISED))
        self._put.clear()
        self._marked.clear()

    def _next(self, partitions: Collection[int]) -> dict[int, int]:
        """Raise the numbers of these partitions and return them; other transactions that do so wait for this one."""
        raised = next_numbers(self._connection, [f"{_NUMBER_OF}{partition}" for partition in partitions])
        return {partition: raised[f"{_NUMBER_OF}{partition}"] for partition in partitions}

    def numbers(self) -> ChangeNumbers:
        """Return the number of the last change in each partition, 0 where there was none."""
        query = select(_META.c.key, _META.c.value).where(_META.c.key.startswith(_NUMBER_OF))
        found = {key: value for key, value in self._connection.execute(query)}  # noqa: C416  (rows are no pairs)
        return tuple(found.get(f"{_NUMBER_OF}{partition}", 0) for partition in range(PARTITIONS))

    def changed_since(self, since: ChangeNumbers, *, limit: int) -> BoxChanges:
        """Return the boxes that have changed since these numbers, forgotten ones too.

        Only the partitions are looked at whose number is higher by now. Where one is lower, because the store was
        restored from a backup, that is the number of the answer, and no box of the partition is in it.

        Args:
            since: the numbers of the previous answer; zeros for all boxes.
            limit: about so many boxes of a partition; all that have changed in one transaction come together.
        """
        numbers = self.numbers()
        moved = [partition for partition in range(PARTITIONS) if numbers[partition] > since[partition]]
        if not moved:
            return BoxChanges(numbers, ())
        values = {"most": limit}
        for at, partition in enumerate(moved):
            values |= {f"partition_{at}": partition, f"since_{at}": since[partition]}
        found = self._connection.execute(_changed_in(len(moved)), values).all()
        many = Counter(row.partition for row in found)
        last = {row.partition: row.changed for row in found if many[row.partition] >= limit}
        reached = tuple(last.get(partition, number) for partition, number in enumerate(numbers))
        return BoxChanges(reached, [DeviceId(row.device) for row in found])

    def tidy(self, held: Collection[int] = ALL) -> None:
        """Drop of these partitions the rows of boxes that were forgotten `KEPT_CHANGES` ago."""
        if not held:
            return
        there, numbers, c = select(_BOXES.c.device), self.numbers(), _SUMMARIES.c
        old = or_(*((c.partition == one) & (c.changed < numbers[one] - KEPT_CHANGES) for one in sorted(held)))
        self._connection.execute(delete(_SUMMARIES).where(old, c.device.not_in(there)))

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
        values = values_of(BoxSummary(device=device)) | {"partition": partition_of(device), "changed": 0}
        self._connection.execute(insert(_SUMMARIES).values(values))
        self.put_labels(device, labels)
        self.mark([device])

    def forget(self, device: DeviceId) -> None:
        """Drop the labels and apps of a box; its summary stays until `tidy`, marked as changed."""
        for rows in (_LABELS, _APPS):
            self._connection.execute(delete(rows).where(rows.c.device == device))
        self.mark([device])


@cache
def _changed_in(partitions: int) -> Select[tuple[int, int, str]]:
    """Return the query for the first changes in so many partitions: to build it takes ten times as long as to ask it.

    Its values: of each partition, 0 to `partitions` - 1, `partition_N` and `since_N`; and `most` for each.
    """
    c = _SUMMARIES.c
    after = (
        (c.partition == bindparam(f"partition_{at}")) & (c.changed > bindparam(f"since_{at}"))
        for at in range(partitions)
    )
    place = func.rank().over(partition_by=c.partition, order_by=c.changed).label("place")
    some = select(c.partition, c.changed, c.device, place).where(or_(*after)).subquery().c
    query = select(some.partition, some.changed, some.device).where(some.place <= bindparam("most"))
    return query.order_by(some.partition, some.changed, some.device)
