"""Operations: a change of many boxes is stored at once, applied to 500 boxes at a time, and followed box by box."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.access import Access, Permission
from edgegpu_cloud.fleet.audit.arguments import audited_args
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, audit
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.changes import new_command_id
from edgegpu_cloud.fleet.limits.containers import common_container
from edgegpu_cloud.fleet.listing import EVERY_BOX, BoxFilter, filter_json, query_of
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.kinds import check_own, checked_args
from edgegpu_cloud.fleet.operations.limits_preview import LimitsPreviewPage, limits_preview_page
from edgegpu_cloud.fleet.operations.seen_boxes import difference_words, names_of_some
from edgegpu_cloud.fleet.operations.sharing_preview import SharingPreviewPage, sharing_preview_page
from edgegpu_cloud.fleet.operations.undo import UndoPlan, asked_own, returned_args, undo_plan
from edgegpu_cloud.fleet.present.steps import LimitsSteps, steps_of_query
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings
from edgegpu_cloud.phrases import joined, phrase
from edgegpu_cloud.store.notes import CHANGES
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
from edgegpu_cloud.store.records import Json
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import digest

KEY_MAX, MOST_NAMED = 64, 10_000

MOST_COUNTED = 1_000
"""Boxes whose pods are counted for one page."""

NOTHING_OWN: Mapping[DeviceId, BoxArgs] = {}
REMEDY = phrase("`edgegpu-cloud operations list` lists them")


@dataclass(frozen=True, slots=True)
class OperationView:
    """An operation, and how many of its boxes have each outcome."""

    operation: Operation
    outcomes: Mapping[BoxOutcome, int]

    @property
    def settled(self) -> bool:
        """Whether nothing more comes of it: no box waits to be stored, and each has ended what was stored."""
        return not self.outcomes.get(BoxOutcome.QUEUED) and not self.outcomes.get(BoxOutcome.STORED)


@dataclass(frozen=True, slots=True)
class PodCount:
    """How many pods hold shares on some boxes; `more_boxes` were not looked at."""

    pods: int
    more_boxes: int


@dataclass(frozen=True, slots=True)
class OperationBoxView:
    """A box of an operation with its name; a box that was forgotten since has none.

    `data`: what its command has brought back, where that is asked for; None: nothing yet.
    """

    name: str
    box: OperationBox
    data: Json | None = None


@dataclass(frozen=True, slots=True)
class OperationBoxPage:
    """Boxes of an operation by device id, and `after` for the next page; empty where there is none."""

    boxes: Sequence[OperationBoxView]
    next: str


class Operations:
    """One person's operations: those whose boxes are all in the person's scope; others do not exist.

    The boxes of an operation are those that the person sees at its start.
    """

    def __init__(self, store: ControllerStore, *, clock: Callable[[], float], access: Access) -> None:
        """Take a store; `clock` returns seconds since 1970."""
        self._store, self._clock, self._access = store, clock, access

    def seen(self, where: BoxFilter) -> BoxSet:
        """Return the set of the boxes that a filter finds now, for `start` to compare, and what was seen of them.

        Ask for it before anything else that the person is shown: what others change after it, `start` knows as unseen.

        Raises:
            CloudError: the filter's selector is none.
        """
        with self._store.read() as tx:
            seen_change = tx.notes.number(CHANGES)  # first: PostgreSQL shows later reads what was written meanwhile
            return BoxSet.of(tx.list.ids(self._query(where)), seen_change=seen_change)

    def _query(self, where: BoxFilter) -> BoxQuery:
        return query_of(where, now_s=self._clock(), scope=self._access.scope.terms)

    def start(
        self,
        kind: OperationKind,
        args: Json,
        *,
        where: BoxFilter | None = None,
        devices: Collection[DeviceId] = (),
        own: Mapping[DeviceId, BoxArgs] = NOTHING_OWN,
        key: str = "",
        expect: BoxSet | None = None,
    ) -> OperationView:
        """Store a change of many boxes; the controller applies it from then on, whatever becomes of this process.

        Args:
            kind: what is changed.
            args: as `kinds` has them; limits without a container: the one that is meant on all of the boxes.
            where: the boxes that a filter finds now.
            devices: or these boxes.
            own: what boxes have of their own, of those that are named: amounts, and the revision that was seen.
            key: chosen by the client: the same request under the same key is the same operation.
            expect: refuse where it would be for another set of boxes by now; with the number of a change, a box is
                refused whose limits somebody else has set since.

        Raises:
            CloudError: wrong arguments, no boxes, or boxes both by filter and by name.
            ConflictError: another request was made under this key, or it is for other boxes.
            ForbiddenError: the person may not change boxes.
        """
        self._access.require(Permission.CHANGE)
        _check_asked(where, devices, key)
        chosen = where or BoxFilter(devices=frozenset(devices))
        wanted = checked_args(kind, self._with_container(kind, args, self._query(chosen)))
        check_own(kind, wanted, own)
        _check_once(kind, chosen)
        new = self._new(kind, wanted, chosen, seen_change=None if expect is None else expect.seen_change)
        new = replace(new, key=key or None, per_box=any(one.args for one in own.values()))
        return self._begin(new, chosen, own, expect)

    def _begin(
        self, new: Operation, chosen: BoxFilter, own: Mapping[DeviceId, BoxArgs], expect: BoxSet | None
    ) -> OperationView:
        """Store a new operation, or return the one under its key."""
        request, query, key = _digest(new.kind, new.args, chosen, own), self._query(chosen), new.key or ""
        with self._store.write() as tx:
            held = tx.operations.with_key(new.by, key) if key else None
            if held is None and not tx.operations.add(new, query, request=request, own=own):
                held = tx.operations.with_key(new.by, key)  # another press of the button was the first
            if held is not None:
                return self._same(tx, held, new, request)
            boxes = tx.operations.devices(new.id)
            self._check_boxes(tx, boxes, chosen, expect)
            _audit_start(tx, new, len(boxes), own)
            return self._view(tx, new.id)

    def undo_plan(self, id_: str) -> UndoPlan:
        """Return what the way back of an operation would do; nothing is changed.

        Raises:
            CloudError: it has no way back.
            NotFoundError: no such operation.
        """
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            return undo_plan(tx, self._view(tx, self._id_of(tx, id_)).operation, most=MOST_NAMED)

    def undo(self, id_: str, *, key: str = "", expect: BoxSet | None = None) -> OperationView:
        """Start the operation that gives the boxes of another one back what they had.

        Boxes that somebody has changed since keep what they have.

        Args:
            id_: of the operation, or the beginning of it.
            key: chosen by the client, as `start` has it.
            expect: the boxes that a plan has shown.

        Raises:
            CloudError: it has no way back, or that is for no box.
            ConflictError: it is for other boxes than those that are expected, or boxes of it wait to be stored.
        """
        self._access.require(Permission.CHANGE)
        with self._store.read() as tx:
            undone = self._view(tx, self._id_of(tx, id_)).operation
            earlier = tx.operations.with_key(self._access.by, key) if key else None
            if earlier is not None and earlier.undoes == undone.id:
                return self._view(tx, earlier.id)  # asked again: by now a plan would say that the boxes have it back
            plan = undo_plan(tx, undone, most=MOST_NAMED)
        if not plan.own:
            text = phrase("cannot undo %(id)s: no box of it gets back what it had", id=undone.id)
            raise CloudError(text, remedy=next((one.text for one in plan.left), REMEDY))
        chosen, own = BoxFilter(devices=frozenset(plan.own)), asked_own(plan)
        _check_asked(chosen, (), key)
        args = {"wait_s": plan.args["wait_s"]} if not own else plan.args
        new = self._new(plan.kind, checked_args(plan.kind, args), chosen, seen_change=None)
        return self._begin(replace(new, key=key or None, per_box=bool(own), undoes=undone.id), chosen, own, expect)

    def _new(self, kind: OperationKind, args: Json, chosen: BoxFilter, *, seen_change: int | None) -> Operation:
        now_s = self._clock()
        return Operation(
            id=new_command_id(now_s),
            kind=kind,
            args=args,
            by=self._access.by,
            at_s=now_s,
            selector=chosen.selector,
            filter=filter_json(chosen) if chosen.devices is None else None,
            seen_change=seen_change,
        )

    def with_container(self, limits: LimitsPatch, where: BoxFilter) -> LimitsPatch:
        """Return limits with the container that is meant on all boxes of a filter, where they name none.

        Raises:
            CloudError: several are meant, or no box can have such limits.
        """
        self._access.require(Permission.VIEW)
        return self._limits(limits, self._query(where))

    def limits_steps(self, limits: LimitsPatch, where: BoxFilter) -> LimitsSteps:
        """Return from which limits to which new ones lead on the boxes of a filter: those of one container.

        Raises:
            CloudError: the filter's selector is none.
        """
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            return steps_of_query(tx, self._query(where), limits)

    def pods(self, where: BoxFilter) -> PodCount:
        """Return how many pods hold shares on the boxes of a filter, by their last reports.

        Raises:
            CloudError: the filter's selector is none.
        """
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            devices = tx.list.ids(self._query(where))
            latest = tx.boxes.latest(sorted(devices)[:MOST_COUNTED], [TopicKind.ALLOC])
        pods = sum(bool(pod["pieces"]) for one in latest.values() for pod in one.body["pods"].values())
        return PodCount(pods, more_boxes=max(0, len(devices) - MOST_COUNTED))

    def _limits(self, limits: LimitsPatch, query: BoxQuery) -> LimitsPatch:
        wanted = checked_args(OperationKind.LIMITS, self._with_container(OperationKind.LIMITS, asdict(limits), query))
        return replace(limits, container=wanted["container"])

    def _with_container(self, kind: OperationKind, args: Json, query: BoxQuery) -> Json:
        """Return the arguments of an operation with the container that is meant, where limits have none."""
        if kind is not OperationKind.LIMITS or args.get("container"):
            return args
        with self._store.read() as tx:
            container = common_container(tx, query, str(args.get("namespace", "")), str(args.get("app", "")))
        return {**args, "container": container}

    def _check_boxes(
        self, tx: Transaction, devices: Collection[DeviceId], chosen: BoxFilter, expect: BoxSet | None
    ) -> None:
        """Refuse an operation for no box, or for other boxes than the person has seen: how many, and which differ."""
        if not devices:
            raise self._none(tx, chosen)
        if expect is None or expect == BoxSet.of(devices):
            return
        differs = difference_words(tx, expect, devices, tx.list.ids(self._query(EVERY_BOX)))
        texts = [_numbers(len(devices), expect.number), *differs]
        raise ConflictError(joined(texts), remedy=phrase("look at its boxes again, then decide"))

    def _none(self, tx: Transaction, chosen: BoxFilter) -> CloudError:
        """Return why a filter finds no box."""
        if left := tx.list.ids(self._query(replace(chosen, askable=False, one_of_each_cluster=False))):
            names = names_of_some(tx, left)
            text = phrase(
                "cannot ask any box with these labels: revoked, set aside, blocked or uninstalled: %(names)s",
                names=names,
            )
            remedy = phrase(
                "`edgegpu-cloud enrol --for BOX` takes a revoked one in again, "
                "`edgegpu-cloud boxes forget BOX` drops one"
            )
            return CloudError(text, remedy=remedy)
        if chosen.selector:
            text = phrase("cannot find a box by %(selector)r: none has these labels", selector=chosen.selector)
            return NotFoundError(text, remedy=phrase("`edgegpu-cloud boxes -o wide` shows labels"))
        text = phrase("cannot start an operation: it is for no box")
        return NotFoundError(text, remedy=phrase("look at the filter"))

    def _same(self, tx: Transaction, held: Operation, new: Operation, request: str) -> OperationView:
        before = tx.operations.request_of(held.id)
        same_change = (held.kind, held.args, held.selector) == (new.kind, new.args, new.selector)
        if before not in {request, None} or not same_change:
            text = phrase(
                "cannot start an operation under the key %(key)s: %(held)s was another request under it",
                key=held.key,
                held=held.id,
            )
            raise ConflictError(text, remedy=phrase("choose another key for another request"))
        return self._view(tx, held.id)

    def _view(self, tx: Transaction, id_: str) -> OperationView:
        found = tx.operations.get(id_)
        if found is None:
            raise NotFoundError(phrase("cannot find an operation %(id)r", id=id_), remedy=REMEDY)
        return OperationView(found, tx.operations.counts([id_])[id_])

    def preview_limits(
        self, limits: LimitsPatch, where: BoxFilter, *, after: str = "", limit: int = 50
    ) -> LimitsPreviewPage:
        """Return what boxes of a filter would make of limits now, by name, those after `after`; nothing is changed.

        Args:
            limits: without a container: the one that is meant on all of the boxes.
            where: the boxes.
            after: `next` of the page before; its `container` belongs into `limits` then.
            limit: so many boxes at most.

        Raises:
            CloudError: no boxes, or no box can have such limits.
        """
        self._access.require(Permission.VIEW)
        query = self._query(where)
        seen = self._seen_first(where, after)
        found = self._limits(limits, query)
        with self._store.read() as tx:
            page = limits_preview_page(tx, query, found, after=after, limit=limit, now_s=self._clock())
            if not page.boxes and not after:
                raise self._none(tx, where)
        return replace(page, seen=seen)

    def preview_sharing(
        self, settings: SharingSettings, where: BoxFilter, *, after: str = "", limit: int = 50
    ) -> SharingPreviewPage:
        """Return what boxes of a filter would make of settings now, by name, those after `after`; nothing is changed.

        Raises:
            CloudError: no boxes, or a setting is not valid.
        """
        self._access.require(Permission.VIEW)
        checked_args(OperationKind.SHARING, asdict(settings))
        _check_once(OperationKind.SHARING, where)
        query = self._query(where)
        seen = self._seen_first(where, after)
        with self._store.read() as tx:
            page = sharing_preview_page(tx, query, settings, after=after, limit=limit, now_s=self._clock())
            if not page.boxes and not after:
                raise self._none(tx, where)
        return replace(page, seen=seen)

    def _seen_first(self, where: BoxFilter, after: str) -> str:
        """Return with the first part of a preview what `start` compares: the set is of all boxes, whatever the part."""
        return "" if after else self.seen(where).text

    def get(self, id_: str) -> OperationView:
        """Return an operation by its id, or the beginning of it.

        Raises:
            NotFoundError: none, or more than one.
        """
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            return self._view(tx, self._id_of(tx, id_))

    def list(
        self, *, where: OperationFilter = EVERY_OPERATION, before: str = "", limit: int = 50
    ) -> Sequence[OperationView]:
        """Return operations, newest first; those that are older than the one with the id `before`."""
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            found = tx.operations.last(where=where, before=before, limit=limit, scope=self._access.scope.terms)
            counts = tx.operations.counts([one.id for one in found])
            return [OperationView(one, counts[one.id]) for one in found]

    def boxes(
        self,
        id_: str,
        *,
        outcomes: Collection[BoxOutcome] = (),
        after: str = "",
        limit: int = 100,
        data: bool = False,
    ) -> OperationBoxPage:
        """Return a page of the boxes of an operation, those with some outcomes, or all.

        Args:
            id_: of the operation, or the beginning of it.
            outcomes: of the boxes; none: all.
            after: the device id behind which the page begins.
            limit: so many boxes at most.
            data: also what their commands have brought back.

        Raises:
            NotFoundError: no such operation.
        """
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            behind = tx.operations.boxes(self._id_of(tx, id_), outcomes=outcomes, after=after, limit=limit + 1)
            found = behind[:limit]
            known = tx.boxes.get([one.device for one in found])
            commands = tx.commands.get([one.command for one in found if one.command is not None]) if data else {}
        brought = {command: one.data for command, one in commands.items()}
        views = [
            OperationBoxView(
                known[one.device].name if one.device in known else "",
                one,
                brought.get(one.command) if one.command is not None else None,
            )
            for one in found
        ]
        return OperationBoxPage(views, found[-1].device if len(behind) > limit else "")

    def cancel(self, id_: str) -> OperationView:
        """Take out the boxes for which nothing is stored yet; what is stored goes on.

        Raises:
            NotFoundError: no such operation.
            ConflictError: everything is stored.
        """
        self._access.require(Permission.CHANGE)
        with self._store.write() as tx:
            found, now_s = self._view(tx, self._id_of(tx, id_)).operation, self._clock()
            if found.state is not OperationState.RUNNING:
                text = phrase("cannot cancel %(found)s: nothing of it waits to be stored", found=found.id)
                raise ConflictError(text, remedy=phrase("take the change back by another operation"))
            gone = tx.operations.cancel_queued(found.id)
            tx.operations.end(found.id, OperationState.CANCELLED, now_s=now_s)
            who, after = Author(self._access.by, now_s), OperationState.CANCELLED
            change = AuditedChange({"state": found.state.value}, {"state": after.value, "cancelled_boxes": gone})
            audit(tx, who, AuditKind.OPERATION_CANCELLED, change, detail={"id": found.id})
            return self._view(tx, found.id)

    def _id_of(self, tx: Transaction, id_: str) -> str:
        ids = tx.operations.beginning(id_, self._access.scope.terms) if id_ and "\0" not in id_ else []
        found = [one for one in ids if one == id_] or ids
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotFoundError(phrase("cannot find an operation %(id)r", id=id_), remedy=REMEDY)
        raise NotFoundError(
            phrase("cannot tell which operation %(id)r is: several begin so", id=id_),
            remedy=phrase("give more letters"),
        )


def _audit_start(tx: Transaction, new: Operation, boxes: int, own: Mapping[DeviceId, BoxArgs]) -> None:
    undo = bool(new.undoes and new.per_box)
    args = audited_args(returned_args(new.args, own) if undo else new.args)
    after: Json = {"kind": new.kind.value, "args": args, "boxes": boxes}
    if new.per_box:
        after["returns" if undo else "per_box"] = True  # amounts of its own for each: `box.spec` has them
    if new.undoes:
        after["undoes"] = new.undoes
    detail: Json = {"id": new.id, "selector": new.selector} | ({"filter": new.filter} if new.filter else {})
    audit(tx, Author(new.by, new.at_s), AuditKind.OPERATION, AuditedChange({}, after), detail=detail)


def _digest(kind: OperationKind, args: Json, chosen: BoxFilter, own: Mapping[DeviceId, BoxArgs]) -> str:
    """Return the digest of what is asked for."""
    asked: Json = {"kind": kind.value, "args": args, "filter": filter_json(chosen)}
    asked["boxes"] = sorted(chosen.devices or ())
    asked["own"] = {device: [one.args, one.seen_rev] for device, one in own.items()}
    return digest(asked)


def _numbers(boxes: int, expected: int) -> str:
    if boxes == expected:
        return phrase("cannot start the operation: it is for %(num)s boxes, but not for the same ones", num=boxes)
    return phrase(
        "cannot start the operation: it is for %(num)s boxes by now, not %(expect_boxes)s",
        num=boxes,
        expect_boxes=expected,
    )


def _check_once(kind: OperationKind, chosen: BoxFilter) -> None:
    if chosen.one_of_each_cluster and kind is not OperationKind.LIMITS:
        raise CloudError(
            phrase("cannot start %(kind)s on one box of each cluster: each box has its own", kind=kind.value),
            remedy=phrase("ask all of the boxes; one of a cluster applies the limits of apps alone"),
        )


def _check_asked(where: BoxFilter | None, devices: Collection[DeviceId], key: str) -> None:
    if (where is None) == (not devices) or len(devices) > MOST_NAMED or len(key) > KEY_MAX:
        text = phrase(
            "cannot start an operation: it is for the boxes of a filter, or for 1 to %(most_named)s named ones",
            most_named=MOST_NAMED,
        )
        remedy = phrase("give one of both, and a key of at most %(key_max)s characters", key_max=KEY_MAX)
        raise CloudError(text, remedy=remedy)
