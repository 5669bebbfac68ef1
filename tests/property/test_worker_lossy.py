"""Worker and controller over a link that loses, doubles, reorders and replays, with kills and reboots in between."""

import os
from collections.abc import Callable
from contextlib import ExitStack

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kits.sync import limits
from kits.worker import Box, Wire, fast_folder
from kits.workercontroller import LOGS, LOGS_ARGS, REFRESH, RESTART, Controller
from kits.workerworld import CutError

from edgegpu_sync.messages.spec import Sharing, Spec
from edgegpu_sync.states import CommandState

places = st.integers(min_value=0, max_value=30)
Message = tuple[str, bytes]


class LossyLink(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = self.stack.enter_context(fast_folder())
        self.box = Box(folder)
        self.box.hook = lambda _when, _number: self.box.world.step()
        self.box.start()
        self.controller = Controller(self.box.world)
        self.up: list[Message] = []
        self.down: list[Message] = []
        self.ever: list[Message] = []
        self.connected = False

    # --- helpers

    def live(self, act: Callable[[], object]) -> None:
        """Do something with the box; where it dies in it, it is started again, and has to connect anew."""
        try:
            act()
        except CutError:
            self.start_again()

    def start_again(self) -> None:
        self.box.crash()
        self.box.world.cut_at = -1
        self.box.start()
        self.connected = False

    def gather(self) -> None:
        self.up += self.box.link.sent
        self.box.link.sent = []

    def to_box(self, message: Message) -> None:
        if self.connected:
            self.live(lambda: self.box.arrive(*message))
            self.gather()

    def to_controller(self, message: Message) -> None:
        answers = self.controller.hear(*message)
        self.down += answers
        self.ever += answers

    # --- what people and the network do

    @precondition(lambda self: len(self.controller.tracked) < 12)
    @rule(op=st.sampled_from([RESTART, RESTART, REFRESH, LOGS]), wait_s=st.sampled_from([30, 3_600]))
    def command(self, op: str, wait_s: float) -> None:
        args = LOGS_ARGS if op == LOGS else None
        self.controller.command(op, args, wait_s=wait_s)  # type: ignore[arg-type]

    @rule(installed=st.booleans(), units=st.sampled_from([4, 90]))
    def desire(self, units: int, *, installed: bool) -> None:
        rev = self.controller.sequence.rev + 1
        sharing = Sharing(rev=rev, installed=installed)
        self.controller.desire(Spec(sharing=sharing, app_limits=(limits("asr", units=units, rev=rev),)))

    @precondition(lambda self: len(self.controller.tracked) < 12)
    @rule(installed=st.booleans())
    def order_sharing(self, *, installed: bool) -> None:
        self.controller.sharing(installed=installed)

    @rule()
    def controller_sends(self) -> None:
        sends = [*self.controller.sends(), *self.controller.desired_message()]
        self.down += sends
        self.ever += sends

    @rule()
    def connect(self) -> None:
        if self.connected:
            self.box.disconnect()
        self.connected = True
        self.live(self.box.connect)
        self.gather()

    @rule()
    def cut_the_connection(self) -> None:
        self.connected = False
        self.live(self.box.disconnect)

    @precondition(lambda self: self.up)
    @rule(place=places, kept=st.booleans())
    def carry_up(self, place: int, *, kept: bool) -> None:
        place %= len(self.up)
        self.to_controller(self.up[place] if kept else self.up.pop(place))

    @precondition(lambda self: self.down)
    @rule(place=places, kept=st.booleans())
    def carry_down(self, place: int, *, kept: bool) -> None:
        place %= len(self.down)
        self.to_box(self.down[place] if kept else self.down.pop(place))

    @precondition(lambda self: self.ever)
    @rule(place=places)
    def replay(self, place: int) -> None:
        self.to_box(self.ever[place % len(self.ever)])

    @rule()
    def lose_everything(self) -> None:
        self.up.clear()
        self.down.clear()

    @rule()
    def carry_all(self) -> None:
        up, self.up = self.up, []
        for message in up:
            self.to_controller(message)
        down, self.down = self.down, []
        for message in down:
            self.to_box(message)

    # --- what the box does

    @rule(jobs=st.integers(min_value=1, max_value=4))
    def work(self, jobs: int) -> None:
        for _ in range(jobs):
            self.live(self.box.executor.run)
            self.live(self.box.worker.run_round)
        self.gather()

    @rule(seconds=st.sampled_from([1, 15, 300]))
    def time_passes(self, seconds: float) -> None:
        self.box.world.clock_s += seconds
        self.live(self.box.worker.run_round)
        self.gather()

    @rule()
    def kill(self) -> None:
        self.start_again()

    @rule(steps=st.integers(min_value=1, max_value=9))
    def kill_soon(self, steps: int) -> None:
        self.box.world.steps, self.box.world.cut_at = 0, steps

    @rule()
    def reboot(self) -> None:
        self.box.world.reboot()
        self.start_again()

    # --- what must be true

    @invariant()
    def nothing_verifiable_is_done_twice(self) -> None:
        world = self.box.world
        assert set(world.restarted_by.values()) <= {1}
        assert set(world.transactions.values()) <= {1}
        assert all(count <= 3 for tally in (world.refreshed_by, world.uploads) for count in tally.values())

    @invariant()
    def each_has_one_end(self) -> None:
        assert all(len(ends) == 1 for ends in self.controller.ends.values())

    def teardown(self) -> None:
        try:
            self.box.world.cut_at = -1
            self._all_ends()
        finally:
            self.box.crash()
            self.stack.close()

    def _all_ends(self) -> None:
        if self.connected:
            self.box.disconnect()
        wire = Wire(self.box, self.controller)
        wire.connect()
        wire.pass_time(400, 20)
        assert all(one.ended for one in self.controller.tracked.values()), self.controller.tracked
        status = self.box.worker.status()
        assert (status.commands, status.results_waiting) == ((), 0)
        assert status.applied_rev == self.controller.sequence.rev
        ends: dict[str, set[str]] = {}
        for line in self.box.worker.history(2_000).lines:
            if line.kind == "command" and CommandState(line.state).terminal:
                ends.setdefault(line.about, set()).add(line.state)
        assert ends == {id_: set(states) for id_, states in self.controller.ends.items()}
        done = {id_ for id_, one in self.controller.tracked.items() if one.op == RESTART and one.state == "SUCCEEDED"}
        assert {id_ for id_ in self.box.world.restarted_by if id_ not in done} == set()
        self.nothing_verifiable_is_done_twice()


LossyLink.TestCase.settings = settings(
    max_examples=int(os.environ.get("LOSSY", "25")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLossyLink = LossyLink.TestCase
