"""One change of many boxes in one transaction: each box is changed or refused by itself, the rows are written together.

What is refused, audited and revised is what `changes` does for one box.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edgegpu_base.records import replace
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.documents import changed_items
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, entry_of
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.changes import check_enrolled, check_size, edited, new_command_id, queued_command
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.fleet.summaries import apps_in, refresh
from edgegpu_cloud.store.records import AuditEntry, BoxRecord, Json, Revision, StoredCommand
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.wire import digest

Edit = Callable[[BoxRecord, Spec], Spec]
"""Returns a box's new document; raises CloudError where the box cannot have it."""


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A box's desired document after a change: its revision, and by item what the box has to report on."""

    rev: int
    items: Mapping[str, tuple[int, int]]


@dataclass(slots=True)
class BoxBatch:
    """Boxes that are changed together: what each has got, or why it is refused."""

    tx: Transaction
    who: Author
    boxes: dict[DeviceId, BoxRecord]
    refused: dict[DeviceId, CloudError] = field(default_factory=dict)
    documents: dict[DeviceId, NewDocument] = field(default_factory=dict)
    commands: dict[DeviceId, CommandId] = field(default_factory=dict)
    before: dict[DeviceId, Json] = field(default_factory=dict)
    """What boxes had before, as arguments that bring it back; a box of which that is not known is not there."""
    _audits: list[AuditEntry] = field(default_factory=list)
    _revisions: list[tuple[DeviceId, Revision]] = field(default_factory=list)

    def edit(self, edit: Edit) -> None:
        """Give boxes new desired documents, once; those that cannot have them are refused."""
        held = self.tx.boxes.specs([(box.device, box.spec_rev) for box in self._free()])
        apps: dict[DeviceId, frozenset[str]] = {}
        for box in self._free():
            before = Spec.model_validate_json(json.dumps(held.get(box.device, {})))
            try:
                check_enrolled(box)
                after = edited(box, before, lambda spec, box=box: edit(box, spec))  # type: ignore[misc]
            except CloudError as error:
                self.refused[box.device] = error
                continue
            if after is not None:
                self._revisions.append((box.device, self._revised(box, before, after)))
                apps[box.device] = apps_in(after)
            self._expect(box.device, before, after or before)
        if apps:
            self.tx.summaries.put_apps(apps, requested=True)

    def _revised(self, box: BoxRecord, before: Spec, after: Spec) -> Revision:
        value = after.to_json()
        sequence = box.sequence.give_rev(digest(value))
        self.boxes[box.device] = replace(box, sequence=sequence, spec_rev=sequence.rev)
        self._audit(AuditKind.BOX_SPEC, box.device, changed_items(before, after), {"rev": sequence.rev})
        return Revision(rev=sequence.rev, spec=value, at_s=self.who.now_s, by=self.who.by)

    def _expect(self, device: DeviceId, before: Spec, after: Spec) -> None:
        """Keep which items the box has to report on: those that are new, changed, or to be tried again."""
        old = {name: (item.rev, item.retry) for name, item in desired_items(before).items()}
        new = {name: (item.rev, item.retry) for name, item in desired_items(after).items()}
        changed = {name: key for name, key in new.items() if old.get(name) != key}
        self.documents[device] = NewDocument(self.boxes[device].spec_rev, changed)

    def command(self, op: OpName, args: Callable[[DeviceId], Json], *, wait_s: int) -> None:
        """Queue a command for each box that is not refused; its arguments are known to be right."""
        new = []
        for box in self._free():
            try:
                check_enrolled(box)
                check_size(args(box.device))
            except CloudError as error:
                self.refused[box.device] = error
                continue
            now_s = self.who.now_s
            one = TrackedCommand(id=new_command_id(now_s), op=op, args=args(box.device), due_at_s=now_s + wait_s)
            new.append(StoredCommand(device=box.device, tracked=one, by=self.who.by, at_s=now_s))
            self.commands[box.device] = one.id
            self._audit(AuditKind.COMMAND, box.device, queued_command(one, wait_s), {"id": one.id})
        if new:
            self.tx.commands.add(*new)

    def save(self) -> None:
        """Write the boxes that have got something, for the controller and for lists; call it last."""
        changed = [box for box in self._free() if box.device in self.documents or box.device in self.commands]
        if not changed:
            return
        last = self.tx.notes.changed(len(changed))
        first = last - len(changed) + 1
        if self._revisions:
            self.tx.boxes.add_specs(self._revisions, change=last)
        self.tx.boxes.put_state(replace(box, touched=first + at) for at, box in enumerate(changed))
        self.tx.notes.audit(*self._audits)
        self.tx.summaries.mark(box.device for box in changed)
        refresh(self.tx, changed, counted=list(self.commands))

    def _free(self) -> Sequence[BoxRecord]:
        return [box for device, box in self.boxes.items() if device not in self.refused]

    def _audit(self, what: AuditKind, device: DeviceId, change: AuditedChange, detail: Json) -> None:
        self._audits.append(entry_of(self.who, what, change, device=device, detail=detail))
