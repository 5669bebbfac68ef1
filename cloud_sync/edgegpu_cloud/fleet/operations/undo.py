"""The way back of an operation: which of its boxes get back what they had, and why others do not."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgegpu_cloud.errors import CloudError, ConflictError
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.effects import effects_of, op_of_change
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.phrases import joined, phrase
from edgegpu_cloud.store.operations.records import (
    BoxArgs,
    BoxOutcome,
    Operation,
    OperationBox,
    OperationKind,
    OperationState,
)
from edgegpu_cloud.store.records import BoxRecord, BoxState, Json
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import AppLimits, Spec

_CHANGED = (BoxOutcome.STORED, BoxOutcome.APPLIED, BoxOutcome.REJECTED)
_BACK = {OperationKind.INSTALL: OperationKind.UNINSTALL, OperationKind.UNINSTALL: OperationKind.INSTALL}
_LIMITS = {"memory_units", "core"}
_CONTAINER = ("namespace", "app", "container")
CANNOT = phrase("A command cannot be undone.")


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoStep:
    """From which values back to which, by their names, on `boxes` boxes."""

    before: Json
    after: Json
    boxes: int

    def words(self) -> str:
        """Return the step for people who read names of options."""
        boxes = f"{self.boxes} {'box' if self.boxes == 1 else 'boxes'}"
        return f"{_values(self.before)} -> {_values(self.after) or 'not known'} on {boxes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBox:
    """A box that keeps what it has, and why."""

    device: DeviceId
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """The operation that gives boxes back what they had before another one, and the boxes that it leaves out.

    `seen`: its boxes (`BoxSet.text`), for `Operations.undo` to compare. `more_boxes`: so many are not looked at.
    """

    kind: OperationKind
    args: Json
    own: Mapping[DeviceId, BoxArgs]
    steps: Sequence[UndoStep]
    left: Sequence[LeftBox]
    seen: str
    more_boxes: int = 0

    @property
    def boxes(self) -> int:
        """How many boxes get back what they had."""
        return sum(step.boxes for step in self.steps)


def check_undoable(operation: Operation) -> None:
    """Refuse the way back of an operation that has none, or that is not stored for all boxes yet.

    Raises:
        CloudError: it has none.
        ConflictError: boxes wait to be stored.
    """
    if operation.kind is OperationKind.COMMAND:
        op = op_of_change(operation.kind, operation.args)
        text = phrase("cannot undo %(id)s: it was a command, %(op)s", id=operation.id, op=op)
        raise CloudError(text, remedy=joined(effects_of(op)) or CANNOT)
    if operation.state is OperationState.RUNNING:
        text = phrase("cannot undo %(id)s: boxes of it wait to be stored", id=operation.id)
        raise ConflictError(text, remedy=phrase("cancel it first, or wait until it is stored"))


def undo_plan(tx: Transaction, operation: Operation, *, most: int) -> UndoPlan:
    """Return the way back of an operation, for `most` of its boxes.

    Raises:
        CloudError: as `check_undoable`.
    """
    check_undoable(operation)
    rows = [row for row in tx.operations.boxes(operation.id, outcomes=_CHANGED, limit=most) if row.rev is not None]
    boxes = tx.boxes.get([row.device for row in rows])
    specs = tx.boxes.specs([(box.device, box.spec_rev) for box in boxes.values()])
    found: dict[DeviceId, tuple[BoxArgs, Json]] = {}
    left: list[LeftBox] = []
    for row in rows:
        box, now = boxes.get(row.device), Spec.model_validate_json(json.dumps(specs.get(row.device, {})))
        if why := _left_out(operation, row, box, now):
            left.append(LeftBox(device=row.device, name=box.name if box else "", text=why))
        else:
            found[row.device] = BoxArgs(args=row.before or {}, seen_rev=row.rev), _present(operation, row, now)
    counts = tx.operations.counts([operation.id])[operation.id]
    return UndoPlan(
        kind=_BACK.get(operation.kind, operation.kind),
        args=operation.args,
        own={device: args for device, (args, _) in found.items()},
        steps=undo_steps((present, _taken_back(operation, own.args, present)) for own, present in found.values()),
        left=left,
        seen=BoxSet.of(found.keys()).text,
        more_boxes=max(0, sum(counts.get(one, 0) for one in _CHANGED) - most),
    )


def asked_own(plan: UndoPlan) -> Mapping[DeviceId, BoxArgs]:
    """Return what the boxes of a plan have of their own when it is started; sharing on or off is the same for all."""
    if plan.kind in {OperationKind.INSTALL, OperationKind.UNINSTALL}:
        return {}
    if plan.kind is OperationKind.SHARING:
        return {device: replace(one, seen_rev=None) for device, one in plan.own.items()}
    return plan.own


def returned_args(args: Json, own: Mapping[DeviceId, BoxArgs]) -> Json:
    """Return the arguments of an undo: which container, and the values that all of its boxes get back alike."""
    first, *others = [box.args for box in own.values()]
    alike = {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
    return {name: args[name] for name in _CONTAINER if name in args} | alike


def _left_out(operation: Operation, row: OperationBox, box: BoxRecord | None, now: Spec) -> str:
    """Return why a box keeps what it has; empty where it gets back what it had."""
    if box is None or box.state is not BoxState.ENROLLED:
        return phrase("it was revoked, set aside, blocked or forgotten")
    if row.before is None:
        return phrase("what it had before is not known")
    if not _stands(operation, row, now):
        return phrase("somebody has changed it since")
    if operation.kind in _BACK and row.before.get("installed") == (operation.kind is OperationKind.INSTALL):
        return phrase("it was so before")
    return ""


def _stands(operation: Operation, row: OperationBox, now: Spec) -> bool:
    """Whether a box's document still has what the operation has stored there."""
    if operation.kind in _BACK:
        wanted, sharing = operation.kind is OperationKind.INSTALL, now.sharing
        # Who asks for what stands already raises `retry` alone, so a higher revision is another change.
        return sharing is not None and sharing.installed == wanted and sharing.rev <= (row.rev or 0)
    items = desired_items(now)
    return all(name in items and (items[name].rev, items[name].retry) == tuple(key) for name, key in row.items.items())


def _present(operation: Operation, row: OperationBox, now: Spec) -> Json:
    """Return the values that stand on a box by the operation, as far as they are taken back."""
    if operation.kind in _BACK:
        return {"installed": operation.kind is OperationKind.INSTALL}
    if operation.kind is OperationKind.SHARING:
        return {name: (operation.args | row.args)[name] for name in row.before or {}}
    items = [item for name, item in desired_items(now).items() if name in row.items]
    item = next(one for one in items if isinstance(one, AppLimits))
    return {"memory_units": item.memory_units, "core": item.core}


def undo_steps(pairs: Iterable[tuple[Json, Json]]) -> list[UndoStep]:
    """Return the steps of boxes by what each has and what it gets back: those of most boxes first."""
    alike = Counter((_ordered(before), _ordered(after)) for before, after in pairs)
    steps = [
        UndoStep(before=json.loads(before), after=json.loads(after), boxes=boxes)
        for (before, after), boxes in alike.items()
    ]
    return sorted(steps, key=lambda step: (-step.boxes, step.words()))


def _taken_back(operation: Operation, args: Json, present: Json) -> Json:
    """Return the values that a box gets back by these arguments of an undo."""
    limits = operation.kind is OperationKind.LIMITS
    after = {name: value for name, value in args.items() if name in _LIMITS or not limits}
    return after or {"installed": not present["installed"]}


def _ordered(values: Json) -> str:
    """Return values as JSON, the memory first."""
    return json.dumps(dict(sorted(values.items(), key=lambda one: (one[0] != "memory_units", one[0]))))


def _values(values: Json) -> str:
    shown = ((name, " ".join(map(str, value)) if isinstance(value, list) else value) for name, value in values.items())
    return ", ".join(f"{name} {value}" for name, value in shown)
