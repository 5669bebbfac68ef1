"""Which commands are admitted, wait, and begin, and how those of `sharing` stand."""

from collections.abc import Callable, Collection

from edgegpu_agent.actions.action import ActionOutcome
from edgegpu_agent.worker.actions import Acting
from edgegpu_agent.worker.command_states import States
from edgegpu_sync.rules.commands import CommandRecord, to_begin
from edgegpu_sync.rules.ops import OPS, SharingArgs, read_args
from edgegpu_sync.rules.settle import INSTALL, UNINSTALL, ItemEnd, Waits, sharing_command
from edgegpu_sync.states import Codes, CommandState

SHARING = frozenset({INSTALL, UNINSTALL})
"""They do nothing themselves: they wait for the settlement of the item `sharing`."""


class CommandQueue:
    """Brings every command that the journal holds on its way."""

    def __init__(
        self, states: States, acting: Acting, *, capabilities: Collection[str], items_busy: Callable[[], bool]
    ) -> None:
        """Prepare it.

        Args:
            states: writes the states.
            acting: carries them out.
            capabilities: what was published at the birth.
            items_busy: whether an item is being settled.
        """
        self._states, self._acting, self._able, self._items_busy = states, acting, capabilities, items_busy
        self._core = states.core

    @property
    def alone_busy(self) -> bool:
        """Whether an act is under way beside which no item may be settled."""
        return self._acting.left or any(
            _alone(one) and one.op not in SHARING and (one.state.begun or self._acting.has(one.id))
            for one in self._live()
        )

    def pump(self) -> None:
        """Do for each command what can be done now.

        Raises:
            JournalFullError: nothing was begun that is not written.
        """
        for record in self._live():
            match record.state:
                case CommandState.RECEIVED:
                    self._admit(record)
                case CommandState.ACCEPTED:
                    self._wait(record)
                case _ if record.op in SHARING:
                    self._follow(record)
                case _:
                    self._acting.drive(record)
        self._begin()

    def _live(self) -> list[CommandRecord]:
        live = (one for one in self._core.held.records.values() if not one.state.terminal)
        return sorted(live, key=lambda one: one.seq)

    def _admit(self, record: CommandRecord) -> None:
        outbox = self._core.held.outbox
        match record.may_begin(self._core.clock.boot, self._core.now_s):
            case None:
                return
            case False:
                self._states.put(record.expired())
            case True:
                admitted = record.admitted(self._able, room=outbox.has_room)
                if admitted.state is CommandState.ACCEPTED:
                    outbox = outbox.reserve(record.id)
                self._states.put(admitted, outbox=outbox)

    def _wait(self, record: CommandRecord) -> None:
        """End what waits in vain: too late, or a newer revision says otherwise."""
        if self._acting.has(record.id):
            return
        if record.may_begin(self._core.clock.boot, self._core.now_s) is False:
            self._states.put(record.expired())
        elif record.op not in self._able:
            text = f"this version of the agent does not know {record.op}"
            self._states.put(record.ended(CommandState.REJECTED, Codes.UNKNOWN_OP, text))
        elif record.op in SHARING:
            stands = self._sharing(record)
            if isinstance(stands, ItemEnd) and stands.state is CommandState.REJECTED:
                self._states.end(record, ActionOutcome(state=stands.state, code=stands.code, text=stands.text))

    def _begin(self) -> None:
        core = self._core
        ready = [one for one in self._live() if not self._waits_for_rev(one)]
        for record in to_begin(ready, boot=core.clock.boot, now_s=core.now_s):
            if self._acting.has(record.id) or (_alone(record) and not self._may_be_alone(record)):
                continue
            if record.op in SHARING:
                self._states.put(record.begun(f'{{"rev":{core.held.board.seen.rev}}}'))
                self._follow(core.held.records[record.id])
            else:
                self._acting.begin(record)

    def _waits_for_rev(self, record: CommandRecord) -> bool:
        """Whether its revision has not come yet: it holds no other command up meanwhile."""
        if record.state is not CommandState.ACCEPTED or record.op not in SHARING:
            return False
        stands = self._sharing(record)
        return isinstance(stands, Waits) and stands.for_rev > self._core.held.board.seen.rev

    def _may_be_alone(self, record: CommandRecord) -> bool:
        return not self.alone_busy and (record.op in SHARING or not self._items_busy())

    def _follow(self, record: CommandRecord) -> None:
        stands = self._sharing(record)
        if isinstance(stands, ItemEnd):
            self._states.end(record, ActionOutcome(state=stands.state, code=stands.code, text=stands.text))

    def _sharing(self, record: CommandRecord) -> ItemEnd | Waits:
        args = read_args(OPS[record.op], record.args)
        assert isinstance(args, SharingArgs)  # noqa: S101  (the op's own model; it was admitted)
        return sharing_command(record.op, args.min_rev, self._core.held.board)


def _alone(record: CommandRecord) -> bool:
    return record.op not in OPS or OPS[record.op].alone
