"""The fleet for operators: boxes by name, desired documents, commands. Used by the CLI and by an HTTP API."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from edgegpu_cloud.errors import ConflictError, NotFoundError
from edgegpu_cloud.fleet.access import ALL_BOXES, Access, Permission
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, audit
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.audit.views import AuditView, audit_views
from edgegpu_cloud.fleet.changes import (
    add_command,
    block_box,
    check_enrolled,
    confirm_box,
    decide_cluster,
    forget_box,
    held_spec,
    label_box,
    rename_box,
    revoke_box,
    see_alarm,
    set_spec,
    touch,
    unblock_box,
)
from edgegpu_cloud.fleet.details import box_details
from edgegpu_cloud.fleet.following import follow
from edgegpu_cloud.fleet.history.box_history import CHANGES, BoxHistories, MachineChange
from edgegpu_cloud.fleet.history.metrics import CardHistory, UseRange, card_histories
from edgegpu_cloud.fleet.limits.app_page import FleetApps
from edgegpu_cloud.fleet.limits.changes import LimitsRevision, check_unchanged, history_of, requests_of
from edgegpu_cloud.fleet.limits.history import ContainerKey, LimitsHistoryEntry
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.fleet.limits.setting import set_limits
from edgegpu_cloud.fleet.listing import (
    EVERY_BOX,
    FIRST_PAGE,
    BoxFilter,
    BoxPage,
    PageOrder,
    all_devices,
    page_of,
    query_of,
)
from edgegpu_cloud.fleet.names import check_settles, cluster_of, device_named, find_box, find_command
from edgegpu_cloud.fleet.selectors import BoxSelector
from edgegpu_cloud.fleet.specs import (
    LimitsPatch,
    SharingSettings,
    with_settings,
    with_sharing,
    without_items,
    without_limits,
)
from edgegpu_cloud.fleet.views import BoxDetails, BoxView, CommandView, box_views, command_view
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import Alarm, AuditFilter, BoxEvent, BoxRecord, Json
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_cloud.store.summaries.box_list import BoxCounts, BoxQuery
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.messages.spec import Spec

WAIT_S = 3_600
"""How long a command may wait for its box by default."""

WHOLE_AUDIT = AuditFilter()


class Fleet:
    """One person's view of the fleet. A box is named by its id, its name, or the beginning of either.

    Boxes that are not in the person's scope do not exist for them: every method raises NotFoundError there. Every
    method may raise StoreError, and each that changes something ForbiddenError; every change is audited under `by`.
    """

    def __init__(
        self,
        store: ControllerStore,
        *,
        clock: Callable[[], float],
        by: str,
        role: Role = Role.ADMIN,
        scope: BoxSelector = ALL_BOXES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take a store; `clock` returns seconds since 1970, and `follow` waits by `sleep`.

        The person is called `by`, has this role, and sees the boxes in this scope. The defaults are those of the
        command line on the controller's own machine.
        """
        self._store = store
        self._clock = clock
        self._access = Access(by, role, scope)
        self._sleep = sleep

    @property
    def access(self) -> Access:
        """Return what the person may do."""
        return self._access

    def _author(self, permission: Permission) -> Author:
        """Return who changes something, and when; refuse what the role does not allow."""
        self._access.require(permission)
        return Author(self._access.by, self._clock())

    def _find(self, tx: Transaction, name_or_id: str) -> BoxRecord:
        return find_box(tx, name_or_id, self._access.scope)

    # boxes

    def boxes(self, selector: str = "") -> list[BoxView]:
        """Return every box, by name, or those that a selector over their labels matches.

        Raises:
            CloudError: the text is no selector.
        """
        return self.matching(BoxFilter(selector=selector))

    def matching(self, where: BoxFilter) -> list[BoxView]:
        """Return the whole views of boxes, by name: for the command line, which prints them all. Pages use `page`.

        Raises:
            CloudError: the filter's selector is none.
        """
        query, found = self._query(where), list[BoxView]()
        with self._store.read() as tx:
            for devices in all_devices(tx, query):
                boxes = tx.boxes.get(devices)
                found += box_views(tx, [boxes[device] for device in devices], now_s=self._clock())
        return found

    def page(self, where: BoxFilter, order: PageOrder = FIRST_PAGE) -> BoxPage:
        """Return a page of boxes.

        Raises:
            CloudError: the selector or the cursor is none.
        """
        with self._store.read() as tx:
            return page_of(tx, self._query(where), order)

    def counts(self, where: BoxFilter = EVERY_BOX) -> BoxCounts:
        """Return how many boxes there are of each kind.

        Raises:
            CloudError: the selector is none.
        """
        with self._store.read() as tx:
            return tx.list.counts(self._query(where))

    def _query(self, where: BoxFilter) -> BoxQuery:
        return query_of(where, now_s=self._clock(), scope=self._access.scope.terms)

    def names(self, beginning: str = "", *, limit: int = 200) -> list[str]:
        """Return names of boxes whose name or device id begins so, in order."""
        with self._store.read() as tx:
            return [name for name, _ in tx.list.devices(self._query(BoxFilter(names=beginning)), limit=limit)]

    def names_of(self, devices: Collection[str]) -> dict[str, str]:
        """Return the names of those of these boxes that exist, by device id."""
        with self._store.read() as tx:
            found = tx.boxes.get([*map(DeviceId, devices)]).values()
            return {box.device: box.name for box in found if self._access.sees(box.labels)}

    def is_name(self, name: str) -> bool:
        """Whether a box has exactly this name."""
        with self._store.read() as tx:
            found = tx.boxes.get(tx.boxes.with_exact_name(name)).values()
            return any(box.name == name and self._access.sees(box.labels) for box in found)

    def box(self, name_or_id: str) -> BoxView:
        """Return one box.

        Raises:
            NotFoundError: none, or more than one that begins so.
        """
        with self._store.read() as tx:
            return box_views(tx, [self._find(tx, name_or_id)], now_s=self._clock())[0]

    def details(self, name_or_id: str) -> BoxDetails:
        """Return all that is known of one box.

        Raises:
            NotFoundError: as `box`.
        """
        with self._store.read() as tx:
            return box_details(tx, [self._find(tx, name_or_id)], now_s=self._clock())[0]

    def revoke(self, device: str) -> None:
        """Ignore a box, revoke its certificates, end its open commands UNKNOWN, REVOKED.

        Raises:
            CloudError: it is set aside, and would come back with numbers that cannot be followed.
        """
        with self._store.write() as tx:
            who, box = self._author(Permission.REMOVE), self._find(tx, device)
            revoke_box(tx, box, who)

    def forget(self, device: str) -> None:
        """Drop a box: its certificates are revoked, and all other records go but alarms and audit.

        Its device id is never given again: the machine comes back by enrolment, as another box.

        Raises:
            NotFoundError: as `box`.
        """
        with self._store.write() as tx:
            who, box = self._author(Permission.REMOVE), self._find(tx, device)
            forget_box(tx, box, who)

    def set_blocked(self, device: str, *, blocked: bool) -> None:
        """Refuse a box until it is unblocked, or unblock it: it goes on as the same box.

        Raises:
            CloudError: it is so already, or revoked, or set aside.
        """
        with self._store.write() as tx:
            who, box = self._author(Permission.CHANGE), self._find(tx, device)
            (block_box if blocked else unblock_box)(tx, box, who)

    def is_forgotten(self, device: str) -> bool:
        """Whether a box of this id was enrolled once and is forgotten: it is in no scope but that of all boxes."""
        if not self._access.may(Permission.SETTINGS):
            return False
        id_ = DeviceId(device)
        with self._store.read() as tx:
            return not tx.boxes.get([id_]) and bool(tx.enrolments.certificates(id_))

    def confirm_restored(self, device: str) -> None:
        """Resume a box that was found ahead of this store: the desired document here gets a new revision.

        Raises:
            CloudError: it is not RESTORED.
        """
        with self._store.write() as tx:
            who, box = self._author(Permission.CHANGE), self._find(tx, device)
            confirm_box(tx, box, who)

    def set_cluster(self, device: str, *, accept: bool) -> None:
        """Let the cluster count that a box reports, or let none count; raises as `decide_cluster`."""
        with self._store.write() as tx:
            decide_cluster(tx, self._find(tx, device), self._author(Permission.CLUSTER), accept=accept)

    def rename(self, device: str, name: str) -> None:
        """Give a box another name; raises as `change_box`."""
        self.change_box(device, name=name)

    def label(self, device: str, labels: Mapping[str, str]) -> None:
        """Set labels of a box; one with an empty value is taken away. Raises as `change_box`."""
        self.change_box(device, labels=labels)

    def change_box(self, device: str, *, name: str | None = None, labels: Mapping[str, str] | None = None) -> None:
        """Give a box another name, other labels, or both, all or nothing; what is None stays.

        Raises:
            CloudError: another box has the name, or no box can be called so.
            ForbiddenError: the box would leave the scope of a person who is no admin.
        """
        with self._store.write() as tx:
            who, box = self._author(Permission.CHANGE), self._find(tx, device)
            if labels:
                box = label_box(tx, box, labels, who, self._access)
            if name is not None:
                box = rename_box(tx, box, name, who)
            touch(tx, box)

    # desired documents

    def spec(self, device: str) -> Spec:
        """Return the desired document of a box."""
        with self._store.read() as tx:
            return held_spec(tx, self._find(tx, device))

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
            who = self._author(Permission.CHANGE)
            return set_spec(tx, self._find(tx, device), edit, who, expect_rev=expect_rev)

    def set_limits(
        self, device: str, limits: LimitsPatch, *, expect_rev: int | None = None, document_rev: int | None = None
    ) -> LimitsRevision:
        """Set the limits of one container of an app; return what became of it. The same limits again are tried again.

        A request for another container of the app is dropped where it was refused because there is none of that name.

        Args:
            device: name or id.
            limits: the new ones; an amount that is None stays as it is there.
            expect_rev: the revision that the person has seen: refuse where these limits were changed since. A change of
                something else in the document is none.
            document_rev: the same of the whole document.

        Raises:
            ConflictError: they were.
            CloudError: the box has not reported its cluster yet, another settles for it, an amount is not named and
                not known there, or as `set_spec`.
        """
        with self._store.write() as tx:
            who, box = self._author(Permission.CHANGE), self._find(tx, device)
            check_enrolled(box)
            cluster = cluster_of(tx, box)
            check_settles(tx, box, cluster, self._access.scope)
            return set_limits(tx, box, limits, who, cluster=cluster, expect_rev=expect_rev, document_rev=document_rev)

    def forget_limits(
        self,
        device: str,
        namespace: str,
        app: str,
        container: str | None = None,
        *,
        expect_rev: int | None = None,
        document_rev: int | None = None,
    ) -> int:
        """Drop the requested limits of an app, or of one container; the limits on the box stay as they are.

        `expect_rev` and `document_rev` are as for `set_limits`; the first is for one container.

        Raises:
            NotFoundError: none are requested.
            CloudError: as `set_limits`.
        """
        with self._store.write() as tx:
            who, box = self._author(Permission.CHANGE), self._find(tx, device)
            if expect_rev is not None and container is not None:
                check_unchanged(tx, box, ContainerKey(namespace, app, container), expect_rev)
            wanted = partial(without_limits, namespace=namespace, app=app, container=container)
            return set_spec(tx, box, wanted, who, expect_rev=document_rev)

    def requests(self, device: str) -> list[RequestedItem]:
        """Return what is requested of a box now: when, by whom, and what came of it."""
        with self._store.read() as tx:
            return requests_of(tx, self._find(tx, device), now_s=self._clock())

    def limits_history(self, device: str, key: ContainerKey) -> list[LimitsHistoryEntry]:
        """Return the changes of a container's requested limits, newest first, each with what came of it."""
        with self._store.read() as tx:
            return history_of(tx, self._find(tx, device), key, now_s=self._clock())

    @property
    def apps(self) -> FleetApps:
        """Return the apps by the values of their limits."""
        return FleetApps(self._store, self._query, clock=self._clock)

    def set_settings(self, device: str, settings: SharingSettings, *, expect_rev: int | None = None) -> int:
        """Set how a box shares its cards; return the revision. The same settings again are tried again.

        Raises:
            CloudError: nothing is asked for, a card or a value is not valid, or as `set_spec`.
        """
        return self.set_spec(device, lambda spec: with_settings(spec, settings), expect_rev=expect_rev)

    def forget_items(self, device: str, names: Sequence[str], *, expect_rev: int | None = None) -> int:
        """Take back requested settings of a box's sharing, which stay on it; NotFoundError, or as `set_spec`."""
        return self.set_spec(device, lambda spec: without_items(spec, names), expect_rev=expect_rev)

    def card_use(self, device: str, use_range: UseRange) -> Mapping[str, CardHistory]:
        """Return the use of a box's cards over time, by their UUIDs; NotFoundError as `box`."""
        with self._store.read() as tx:
            return card_histories(tx, self._find(tx, device).device, use_range, now_s=self._clock())

    # commands, alarms and events

    def command(self, device: str, op: str, args: Json, *, wait_s: int = WAIT_S) -> CommandId:
        """Queue a command for a box; it may wait `wait_s` seconds until it begins.

        Raises:
            CloudError: no such op, wrong arguments, or the box is revoked.
        """
        with self._store.write() as tx:
            who = self._author(Permission.CHANGE)
            return add_command(tx, self._find(tx, device), who, op=op, args=args, wait_s=wait_s)

    def install(self, device: str, *, wait_s: int = WAIT_S) -> CommandId:
        """Request that GPU sharing is installed: a revision that says so, and the command to settle it."""
        return self._sharing(device, installed=True, wait_s=wait_s)

    def uninstall(self, device: str, *, wait_s: int = WAIT_S) -> CommandId:
        """Request that GPU sharing is taken off: a revision that says so, and the command to settle it."""
        return self._sharing(device, installed=False, wait_s=wait_s)

    def _sharing(self, device: str, *, installed: bool, wait_s: int) -> CommandId:
        op = "sharing.install" if installed else "sharing.uninstall"
        with self._store.write() as tx:
            who, box = self._author(Permission.CHANGE), self._find(tx, device)
            rev = set_spec(tx, box, lambda spec: with_sharing(spec, installed=installed), who)
            return add_command(tx, box, who, op=op, args={"min_rev": rev}, wait_s=wait_s)

    def cancel(self, id_: str) -> None:
        """Leave a command no time to begin: it ends EXPIRED where its box has not begun it.

        Raises:
            ConflictError: it has ended.
        """
        with self._store.write() as tx:
            who, device = self._author(Permission.CHANGE), find_command(tx, id_, self._access.scope).device
            box = tx.boxes.get([device])[device]  # from here on the controller leaves the box's commands alone
            command = find_command(tx, id_, self._access.scope)
            if command.tracked.ended:
                state = command.tracked.state
                text = phrase("cannot cancel %(command)s: it has ended, %(state)s", command=command.id, state=state)
                raise ConflictError(text, remedy=phrase("undo what it did by another command"))
            cancelled = command.tracked.cancelled(who.now_s)
            tx.commands.put([replace(command, tracked=cancelled, cancelled=True, next_at_s=0.0)])
            change = AuditedChange({"cancelled": command.cancelled}, {"cancelled": True})
            audit(tx, who, AuditKind.COMMAND_CANCELLED, change, device=command.device, detail={"id": command.id})
            touch(tx, box)

    def commands(self, device: str | None = None, limit: int = 50, *, before: str = "") -> list[CommandView]:
        """Return the last commands to a box, or to all, newest first; those before the command with the id `before`."""
        with self._store.read() as tx:
            of = self._find(tx, device).device if device is not None else None
            found = tx.commands.of(of, limit=limit, before=before, scope=self._access.scope.terms)
            boxes = tx.boxes.get({one.device for one in found})
            return [command_view(one, box=boxes[one.device].name, now_s=self._clock()) for one in found]

    @property
    def histories(self) -> BoxHistories:
        """Return what was done on boxes, page by page."""
        return BoxHistories(self._store, clock=self._clock, access=self._access)

    def changes(self, device: str, limit: int = CHANGES) -> list[MachineChange]:
        """Return the last changes of a box's machine, newest first, whether requested here or made on the box."""
        return list(self.histories.changes(device, limit=limit).changes)

    def one_command(self, id_: str) -> CommandView:
        """Return one command with its history.

        Raises:
            NotFoundError: none, or more than one that begins so.
        """
        with self._store.read() as tx:
            command = find_command(tx, id_, self._access.scope)
            box = tx.boxes.get([command.device])[command.device].name
            history = tx.commands.history(command.id)
            return command_view(command, box=box, now_s=self._clock(), history=history)

    def follow(self, id_: str, *, timeout_s: float) -> Iterator[CommandView]:
        """Yield a command, and again each time it has changed, until it has ended or the time is over.

        Raises:
            NotFoundError: as `one_command`.
        """
        return follow(partial(self.one_command, id_), clock=self._clock, sleep=self._sleep, timeout_s=timeout_s)

    def alarms(self, *, unseen: bool = True) -> list[Alarm]:
        """Return the alarms, newest first; those that nobody has seen, or all."""
        with self._store.read() as tx:
            return tx.notes.alarms(unseen=unseen, scope=self._access.scope.terms)

    def alarm_seen(self, number: int) -> None:
        """Mark an alarm as seen.

        Raises:
            NotFoundError: there is none of this number.
        """
        with self._store.write() as tx:
            who = self._author(Permission.CHANGE)
            if not see_alarm(tx, number, who, self._access):
                text = phrase("cannot find alarm %(number)s", number=number)
                raise NotFoundError(text, remedy=phrase("`edgegpu-cloud alarms` lists them"))

    def events(self, device: str | None = None, limit: int = 50) -> list[BoxEvent]:
        """Return the last events of a box, or of all, newest first."""
        with self._store.read() as tx:
            of = self._find(tx, device).device if device is not None else None
            return tx.notes.events(of, limit=limit, scope=self._access.scope.terms)

    def audit(self, where: AuditFilter = WHOLE_AUDIT, *, limit: int = 50) -> list[AuditView]:
        """Return who changed what, and what came of it, newest first; with a scope only changes of its boxes.

        `where.device` may be a box's name too, or the id of a forgotten one.

        Raises:
            ForbiddenError: the person is no admin.
            NotFoundError: `where.device` names no box, or more than one.
        """
        self._access.require(Permission.AUDIT)
        if self._access.scope.terms:
            # the row that stands for a change of many boxes has no box, so no scope has it: its parts are all there is
            where = replace(where, whole=False)
        with self._store.read() as tx:
            if where.device:
                where = replace(where, device=device_named(tx, where.device, self._access.scope))
            return audit_views(tx, tx.notes.audit_page(where, limit=limit, scope=self._access.scope.terms))
