"""The real plugin process under a state machine: pods come and go, kills, restarts of kubelet, cards that vanish."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from chaos.pluginbox import PluginBox, Want
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

EXAMPLES, STEPS = int(os.environ.get("PLUGIN_EXAMPLES", "9")), 25
"""Three seconds each, five on two very busy cores: at most a minute and a half for both machines."""

MOST_PODS = 10

CORE = st.sampled_from([10, 30, 50, 80])
UNITS = st.sampled_from([2, 3, 4, 6])
AMOUNTS = st.one_of(st.tuples(UNITS, CORE), st.sampled_from([(0, 100), (0, 200), (5, 200)]))
ALIKE = st.builds(
    lambda units, cores: [(units, core) for core in cores], UNITS, st.lists(CORE, min_size=2, max_size=3, unique=True)
)
"""What kubelet's call for one of the two resources does not tell apart."""
MENU = st.one_of(st.lists(AMOUNTS, min_size=1, max_size=3), ALIKE)
SHAPES = {
    "one": ("app",),
    "two": ("app", "app"),
    "init": ("init", "app"),
    "sidecar": ("sidecar", "app"),
    "inits": ("init", "sidecar", "app"),
}
SHAPE = st.sampled_from(["one"] * 6 + list(SHAPES))
PICKS = st.tuples(st.integers(0, 5), st.integers(0, 5))


class PluginMachine(RuleBasedStateMachine):
    """Nothing is waited for between steps but where a rule says so, so that what follows comes in the middle."""

    forcing = False

    def __init__(self) -> None:
        super().__init__()
        self.box: PluginBox | None = None

    @initialize(
        units=st.lists(st.sampled_from([12, 8, 6]), min_size=2, max_size=3),
        seed=st.integers(0, 2**32),
        menu=MENU,
    )
    def begin(self, units: list[int], seed: int, menu: list[tuple[int, int]]) -> None:
        self.menu = menu
        self.box = PluginBox(units, seed=seed)

    # What the cluster does.

    @precondition(lambda self: len(self.box.pods) < MOST_PODS)
    @rule(
        shape=SHAPE,
        picks=PICKS,
        step=st.sampled_from([0, 1]),
        many=st.sampled_from([3, 1, 2]),
        lasts=st.sampled_from([True, True, True, False]),
    )
    def pods_come(self, shape: str, picks: tuple[int, int], step: int, many: int, lasts: bool) -> None:  # noqa: FBT001
        for number in range(many):
            wants = self._wants(shape, (picks[0] + step * number, picks[1]))
            self._box.make(wants, forced=False, lasts=lasts)

    @precondition(lambda self: self.forcing and len(self.box.pods) < MOST_PODS)
    @rule(shape=SHAPE, picks=PICKS, copies=st.sampled_from([1, 2]))
    def pods_are_forced(self, shape: str, picks: tuple[int, int], copies: int) -> None:
        self._box.race()  # one of them may be taken for one that is promised its devices, which then fails
        for _ in range(copies):
            self._box.make(self._wants(shape, picks), forced=True, lasts=True)

    @precondition(lambda self: self.box.pods)
    @rule(data=st.data(), by_force=st.booleans(), many=st.sampled_from([1, 1, 3]))
    def pods_go(self, data: st.DataObject, by_force: bool, many: int) -> None:  # noqa: FBT001
        for _ in range(min(many, len(self._box.pods))):
            names = sorted(self._box.pods)
            self._box.delete(names[data.draw(st.integers(0, len(names) - 1))], by_force=by_force)

    @rule()
    def the_api_server_restarts(self) -> None:
        self._box.restart_api()

    # What the box does.

    @rule(starts=st.booleans())
    def the_plugin_is_killed(self, starts: bool) -> None:  # noqa: FBT001
        self._box.kill_plugin()
        if starts:
            self._box.start_plugin()

    @rule()
    def kubelet_restarts(self) -> None:
        self._box.restart_kubelet()

    @precondition(lambda self: not self.box.vanished)
    @rule(which=st.integers(0, 2))
    def a_card_vanishes(self, which: int) -> None:
        self._box.vanish(self._box.cards[which % len(self._box.cards)].uuid)

    @precondition(lambda self: self.box.vanished)
    @rule()
    def cards_come_back(self) -> None:
        for uuid in sorted(self._box.vanished):
            self._box.restore(uuid)

    @rule()
    def all_is_quiet(self) -> None:
        self._box.settle()
        self._box.excuse_no_longer()

    # What must hold.

    @invariant()
    def who_runs_lies_right(self) -> None:
        if self.box is not None:
            wrong = self.box.wrong_now()
            assert not wrong, "\n".join([*wrong, *self.box.told()])

    def teardown(self) -> None:
        if self.box is None:
            return
        try:
            for uuid in sorted(self.box.vanished):
                self.box.restore(uuid)
            self.box.settle()
            self.who_runs_lies_right()
        finally:
            self.box.close()

    @property
    def _box(self) -> PluginBox:
        assert self.box is not None
        return self.box

    def _wants(self, shape: str, picks: tuple[int, int]) -> tuple[Want, ...]:
        """Make a pod of what is on this run's menu, so that pods are often alike."""
        first, second = (self.menu[pick % len(self.menu)] for pick in picks)
        amounts = (first, second, first)
        return tuple(
            Want(f"c{n}", *amounts[n], init=role == "init", sidecar=role == "sidecar")
            for n, role in enumerate(SHAPES[shape])
        )


class Forced(PluginMachine):
    """Pods with nodeName among them."""

    forcing = True


@pytest.mark.parametrize("machine", [PluginMachine, Forced])
def test_the_plugin_s_books_are_kubelet_s_whatever_comes(simdriver_build: Path, machine: Any) -> None:  # noqa: ANN401
    assert simdriver_build.is_dir()
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            phases=[Phase.generate],  # a shorter example would cost minutes
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
