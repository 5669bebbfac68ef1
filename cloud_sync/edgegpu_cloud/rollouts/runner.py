"""The work of all rollouts, one transaction after the other. All that it knows is in the store.

A process that dies anywhere is followed by one that finds a whole transaction done, or nothing of it. Of several
controllers the one that leads works on rollouts: each transaction makes sure of that, so one that was stopped meanwhile
writes nothing. It holds the row of its rollout too, because people pause and abort it.
"""

import logging
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.views import PRESENT_S
from edgegpu_cloud.phrases import Verbatim, phrase
from edgegpu_cloud.rollouts.boxwork import GONE, BoxWork
from edgegpu_cloud.rollouts.changes import RolloutKind, read_change
from edgegpu_cloud.rollouts.rules import (
    STATES,
    BeginBoxes,
    BoxBack,
    BoxCancelled,
    BoxOffline,
    BoxSkipped,
    CancelBoxes,
    RetryBoxes,
    ReturnBoxes,
    RolloutAction,
    RolloutBoxEvent,
    RolloutDecision,
    decide,
)
from edgegpu_cloud.rollouts.strategy import read_strategy
from edgegpu_cloud.store.controllers.leadership import Leadership, LeasesLostError, SoleLeader
from edgegpu_cloud.store.controllers.next_turn import tried_next_turn
from edgegpu_cloud.store.rollouts.records import (
    ERROR_ALARM,
    STOPPED_ALARM,
    RolloutBoxRecord,
    RolloutBoxState,
    RolloutRecord,
    RolloutState,
)
from edgegpu_cloud.store.rollouts.tables import RETURNABLE
from edgegpu_cloud.store.store import ControllerStore, RecordError, StoreError, Transaction

_LOG = logging.getLogger(__name__)

B, R = RolloutBoxState, RolloutState

MOST_AT_ONCE = 500
"""Boxes in one transaction."""

CHECK_INTERVAL_S = 1.0
"""How often rollouts are looked at."""

_MOST_REASON = 900
_ALARMED = frozenset({R.STOPPING, R.PAUSED})


def step(tx: Transaction, number: int, now_s: float) -> bool:
    """Do what is due in a rollout, for at most `MOST_AT_ONCE` boxes; return whether more may be due at once.

    It may be called at any time, by any process: where nothing is due it writes nothing.

    Raises:
        CloudError: what is stored of the rollout cannot be read.
    """
    rollout = tx.rollouts.get(number)
    if rollout is None or rollout.state.ended:
        return False
    return _RolloutStep(tx, rollout, now_s).run()


def is_due(tx: Transaction, number: int, now_s: float) -> bool:
    """Whether `step` may have something to do: a look without a lock, so that idle rollouts hold up nobody.

    Raises:
        CloudError: as `step`.
    """
    rollout = tx.rollouts.get(number)
    return rollout is not None and not rollout.state.ended and _RolloutStep(tx, rollout, now_s).is_due()


_Noting = Callable[[Sequence[RolloutBoxRecord]], int]
"""Notes what has happened to boxes; returns to how many."""


class _RolloutStep:
    """One transaction of one rollout."""

    def __init__(self, tx: Transaction, rollout: RolloutRecord, now_s: float) -> None:
        self._tx, self._rollout, self._now_s = tx, rollout, now_s
        self._strategy = read_strategy(rollout.strategy)
        change = read_change(rollout.kind, rollout.change)
        self._boxes = BoxWork(tx, rollout, change, self._strategy, now_s=now_s)
        self._left = MOST_AT_ONCE
        self._done = 0

    def is_due(self) -> bool:
        """Whether `run` would have anything to do; it writes nothing."""
        self._left = 1
        return any(boxes for _, boxes in self._news()) or self._decision() != RolloutDecision(self._rollout)

    def run(self) -> bool:
        for note, boxes in self._news():
            self._count(note(boxes))
        if not self._left:
            return True
        decision = self._decision()
        for action in decision.actions:
            if self._left:
                self._act(action)
        if decision.rollout != self._rollout:
            self._tx.rollouts.put(decision.rollout)
            self._note(self._rollout, decision.rollout)
            self._done += 1
        return bool(self._done)

    def _decision(self) -> RolloutDecision:
        rollout = self._rollout
        counts = self._tx.rollouts.counts(rollout.number, rollout.waves, self._now_s)
        return replace(decide(rollout, self._strategy, counts, now_s=self._now_s), until_s=None)

    def _count(self, boxes: int) -> None:
        self._left -= min(boxes, self._left)
        self._done += boxes

    # what has happened

    def _news(self) -> Iterator[tuple[_Noting, list[RolloutBoxRecord]]]:
        """Yield boxes to which something may have happened since the last step, with what notes it for them."""
        rollout, now_s, tx = self._rollout, self._now_s, self._tx.rollouts
        late_s = now_s - self._strategy.timeout_s
        upgrades = rollout.kind == RolloutKind.UPGRADE
        ended = tx.ended_by_command if upgrades else tx.maybe_changed
        yield self._boxes.look_at, ended(rollout.number, late_s=late_s, limit=self._left)
        if rollout.state in {R.RUNNING, R.PAUSED} and self._strategy.gate.soak_s and rollout.wave < rollout.waves:
            watch = self._boxes.watch_upgraded if upgrades else self._boxes.watch
            reported = tx.upgrade_lost if upgrades else tx.newly_reported
            yield watch, reported(rollout.number, rollout.wave, limit=self._left)
        if rollout.state is R.RUNNING:
            yield from self._come_and_go()
        if rollout.state is R.RETURNING:
            found = tx.maybe_returned(
                rollout.number,
                late_s=late_s,
                given_up_s=now_s - self._strategy.join_within_s,
                heard_s=now_s - PRESENT_S,
                limit=self._left,
            )
            yield self._boxes.look_at_returning, found

    def _come_and_go(self) -> Iterator[tuple[_Noting, list[RolloutBoxRecord]]]:
        """Yield boxes that join because they are back, and those whose turn comes while they are offline."""
        rollout, tx, heard_s = self._rollout, self._tx.rollouts, self._now_s - PRESENT_S
        for state in (B.QUEUED, B.AWAY):
            yield self._noting(BoxSkipped(GONE)), tx.gone(rollout.number, state, limit=self._left)
        yield self._noting(BoxBack()), tx.back(rollout.number, heard_s=heard_s, limit=self._left)
        if self._now_s >= rollout.at_s + self._strategy.join_within_s:
            late = BoxSkipped("it was offline until the time to join was over")
            yield self._noting(late), tx.boxes(rollout.number, [B.AWAY], limit=self._left)
        offline = tx.offline(rollout.number, rollout.wave, heard_s=heard_s, limit=self._left)
        yield self._noting(BoxOffline(phrase("offline when its turn came"))), offline

    def _noting(self, event: RolloutBoxEvent) -> _Noting:
        return partial(self._boxes.put, event=event)

    # what is done

    def _act(self, action: RolloutAction) -> None:
        number = self._rollout.number
        match action:
            case BeginBoxes(wave, most):
                boxes = self._some([B.QUEUED], most, wave=wave)
                self._boxes.begin(boxes)
            case RetryBoxes(most):
                boxes = self._some([B.RETRYING], most, due_s=self._now_s)
                self._boxes.begin(boxes)
            case CancelBoxes():
                boxes = self._some([B.QUEUED, B.AWAY, B.RETRYING], self._left)
                self._boxes.put(boxes, BoxCancelled())
            case ReturnBoxes(most):
                boxes = self._some(RETURNABLE, most, changed=True)
                self._boxes.give_back(boxes)
        self._count(len(boxes))
        if boxes:
            _LOG.info("rollout %d: %s, %d boxes", number, type(action).__name__, len(boxes))

    def _some(
        self,
        states: list[RolloutBoxState] | tuple[RolloutBoxState, ...],
        most: int,
        *,
        wave: int | None = None,
        changed: bool | None = None,
        due_s: float | None = None,
    ) -> list[RolloutBoxRecord]:
        limit = min(most, self._left)
        return self._tx.rollouts.boxes(
            self._rollout.number, states, limit=limit, wave=wave, changed=changed, due_s=due_s
        )

    def _note(self, before: RolloutRecord, after: RolloutRecord) -> None:
        """Tell people of a new state: in the log, and by an alarm where a gate has stopped the rollout."""
        if after.state is before.state:
            return
        _LOG.info("rollout %d is %s: %s", after.number, after.state, after.reason or "all is done")
        if after.state in _ALARMED:
            text = phrase(
                "rollout %(number)s is %(state)s: %(reason)s",
                number=after.number,
                state=STATES[after.state],
                reason=after.reason,
            )
            self._tx.notes.alarm(f"{STOPPED_ALARM}/{after.number}", device="", text=text, now_s=self._now_s)


class RolloutRunner:
    """The task that works on rollouts until it is stopped; `stop` is for any thread."""

    def __init__(
        self, store: ControllerStore, *, leadership: Leadership | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Take the store that the controller uses too.

        Args:
            store: the controller's.
            leadership: of this process among several; None: it has the store for itself.
            clock: seconds since 1970.
        """
        self._store, self._clock = store, clock
        self._leadership = leadership or SoleLeader(store)
        self._stops: queue.SimpleQueue[None] = queue.SimpleQueue()

    def stop(self) -> None:
        """End `run`."""
        self._stops.put(None)

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            StoreError: the database refuses.
        """
        while True:
            try:
                self._stops.get(timeout=CHECK_INTERVAL_S)
            except queue.Empty:
                self.step()
            else:
                return

    def step(self) -> None:
        """Do all that is due in all rollouts, where this process leads.

        A rollout that fails is paused with the reason; the others go on.
        """
        if not self._leadership.leads:
            return
        try:
            self._work()
        except LeasesLostError:
            _LOG.warning("another controller works on the rollouts by now")

    def _work(self) -> None:
        with self._store.read() as tx:
            numbers = tx.rollouts.active()
        for number in numbers:
            with tried_next_turn(f"work on rollout {number}"):
                self._work_on(number)

    def _work_on(self, number: int) -> None:
        try:
            while self._worked(number):
                pass
        except LeasesLostError:
            raise
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, RecordError):
                raise
            self._hold(number, error)

    def _worked(self, number: int) -> bool:
        with self._store.read() as tx:
            if not is_due(tx, number, self._clock()):
                return False
        with self._leadership.lead() as tx:
            return step(tx, number, self._clock())

    def _hold(self, number: int, error: Exception) -> None:
        """Pause a rollout that cannot be worked on; one that is paused, or ends, stays as it is."""
        text = (
            error.text if isinstance(error, CloudError) else Verbatim(f"{type(error).__name__}: {error}"[:_MOST_REASON])
        )
        _LOG.error("cannot work on rollout %d", number, exc_info=error)
        with self._leadership.lead() as tx:
            rollout = tx.rollouts.get(number)
            reason = phrase("the controller cannot work on it: %(error)s", error=text)
            if rollout is not None and rollout.state is R.RUNNING:
                tx.rollouts.put(replace(rollout, state=R.PAUSED, reason=reason))
            tx.notes.alarm(
                f"{ERROR_ALARM}/{number}",
                device="",
                text=phrase("rollout %(number)s: %(reason)s", number=number, reason=reason),
                now_s=self._clock(),
            )
