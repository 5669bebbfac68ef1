"""The rules of a rollout, under every order of events: its limits hold, and a cut anywhere changes nothing."""

from dataclasses import replace

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kits.rolloutworld import RolloutWorld

from edgegpu_cloud.rollouts.rules import (
    BeginBoxes,
    BoxApplied,
    BoxBack,
    BoxFailed,
    BoxNotReturned,
    BoxOffline,
    BoxRejected,
    BoxReturned,
    BoxSkipped,
    RetryBoxes,
    RolloutBoxEvent,
    aborted,
    failed_gate,
    paused,
    resumed,
)
from edgegpu_cloud.rollouts.strategy import FailurePolicy, Gate, OfflinePolicy, RolloutStrategy, WaveSize
from edgegpu_cloud.store.rollouts.records import RolloutBoxState, RolloutState, WaveCounts

B, R = RolloutBoxState, RolloutState
PICK = st.integers(0, 1_000)
GATES = st.builds(
    Gate,
    success_percent=st.sampled_from([1, 50, 75, 90, 100]),
    minimum=st.integers(0, 4),
    soak_s=st.sampled_from([0, 60, 3_600]),
)
SIZES = st.lists(st.builds(WaveSize, st.integers(1, 100), st.booleans()), min_size=1, max_size=3).map(tuple)
STRATEGIES = st.builds(
    RolloutStrategy,
    canary=st.integers(0, 3),
    sizes=SIZES,
    gate=GATES,
    max_unavailable=st.integers(0, 4),
    retries=st.integers(0, 2),
    offline=st.sampled_from(OfflinePolicy),
    on_failure=st.sampled_from(FailurePolicy),
)
AT_IT = (R.RUNNING, R.PAUSED)


class RolloutMachine(RuleBasedStateMachine):
    """The rules are what boxes, people and time do; `work` does what was decided, whole or cut off in the middle."""

    @initialize(strategy=STRATEGIES, number=st.integers(1, 25))
    def begin(self, strategy: RolloutStrategy, number: int) -> None:
        self.world = RolloutWorld(strategy, number)
        self.aborted = False

    def _any(self, pick: int, states: tuple[RolloutBoxState, ...], happens: RolloutBoxEvent) -> None:
        if found := self.world.of(*states):
            self.world.put(found[pick % len(found)].position, happens)

    # what is decided and done

    @rule(most=st.sampled_from([1, 2, 1_000]))
    def work(self, most: int) -> None:
        before = len(self.world.begun_waves)
        was = self.world.rollout.state
        at_it = len(self.world.of(B.CHANGING))
        decision = self.world.work(most)
        assert decision == replace(decision)  # a value, nothing that a process holds
        begun = self.world.begun_waves[before:]
        assert not (begun and was is not R.RUNNING), "only a running rollout begins boxes"
        assert not (begun and self.aborted), "after an abort no box is begun"
        assert all(wave <= self.world.rollout.wave for wave in begun), "no box beyond the gate"
        if limit := self.world.strategy.max_unavailable:
            assert at_it + len(begun) <= max(limit, at_it)

    @rule()
    def another_process_decides_the_same(self) -> None:
        other = self.world.cut()
        assert other.decision() == self.world.decision()
        self.world = other

    # what boxes do

    @rule(pick=PICK, times=st.integers(1, 10))
    def apply(self, pick: int, times: int) -> None:
        for number in range(times):
            self._any(pick + number, (B.CHANGING,), BoxApplied("fits"))

    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        self._any(pick, (B.CHANGING,), BoxFailed("cannot"))

    @rule(pick=PICK)
    def reject(self, pick: int) -> None:
        self._any(pick, (B.CHANGING,), BoxRejected("NO_ROOM"))

    @rule(pick=PICK)
    def lose_the_change(self, pick: int) -> None:
        if self.world.rollout.state is R.RUNNING:
            self._any(pick, (B.APPLIED,), BoxFailed("lost"))

    @rule(pick=PICK)
    def be_offline(self, pick: int) -> None:
        self._any(pick, (B.QUEUED,), BoxOffline("offline"))

    @rule(pick=PICK)
    def come_back(self, pick: int) -> None:
        self._any(pick, (B.AWAY,), BoxBack())

    @rule(pick=PICK)
    def be_revoked(self, pick: int) -> None:
        self._any(pick, (B.QUEUED, B.AWAY, B.RETRYING), BoxSkipped("revoked"))

    @rule(pick=PICK, well=st.booleans())
    def return_one(self, pick: int, *, well: bool) -> None:
        self._any(pick, (B.RETURNING,), BoxReturned() if well else BoxNotReturned("rejected"))

    @rule(seconds=st.sampled_from([1, 61, 4_000]))
    def pass_time(self, seconds: int) -> None:
        self.world.now_s += seconds

    # what people do

    @precondition(lambda self: self.world.rollout.state is R.RUNNING)
    @rule()
    def pause(self) -> None:
        self.world.rollout = paused(self.world.rollout, "anna")
        assert not self.world.decision().actions

    @precondition(lambda self: self.world.rollout.state is R.PAUSED)
    @rule()
    def resume(self) -> None:
        self.world.rollout = resumed(self.world.rollout)

    @precondition(lambda self: not self.aborted and self.world.rollout.state in {*AT_IT, R.STOPPING})
    @rule(returns=st.booleans(), seldom=st.integers(0, 3))
    def abort(self, seldom: int, *, returns: bool) -> None:
        if not seldom:
            self.world.rollout = aborted(self.world.rollout, "anna", returns=returns)
            self.aborted = True

    # what always holds

    @invariant()
    def what_has_not_passed_its_gate_holds_the_next(self) -> None:
        world = self.world
        for box in world.boxes:
            begun_beyond = box.attempts and box.wave > world.rollout.wave
            assert not begun_beyond, f"{box.name} of wave {box.wave} was begun in wave {world.rollout.wave}"

    @invariant()
    def a_returned_box_has_what_it_had(self) -> None:
        world = self.world
        for box in world.of(B.RETURNED, B.QUEUED, B.CANCELLED, B.AWAY):
            if not box.attempts or box.state is B.RETURNED:
                assert world.has[box.device] == world.had[box.device]

    @invariant()
    def an_ended_rollout_has_no_box_at_it(self) -> None:
        world = self.world
        if world.rollout.state.ended:
            assert not world.of(B.QUEUED, B.AWAY, B.CHANGING, B.RETRYING, B.RETURNING)
            assert world.rollout.ended_at_s is not None
        if world.rollout.state is R.RETURNED:
            assert not [box for box in world.of(B.APPLIED, B.REJECTED, B.FAILED) if box.changed]

    def teardown(self) -> None:
        """Let all boxes come and end well: the rollout ends too."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for _ in range(400):
            if world.rollout.state.ended:
                break
            if world.rollout.state is R.PAUSED:
                world.rollout = resumed(world.rollout)
            for box in world.boxes:
                match box.state:
                    case B.AWAY:
                        world.put(box.position, BoxBack())
                    case B.CHANGING:
                        world.put(box.position, BoxApplied())
                    case B.RETURNING:
                        world.put(box.position, BoxReturned())
                    case _:
                        pass
            world.work()
            world.now_s += 4_000
        event(f"ends {world.rollout.state}")
        assert world.rollout.state.ended, world.rollout


TestRollouts = RolloutMachine.TestCase
TestRollouts.settings = settings(max_examples=75, stateful_step_count=40, deadline=None)


def _walk(world: RolloutWorld, cuts: int, most: int) -> list[tuple[object, ...]]:
    """Run a rollout whose third box fails, cut off after every so many events; return what was decided."""
    decided: list[tuple[object, ...]] = []
    for number in range(400):
        if cuts and number % cuts == 0:
            world = world.cut()
        decision = world.work(most)
        began = [type(action).__name__ for action in decision.actions]
        decided.append((world.rollout.state, world.rollout.wave, *began))
        for box in world.of(B.CHANGING):
            world.put(box.position, BoxFailed("no") if box.position == 2 else BoxApplied())
        for box in world.of(B.RETURNING):
            world.put(box.position, BoxReturned())
        if world.rollout.state.ended:
            break
        world.now_s += 30
    assert world.has == world.had or not world.rollout.returns
    return decided


def test_a_history_cut_at_each_event_goes_on_as_it_would_have() -> None:
    strategy = RolloutStrategy(canary=1, sizes=(WaveSize(4),), gate=Gate(soak_s=60), max_unavailable=2, retries=1)
    whole = _walk(RolloutWorld(strategy, 9), 0, 1_000)
    assert whole[-1][0] is R.RETURNED
    for cuts in range(1, len(whole)):
        assert _walk(RolloutWorld(strategy, 9), cuts, 1_000) == whole


def test_a_transaction_that_does_only_a_part_is_completed_by_the_next() -> None:
    strategy = RolloutStrategy(canary=0, sizes=(WaveSize(100, percent=True),))
    world, parts = RolloutWorld(strategy, 7), RolloutWorld(strategy, 7)
    world.work()
    for _ in range(4):
        parts.cut().work(2)  # it was killed before the commit: nothing is on the disk
        parts.work(2)
    assert [box.state for box in world.boxes] == [box.state for box in parts.boxes]
    assert parts.begun_waves == [0] * 7
    assert not [one for one in parts.decision().actions if isinstance(one, BeginBoxes | RetryBoxes)]


def test_a_gate_is_failed_as_soon_as_it_cannot_be_passed_any_more() -> None:
    gate = Gate(success_percent=75)
    assert not failed_gate(WaveCounts(states={B.CHANGING: 3, B.FAILED: 1}), gate)
    assert failed_gate(WaveCounts(states={B.CHANGING: 2, B.FAILED: 2}), gate)
    assert failed_gate(WaveCounts(states={B.APPLIED: 2, B.SKIPPED: 1, B.REJECTED: 1}), gate)
