"""Rollouts for operators: planned, started, seen, paused, resumed, aborted. Used by the CLI, the API and the pages."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate

from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.access import Access, Permission
from edgegpu_cloud.fleet.audit.arguments import audited_args
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, audit, difference
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.following import follow
from edgegpu_cloud.fleet.limits.containers import common_container
from edgegpu_cloud.fleet.names import find_box
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.seen_boxes import difference_words
from edgegpu_cloud.fleet.present.steps import LimitsSteps
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.phrases import joined, phrase
from edgegpu_cloud.rollouts import rules
from edgegpu_cloud.rollouts.changes import (
    RolloutChange,
    RolloutKind,
    change_json,
    check_change,
    kind_of,
    subject_of,
    words_of,
)
from edgegpu_cloud.rollouts.fit import FitCounts
from edgegpu_cloud.rollouts.fit_walk import JudgedPart, judged_part
from edgegpu_cloud.rollouts.rules import wave_name
from edgegpu_cloud.rollouts.strategy import (
    FailurePolicy,
    RolloutStrategy,
    check_strategy,
    strategy_json,
    wave_sizes,
)
from edgegpu_cloud.rollouts.targets import (
    PlannedBox,
    RolloutTargets,
    boxes_at,
    check_free,
    check_number,
    seen_of,
    steps_of,
    targets_of,
    with_fits,
)
from edgegpu_cloud.rollouts.views import RolloutView, rollout_view
from edgegpu_cloud.rollouts.way_back import WayBack, check_returnable, way_back
from edgegpu_cloud.store.notes import CHANGES
from edgegpu_cloud.store.records import Json
from edgegpu_cloud.store.rollouts.records import (
    EVERY_ROLLOUT,
    RolloutBoxRecord,
    RolloutBoxState,
    RolloutFilter,
    RolloutRecord,
)
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery

OUTLINED_WAVES, OUTLINED_BOXES = 25, 8
"""Of so many waves an outline names boxes, and so many of each."""

AT_ONCE = 200
"""Boxes of a plan that are read in one transaction."""
MOST_TAKEN_BACK = 1_000  # of which a page says what they get back

_DONE = {"paused": phrase("paused"), "resumed": phrase("resumed"), "aborted": phrase("aborted")}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """What a person asks for: a change, the boxes, and how.

    The boxes are those named in `boxes`, or those that `selector` matches; both empty: all. Those named in `first` come
    first, so they are the canary. Limits without a container are for the one that is meant on all of the boxes.
    """

    change: RolloutChange
    boxes: Sequence[str] = ()
    selector: str = ""
    first: Sequence[str] = ()
    strategy: RolloutStrategy = field(default_factory=RolloutStrategy)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWave:
    """A wave as it would be: its name, how many boxes it has, and those of them that were asked for, in order."""

    name: str
    size: int
    boxes: Sequence[PlannedBox]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """What a rollout would do: all its waves, of its boxes those that were asked for; `notes` are for people.

    `seen`: the set of all its boxes as they were seen (`BoxSet.text`), for `Rollouts.start`. Of a cluster of which one
    box is taken it has all: which one is taken changes with who is online. `steps`: of limits, from which to which they
    lead on all boxes; None where that was not asked, and of other changes.
    """

    words: str
    waves: Sequence[PlannedWave]
    boxes: int
    notes: Sequence[str]
    seen: str
    steps: LimitsSteps | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedOutline:
    """A plan with what a part of its boxes would make of its limits; `counts` are those of the part.

    `change`: the limits with the container that is meant.
    """

    plan: RolloutPlan
    change: RolloutChange
    part: JudgedPart
    counts: FitCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A plan with what it was made of; limits have their container."""

    plan: RolloutPlan
    change: RolloutChange
    targets: RolloutTargets

    def with_steps(self, tx: Transaction) -> "_Planned":
        """Return a plan with what its limits make of what its boxes have."""
        steps = steps_of(tx, self.targets, self.change)
        return replace(self, plan=replace(self.plan, steps=steps))


class Rollouts:
    """One person's view of the rollouts.

    Every method may raise StoreError, and ForbiddenError where the person's role does not allow it; every change is
    audited under the person's name.
    """

    def __init__(
        self,
        store: ControllerStore,
        *,
        clock: Callable[[], float],
        access: Access,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take a store; `clock` returns seconds since 1970, and `follow` waits by `sleep`.

        A rollout exists for a person if all its boxes do, by the scope of `access`.
        """
        self._store, self._clock, self._access, self._sleep = store, clock, access, sleep

    # plan and start

    def preview(self, request: RolloutRequest, *, limit: int = 50, offset: int = 0) -> RolloutPlan:
        """Return the waves of a rollout as they would be now, with `limit` of its boxes after the first `offset`.

        Of limits each of these boxes has what it would make of them; `AT_ONCE` of them are read in one transaction.

        Raises:
            CloudError: as `start`, or its boxes have changed between two transactions.
        """
        found, end = self._judged(request, range(offset, offset + min(limit, AT_ONCE))), offset + limit
        for at in range(offset + AT_ONCE, min(end, found.plan.boxes), AT_ONCE):
            more = self._judged(replace(request, change=found.change), range(at, min(end, at + AT_ONCE)))
            if BoxSet.read(more.plan.seen) != BoxSet.read(found.plan.seen):
                text = phrase("cannot read the plan: its boxes have changed meanwhile")
                raise ConflictError(text, remedy=phrase("ask again"))
            found = replace(found, plan=_with_boxes(found.plan, more.plan))
        return found.plan

    def _judged(self, request: RolloutRequest, part: range) -> _Planned:
        with self._store.read() as tx:
            found = self._planned(tx, request, lambda _: [part], now_s=self._clock(), judged=True)
            return found if part.start else found.with_steps(tx)

    def outline(self, request: RolloutRequest) -> RolloutPlan:
        """Return the waves of a rollout as they would be now, with the first boxes of each, but of some waves alone.

        Raises:
            CloudError: as `start`.
        """
        with self._store.read() as tx:
            return self._planned(tx, request, _heads, now_s=self._clock()).plan

    def not_found(self, names: Sequence[str]) -> dict[str, NotFoundError]:
        """Return those of these names of boxes that no box has, or several, each with what is wrong with it."""
        self._access.require(Permission.VIEW)
        found: dict[str, NotFoundError] = {}
        with self._store.read() as tx:
            for name in names:
                try:
                    find_box(tx, name, self._access.scope)
                except NotFoundError as error:
                    found[name] = error
        return found

    def judged_outline(
        self, request: RolloutRequest, *, limit: int, after: Callable[[RolloutPlan], str], outlined: bool = True
    ) -> JudgedOutline:
        """Return the outline of a rollout of limits, and what a part of its boxes would make of them, by one plan.

        Args:
            request: what is asked for; its container is looked for where none is named.
            limit: so many boxes are loaded; a larger cluster is loaded as a whole.
            after: returns by the plan the place in the walk over all its boxes where the part begins; empty: the first.
            outlined: whether the waves have their first boxes.

        Raises:
            CloudError: as `start`.
        """
        now_s = self._clock()
        with self._store.read() as tx:
            found = self._planned(tx, request, _heads if outlined else lambda _: [], now_s=now_s)
            found = found.with_steps(tx) if outlined else found
            if not isinstance(found.change, LimitsPatch):
                part = JudgedPart(boxes=(), next="")
            else:
                begin = after(found.plan)
                part = judged_part(tx, found.targets.plan, found.change, after=begin, limit=limit, now_s=now_s)
        counts = FitCounts.of((box.fit for box in part.boxes), now_s=now_s)
        return JudgedOutline(plan=found.plan, change=found.change, part=part, counts=counts)

    def _planned(
        self,
        tx: Transaction,
        request: RolloutRequest,
        positions: Callable[[Sequence[int]], Sequence[range]],
        *,
        now_s: float,
        judged: bool = False,
    ) -> _Planned:
        """Return a plan with the boxes at some positions, by the sizes of its waves; `judged`: do limits fit there."""
        self._access.require(Permission.VIEW)
        _check(request)
        seen_change = tx.notes.number(CHANGES)  # first: PostgreSQL shows later reads what was written meanwhile
        targets = targets_of(tx, request, self._access.scope, now_s=now_s)
        change = _with_container(tx, request.change, targets)
        sizes = wave_sizes(targets.boxes, request.strategy)
        boxes = boxes_at(tx, targets, positions(sizes))
        boxes = with_fits(tx, targets, boxes, change, now_s=now_s) if judged else boxes
        seen = BoxSet.of(tx.list.ids(targets.plan.boxes), seen_change=seen_change).text
        ends = list(accumulate(sizes))
        of_waves: list[list[PlannedBox]] = [[] for _ in sizes]
        for box in boxes:
            of_waves[bisect_right(ends, box.position)].append(box)
        waves = [
            PlannedWave(name=wave_name(at, request.strategy), size=size, boxes=of_wave)
            for at, (size, of_wave) in enumerate(zip(sizes, of_waves, strict=True))
        ]
        plan = RolloutPlan(words=words_of(change), waves=waves, boxes=targets.boxes, notes=targets.notes, seen=seen)
        return _Planned(plan=plan, change=change, targets=targets)

    def start(self, request: RolloutRequest, *, expect_boxes: int | None = None, expect: BoxSet | None = None) -> int:
        """Start a rollout; return its number.

        Args:
            request: what is asked for.
            expect_boxes: refuse where it would concern another number of boxes by now.
            expect: refuse where it would concern other boxes by now, as many as they are; with the number of a change,
                a box is skipped whose limits somebody else has set since, and without it, since now.

        Raises:
            ConflictError: it would, or another rollout changes the same thing on one of the boxes.
            CloudError: no box, a box that is not there, a value that is not valid.
        """
        self._access.require(Permission.CHANGE)
        _check(request)
        now_s = self._clock()
        with self._store.write() as tx:
            seen_change = tx.notes.number(CHANGES)
            if expect is not None and expect.seen_change is not None:
                seen_change = expect.seen_change
            targets = targets_of(tx, request, self._access.scope, now_s=now_s)
            change = _with_container(tx, request.change, targets)
            self._check_same(tx, targets, expect)
            rollout = RolloutRecord(
                kind=kind_of(change).value,
                subject=subject_of(change),
                change=change_json(change),
                strategy=strategy_json(request.strategy),
                by=self._access.by,
                at_s=now_s,
                waves=1,
                seen_change=seen_change,
            )
            number, boxes = tx.rollouts.add(rollout, targets.plan)
            check_number(boxes, expect_boxes)
            check_free(tx, subject_of(change), number)
            tx.rollouts.divide(number, wave_sizes(boxes, request.strategy))
            after: Json = {"kind": rollout.kind, "change": audited_args(rollout.change), "boxes": boxes}
            self._audit(tx, AuditKind.ROLLOUT_STARTED, number, AuditedChange({}, after))
        return number

    def _check_same(self, tx: Transaction, targets: RolloutTargets, expect: BoxSet | None) -> None:
        """Refuse a rollout of other boxes than the person has seen, and name those that differ."""
        if expect is None:
            return
        devices = tx.list.ids(targets.plan.boxes)
        if expect == BoxSet.of(devices):
            return
        every = BoxQuery(present_since_s=0.0, scope=targets.plan.boxes.scope)
        texts: list[str] = [phrase("cannot start the rollout: it concerns other boxes by now")]
        texts += difference_words(tx, expect, devices, tx.list.ids(every))
        raise ConflictError(joined(texts), remedy=phrase("look at its waves again, then decide"))

    # look

    def all(
        self, *, where: RolloutFilter = EVERY_ROLLOUT, limit: int = 50, before: int | None = None
    ) -> list[RolloutView]:
        """Return the last rollouts that match, newest first; those with lower numbers than `before`."""
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            found = tx.rollouts.all(where=where, limit=limit, before=before, within=self._within())
            return [rollout_view(tx, one, now_s=self._clock()) for one in found]

    def show(self, number: int) -> RolloutView:
        """Return a rollout.

        Raises:
            NotFoundError: there is none of this number.
        """
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            return rollout_view(tx, self._find(tx, number), now_s=self._clock())

    def way_back(self, number: int) -> WayBack:
        """Return what the return of a rollout would do now. Raises NotFoundError, and CloudError for an upgrade."""
        self._access.require(Permission.VIEW)
        check_returnable(self.show(number))
        with self._store.read() as tx:
            return way_back(tx, number, most=MOST_TAKEN_BACK)

    def boxes(
        self,
        number: int,
        states: Sequence[RolloutBoxState] = (),
        *,
        wave: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[RolloutBoxRecord]:
        """Return boxes of a rollout in its order, where each stands: those in one of the states, or all.

        `others` of a box has those alone that the person sees.

        Raises:
            NotFoundError: there is none of this number.
        """
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            self._find(tx, number)
            found = tx.rollouts.boxes(number, states, wave=wave, limit=limit, offset=offset)
            others = (device for one in found for device in one.others)
            seen = seen_of(tx, others, self._access.scope.terms)
        return [replace(one, others=tuple(device for device in one.others if device in seen)) for one in found]

    def follow(self, number: int, *, timeout_s: float) -> Iterator[RolloutView]:
        """Yield a rollout, and again each time it has changed, until it has ended or the time is over.

        Raises:
            NotFoundError: there is none of this number.
        """
        return follow(partial(self.show, number), clock=self._clock, sleep=self._sleep, timeout_s=timeout_s)

    # change

    def pause(self, number: int) -> None:
        """Pause a rollout: no box is begun until it is resumed; boxes that are at it end.

        Raises:
            NotFoundError: there is none of this number.
            ConflictError: it does not run.
        """
        self._changed(number, "paused", lambda rollout: rules.paused(rollout, self._access.by))

    def resume(self, number: int) -> None:
        """Resume a paused rollout; where a gate holds it, that gate does not count any more.

        Raises:
            NotFoundError: there is none of this number.
            ConflictError: it is not paused.
        """
        self._changed(number, "resumed", rules.resumed)

    def abort(self, number: int, *, returns: bool = False) -> None:
        """Abort a rollout: queued boxes are cancelled, boxes that are at it end; take one back that has ended.

        Args:
            number: of the rollout.
            returns: whether the boxes that it has changed get back what they had.

        Raises:
            NotFoundError: there is none of this number.
            ConflictError: it has ended, it returns its boxes already, or another rollout changes the same on one of
                them.
            CloudError: an upgrade, which no box takes back.
        """
        if returns:
            check_returnable(self.show(number))
        self._changed(number, "aborted", lambda rollout: rules.aborted(rollout, self._access.by, returns=returns))

    def _changed(self, number: int, done: str, change: Callable[[RolloutRecord], RolloutRecord]) -> None:
        self._access.require(Permission.CHANGE)
        with self._store.write() as tx:
            rollout = self._find(tx, number)
            try:
                after = change(rollout)
            except ValueError as error:
                text = phrase(
                    "cannot have rollout %(number)s %(done)s: %(why)s",
                    number=number,
                    done=_DONE[done],
                    why=error.args[0],
                )
                raise ConflictError(
                    text, remedy=phrase("`edgegpu-cloud rollouts show %(number)s` shows it", number=number)
                ) from error
            if rollout.state.ended and not after.state.ended:
                check_free(tx, rollout.subject, number)
            tx.rollouts.put(after)
            self._audit(tx, AuditKind(f"rollout.{done}"), number, difference(_shown(rollout), _shown(after)))

    def _within(self) -> BoxQuery | None:
        """Return the boxes that exist for the person; None: all."""
        if self._access.is_whole:
            return None
        return BoxQuery(present_since_s=0.0, scope=self._access.scope.terms)

    def _find(self, tx: Transaction, number: int) -> RolloutRecord:
        found, within = tx.rollouts.get(number), self._within()
        if found is None or (within is not None and not tx.rollouts.is_within(number, within)):
            raise NotFoundError(
                phrase("cannot find rollout %(number)s", number=number),
                remedy=phrase("`edgegpu-cloud rollouts list` lists them"),
            )
        return found

    def _audit(self, tx: Transaction, what: AuditKind, number: int, change: AuditedChange) -> None:
        audit(tx, Author(self._access.by, self._clock()), what, change, detail={"rollout": number})


def _heads(sizes: Sequence[int]) -> list[range]:
    """Return the places of the boxes that an outline names."""
    begins = accumulate(sizes, initial=0)
    both = zip(begins, sizes[:OUTLINED_WAVES], strict=False)
    return [range(begin, begin + min(size, OUTLINED_BOXES)) for begin, size in both]


def _with_boxes(plan: RolloutPlan, more: RolloutPlan) -> RolloutPlan:
    """Return a plan with the boxes of another part of it too."""
    both = zip(plan.waves, more.waves, strict=True)
    return replace(plan, waves=[replace(wave, boxes=[*wave.boxes, *other.boxes]) for wave, other in both])


def _shown(rollout: RolloutRecord) -> Json:
    """Return what the audit has of a rollout that a person pauses, resumes or aborts."""
    return {"state": rollout.state.value, "returns": rollout.returns}


def _with_container(tx: Transaction, change: RolloutChange, targets: RolloutTargets) -> RolloutChange:
    """Return a change; limits without a container have the one that is meant on all of the boxes.

    Raises:
        CloudError: several are.
    """
    if not isinstance(change, LimitsPatch) or change.container:
        return change
    return replace(change, container=common_container(tx, targets.plan.boxes, change.namespace, change.app))


def _check(request: RolloutRequest) -> None:
    change = request.change
    if isinstance(change, LimitsPatch) and not change.container:
        change = replace(change, container=change.app)  # any name that is valid where the app's is
    check_change(change)
    check_strategy(request.strategy)
    if kind_of(request.change) is RolloutKind.UPGRADE and request.strategy.on_failure is FailurePolicy.RETURN:
        text = phrase("cannot return an upgrade: boxes take no older version of the agent")
        raise CloudError(
            text, remedy=phrase("let it stop or pause at failures; a box whose new agent is not well goes back")
        )
