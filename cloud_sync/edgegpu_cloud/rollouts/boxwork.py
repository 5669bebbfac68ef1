"""The work of a rollout on its boxes, in a transaction of the caller's: begin, look how they ended, give back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgegpu_cloud.errors import CloudError, ConflictError
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_command, set_spec, touch
from edgegpu_cloud.fleet.limits.changes import check_unchanged_by_others
from edgegpu_cloud.fleet.names import check_settles, cluster_of
from edgegpu_cloud.fleet.present.amounts import (
    UNKNOWN,
    PresentLimits,
    held_limits,
    key_of,
    present_limits,
    requested_limits,
    whole_limits,
)
from edgegpu_cloud.fleet.reports import pods_of, read_latest
from edgegpu_cloud.fleet.specs import (
    ContainerLimits,
    LimitsPatch,
    SharingSettings,
    revised,
    with_limits,
    with_settings,
)
from edgegpu_cloud.fleet.views import reported_items
from edgegpu_cloud.phrases import Verbatim, listed, phrase
from edgegpu_cloud.result_codes import reported
from edgegpu_cloud.rollouts.changes import (
    UPGRADE_OP,
    RolloutChange,
    good_states,
    item_names,
)
from edgegpu_cloud.rollouts.documents import (
    TAKEN_OVER,
    Items,
    before_json,
    before_of,
    items_of,
    outcome,
    plan_return,
    present_settings,
    read_before,
    stands_already,
    with_items,
)
from edgegpu_cloud.rollouts.rules import (
    BoxApplied,
    BoxBegun,
    BoxFailed,
    BoxNotReturned,
    BoxRejected,
    BoxReturnBegun,
    BoxReturned,
    BoxSkipped,
    RolloutBoxEvent,
    after_box_event,
)
from edgegpu_cloud.rollouts.strategy import RolloutStrategy
from edgegpu_cloud.store.records import BoxRecord, BoxState, Latest, StoredCommand
from edgegpu_cloud.store.rollouts.records import BAD_HEALTH, Json, RolloutBoxRecord, RolloutRecord
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.uplink import ItemReport
from edgegpu_sync.rules.ops import UpgradeArgs
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

_KINDS = (TopicKind.STATUS, TopicKind.HEALTH, TopicKind.REPORTED, TopicKind.INVENTORY, TopicKind.ALLOC)
_DocumentChange = LimitsPatch | SharingSettings
GONE = phrase("the box was revoked, set aside, blocked or forgotten")
"""The message of a box of which nothing can be asked any more."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store has of a box: its row, its document, its last messages."""

    box: BoxRecord
    held: Spec
    latest: Mapping[TopicKind, Latest]

    @property
    def told(self) -> Mapping[str, ItemReport]:
        one = self.latest.get(TopicKind.REPORTED)
        return reported_items(one.body) if one is not None else {}

    @property
    def told_s(self) -> float:
        one = self.latest.get(TopicKind.REPORTED)
        return one.at_s if one is not None else 0.0

    @property
    def version(self) -> str:
        one = self.latest.get(TopicKind.STATUS)
        return str((one.body if one is not None else {}).get("versions", {}).get("agent", ""))

    @property
    def health(self) -> str:
        one = self.latest.get(TopicKind.HEALTH)
        return str((one.body if one is not None else {}).get("state", ""))


class BoxWork:
    """The work of one rollout in one transaction. Every method takes at most as many boxes as one may hold."""

    def __init__(
        self,
        tx: Transaction,
        rollout: RolloutRecord,
        change: RolloutChange,
        strategy: RolloutStrategy,
        *,
        now_s: float,
    ) -> None:
        """Take a transaction that writes; `now_s` is seconds since 1970."""
        self._tx, self._rollout, self._change, self._strategy = tx, rollout, change, strategy
        self._now_s = now_s
        self._who = Author(rollout.by, now_s, part_of=f"rollout/{rollout.number}")

    def put(self, rows: Sequence[RolloutBoxRecord], event: RolloutBoxEvent) -> int:
        """Write the same event for several boxes; return how many they are."""
        self._tx.rollouts.put_boxes([self._after(row, event) for row in rows])
        return len(rows)

    def _after(self, box: RolloutBoxRecord, event: RolloutBoxEvent) -> RolloutBoxRecord:
        return after_box_event(box, event, self._strategy, now_s=self._now_s)

    def _known(self, rows: Sequence[RolloutBoxRecord]) -> dict[DeviceId, _Known]:
        """Return what is known of those boxes that are enrolled; they are held until the end of the transaction."""
        devices = [row.device for row in rows]
        found = self._tx.boxes.get(devices)
        boxes = [box for box in found.values() if box.state is BoxState.ENROLLED]
        specs = self._tx.boxes.specs([(box.device, box.spec_rev) for box in boxes])
        latest = self._tx.boxes.latest([box.device for box in boxes], _KINDS)
        return {
            box.device: _Known(
                box,
                _spec(specs.get(box.device)),
                {kind: one for kind in _KINDS if (one := latest.get((box.device, kind))) is not None},
            )
            for box in boxes
        }

    # begin

    def begin(self, rows: Sequence[RolloutBoxRecord]) -> None:
        """Request the change of boxes, for the first time or once more."""
        known = self._known(rows)
        written = []
        for row in rows:
            if row.device not in known:
                written.append(self._after(row, BoxSkipped(GONE)))
                continue
            try:
                written.append(self._begun(row, known[row.device]))
            except CloudError as error:
                written.append(self._after(row, BoxRejected(error.text)))
        self._tx.rollouts.put_boxes(written)

    def _begun(self, row: RolloutBoxRecord, known: _Known) -> RolloutBoxRecord:
        if isinstance(self._change, UpgradeArgs):
            return self._upgraded(row, known, self._change)
        return self._requested(row, known, self._change)

    def _upgraded(self, row: RolloutBoxRecord, known: _Known, release: UpgradeArgs) -> RolloutBoxRecord:
        if known.version == release.version:
            begun = self._after(row, BoxBegun(changed=False))
            return self._after(
                begun, BoxApplied(phrase("version %(version)s runs there already", version=release.version))
            )
        args = release.model_dump(mode="json", exclude_defaults=True)
        wait_s = self._strategy.timeout_s
        id_ = add_command(self._tx, known.box, self._who, op=UPGRADE_OP, args=args, wait_s=wait_s)
        before = row.before or {"version": known.version, "health": known.health}
        return replace(self._after(row, BoxBegun()), command=id_, before=before)

    def _requested(self, row: RolloutBoxRecord, known: _Known, change: _DocumentChange) -> RolloutBoxRecord:
        names = item_names(change)
        if row.wrote is not None and items_of(known.held, names) != row.wrote:
            return self._after(row, BoxSkipped(TAKEN_OVER))
        wanted = self._whole(row, known, change) if isinstance(change, LimitsPatch) else change
        after = self._edited(known, wanted)
        before = before_of(known.held, known.box.sequence.rev, known.told, change, self._present(row, known, names))
        if row.wrote is None and stands_already(before, after):
            begun = self._after(row, BoxBegun(changed=False))
            return self._after(begun, BoxApplied(phrase("it stood so already")))
        if row.wrote is None and (others := self._set_by_others(known, change)):
            return self._after(row, BoxSkipped(others))
        rev, wrote = self._write(known, after, names)
        kept = row.before or before_json(before)
        return replace(self._after(row, BoxBegun()), rev=rev, wrote=wrote, before=kept)

    def _set_by_others(self, known: _Known, change: _DocumentChange) -> str:
        """Return who has set these limits since the rollout's person has seen what there was; empty where nobody."""
        seen_change, box = self._rollout.seen_change, known.box
        if seen_change is None or not isinstance(change, LimitsPatch):
            return ""
        key = key_of(change)
        since = self._tx.boxes.first_revisions_after([box.device], seen_change)
        try:
            check_unchanged_by_others(self._tx, box, key, since=since, by=self._rollout.by)
        except ConflictError as error:
            return error.text
        return ""

    def _edited(self, known: _Known, wanted: ContainerLimits | SharingSettings) -> Spec:
        if isinstance(wanted, SharingSettings):
            return with_settings(known.held, wanted)
        cluster = cluster_of(self._tx, known.box)
        check_settles(self._tx, known.box, cluster)
        return with_limits(known.held, wanted, cluster=cluster)

    def _whole(self, row: RolloutBoxRecord, known: _Known, change: LimitsPatch) -> ContainerLimits:
        """Return limits with both amounts: what is not named is what the box has, or the rollout has kept for it."""
        key = key_of(change)
        if change.is_whole:
            present = UNKNOWN
        elif row.wrote is not None and (mine := row.wrote.get(key.item)) is not None:
            present = PresentLimits(memory_units=mine["memory_units"], core=mine["core"])
        else:
            item = requested_limits(known.held, cluster_of(self._tx, known.box), key)
            present = present_limits(item, known.told.get(key.item), self._held(row, known, change))
        return whole_limits(change, present, box=known.box.name)

    def _write(self, known: _Known, after: Spec, names: Sequence[str]) -> tuple[int, dict[str, Json | None]]:
        """Write a document; return its revision, and the items as they stand in it."""
        rev = set_spec(self._tx, known.box, lambda _: after, self._who)
        stands = revised(known.held, after, rev) if rev > known.box.sequence.rev else known.held
        return rev, items_of(stands, names)

    def _present(self, row: RolloutBoxRecord, known: _Known, names: Sequence[str]) -> Items:
        if not isinstance(self._change, LimitsPatch):
            return present_settings(read_latest(known.latest, TopicKind.INVENTORY), names)
        held = self._held(row, known, self._change)
        if held.memory_units is None or held.core is None:
            return {names[0]: None}
        return {names[0]: {"memory_units": held.memory_units, "core": held.core, "force": False}}

    def _held(self, row: RolloutBoxRecord, known: _Known, change: LimitsPatch) -> PresentLimits:
        """Return what the pods of the box's cluster hold of the container's limits."""
        others = self._tx.boxes.latest(row.others, [TopicKind.ALLOC]) if row.others else {}
        pods = [pod for (_, kind), one in others.items() for pod in pods_of({kind: one}).values()]
        return held_limits([*pods_of(known.latest).values(), *pods], key_of(change))

    # how they ended

    def look_at(self, rows: Sequence[RolloutBoxRecord]) -> int:
        """Note how boxes that were being changed have ended; return how many have."""
        known = self._known(rows)
        commands = self._tx.commands.get([row.command for row in rows if row.command is not None])
        written = []
        for row in rows:
            event: RolloutBoxEvent | None = BoxSkipped(GONE)
            if row.device in known:
                event = self._ended(row, known[row.device], commands)
            if event is not None:
                checked_s = known[row.device].told_s if row.device in known else 0.0
                written.append(replace(self._after(row, event), checked_s=checked_s))
        self._tx.rollouts.put_boxes(written)
        return len(written)

    def _ended(
        self, row: RolloutBoxRecord, known: _Known, commands: Mapping[CommandId, StoredCommand]
    ) -> RolloutBoxEvent | None:
        if isinstance(self._change, UpgradeArgs):
            command = commands.get(row.command) if row.command is not None else None
            event = _command_end(command)
            if event is None and self._is_late(row) and command is not None:
                self._cancel(command, known.box)
        else:
            event = outcome(row.wrote or {}, known.held, known.told, good_states(self._change))
        return BoxFailed(self._late_text(known)) if event is None and self._is_late(row) else event

    def _is_late(self, row: RolloutBoxRecord) -> bool:
        return row.since_s < self._now_s - self._strategy.timeout_s

    def _late_text(self, known: _Known) -> str:
        why = phrase("the box has not ended it") if known.box.online else phrase("the box went offline")
        return phrase("not applied within %(seconds)s s: %(why)s", seconds=self._strategy.timeout_s, why=why)

    def _cancel(self, command: StoredCommand, box: BoxRecord) -> None:
        """Leave a command no time to begin: the box shall not begin what the rollout counts as failed."""
        cancelled = command.tracked.cancelled(self._now_s)
        self._tx.commands.put([replace(command, tracked=cancelled, cancelled=True, next_at_s=0.0)])
        touch(self._tx, self._tx.boxes.get([box.device])[box.device])

    def watch(self, rows: Sequence[RolloutBoxRecord]) -> int:
        """Check applied boxes that have reported anew: one that has lost the change has failed."""
        known = self._known(rows)
        written = []
        for row in rows:
            mine = known.get(row.device)
            if mine is None:
                written.append(replace(row, checked_s=self._now_s))
                continue
            event = outcome(row.wrote or {}, mine.held, mine.told, good_states(self._change))
            after = row if event is None or isinstance(event, BoxApplied) else self._after(row, event)
            written.append(replace(after, checked_s=mine.told_s))
        self._tx.rollouts.put_boxes(written)
        return len(written)

    def watch_upgraded(self, rows: Sequence[RolloutBoxRecord]) -> int:
        """Note applied boxes that run another version by now, or that are not well since; return how many."""
        if not isinstance(self._change, UpgradeArgs):
            raise TypeError("a document is no upgrade")
        known = self._known(rows)
        events = [(row, _lost_upgrade(row, known[row.device], self._change)) for row in rows if row.device in known]
        self._tx.rollouts.put_boxes([self._after(row, event) for row, event in events if event is not None])
        return sum(event is not None for _, event in events)

    # the way back

    def give_back(self, rows: Sequence[RolloutBoxRecord]) -> None:
        """Request that boxes have what they had before."""
        known = self._known(rows)
        self._tx.rollouts.put_boxes([self._given_back(row, known.get(row.device)) for row in rows])

    def _given_back(self, row: RolloutBoxRecord, known: _Known | None) -> RolloutBoxRecord:
        if known is None:
            return self._after(row, BoxNotReturned(GONE))
        before = read_before(row.before)
        plan = plan_return(before, row.wrote or {}, known.held, known.told)
        if plan is None:
            return self._after(row, BoxNotReturned(phrase("%(why)s: it is left as it is", why=TAKEN_OVER)))
        try:
            after = with_items(known.held, plan.items, before.order)
            rev, wrote = self._write(known, after, list(plan.items))
        except CloudError as error:
            return self._after(row, BoxNotReturned(error.text))
        kept = before_json(replace(before, lost=plan.lost))
        row = replace(row, rev=rev, wrote=wrote, before=kept)
        if any(item is not None for item in wrote.values()):
            return self._after(row, BoxReturnBegun())
        return self._after(row, _back(plan.lost))

    def look_at_returning(self, rows: Sequence[RolloutBoxRecord]) -> int:
        """Note how boxes have ended that get back what they had; return how many have."""
        known = self._known(rows)
        events = [(row, self._returned(row, known.get(row.device))) for row in rows]
        written = [self._after(row, event) for row, event in events if event is not None]
        self._tx.rollouts.put_boxes(written)
        return len(written)

    def _returned(self, row: RolloutBoxRecord, known: _Known | None) -> RolloutBoxEvent | None:
        if known is None:
            return BoxNotReturned(GONE)
        before, wrote = read_before(row.before), row.wrote or {}
        match outcome(wrote, known.held, known.told, good_states(self._change)):
            case None:
                if not self._is_late(row):
                    return None
                return BoxNotReturned(phrase("requested again, and %(why)s", why=self._late_text(known)))
            case BoxSkipped():
                return BoxNotReturned(phrase("%(why)s: it is left as it is", why=TAKEN_OVER))
            case BoxRejected(text) | BoxFailed(text) if not before.bad:
                return BoxNotReturned(text)
            case _:
                pass
        temporary = [name for name, item in wrote.items() if item is not None and before.items[name] is None]
        if temporary:
            after = with_items(known.held, dict.fromkeys(temporary), before.order)
            set_spec(self._tx, known.box, lambda _: after, self._who)
        return _back(before.lost)


def _spec(value: Json | None) -> Spec:
    return Spec.model_validate_json(json.dumps(value)) if value is not None else Spec()


def _back(lost: Sequence[str]) -> RolloutBoxEvent:
    """Return the end of a return; `lost` items were requested by nobody before."""
    if not lost:
        return BoxReturned()
    return BoxNotReturned(
        phrase("%(items)s: nobody had requested it before, and what it was is not known: it stays", items=listed(lost))
    )


def _lost_upgrade(row: RolloutBoxRecord, known: _Known, release: UpgradeArgs) -> RolloutBoxEvent | None:
    """Return the end of a box that was upgraded and has not stayed so; None where all is well."""
    if known.version not in {"", release.version}:
        return BoxFailed(phrase("it runs version %(version)s by now", version=known.version))
    if known.health == BAD_HEALTH != (row.before or {}).get("health"):
        return BoxFailed(phrase("the box is not well since the upgrade: its page says what is wrong"))
    return None


def _command_end(command: StoredCommand | None) -> RolloutBoxEvent | None:
    if command is None:
        return BoxFailed(phrase("the command is not in the store any more"))
    one = command.tracked
    if not one.ended or one.state is None:
        return None
    words = reported(one.state.value, one.code, one.text)
    match one.state:
        case CommandState.SUCCEEDED:
            return BoxApplied(Verbatim(one.text))
        case CommandState.REJECTED | CommandState.EXPIRED:
            return BoxRejected(words)
        case _:
            return BoxFailed(words)
