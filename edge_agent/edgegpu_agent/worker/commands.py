"""The progress of commands: admitted, begun, done, verified, ended; each step is journalled before the next."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar, assert_never

from edgegpu_agent.journal.contents import HistoryEntry
from edgegpu_agent.journal.errors import BoxJournalError
from edgegpu_agent.ports import Action, ActionOutcome, Acts
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.executor import Executor, RaisedError
from edgegpu_agent.worker.messages import data_bytes
from edgegpu_agent.worker.sender import UplinkSender
from edgegpu_sync.ids import CommandId
from edgegpu_sync.rules.commands import (
    CommandRecord,
    Decision,
    EndStep,
    RecoveryProbe,
    RecoveryStep,
    after_crash,
    to_begin,
)
from edgegpu_sync.rules.ops import OPS, Args, Evidence, RestartRule, SharingArgs, read_args
from edgegpu_sync.rules.outbox import Outbox
from edgegpu_sync.rules.settle import INSTALL, UNINSTALL, CommandWait, ItemEnd, sharing_command
from edgegpu_sync.states import FOLLOWERS, CommandState, ResultCode
from edgegpu_sync.wire import clipped

LOOK_S = 1.0
"""Seconds between two checks of an action's outcome."""

GRACE_S = 120.0
"""How long past its op's own time an action that does not return may take; then its command is ended without it."""

SHARING = frozenset({INSTALL, UNINSTALL})
"""The ops that have no action: they wait for the settlement of the item `sharing`."""

_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,39}")
_THE_ACT_KNOWS_WHY = frozenset({Evidence.PUT_BACK, Evidence.BROKEN})

T = TypeVar("T")


class CommandStates:
    """The writer of commands' states: to the journal, to the sender, and to `ended`."""

    def __init__(self, core: Core, sender: UplinkSender, *, ended: Callable[[CommandRecord], None]) -> None:
        """Build the command states.

        Args:
            core: the journal.
            sender: sends each changed state.
            ended: called with each command that has ended, before its result is sent.
        """
        self.core, self._sender, self._ended = core, sender, ended

    def put(self, record: CommandRecord, *, outbox: Outbox | None = None, data: bytes | None = None) -> None:
        """Write a command's state; a terminal one takes the place in the outbox that was reserved for it.

        Raises:
            JournalFullError: nothing has changed.
        """
        held = self.core.held
        outbox = outbox or held.outbox
        if record.state.terminal:
            outbox = outbox.ended(record.id)
        held = replace(held, records={**held.records, record.id: record}, outbox=outbox)
        text = " ".join(part for part in (record.op, record.code, record.text) if part)
        told = HistoryEntry(kind="command", about=record.id, state=record.state, text=text)
        self.core.save(held, bodies=None if data is None else {record.id: data}, told=(told,))
        if record.state.terminal:
            self._ended(record)
        self._sender.changed(record.id)

    def end(self, record: CommandRecord, outcome: ActionOutcome) -> None:
        """Write the end of a command; an outcome that cannot follow its state becomes FAILED, a bad code ERROR."""
        state, code = outcome.state, outcome.code
        if state not in FOLLOWERS[record.state] or not state.terminal:
            state, code = CommandState.FAILED, ResultCode.ERROR
        if code and not _CODE.fullmatch(code):
            code = ResultCode.ERROR
        self.put(record.ended(state, code, clipped(outcome.text)), data=data_bytes(outcome.data))


@dataclass(slots=True, kw_only=True)
class ActionRun:
    """The progress of one command's action in this process; it does not outlive the process."""

    since_s: float
    busy: bool = False
    want: Literal["probe", "verify"] = "probe"
    look_at_s: float = 0.0
    error: str = field(default="")


class ActionRunner:
    """The runner of commands' actions; it also goes on with those that an earlier agent process has begun."""

    def __init__(self, states: CommandStates, *, acts: Acts, executor: Executor) -> None:
        """Build the action runner.

        Args:
            states: writes the states.
            acts: the actions by op.
            executor: runs the blocking calls.
        """
        self._states, self._acts, self._executor = states, acts, executor
        self._core = states.core
        self._runs: dict[CommandId, ActionRun] = {}
        self._left: set[CommandId] = set()

    def has(self, id_: CommandId) -> bool:
        """Return whether this process is working on a command."""
        return id_ in self._runs

    @property
    def left(self) -> bool:
        """Whether an action that was given up has not returned yet."""
        return bool(self._left)

    def begin(self, record: CommandRecord) -> None:
        """Begin an ACCEPTED command; take its token first, where its op is verifiable."""
        act, args = self._act(record)
        run = ActionRun(since_s=self._core.now_s)
        if OPS[record.op].settling is not RestartRule.VERIFIABLE:
            self._do(record.begun(), run)
            return
        self._runs[record.id] = run
        self._start(record, run, lambda: act.token(record.id, args), partial(self._on_token, record.id, run))

    def _on_token(self, id_: CommandId, run: ActionRun, token: str | RaisedError) -> None:
        record = self._core.held.records[id_]  # it may have been signed again meanwhile
        if isinstance(token, str) and token:
            self._do(record.begun(token), run)
            return
        why = token.text if isinstance(token, RaisedError) else "nothing is to be seen"
        outcome = ActionOutcome.rejected(ResultCode.ERROR, f"it cannot be told how things stand: {why}")
        self._end(record, outcome)

    def _do(self, record: CommandRecord, run: ActionRun) -> None:
        """Journal that the command is begun, then run its action."""
        act, args = self._act(record)
        self._runs[record.id] = run
        try:
            self._states.put(record)
        except BaseException:
            del self._runs[record.id]  # it was not begun: all of it is tried again
            raise
        self._start(record, run, partial(act.act, record.id, args, record.token), partial(self._on_act, record.id, run))

    def _on_act(self, id_: CommandId, run: ActionRun, outcome: ActionOutcome | RaisedError) -> None:
        record = self._core.held.records[id_]
        if isinstance(outcome, RaisedError):
            self._on_fault(record, run, outcome)
        elif outcome.state is CommandState.VERIFYING:
            self._states.put(record.verifying())
            run.want, run.look_at_s = "verify", self._core.now_s
        else:
            self._end(record, outcome)

    def _on_fault(self, record: CommandRecord, run: ActionRun, raised: RaisedError) -> None:
        """Handle an action that raised: for a verifiable op ask for evidence, else end the command as FAILED."""
        run.error = raised.text
        if OPS[record.op].settling is RestartRule.VERIFIABLE:
            run.want = "probe"
        else:
            self._end(record, ActionOutcome.failed(run.error))

    # --- what was begun

    def drive(self, record: CommandRecord) -> None:
        """Go on with a command that is RUNNING or VERIFYING."""
        run = self._runs.get(record.id)
        if run is None:
            self._recover(record)
        elif self._is_overdue(record, run):
            self._give_up(record, run)
        elif not run.busy and self._core.now_s >= run.look_at_s:
            self._look(record, run)

    def _recover(self, record: CommandRecord) -> None:
        op = OPS.get(record.op)
        if op is None or record.op not in self._acts:
            text = "it was begun by another version of the agent, which knew it"
            self._end(record, ActionOutcome(state=CommandState.UNKNOWN, code=ResultCode.CUT_SHORT, text=text))
            return
        run = ActionRun(since_s=self._core.now_s)
        if op.settling is RestartRule.VERIFIABLE:
            self._runs[record.id] = run
            self._look(record, run)
        else:
            self._decide(record, run, Evidence.UNREADABLE)
            if not self._core.held.records[record.id].state.terminal:
                self._runs[record.id] = run

    def _look(self, record: CommandRecord, run: ActionRun) -> None:
        act, args = self._act(record)
        if run.want == "verify":
            work = partial(act.verify, record.id, args, record.token)
            self._start(record, run, work, partial(self._on_verify, record.id, run))
        else:
            traces = partial(act.evidence, record.id, record.token)
            self._start(record, run, traces, partial(self._on_evidence, record.id, run))

    def _on_verify(self, id_: CommandId, run: ActionRun, outcome: ActionOutcome | RaisedError | None) -> None:
        record = self._core.held.records[id_]
        if isinstance(outcome, RaisedError):
            self._end(record, ActionOutcome.failed(outcome.text))
        elif outcome is None or outcome.state is CommandState.VERIFYING:
            run.look_at_s = self._core.now_s + LOOK_S
        else:
            self._end(record, outcome)

    def _on_evidence(self, id_: CommandId, run: ActionRun, found: Evidence | RaisedError) -> None:
        record = self._core.held.records[id_]
        self._decide(record, run, Evidence.UNREADABLE if isinstance(found, RaisedError) else found)

    def _decide(self, record: CommandRecord, run: ActionRun, evidence: Evidence) -> None:
        core = self._core
        decision: Decision = after_crash(
            record, RecoveryProbe(boot=core.clock.boot, now_s=core.now_s, evidence=evidence)
        )
        match decision:
            case RecoveryStep.ACT_AGAIN if run.error:
                self._end(record, ActionOutcome.failed(run.error))
            case RecoveryStep.ACT_AGAIN:
                self._do(record.again(), run)
            case RecoveryStep.VERIFY:
                if record.state is CommandState.RUNNING:
                    self._states.put(record.verifying())
                run.want, run.look_at_s = "verify", core.now_s
            case RecoveryStep.PROBE_AGAIN:
                run.look_at_s = core.now_s + LOOK_S
            case EndStep() if evidence in _THE_ACT_KNOWS_WHY:
                self._ask_why(record, run, decision)
            case EndStep(state, code, text):
                self._end(record, ActionOutcome(state=state, code=code, text=text))
            case RecoveryStep.BEGIN | RecoveryStep.AWAIT_RENEWAL | RecoveryStep.NONE:
                pass
            case _:
                assert_never(decision)

    def _ask_why(self, record: CommandRecord, run: ActionRun, end: EndStep) -> None:
        """Ask the action why its change was put back or broken, and end the command with its text."""
        act, args = self._act(record)
        work = partial(act.verify, record.id, args, record.token)
        self._start(record, run, work, partial(self._on_why, record.id, end))

    def _on_why(self, id_: CommandId, end: EndStep, said: ActionOutcome | RaisedError | None) -> None:
        if not isinstance(said, ActionOutcome) or said.state is not end.state:
            said = ActionOutcome(state=end.state, code=end.code, text=end.text)
        self._end(self._core.held.records[id_], said)

    def _is_overdue(self, record: CommandRecord, run: ActionRun) -> bool:
        grace_s = GRACE_S if run.busy else 0.0
        return self._core.now_s - run.since_s > OPS[record.op].lasts_s + grace_s

    def _give_up(self, record: CommandRecord, run: ActionRun) -> None:
        """End a command without its action; until that returns, nothing that must run alone begins."""
        busy = run.busy
        text = f"nothing told within {OPS[record.op].lasts_s} s what came of it"
        self._end(record, ActionOutcome.failed(text, ResultCode.TIMED_OUT))
        if busy and OPS[record.op].alone:
            self._left.add(record.id)

    # --- helpers

    def _end(self, record: CommandRecord, outcome: ActionOutcome) -> None:
        self._states.end(record, outcome)
        self._runs.pop(record.id, None)

    def _act(self, record: CommandRecord) -> tuple[Action, Args]:
        return self._acts[record.op], read_args(OPS[record.op], record.args)

    def _start(
        self, record: CommandRecord, run: ActionRun, work: Callable[[], T], then: Callable[[T | RaisedError], None]
    ) -> None:
        run.busy = True
        self._executor.start(f"{record.op} {record.id}", work, partial(self._done, record.id, run, then))

    def _done(
        self, id_: CommandId, run: ActionRun, then: Callable[[T | RaisedError], None], result: T | RaisedError
    ) -> None:
        """Take the result of a call; this is called again where the result cannot be written now."""
        self._left.discard(id_)
        if self._runs.get(id_) is not run or (isinstance(result, RaisedError) and result.stopped):
            return
        run.busy = False
        try:
            then(result)
        except BoxJournalError:
            run.busy = True
            raise


class CommandQueue:
    """The queue of all open commands in the journal; it admits, expires, begins and drives them."""

    def __init__(self, states: CommandStates, acting: ActionRunner, *, capabilities: Collection[str]) -> None:
        """Build the command queue.

        Args:
            states: writes the states.
            acting: runs the actions.
            capabilities: all capabilities of this box.
        """
        self._states, self._acting, self._able = states, acting, capabilities
        self._core = states.core

    @property
    def alone_busy(self) -> bool:
        """Whether an action is running that must run alone, so that no item may be settled."""
        return self._acting.left or any(
            _alone(one) and one.op not in SHARING and (one.state.begun or self._acting.has(one.id))
            for one in self._live()
        )

    def pump(self, *, items_busy: bool) -> None:
        """Do what can be done now for each command; `items_busy`: an item is being settled.

        Raises:
            JournalFullError: a state could not be written; nothing was begun without it.
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
        self._begin(items_busy=items_busy)

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
        """End a waiting command that cannot succeed: it has expired, its op is unknown, or a newer revision differs."""
        if self._acting.has(record.id):
            return
        if record.may_begin(self._core.clock.boot, self._core.now_s) is False:
            self._states.put(record.expired())
        elif record.op not in self._able:
            text = f"this version of the agent does not know {record.op}"
            self._states.put(record.ended(CommandState.REJECTED, ResultCode.UNKNOWN_OP, text))
        elif record.op in SHARING:
            stands = self._sharing(record)
            if isinstance(stands, ItemEnd) and stands.state is CommandState.REJECTED:
                self._states.end(record, ActionOutcome(state=stands.state, code=stands.code, text=stands.text))

    def _begin(self, *, items_busy: bool) -> None:
        core = self._core
        ready = [one for one in self._live() if not self._waits_for_rev(one)]
        for record in to_begin(ready, boot=core.clock.boot, now_s=core.now_s):
            if not self._may_begin(record, items_busy=items_busy):
                continue
            if record.op in SHARING:
                self._states.put(record.begun(f'{{"rev":{core.held.desired_state.seen.rev}}}'))
                self._follow(core.held.records[record.id])
            else:
                self._acting.begin(record)

    def _waits_for_rev(self, record: CommandRecord) -> bool:
        """Return whether a command waits for a revision that has not come; then it does not delay other commands."""
        if record.state is not CommandState.ACCEPTED or record.op not in SHARING:
            return False
        stands = self._sharing(record)
        return isinstance(stands, CommandWait) and stands.for_rev > self._core.held.desired_state.seen.rev

    def _may_begin(self, record: CommandRecord, *, items_busy: bool) -> bool:
        if self._acting.has(record.id):
            return False
        return not _alone(record) or (not self.alone_busy and (record.op in SHARING or not items_busy))

    def _follow(self, record: CommandRecord) -> None:
        stands = self._sharing(record)
        if isinstance(stands, ItemEnd):
            self._states.end(record, ActionOutcome(state=stands.state, code=stands.code, text=stands.text))

    def _sharing(self, record: CommandRecord) -> ItemEnd | CommandWait:
        args = read_args(OPS[record.op], record.args)
        assert isinstance(args, SharingArgs)  # noqa: S101  (the op's own model; it was admitted)
        return sharing_command(record.op, args.min_rev, self._core.held.desired_state)


def _alone(record: CommandRecord) -> bool:
    return record.op not in OPS or OPS[record.op].alone
