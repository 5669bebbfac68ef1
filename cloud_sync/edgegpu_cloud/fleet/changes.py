"""Changes by people, each in a transaction of the caller's: boxes, desired documents, commands. Each is audited."""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace

from edgegpu_cloud.errors import CloudError, ConflictError
from edgegpu_cloud.fleet.access import Access, Permission
from edgegpu_cloud.fleet.audit.arguments import audited_args
from edgegpu_cloud.fleet.audit.documents import changed_items
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, audit, difference
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.limits.clusters import accepted, refused
from edgegpu_cloud.fleet.names import check_name
from edgegpu_cloud.fleet.operations.outcomes import settle_commands
from edgegpu_cloud.fleet.specs import checked, revised
from edgegpu_cloud.fleet.summaries import apps_in, refresh
from edgegpu_cloud.fleet.views import REVOKED_MEANWHILE
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import (
    BoxRecord,
    BoxState,
    EnrolledBox,
    Json,
    Revision,
    StoredCommand,
)
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.errors import SyncError, TooLargeError
from edgegpu_sync.ids import CommandId, DeviceId, OpName, command_id, op_name
from edgegpu_sync.messages.downlink import Command
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.rules.ops import OPS, BadArgumentsError, read_args
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import ResultCode
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import BODY_MAX_BYTES, digest, encode

LONGEST_WAIT_S = 90 * 86_400
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ROOM = 512


def new_command_id(now_s: float, random_bits: Callable[[int], int] = secrets.randbits) -> CommandId:
    """Return a new command id, a ULID in lower case: milliseconds, then 80 random bits."""
    value = int(now_s * 1000) << 80 | random_bits(80)
    return command_id("".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5)))


def touch(tx: Transaction, box: BoxRecord, *, change: int | None = None) -> None:
    """Write a box, and mark it as changed for the controller and for lists; call it when all else is written.

    `change`: the number of the change (`NoteTable.changed`), where the caller has it.
    """
    tx.boxes.put([replace(box, touched=tx.notes.changed() if change is None else change)])
    tx.summaries.mark([box.device])
    refresh(tx, [box], counted=[box.device])


def rename_box(tx: Transaction, box: BoxRecord, name: str, who: Author) -> BoxRecord:
    """Return a box with another name, to be written with `touch`.

    Raises:
        CloudError: another box has it, or no box can be called so.
    """
    check_name(name)
    if any(one != box.device for one in tx.boxes.with_exact_name(name)):
        text = phrase("cannot call %(box)s %(name)r: another box is called so, or has this id", box=box.name, name=name)
        raise CloudError(text, remedy=phrase("choose a name that no other box has"))
    audit(tx, who, AuditKind.BOX_RENAMED, difference({"name": box.name}, {"name": name}), device=box.device)
    return replace(box, name=name)


def label_box(tx: Transaction, box: BoxRecord, labels: Mapping[str, str], who: Author, access: Access) -> BoxRecord:
    """Return a box with labels set, to be written with `touch`; one with an empty value is taken away.

    Raises:
        ForbiddenError: the box would leave the scope of a person who is no admin.
    """
    after = {key: value for key, value in {**box.labels, **labels}.items() if value}
    if not access.sees(after):
        access.require(Permission.MOVE)
    tx.summaries.put_labels(box.device, after)
    audit(tx, who, AuditKind.BOX_LABELS, difference(box.labels, after), device=box.device)
    return replace(box, labels=after)


def next_enrolment(tx: Transaction, device: DeviceId) -> int:
    """Return the number of a box's next enrolment, to be used in the same transaction."""
    box = tx.boxes.get([device]).get(device)
    return 1 if box is None else box.sequence.enrolment + 1


def add_box(tx: Transaction, enrolled: EnrolledBox, who: Author) -> BoxRecord:
    """Enrol a box, or enrol it anew: then its open commands end UNKNOWN, REIMAGED.

    Raises:
        CloudError: another box has the name.
        ValueError: an enrolment number that the box has had.
    """
    before = tx.boxes.get([enrolled.device]).get(enrolled.device)
    name = enrolled.name or (before.name if before else enrolled.device)
    _free_name(tx, name, enrolled.device)
    if before is None:
        box = BoxRecord(
            device=enrolled.device,
            name=name,
            public=enrolled.public,
            sequence=CommandSequence(enrolment=enrolled.enrolment, instance=enrolled.instance),
            added_at_s=who.now_s,
        )
        tx.boxes.add(box)
    else:
        sequence = before.sequence.reimaged(enrolled.enrolment, enrolled.instance)
        end_all(tx, before.device, now_s=who.now_s)
        box = replace(before, name=name, public=enrolled.public, sequence=sequence, online=False)
        tx.summaries.unbind(box.device)
    box = replace(
        box,
        state=BoxState.ENROLLED,
        labels=dict(enrolled.labels) or box.labels,
        host=enrolled.host or box.host,
        enrolled_at_s=who.now_s,
        told_rev=0,
        observed_rev=0,
        applied_rev=0,
        look_at_s=None,
        looks=0,
    )
    tx.summaries.put_labels(box.device, box.labels)
    audit(tx, who, AuditKind.BOX_ENROLLED, difference(audited_box(before), audited_box(box)), device=box.device)
    touch(tx, box)
    return box


def audited_box(box: BoxRecord | None) -> Json:
    """Return what the audit has of a box that comes or goes; nothing of one that was not there."""
    if box is None:
        return {}
    own = {"name": box.name, "labels": dict(box.labels), "host": box.host, "state": box.state.value}
    return own | {"enrolment": box.sequence.enrolment}


def _free_name(tx: Transaction, name: str, device: DeviceId) -> None:
    """Refuse a name that is another box's name or id."""
    if any(other != device for other in tx.boxes.with_exact_name(name)):
        raise CloudError(
            phrase("cannot call a box %(name)s: another box has this name", name=name),
            remedy=phrase("choose another name"),
        )


def end_all(tx: Transaction, device: DeviceId, *, now_s: float, code: str = "", text: str = "") -> None:
    """End all open commands of a box UNKNOWN, without its result: it was enrolled anew, or revoked, or set aside."""
    ended = []
    for one in tx.commands.open(device):
        tracked = one.tracked.reimaged()
        if code:
            tracked = replace(tracked, code=code, text=text)
        ended.append(replace(one, tracked=tracked, ended_at_s=now_s))
    tx.commands.put(ended)
    tx.commands.heard([one.history_line(now_s) for one in ended])
    settle_commands(tx, ended)


def decide_cluster(tx: Transaction, box: BoxRecord, who: Author, *, accept: bool) -> None:
    """Let the cluster count that a box reports, or let none count until one is accepted.

    Raises:
        CloudError: it reports none that does not count, or it belongs to none.
    """
    before = tx.summaries.get([box.device])[box.device]
    latest = tx.boxes.latest([box.device], [TopicKind.REPORTED]).get((box.device, TopicKind.REPORTED))
    reported = latest.body if latest is not None else {}
    after = accepted(before, reported, name=box.name) if accept else refused(before, name=box.name)
    tx.summaries.put([after])
    change = difference({"cluster": before.cluster}, {"cluster": after.cluster})
    audit(tx, who, AuditKind.BOX_CLUSTER, change, device=box.device)
    touch(tx, box)


def confirm_box(tx: Transaction, box: BoxRecord, who: Author) -> None:
    """Resume a box that was found ahead of this store: its desired document here gets a new revision.

    Raises:
        CloudError: it is not RESTORED.
    """
    if not box.sequence.restored:
        text = phrase("cannot confirm %(box)s: it is not RESTORED", box=box.name)
        raise CloudError(text, remedy=phrase("nothing needs to be done"))
    confirmed = replace(box, sequence=box.sequence.confirmed())
    held, change = tx.boxes.spec(box.device, box.spec_rev), tx.notes.changed()
    if held is not None:
        confirmed = give_revision(tx, confirmed, held.spec, who, change=change)
    tx.commands.wake([box.device])
    before, after = ({"restored": one.restored, "rev": one.rev} for one in (box.sequence, confirmed.sequence))
    audit(tx, who, AuditKind.BOX_CONFIRMED, difference(before, after), device=box.device)
    touch(tx, confirmed, change=change)


def revoke_box(tx: Transaction, box: BoxRecord, who: Author) -> None:
    """Ignore a box from now on; its open commands end UNKNOWN, REVOKED.

    Raises:
        CloudError: it is set aside.
    """
    if box.state is BoxState.SET_ASIDE:
        text = phrase("cannot revoke %(box)s: it is set aside, and ignored already", box=box.name)
        remedy = phrase("`edgegpu-cloud boxes forget %(box)s` revokes its certificates too", box=box.name)
        raise CloudError(text, remedy=remedy)
    end_all(tx, box.device, now_s=who.now_s, code=ResultCode.REVOKED, text=REVOKED_MEANWHILE)
    tx.enrolments.revoke_certificates(box.device, now_s=who.now_s)
    change = AuditedChange({"state": box.state.value}, {"state": BoxState.REVOKED.value})
    audit(tx, who, AuditKind.BOX_REVOKED, change, device=box.device)
    touch(tx, replace(box, state=BoxState.REVOKED, online=False, look_at_s=None))


def block_box(tx: Transaction, box: BoxRecord, who: Author, *, why: str = "") -> None:
    """Refuse a box from now on, until it is unblocked; its open commands wait, and its certificate stays.

    Raises:
        CloudError: it is revoked, set aside or blocked already.
    """
    if box.state is not BoxState.ENROLLED:
        text = phrase("cannot block %(box)s: nothing it says counts, it is %(state)s", box=box.name, state=box.state)
        raise CloudError(text, remedy=phrase("nothing needs to be done"))
    tx.commands.park([box.device])
    change = AuditedChange({"state": box.state.value}, {"state": BoxState.BLOCKED.value})
    audit(tx, who, AuditKind.BOX_BLOCKED, change, device=box.device, detail={"why": why} if why else None)
    touch(tx, replace(box, state=BoxState.BLOCKED, online=False, look_at_s=None))


def unblock_box(tx: Transaction, box: BoxRecord, who: Author) -> None:
    """Let a blocked box go on as before; its open commands go on too.

    Raises:
        CloudError: it is not blocked.
    """
    if box.state is not BoxState.BLOCKED:
        text = phrase("cannot unblock %(box)s: it is not blocked", box=box.name)
        raise CloudError(text, remedy=phrase("nothing needs to be done"))
    tx.commands.wake([box.device])
    change = AuditedChange({"state": box.state.value}, {"state": BoxState.ENROLLED.value})
    audit(tx, who, AuditKind.BOX_UNBLOCKED, change, device=box.device)
    touch(tx, replace(box, state=BoxState.ENROLLED))


def forget_box(tx: Transaction, box: BoxRecord, who: Author) -> None:
    """Drop a box: its certificates are revoked, and all other records go but alarms and audit."""
    tx.enrolments.revoke_certificates(box.device, now_s=who.now_s)
    tx.forget_box(box.device, by=who.by)
    audit(tx, who, AuditKind.BOX_FORGOTTEN, AuditedChange(audited_box(box), {}), device=box.device)


def give_revision(tx: Transaction, box: BoxRecord, spec: Json, who: Author, *, change: int) -> BoxRecord:
    """Store a desired document as the next revision of a box, under the number of a change; return the box with it."""
    sequence = box.sequence.give_rev(digest(spec))
    revision = Revision(rev=sequence.rev, spec=spec, at_s=who.now_s, by=who.by)
    tx.boxes.add_spec(box.device, revision, change=change)
    return replace(box, sequence=sequence, spec_rev=sequence.rev)


def held_spec(tx: Transaction, box: BoxRecord) -> Spec:
    """Return the desired document in this store; an empty one before the first."""
    held = tx.boxes.spec(box.device, box.spec_rev)
    return Spec.model_validate_json(json.dumps(held.spec)) if held is not None else Spec()


def set_spec(
    tx: Transaction, box: BoxRecord, edit: Callable[[Spec], Spec], who: Author, *, expect_rev: int | None = None
) -> int:
    """Give a box's desired document a new revision; return its number, or the present one where nothing changes.

    Raises:
        ConflictError: the revision is not `expect_rev` any more.
        CloudError: the box is revoked, or the document is not valid.
    """
    check_enrolled(box)
    if expect_rev is not None and expect_rev != box.sequence.rev:
        text = phrase(
            "cannot change %(box)s: it has revision %(rev)s by now, not %(expect_rev)s",
            box=box.name,
            rev=box.sequence.rev,
            expect_rev=expect_rev,
        )
        raise ConflictError(text, remedy=phrase("look at it again, then decide"))
    before = held_spec(tx, box)
    after = edited(box, before, edit)
    if after is None:
        return box.spec_rev
    rev, value = box.sequence.rev + 1, after.to_json()
    tx.summaries.put_apps({box.device: apps_in(after)}, requested=True)
    audit(tx, who, AuditKind.BOX_SPEC, changed_items(before, after), device=box.device, detail={"rev": rev})
    change = tx.notes.changed()
    touch(tx, give_revision(tx, box, value, who, change=change), change=change)
    return rev


def edited(box: BoxRecord, before: Spec, edit: Callable[[Spec], Spec]) -> Spec | None:
    """Return a box's next desired document; None where nothing changes.

    Raises:
        CloudError: the document is not valid.
    """
    rev = box.sequence.rev + 1
    after = revised(before, edit(before), rev)
    if after == before and box.spec_rev:
        return None
    checked(after, enrolment=box.sequence.enrolment, rev=rev)
    return after


def check_enrolled(box: BoxRecord) -> None:
    """Refuse a request to a box that is revoked, set aside or blocked.

    Raises:
        CloudError: it is.
    """
    if box.state is BoxState.SET_ASIDE:
        remedy = phrase(
            "look at `edgegpu-cloud alarms`; `edgegpu-cloud boxes forget %(box)s`, then enrol it anew", box=box.name
        )
        raise CloudError(phrase("cannot send anything to %(box)s: it is set aside", box=box.name), remedy=remedy)
    if box.state is BoxState.BLOCKED:
        remedy = phrase("look at it, then `edgegpu-cloud boxes unblock %(box)s`", box=box.name)
        raise CloudError(phrase("cannot send anything to %(box)s: it is blocked", box=box.name), remedy=remedy)
    if box.state is BoxState.REVOKED:
        remedy = phrase("enrol it anew: `edgegpu-cloud enrol`")
        raise CloudError(phrase("cannot send anything to %(box)s: it is revoked", box=box.name), remedy=remedy)


def add_command(tx: Transaction, box: BoxRecord, who: Author, *, op: str, args: Json, wait_s: int) -> CommandId:
    """Queue a command; it is signed when the box is connected, and may wait `wait_s` seconds until it begins.

    Raises:
        CloudError: the box is revoked, no such op, wrong arguments, too large.
    """
    check_enrolled(box)
    if not 1 <= wait_s <= LONGEST_WAIT_S:
        raise CloudError(
            phrase("cannot let a command wait %(wait_s)s s", wait_s=wait_s),
            remedy=phrase("give 1 to %(longest_wait_s)s s", longest_wait_s=LONGEST_WAIT_S),
        )
    name = _op(tx, box, op, args)
    check_size(args)
    one = TrackedCommand(id=new_command_id(who.now_s), op=name, args=args, due_at_s=who.now_s + wait_s)
    tx.commands.add(StoredCommand(device=box.device, tracked=one, by=who.by, at_s=who.now_s))
    audit(tx, who, AuditKind.COMMAND, queued_command(one, wait_s), device=box.device, detail={"id": one.id})
    touch(tx, tx.boxes.get([box.device])[box.device])
    return one.id


def queued_command(command: TrackedCommand, wait_s: int) -> AuditedChange:
    """Return what the audit has of a new command."""
    return AuditedChange({}, {"op": command.op, "args": audited_args(command.args), "wait_s": wait_s})


def see_alarm(tx: Transaction, number: int, who: Author, access: Access) -> bool:
    """Mark an alarm as seen by a person; return whether it exists in their scope."""
    alarm = tx.notes.alarm_seen(number, by=who.by, scope=access.scope.terms)
    if alarm is None:
        return False
    seen = difference({"seen_by": alarm.seen_by}, {"seen_by": who.by})
    audit(tx, who, AuditKind.ALARM_SEEN, seen, device=alarm.device, detail={"number": number, "kind": alarm.kind})
    return True


def _op(tx: Transaction, box: BoxRecord, op: str, args: Json) -> OpName:
    try:
        name = op_name(op)
        if name in OPS:
            read_args(OPS[name], args)
            return name
    except BadArgumentsError as error:
        raise CloudError(
            phrase("cannot ask for %(op)s: %(error)s", op=op, error=error),
            remedy=phrase("see docs/mqtt-api.md for its arguments"),
        ) from error
    except SyncError as error:
        raise CloudError(
            phrase("cannot ask for %(op)r: %(error)s", op=op, error=error),
            remedy=phrase("there are %(ops)s", ops=", ".join(OPS)),
        ) from error
    status = tx.boxes.latest([box.device], [TopicKind.STATUS]).get((box.device, TopicKind.STATUS))
    if status is None or op not in status.body.get("capabilities", ()):
        remedy = phrase("there are %(ops)s", ops=", ".join(OPS))
        raise CloudError(
            phrase("cannot ask for %(op)s: neither this controller nor %(box)s knows it", op=op, box=box.name),
            remedy=remedy,
        )
    return name


def check_size(args: Json) -> None:
    """Refuse arguments that could never be sent: a command's other fields take less than the room that is left here."""
    try:
        body = Command(enrolment=0, epoch=Epoch(0, "0" * 16), seq=1, floor=0, valid_s=0, args=args)
        encode(body, limit_bytes=BODY_MAX_BYTES - _ROOM)
    except TooLargeError as error:
        raise CloudError(
            phrase("cannot ask for this: %(error)s", error=error),
            remedy=phrase("pass larger things by address and SHA-256"),
        ) from error
    except ValueError as error:  # numbers that JSON has not, halves of characters
        raise CloudError(
            phrase("cannot ask for this: its arguments are no JSON that can be sent"),
            remedy=phrase("give finite numbers and whole characters"),
        ) from error
