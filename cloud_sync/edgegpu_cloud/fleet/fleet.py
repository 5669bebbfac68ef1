"""The fleet for operators: boxes by name, desired documents, commands. Used by the CLI and by an HTTP API."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.changes import (
    Author,
    add_command,
    audit,
    check_enrolled,
    end_all,
    give_revision,
    held_spec,
    set_spec,
    touch,
)
from edgegpu_cloud.fleet.names import check_name, check_settles, cluster_of, find_box, find_command, refused_names
from edgegpu_cloud.fleet.selectors import read_selector
from edgegpu_cloud.fleet.specs import (
    ContainerLimits,
    SharingSettings,
    with_limits,
    with_settings,
    with_sharing,
    without_items,
    without_limits,
    without_refused,
)
from edgegpu_cloud.fleet.views import BoxDetails, BoxView, CommandView, box_views, command_view
from edgegpu_cloud.store.records import Alarm, BoxEvent, BoxState, Json
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.states import ResultCode
from edgegpu_sync.topics import TopicKind

WAIT_S = 3_600
"""How long a command may wait for its box by default."""

_POLL_S = 0.2


class Fleet:
    """One person's view of the fleet. A box is named by its id, its name, or the beginning of either.

    Every method may raise StoreError; every change is audited under `by`.
    """

    def __init__(
        self,
        store: ControllerStore,
        *,
        clock: Callable[[], float],
        by: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take a store; `clock` returns seconds since 1970, and `follow` waits by `sleep`."""
        self._store = store
        self._clock = clock
        self._by = by
        self._sleep = sleep

    def _who(self) -> Author:
        return Author(self._by, self._clock())

    # boxes

    def boxes(self, selector: str = "") -> list[BoxView]:
        """Return every box, by name, or those that a selector over their labels matches.

        Raises:
            CloudError: the text is no selector.
        """
        chosen = read_selector(selector) if selector else None
        with self._store.read() as tx:
            found = [box for box in tx.boxes.all() if chosen is None or chosen.matches(box.labels)]
            return box_views(tx, found, now_s=self._clock())

    def names(self) -> list[str]:
        """Return the names of all boxes, in order."""
        with self._store.read() as tx:
            return [box.name for box in tx.boxes.all()]

    def box(self, name_or_id: str) -> BoxView:
        """Return one box.

        Raises:
            NotFoundError: none, or more than one that begins so.
        """
        with self._store.read() as tx:
            return box_views(tx, [find_box(tx, name_or_id)], now_s=self._clock())[0]

    def details(self, name_or_id: str) -> BoxDetails:
        """Return all that is known of one box.

        Raises:
            NotFoundError: as `box`.
        """
        with self._store.read() as tx:
            box = find_box(tx, name_or_id)
            latest = tx.boxes.latest([box.device], list(TopicKind))
            return BoxDetails(
                box=box_views(tx, [box], now_s=self._clock())[0],
                spec=held_spec(tx, box),
                latest={kind: one for (_, kind), one in latest.items()},
                orphans=tx.commands.orphans(box.device),
            )

    def revoke(self, device: str) -> None:
        """Ignore a box from now on: its messages do not count, nothing is signed for it, its certificates are revoked.

        Its open commands end UNKNOWN, REVOKED.

        Raises:
            CloudError: it is set aside, and would come back with numbers that cannot be followed.
        """
        with self._store.write() as tx:
            box, who = find_box(tx, device), self._who()
            if box.state is BoxState.SET_ASIDE:
                remedy = f"`edgegpu-cloud boxes forget {box.name}` revokes its certificates too"
                raise CloudError(f"cannot revoke {box.name}: it is set aside, and ignored already", remedy=remedy)
            text = "the box was revoked: it may have been done"
            end_all(tx, box.device, now_s=who.now_s, code=ResultCode.REVOKED, text=text)
            tx.enrolments.revoke_certificates(box.device, now_s=who.now_s)
            audit(tx, who, "box.revoked", device=box.device)
            touch(tx, replace(box, state=BoxState.REVOKED, online=False, look_at_s=None))

    def forget(self, device: str) -> None:
        """Drop a box: its certificates are revoked, and all other records go but alarms and audit.

        Its device id is never given again: the machine comes back by enrolment, as another box.

        Raises:
            NotFoundError: as `box`.
        """
        with self._store.write() as tx:
            box, who = find_box(tx, device), self._who()
            tx.enrolments.revoke_certificates(box.device, now_s=who.now_s)
            tx.forget_box(box.device, by=who.by)
            detail: Json = {"name": box.name, "host": box.host, "enrolment": box.sequence.enrolment}
            audit(tx, who, "box.forgotten", device=box.device, detail=detail | {"state": box.state.value})

    def is_forgotten(self, device: str) -> bool:
        """Whether this is the device id of a box that was enrolled once and is forgotten."""
        id_ = DeviceId(device)
        with self._store.read() as tx:
            return not tx.boxes.get([id_]) and bool(tx.enrolments.certificates(id_))

    def confirm_restored(self, device: str) -> None:
        """Resume a box that was found ahead of this store: the desired document here gets a new revision.

        Raises:
            CloudError: it is not RESTORED.
        """
        with self._store.write() as tx:
            box, who = find_box(tx, device), self._who()
            if not box.sequence.restored:
                raise CloudError(f"cannot confirm {box.name}: it is not RESTORED", remedy="nothing needs to be done")
            confirmed = replace(box, sequence=box.sequence.confirmed())
            held = tx.boxes.spec(box.device, box.spec_rev)
            if held is not None:
                confirmed = give_revision(tx, confirmed, held.spec, who)
            tx.commands.wake([box.device])
            audit(tx, who, "box.confirmed", device=box.device, detail={"rev": confirmed.sequence.rev})
            touch(tx, confirmed)

    def rename(self, device: str, name: str) -> None:
        """Give a box another name.

        Raises:
            CloudError: another box has it, or no box can be called so.
        """
        with self._store.write() as tx:
            box = find_box(tx, device)
            check_name(name)
            if any(one != box.device for one in tx.boxes.with_exact_name(name)):
                text = f"cannot call {box.name} {name!r}: another box is called so, or has this id"
                raise CloudError(text, remedy="choose a name that no other box has")
            audit(tx, self._who(), "box.renamed", device=box.device, detail={"from": box.name, "to": name})
            touch(tx, replace(box, name=name))

    def label(self, device: str, labels: dict[str, str]) -> None:
        """Set labels of a box; one with an empty value is taken away."""
        with self._store.write() as tx:
            box = find_box(tx, device)
            after = {key: value for key, value in {**box.labels, **labels}.items() if value}
            audit(tx, self._who(), "box.labels", device=box.device, detail={"labels": after})
            touch(tx, replace(box, labels=after))

    # desired documents

    def spec(self, device: str) -> Spec:
        """Return the desired document of a box."""
        with self._store.read() as tx:
            return held_spec(tx, find_box(tx, device))

    def set_spec(self, device: str, edit: Callable[[Spec], Spec], *, expect_rev: int | None = None) -> int:
        """Change a box's desired document; return its revision.

        Args:
            device: name or id.
            edit: makes the new document of the present one; revisions of items are set afterwards, and a higher `retry`
                has an item tried again.
            expect_rev: refuse where the revision is another one by now.

        Raises:
            ConflictError: it is another one.
            CloudError: the box is revoked, the document is not valid, or has more than 64 KiB; nothing is stored then.
        """
        with self._store.write() as tx:
            return set_spec(tx, find_box(tx, device), edit, self._who(), expect_rev=expect_rev)

    def set_limits(self, device: str, limits: ContainerLimits) -> int:
        """Set the limits of one container of an app; return the revision. The same limits again are tried again.

        A request for another container of the app is dropped where it was refused because there is none of that name.

        Raises:
            CloudError: the box has not reported its cluster yet, another settles for it, or as `set_spec`.
        """
        with self._store.write() as tx:
            box = find_box(tx, device)
            check_enrolled(box)
            cluster = cluster_of(tx, box)
            check_settles(tx, box, cluster)
            refused = refused_names(tx, box)

            def edit(spec: Spec) -> Spec:
                return without_refused(with_limits(spec, limits, cluster=cluster), limits, refused)

            return set_spec(tx, box, edit, self._who())

    def forget_limits(self, device: str, namespace: str, app: str, container: str | None = None) -> int:
        """Drop the requested limits of an app, or of one container; the limits on the box stay as they are.

        Raises:
            NotFoundError: none are requested.
            CloudError: as `set_spec`.
        """
        return self.set_spec(device, lambda spec: without_limits(spec, namespace, app, container))

    def set_settings(self, device: str, settings: SharingSettings) -> int:
        """Set how a box shares its cards; return the revision. The same settings again are tried again.

        Raises:
            CloudError: nothing is asked for, a card or a value is not valid, or as `set_spec`.
        """
        return self.set_spec(device, lambda spec: with_settings(spec, settings))

    def forget_items(self, device: str, names: Sequence[str]) -> int:
        """Take back requested settings of a box's sharing; return the revision. What is set on the box stays.

        Raises:
            NotFoundError: one was not requested.
            CloudError: as `set_spec`.
        """
        return self.set_spec(device, lambda spec: without_items(spec, names))

    # commands

    def command(self, device: str, op: str, args: Json, *, wait_s: int = WAIT_S) -> CommandId:
        """Queue a command for a box; it may wait `wait_s` seconds until it begins.

        Raises:
            CloudError: no such op, wrong arguments, or the box is revoked.
        """
        with self._store.write() as tx:
            return add_command(tx, find_box(tx, device), self._who(), op=op, args=args, wait_s=wait_s)

    def install(self, device: str, *, wait_s: int = WAIT_S) -> CommandId:
        """Request that GPU sharing is installed: a revision that says so, and the command to settle it."""
        return self._sharing(device, installed=True, wait_s=wait_s)

    def uninstall(self, device: str, *, wait_s: int = WAIT_S) -> CommandId:
        """Request that GPU sharing is taken off: a revision that says so, and the command to settle it."""
        return self._sharing(device, installed=False, wait_s=wait_s)

    def _sharing(self, device: str, *, installed: bool, wait_s: int) -> CommandId:
        op = "sharing.install" if installed else "sharing.uninstall"
        with self._store.write() as tx:
            box, who = find_box(tx, device), self._who()
            rev = set_spec(tx, box, lambda spec: with_sharing(spec, installed=installed), who)
            return add_command(tx, box, who, op=op, args={"min_rev": rev}, wait_s=wait_s)

    def cancel(self, id_: str) -> None:
        """Leave a command no time to begin: it ends EXPIRED where its box has not begun it.

        Raises:
            ConflictError: it has ended.
        """
        with self._store.write() as tx:
            command, who = find_command(tx, id_), self._who()
            if command.tracked.ended:
                text = f"cannot cancel {command.id}: it has ended, {command.tracked.state}"
                raise ConflictError(text, remedy="undo what it did by another command")
            cancelled = command.tracked.cancelled(who.now_s)
            tx.commands.put([replace(command, tracked=cancelled, cancelled=True, next_at_s=0.0)])
            audit(tx, who, "command.cancelled", device=command.device, detail={"id": command.id})
            touch(tx, tx.boxes.get([command.device])[command.device])

    def commands(self, device: str | None = None, limit: int = 50) -> list[CommandView]:
        """Return the last commands to a box, or to all, newest first."""
        with self._store.read() as tx:
            of = find_box(tx, device).device if device is not None else None
            found = tx.commands.of(of, limit=limit)
            boxes = tx.boxes.get({one.device for one in found})
            return [command_view(one, box=boxes[one.device].name, now_s=self._clock()) for one in found]

    def one_command(self, id_: str) -> CommandView:
        """Return one command with its history.

        Raises:
            NotFoundError: none, or more than one that begins so.
        """
        with self._store.read() as tx:
            command = find_command(tx, id_)
            box = tx.boxes.get([command.device])[command.device].name
            history = tx.commands.history(command.id)
            return command_view(command, box=box, now_s=self._clock(), history=history)

    def follow(self, id_: str, *, timeout_s: float) -> Iterator[CommandView]:
        """Yield a command, and again each time it has changed, until it has ended or the time is over.

        Raises:
            NotFoundError: as `one_command`.
        """
        end_s, last = self._clock() + timeout_s, None
        while True:
            view = self.one_command(id_)
            if view != last:
                yield view
            if view.ended or self._clock() >= end_s:
                return
            last = view
            self._sleep(_POLL_S)

    # alarms and events

    def alarms(self, *, unseen: bool = True) -> list[Alarm]:
        """Return the alarms, newest first; those that nobody has seen, or all."""
        with self._store.read() as tx:
            return tx.notes.alarms(unseen=unseen)

    def alarm_seen(self, number: int) -> None:
        """Mark an alarm as seen.

        Raises:
            NotFoundError: there is none of this number.
        """
        with self._store.write() as tx:
            audit(tx, self._who(), "alarm.seen", detail={"number": number})
            if not tx.notes.alarm_seen(number, by=self._by):
                raise NotFoundError(f"cannot find alarm {number}", remedy="`edgegpu-cloud alarms` lists them")

    def events(self, device: str | None = None, limit: int = 50) -> list[BoxEvent]:
        """Return the last events of a box, or of all, newest first."""
        with self._store.read() as tx:
            return tx.notes.events(find_box(tx, device).device if device is not None else None, limit=limit)
