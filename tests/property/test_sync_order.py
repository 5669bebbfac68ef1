"""Two sides and a network that loses, doubles, delays and replays: done once at most, lost never, floors only rise."""

from dataclasses import replace

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from property.sync_world import REFRESH, RESTART, Down, SimBox, SimController, Store, Up, World

from edgegpu_sync.ids import CommandId, command_id
from edgegpu_sync.messages.uplink import Birth
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState, ResultCode

PICK = st.integers(0, 30)
ROUNDS = 60


class OrderMachine(RuleBasedStateMachine):
    """The rules are what can happen; `teardown` makes the network well again and sees that all come to an end."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.enrolment = 1
        self.box = SimBox(self.world, self.enrolment)
        self.controller = SimController(Store(CommandSequence(enrolment=1)), self.world)
        self.backup = self.controller.store.copy()
        self.down: list[Down] = []
        self.up: list[Up] = []
        self.sent_down: list[Down] = []
        self.sent_up: list[Up] = []
        self.retained: Birth | None = None
        self.asked: dict[CommandId, TrackedCommand] = {}
        self.due_s: dict[CommandId, float] = {}
        self.floors = (1, 0)
        self.made = 0
        self.send_up(self.box.start())

    def send_up(self, messages: list[Up]) -> None:
        for message in messages:
            self.retained = message if isinstance(message, Birth) else self.retained
        self.up += messages
        self.sent_up += messages

    def send_down(self, messages: list[Down]) -> None:
        self.down += messages
        self.sent_down += messages

    # People and time.

    @rule(op=st.sampled_from([RESTART, RESTART, REFRESH]), wait_s=st.sampled_from([5, 100, 10_000]))
    def ask(self, op: str, wait_s: int) -> None:
        id_ = command_id(f"command-{self.made:04}")
        self.made += 1
        one = TrackedCommand(
            id=id_, op=RESTART if op == RESTART else REFRESH, args={}, due_at_s=self.world.clock_s + wait_s
        )
        self.asked[id_] = one
        self.due_s[id_] = one.due_at_s
        self.controller.store.tracked[id_] = one

    @rule(op=st.sampled_from([RESTART, REFRESH]), turns=st.integers(4, 6))
    def ask_and_see_it_done(self, op: str, turns: int) -> None:
        self.ask(op=op, wait_s=10_000)
        self.all_is_well_for_a_while(turns=turns)

    @rule(seconds=st.sampled_from([1, 15, 200, 5_000]))
    def wait(self, seconds: int) -> None:
        self.world.clock_s += seconds

    @precondition(lambda self: self.controller.store.sequence.restored)
    @rule()
    def confirm(self) -> None:
        self.controller.store.sequence = self.controller.store.sequence.confirmed()

    # The network.

    @precondition(lambda self: self.down)
    @rule(pick=PICK, again=st.booleans(), lost=st.sampled_from([False, False, False, True]))
    def to_box(self, pick: int, *, again: bool, lost: bool) -> None:
        place = pick % len(self.down)
        message = self.down[place] if again else self.down.pop(place)
        if not lost:
            self.send_up(self.box.receive(message))

    @precondition(lambda self: self.up)
    @rule(pick=PICK, again=st.booleans(), lost=st.sampled_from([False, False, False, True]))
    def to_controller(self, pick: int, *, again: bool, lost: bool) -> None:
        place = pick % len(self.up)
        message = self.up[place] if again else self.up.pop(place)
        if not lost:
            self.send_down(self.controller.receive(message))

    @rule(turns=st.integers(1, 4))
    def all_is_well_for_a_while(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    @rule(turns=st.integers(1, 3), wait_s=st.sampled_from([1, 15]), up=st.booleans(), down=st.booleans())
    def it_loses_one_way_and_doubles_the_other(self, turns: int, wait_s: int, *, up: bool, down: bool) -> None:
        for _ in range(turns):
            self.world.clock_s += wait_s
            self.up = [] if up else self.up * 2
            self.send_down(self.controller.step())
            self.down = [] if down else self.down * 2
            self.turn()

    @precondition(lambda self: self.sent_down)
    @rule(pick=PICK)
    def replay_to_box(self, pick: int) -> None:
        self.send_up(self.box.receive(self.sent_down[-1 - pick % len(self.sent_down)]))

    @rule()
    def everything_ever_sent_is_replayed_to_box(self) -> None:
        for message in list(self.sent_down):
            self.up += self.box.receive(message)
        for _ in range(4):
            for id_ in sorted(self.box.records):
                self.up += self.box.step(id_)

    @precondition(lambda self: self.sent_up)
    @rule(pick=PICK)
    def replay_to_controller(self, pick: int) -> None:
        self.send_down(self.controller.receive(self.sent_up[-1 - pick % len(self.sent_up)]))

    # The box.

    @precondition(lambda self: self.box.records)
    @rule(pick=PICK)
    def box_step(self, pick: int) -> None:
        ids = sorted(self.box.records)
        self.send_up(self.box.step(ids[pick % len(ids)]))

    @precondition(lambda self: self.box.records)
    @rule(pick=PICK, steps=st.integers(1, 4))
    def box_dies_in_the_middle(self, pick: int, steps: int) -> None:
        open_ones = sorted(one.id for one in self.box.records.values() if not one.state.terminal)
        for _ in range(steps if open_ones else 0):
            self.send_up(self.box.step(open_ones[pick % len(open_ones)]))
        self.send_up(self.box.start())

    @rule(what=st.sampled_from(["connects", "dies", "reboots"]))
    def box_begins_anew(self, what: str) -> None:
        if what == "reboots":
            self.world.reboot()
        self.send_up(self.box.connect() if what == "connects" else self.box.start())

    @rule()
    def box_is_imaged_anew(self) -> None:
        self.enrolment += 1
        store = self.controller.store
        if store.sequence.enrolment >= self.enrolment:
            return
        store.sequence = store.sequence.reimaged(self.enrolment, "")
        store.tracked = {id_: one.reimaged() for id_, one in store.tracked.items()}
        self.world.reboot()
        self.box = SimBox(self.world, self.enrolment)
        self.send_up(self.box.start())

    # The controller.

    @rule()
    def controller_step(self) -> None:
        self.send_down(self.controller.step())

    @rule()
    def controller_restarts(self) -> None:
        store = self.controller.store
        store.sequence = replace(store.sequence, born_at_s=None)
        if self.retained is not None:
            self.send_down(self.controller.receive(self.retained, live=False))
        self.send_down(self.controller.ask())

    @rule()
    def backup_is_taken(self) -> None:
        self.backup = self.controller.store.copy()

    @rule()
    def backup_is_put_back(self) -> None:
        lost = self.controller.store.tracked.keys() - self.backup.tracked.keys()
        for id_ in lost:
            del self.asked[id_]  # nobody is told of them any more: their results are orphans
        self.controller.store = self.backup.copy()
        self.controller_restarts()

    # What must hold.

    @invariant()
    def nothing_is_done_twice(self) -> None:
        if hasattr(self, "world"):
            assert not [one for one, times in self.world.done.items() if times > 1 and self.is_restart(one)]

    @invariant()
    def nothing_begins_too_late(self) -> None:
        if hasattr(self, "world"):
            late = [one for one, at_s in self.world.begun_at_s.items() if at_s > self.due_s[one]]
            assert not late, late

    def is_restart(self, id_: CommandId) -> bool:
        sent = (message for message in self.sent_down if isinstance(message, tuple))
        return next(message[1] for message in sent if message[0] == id_) == RESTART

    @invariant()
    def floors_only_rise(self) -> None:
        if hasattr(self, "world"):
            now = (self.box.guard.enrolment, self.box.guard.floor)
            assert now >= self.floors
            self.floors = now

    def turn(self) -> None:
        """Everything that is on its way arrives, and both sides do what is theirs."""
        up, self.up = self.up, []
        for message in up:
            self.send_down(self.controller.receive(message))
        self.send_down(self.controller.step())
        down, self.down = self.down, []
        for order in down:
            self.send_up(self.box.receive(order))
        for id_ in sorted(self.box.records):
            self.send_up(self.box.step(id_))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.send_up(self.box.start())
        for _ in range(ROUNDS):
            self.world.clock_s += 400
            if self.controller.store.sequence.restored:
                self.confirm()
            if self.controller.store.sequence.born_at_s is None:
                self.send_down(self.controller.ask())
            self.turn()
            if self.settled():
                break
        assert self.settled(), self.controller.store
        self.nothing_is_done_twice()
        for id_ in self.asked:
            self.both_sides_say_the_same(id_)

    def settled(self) -> bool:
        ended = all(one.ended for one in self.controller.store.tracked.values())
        return ended and self.box.receipted >= self.box.records.keys() and not self.up and not self.down

    def both_sides_say_the_same(self, id_: CommandId) -> None:
        one = self.controller.store.tracked[id_]
        event(f"{one.state} {one.code}")
        if one.state is CommandState.UNKNOWN:
            assert one.code in {ResultCode.REIMAGED, ResultCode.FORGOTTEN}
            return
        if id_ in self.box.records:
            assert one.state is self.box.records[id_].state
        match one.state:
            case CommandState.SUCCEEDED:
                assert self.world.done[id_] or self.world.boots
            case CommandState.EXPIRED:
                assert not self.world.done[id_]
            case other:
                assert (other, one.code) == (CommandState.FAILED, ResultCode.ATTEMPTS)


OrderMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestOrder = OrderMachine.TestCase
