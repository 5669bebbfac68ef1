"""Operations and their boxes in a transaction."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    bindparam,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    update,
)

from edgegpu_cloud.phrases import phrase_json, read_phrase
from edgegpu_cloud.store.convert import record_of, values_of
from edgegpu_cloud.store.engine import upsert
from edgegpu_cloud.store.labels import in_scope
from edgegpu_cloud.store.operations.records import (
    EVERY_OPERATION,
    BoxArgs,
    BoxOutcome,
    Operation,
    OperationBox,
    OperationFilter,
    OperationKind,
    OperationState,
)
from edgegpu_cloud.store.operations.schema import OperationBoxRow, OperationRow
from edgegpu_cloud.store.records import LabelTerm
from edgegpu_cloud.store.schema import BoxRow, table
from edgegpu_cloud.store.summaries.box_list import BoxQuery, boxes_of
from edgegpu_sync.ids import CommandId, DeviceId

_OPERATIONS, _BOXES, _ALL_BOXES = table(OperationRow), table(OperationBoxRow), table(BoxRow)

_SEARCHED = (
    *("namespace", "app", "container", "policy", "isolation", "exclude", "unit_mib", "op"),
    *(("args", name) for name in ("version", "url")),
)
"""Of what an operation asks for, the values that people look for; names of fields are no part of them."""
_WORDS = ("search", "agent")
"""Of what its boxes were found by, the words that a person has typed; the selector has a column of its own."""


class OperationTable:
    """The operations of one transaction."""

    def __init__(self, connection: Connection, *, hold: bool) -> None:
        """Use a connection; `hold`: operations that are read here are locked, because they are to be written."""
        self._connection, self._hold = connection, hold
        self.moved_on = False
        """Whether an operation has ended in this transaction: no box need have changed with it."""

    def add(self, operation: Operation, query: BoxQuery, *, request: str, own: Mapping[DeviceId, BoxArgs]) -> bool:
        """Write a new operation with the boxes that a query finds now, unless its key is another's by now.

        Args:
            operation: the new one; its number of boxes does not count.
            query: the boxes.
            request: the digest of what was asked for.
            own: what boxes have of their own.

        Returns:
            Whether it is written. PostgreSQL waits here for a transaction that has written the same key.
        """
        new = upsert(self._connection, _OPERATIONS).values(_values(operation) | {"request": request})
        new = new.on_conflict_do_nothing(index_elements=["by", "key"])
        if self._connection.execute(new.returning(_OPERATIONS.c.id)).one_or_none() is None:
            return False
        self._add_boxes(operation.id, query, own)
        boxes = select(func.count()).where(_BOXES.c.operation == operation.id).scalar_subquery()
        self._connection.execute(update(_OPERATIONS).where(_OPERATIONS.c.id == operation.id).values(boxes=boxes))
        return True

    def _add_boxes(self, id_: str, query: BoxQuery, own: Mapping[DeviceId, BoxArgs]) -> None:
        new = _box_values(OperationBox(operation=id_, device=DeviceId("")))
        names = [name for name, value in new.items() if name not in {"operation", "device"} and value is not None]
        values = [literal(new[name], _BOXES.c[name].type).label(name) for name in names]
        found = boxes_of(select(literal(id_), _ALL_BOXES.c.device, *values), query)
        self._connection.execute(insert(_BOXES).from_select(["operation", "device", *names], found))
        if own:
            at = (_BOXES.c.operation == id_) & (_BOXES.c.device == bindparam("at_device"))
            rows = [{"at_device": device, "args": one.args, "seen_rev": one.seen_rev} for device, one in own.items()]
            self._connection.execute(update(_BOXES).where(at), rows)

    def get(self, id_: str) -> Operation | None:
        """Return an operation."""
        query = select(_OPERATIONS).where(_OPERATIONS.c.id == id_)
        if self._hold:
            query = query.with_for_update()
        row = self._connection.execute(query).mappings().one_or_none()
        return None if row is None else _operation(row)

    def beginning(self, prefix: str, scope: Sequence[LabelTerm] = ()) -> list[str]:
        """Return the ids that begin with a prefix, of operations whose boxes are all in a scope, ten at most."""
        begins = _OPERATIONS.c.id.startswith(prefix, autoescape=True)
        query = select(_OPERATIONS.c.id).where(begins, *_within(scope)).limit(10)
        return list(self._connection.execute(query).scalars())

    def with_key(self, by: str, key: str) -> Operation | None:
        """Return a person's operation by the key that was chosen for it."""
        query = select(_OPERATIONS).where(_OPERATIONS.c.by == by, _OPERATIONS.c.key == key)
        row = self._connection.execute(query).mappings().one_or_none()
        return None if row is None else _operation(row)

    def request_of(self, id_: str) -> str | None:
        """Return the digest of what was asked for by an operation; None where an earlier version has started it."""
        query = select(_OPERATIONS.c.request).where(_OPERATIONS.c.id == id_)
        return self._connection.execute(query).scalar_one_or_none()

    def last(
        self,
        *,
        where: OperationFilter = EVERY_OPERATION,
        before: str = "",
        limit: int,
        scope: Sequence[LabelTerm] = (),
    ) -> list[Operation]:
        """Return operations whose boxes are all in a scope, newest first; those that are older than `before`."""
        query = select(_OPERATIONS).where(*_within(scope), *_matching(where))
        query = query.order_by(_OPERATIONS.c.id.desc()).limit(limit)
        if before:
            query = query.where(_OPERATIONS.c.id < before)
        return [_operation(row) for row in self._connection.execute(query).mappings().all()]

    def running(self) -> list[str]:
        """Return the ids of operations of which boxes wait to be stored, oldest first."""
        query = select(_OPERATIONS.c.id).where(_OPERATIONS.c.state == OperationState.RUNNING.value)
        return list(self._connection.execute(query.order_by(_OPERATIONS.c.id)).scalars())

    def end(self, id_: str, state: OperationState, *, now_s: float) -> None:
        """Set the state in which nothing more is stored."""
        where = _OPERATIONS.c.id == id_
        self._connection.execute(update(_OPERATIONS).where(where).values(state=state.value, ended_at_s=now_s))
        self.moved_on = True

    # boxes

    def counts(self, ids: Collection[str]) -> dict[str, dict[BoxOutcome, int]]:
        """Return how many boxes of each operation have each outcome."""
        c = _BOXES.c
        query = select(c.operation, c.outcome, func.count()).where(c.operation.in_(ids))
        found: dict[str, dict[BoxOutcome, int]] = {id_: {} for id_ in ids}
        for id_, outcome, number in self._connection.execute(query.group_by(c.operation, c.outcome)):
            found[id_][BoxOutcome(outcome)] = number
        return found

    def devices(self, id_: str) -> list[DeviceId]:
        """Return the ids of all boxes of an operation."""
        query = select(_BOXES.c.device).where(_BOXES.c.operation == id_)
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    def boxes(
        self, id_: str, *, outcomes: Collection[BoxOutcome] = (), after: str = "", limit: int
    ) -> list[OperationBox]:
        """Return boxes of an operation by device id, those after `after`."""
        c = _BOXES.c
        query = select(_BOXES).where(c.operation == id_, c.device > after).order_by(c.device).limit(limit)
        if outcomes:
            query = query.where(c.outcome.in_([one.value for one in outcomes]))
        return [_box(row) for row in self._connection.execute(query).mappings().all()]

    def put(self, boxes: Sequence[OperationBox]) -> None:
        """Update boxes of operations."""
        if not boxes:
            return
        rows = []
        for one in boxes:
            values = _box_values(one)
            rows.append({"at_operation": values.pop("operation"), "at_device": values.pop("device"), **values})
        at = (_BOXES.c.operation == bindparam("at_operation")) & (_BOXES.c.device == bindparam("at_device"))
        self._connection.execute(update(_BOXES).where(at), rows)

    def cancel_queued(self, id_: str) -> int:
        """Take the boxes out of which nothing is stored yet; return how many."""
        where = (_BOXES.c.operation == id_) & (_BOXES.c.outcome == BoxOutcome.QUEUED.value)
        done = self._connection.execute(update(_BOXES).where(where).values(outcome=BoxOutcome.CANCELLED.value))
        return done.rowcount

    def stored_on(self, devices: Collection[DeviceId]) -> list[OperationBox]:
        """Return what is requested of these boxes and not ended."""
        where = _BOXES.c.device.in_(devices) & (_BOXES.c.outcome == BoxOutcome.STORED.value)
        return [_box(row) for row in self._connection.execute(select(_BOXES).where(where)).mappings().all()]

    def of_commands(self, ids: Collection[CommandId]) -> list[OperationBox]:
        """Return what is requested by these commands and not ended."""
        where = _BOXES.c.command.in_(ids) & (_BOXES.c.outcome == BoxOutcome.STORED.value)
        return [_box(row) for row in self._connection.execute(select(_BOXES).where(where)).mappings().all()]


def _within(scope: Sequence[LabelTerm]) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that all boxes of an operation are in a scope; a forgotten box is in none with a term."""
    if not scope:
        return ()
    outside = select(_BOXES.c.device).where(
        _BOXES.c.operation == _OPERATIONS.c.id, not_(and_(*in_scope(_BOXES.c.device, scope)))
    )
    return (~outside.correlate(_OPERATIONS).exists(),)


def _matching(where: OperationFilter) -> Iterator[ColumnElement[bool]]:
    c = _OPERATIONS.c
    if where.search:
        asked, found_by = (
            (c.args[name].as_string() for name in _SEARCHED),
            (c.filter[name].as_string() for name in _WORDS),
        )
        texts = (c.id, c.by, c.selector, *asked, *found_by)
        yield or_(*(text.icontains(where.search, autoescape=True) for text in texts))
    if where.kind is not None:
        yield c.kind == where.kind.value
    if where.state is not None:
        yield c.state == where.state.value
    if where.device:
        yield c.id.in_(select(_BOXES.c.operation).where(_BOXES.c.device == where.device))


def _operation(row: RowMapping) -> Operation:
    kind, state = OperationKind(row["kind"]), OperationState(row["state"])
    return record_of(Operation, row, kind=kind, state=state, per_box=bool(row["per_box"]))


def _values(operation: Operation) -> dict[str, object]:
    return values_of(operation) | {"kind": operation.kind.value, "state": operation.state.value}


def _box(row: RowMapping) -> OperationBox:
    items: Mapping[str, Sequence[int]] = row["items"]
    known = {name: (rev, retry) for name, (rev, retry) in items.items()}
    return record_of(
        OperationBox,
        row,
        outcome=BoxOutcome(row["outcome"]),
        items=known,
        args=row["args"] or {},
        text=read_phrase(row["text"], row["text_phrase"]),
        remedy=read_phrase(row["remedy"], row["remedy_phrase"]),
    )


def _box_values(box: OperationBox) -> dict[str, object]:
    items = {name: list(key) for name, key in box.items.items()}
    phrases = {"text_phrase": phrase_json(box.text), "remedy_phrase": phrase_json(box.remedy)}
    return values_of(box) | {"outcome": box.outcome.value, "items": items, **phrases}
