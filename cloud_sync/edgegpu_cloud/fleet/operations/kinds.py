"""What each kind of operation does to a batch of boxes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, assert_never

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from edgegpu_base.records import replace
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import LONGEST_WAIT_S, check_size
from edgegpu_cloud.fleet.limits.changes import check_unchanged, check_unchanged_by_others
from edgegpu_cloud.fleet.limits.clusters import check_rivals
from edgegpu_cloud.fleet.names import CLUSTER_KINDS, check_holder, cluster_in, refused_in
from edgegpu_cloud.fleet.operations.batches import BoxBatch
from edgegpu_cloud.fleet.operations.before import (
    keep_before,
    limits_before,
    read_inventory,
    settings_before,
    sharing_before,
)
from edgegpu_cloud.fleet.present.amounts import checked_patch, key_of, requested_limits, whole_limits
from edgegpu_cloud.fleet.present.stored import held_on, present_by
from edgegpu_cloud.fleet.preview.sharing import check_told
from edgegpu_cloud.fleet.reports import by_box
from edgegpu_cloud.fleet.specs import (
    ANY_CLUSTER,
    LimitsPatch,
    SharingSettings,
    check_app,
    with_limits,
    with_settings,
    with_sharing,
    without_refused,
)
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.operations.records import BoxArgs, BoxOutcome, Operation, OperationBox, OperationKind
from edgegpu_cloud.store.records import BoxRecord, Json
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.faults import first_fault
from edgegpu_sync.ids import DeviceId, op_name
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.rules.ops import OPS, BadArgumentsError, read_args
from edgegpu_sync.topics import TopicKind


class _CommandArgs(BaseModel):
    """The arguments of a command for many boxes; `wait_s`: how long each may wait until it begins."""

    model_config = ConfigDict(extra="forbid")
    op: str
    args: Json = {}
    wait_s: int = 3_600


class _WaitArgs(BaseModel):
    """The arguments of `install` and `uninstall`."""

    model_config = ConfigDict(extra="forbid")
    wait_s: int = 3_600


_PATCH, _SETTINGS = TypeAdapter(LimitsPatch), TypeAdapter(SharingSettings)
_MODELS: Mapping[OperationKind, TypeAdapter[Any]] = {
    OperationKind.LIMITS: _PATCH,
    OperationKind.SHARING: _SETTINGS,
    OperationKind.INSTALL: TypeAdapter(_WaitArgs),
    OperationKind.UNINSTALL: TypeAdapter(_WaitArgs),
    OperationKind.COMMAND: TypeAdapter(_CommandArgs),
}


def checked_args(kind: OperationKind, args: Json) -> Json:
    """Return the arguments of an operation as they are stored, defaults included.

    `limits` has the fields of `LimitsPatch`, `sharing` those of `SharingSettings`, `command` op, args and wait_s,
    `install` and `uninstall` wait_s.

    Raises:
        CloudError: they are wrong for every box.
    """
    try:
        read = _MODELS[kind].validate_python(args)
    except ValidationError as error:
        raise CloudError(
            phrase("cannot start %(kind)s: %(fault)s", kind=kind.value, fault=first_fault(error)),
            remedy=phrase("correct its arguments"),
        ) from error
    match read:
        case LimitsPatch():
            check_app(read.namespace, read.app, read.container)
            with_limits(Spec(), checked_patch(read), cluster=ANY_CLUSTER)
        case SharingSettings():
            with_settings(Spec(), read)
        case _CommandArgs():
            _check_command(read)
    if isinstance(read, _CommandArgs | _WaitArgs) and not 1 <= read.wait_s <= LONGEST_WAIT_S:
        raise CloudError(
            phrase("cannot let a command wait %(wait_s)s s", wait_s=read.wait_s),
            remedy=phrase("give 1 to %(longest_wait_s)s s", longest_wait_s=LONGEST_WAIT_S),
        )
    dumped: Json = _MODELS[kind].dump_python(read, mode="json")
    return dumped


def check_own(kind: OperationKind, args: Json, own: Mapping[DeviceId, BoxArgs]) -> None:
    """Check what boxes of an operation have of their own: amounts of limits, and the revisions that a person has seen.

    Raises:
        CloudError: it is another kind of operation, another argument, or wrong for a box.
    """
    if own and kind not in _OWN:
        raise CloudError(
            phrase("cannot start %(kind)s: boxes have no arguments of their own there", kind=kind.value),
            remedy=phrase("give limits, or the same for all boxes"),
        )
    if wrong := {name for one in own.values() for name in one.args} - _OWN.get(kind, set()):
        names = ", ".join(sorted(wrong))
        raise CloudError(
            phrase("cannot start %(kind)s: a box has no %(names)s of its own", kind=kind.value, names=names),
            remedy=phrase("correct its arguments"),
        )
    for amounts in {json.dumps(one.args, sort_keys=True): one.args for one in own.values()}.values():
        checked_args(kind, args | amounts)


_OWN: Mapping[OperationKind, set[str]] = {
    OperationKind.LIMITS: {"memory_units", "core", "force", "interrupt", "live", "on_drift"},
    OperationKind.SHARING: {"policy", "exclude", "unit_mib", "isolation"},
}


def _check_command(wanted: _CommandArgs) -> None:
    if wanted.op not in OPS or wanted.op.startswith("sharing."):
        there = ", ".join(op for op in OPS if not op.startswith("sharing."))
        raise CloudError(
            phrase("cannot ask for %(op)r", op=wanted.op), remedy=phrase("there are %(there)s", there=there)
        )
    try:
        read_args(OPS[op_name(wanted.op)], wanted.args)
    except BadArgumentsError as error:
        raise CloudError(
            phrase("cannot ask for %(op)s: %(error)s", op=wanted.op, error=error), remedy=phrase("see docs/mqtt-api.md")
        ) from error
    check_size(wanted.args)


def apply_operation(tx: Transaction, operation: Operation, rows: Sequence[OperationBox], *, now_s: float) -> None:
    """Store an operation's change for some of its boxes; each gets its outcome in the same transaction."""
    devices = [row.device for row in rows]
    batch = BoxBatch(tx, Author(operation.by, now_s, part_of=operation.id), tx.boxes.get(devices))
    _change(batch, operation, rows)
    batch.save()
    given = {row.device: operation.args | row.args for row in rows}
    tx.operations.put([_stored(batch, replace(row, force=bool(given[row.device].get("force")))) for row in rows])


def _change(batch: BoxBatch, operation: Operation, rows: Sequence[OperationBox]) -> None:
    args = _MODELS[operation.kind].validate_python(operation.args)
    match operation.kind:
        case OperationKind.LIMITS:
            _limits(batch, args, {row.device: row for row in rows}, seen_change=operation.seen_change)
        case OperationKind.SHARING:
            _settings(batch, args, {row.device: row for row in rows})
        case OperationKind.INSTALL | OperationKind.UNINSTALL:
            installed = operation.kind is OperationKind.INSTALL
            told = batch.tx.boxes.latest(list(batch.boxes), [TopicKind.INVENTORY])

            def edit(box: BoxRecord, spec: Spec) -> Spec:
                keep_before(batch, box, sharing_before(spec, read_inventory(told, box.device)))
                return with_sharing(spec, installed=installed)

            batch.edit(edit)
            op = op_name("sharing.install" if installed else "sharing.uninstall")
            batch.command(op, lambda device: {"min_rev": batch.documents[device].rev}, wait_s=args.wait_s)
        case OperationKind.COMMAND:
            batch.command(op_name(args.op), lambda _: args.args, wait_s=args.wait_s)
        case _:
            assert_never(operation.kind)


def _limits(
    batch: BoxBatch, limits: LimitsPatch, rows: Mapping[DeviceId, OperationBox], *, seen_change: int | None
) -> None:
    key = key_of(limits)
    said = by_box(batch.tx.boxes.latest(list(batch.boxes), CLUSTER_KINDS), batch.boxes)
    summaries = batch.tx.summaries.get(list(batch.boxes))
    clusters: dict[DeviceId, str] = {}
    for device, box in batch.boxes.items():
        try:
            clusters[device] = cluster_in(box, said[device], summaries[device])
        except CloudError as error:
            batch.refused[device] = error
    holders = batch.tx.list.holders(sorted(set(clusters.values())))
    held = held_on(batch.tx, list(clusters), key)
    since: Mapping[DeviceId, int] = {}
    if seen_change is not None:
        since = batch.tx.boxes.first_revisions_after(list(batch.boxes), seen_change)

    def edit(box: BoxRecord, spec: Spec) -> Spec:
        cluster = clusters[box.device]
        there = holders.get(cluster, [])
        check_rivals(box.name, len(there))
        if there and box.device not in there:
            settles = phrase("another box settles the app limits of its cluster")
            check_holder(box, said[box.device], settles)
        row = rows[box.device]
        if row.seen_rev is not None:
            check_unchanged(batch.tx, box, key, row.seen_rev)
        check_unchanged_by_others(batch.tx, box, key, since=since, by=batch.who.by)
        present = present_by(spec, said[box.device], cluster, key, held.get(box.device))
        mine = _PATCH.validate_python(asdict(limits) | row.args)
        wanted = whole_limits(mine, present, box=box.name)
        keep_before(batch, box, limits_before(requested_limits(spec, cluster, key), present, mine))
        return without_refused(with_limits(spec, wanted, cluster=cluster), limits, refused_in(said[box.device]))

    batch.edit(edit)


def _settings(batch: BoxBatch, settings: SharingSettings, rows: Mapping[DeviceId, OperationBox]) -> None:
    told = batch.tx.boxes.latest(list(batch.boxes), [TopicKind.INVENTORY])
    latest = by_box(told, batch.boxes)

    def edit(box: BoxRecord, spec: Spec) -> Spec:
        mine = _SETTINGS.validate_python(asdict(settings) | rows[box.device].args)
        check_told(box.name, spec, latest[box.device], mine)
        keep_before(batch, box, settings_before(spec, read_inventory(told, box.device), mine))
        return with_settings(spec, mine)

    batch.edit(edit)


def _stored(batch: BoxBatch, row: OperationBox) -> OperationBox:
    device = row.device
    if device not in batch.boxes:
        return replace(row, outcome=BoxOutcome.REFUSED, text=phrase("the box was forgotten meanwhile"))
    if (error := batch.refused.get(device)) is not None:
        return replace(row, outcome=BoxOutcome.REFUSED, text=error.text, remedy=error.remedy)
    document, command = batch.documents.get(device), batch.commands.get(device)
    row = replace(row, before=batch.before.get(device))
    if command is not None:
        return replace(row, outcome=BoxOutcome.STORED, rev=document.rev if document else None, command=command)
    if document is None or not document.items:
        return replace(row, outcome=BoxOutcome.APPLIED, rev=document.rev if document else None)
    return replace(row, outcome=BoxOutcome.STORED, rev=document.rev, items=document.items)
