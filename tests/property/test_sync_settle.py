"""Settlement under edits, crashes and refusals: each ask is settled once, and what is true of the last one is told."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kits.sync import limits

from edgegpu_sync.messages.spec import AskedItem, Spec, TryKey, asked
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.replay_guard import SeenRevision
from edgegpu_sync.rules.settle import MOST_TRIES, DesiredState, Settlement

APPS = st.sampled_from(["a", "b", "c"])
ENDS = [Settlement.applied(), Settlement.rejected("NO_ROOM", "no"), Settlement.failed("ERROR", "", restored=True)]


class SettleMachine(RuleBasedStateMachine):
    """A console edits: each edit raises the revision, and only the edited item's own `rev` with it. A box works."""

    def __init__(self) -> None:
        super().__init__()
        self.rev = 0
        self.items: dict[str, tuple[int, int]] = {}
        self.desired_state = DesiredState()
        self.begun: AskedItem | None = None
        self.settled: Counter[TryKey] = Counter()

    @rule(app=APPS, units=st.integers(0, 3))
    def edit(self, app: str, units: int) -> None:
        self.items[app] = (units, self.rev + 1)
        self.publish()

    @rule(app=APPS)
    def leave_out(self, app: str) -> None:
        self.items.pop(app, None)
        self.publish()

    def publish(self) -> None:
        self.rev += 1
        spec = Spec(app_limits=tuple(limits(app, units=u, rev=rev) for app, (u, rev) in self.items.items()))
        before, self.desired_state = (
            self.desired_state,
            self.desired_state.observe(SeenRevision(self.rev, ""), asked(spec.to_json(), self.rev)),
        )
        for one in self.desired_state.asked:
            if one in before.asked:
                assert self.desired_state.settlement(one) == before.settlement(one)

    @precondition(lambda self: self.begun is None)
    @rule()
    def begin(self) -> None:
        one = self.desired_state.next()
        if one is None:
            return
        assert not self.settled[one.key]
        self.desired_state = self.desired_state.begin(one)
        self.begun = one if self.desired_state.settlement(one).state is ItemState.OPEN else None
        self.settled[one.key] += self.begun is None

    @rule()
    def crash(self) -> None:
        self.begun = None

    @precondition(lambda self: self.begun is not None)
    @rule(settlement=st.sampled_from(ENDS))
    def settle(self, settlement: Settlement) -> None:
        if self.begun is not None:
            self.desired_state = self.desired_state.settle(self.begun.name, self.begun.key, settlement)
            self.settled[self.begun.key] += 1
        self.begun = None

    @invariant()
    def each_ask_is_settled_once(self) -> None:
        assert max(self.settled.values(), default=0) <= 1

    @invariant()
    def applied_means_that_nothing_is_open(self) -> None:
        assert self.desired_state.applied_rev <= self.desired_state.seen.rev
        assert (self.desired_state.applied_rev == self.desired_state.seen.rev) == (self.desired_state.next() is None)

    def teardown(self) -> None:
        for _ in range(3 * (MOST_TRIES + 1)):
            self.begin()
            if self.begun is not None:
                self.settle(settlement=ENDS[0])
        assert self.desired_state.applied_rev == self.rev
        told = {name: report.rev for name, report in self.desired_state.report().items()}
        assert told == {f"app_limits/default/{app}/main": rev for app, (_, rev) in self.items.items()}


SettleMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestSettle = SettleMachine.TestCase
