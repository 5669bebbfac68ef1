"""A command on its box: its states, each written to the journal before the next step, and what follows a crash."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from edgegpu_sync.ids import CommandId, OpName
from edgegpu_sync.rules.ops import OPS, BadArgumentsError, Declaration, Evidence, RestartRule, read_args
from edgegpu_sync.states import FOLLOWERS, CommandState, ResultCode
from edgegpu_sync.wire import Json

MOST_ATTEMPTS = 3
"""How often an action is begun: one that takes the agent down each time must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """A command in the journal.

    `until_s` is CLOCK_BOOTTIME of the boot `boot`, and means nothing in another. `left_s` is how far `until_s` was away
    when the command was taken: another boot that has run for longer has surely passed it.
    """

    id: CommandId
    op: OpName
    seq: int
    args: Json
    until_s: float
    left_s: float
    boot: str
    state: CommandState = CommandState.RECEIVED
    token: str = ""
    attempts: int = 0
    code: str = ""
    text: str = ""

    def _to(self, state: CommandState, *, code: str = "", text: str = "") -> "CommandRecord":
        if state not in FOLLOWERS[self.state]:
            raise ValueError(f"command {self.id}: {state} does not follow {self.state}")
        return replace(self, state=state, code=code, text=text)

    def admitted(self, capabilities: Collection[str], *, room: bool) -> "CommandRecord":
        """Return the record ACCEPTED, or REJECTED with the reason.

        Args:
            capabilities: what this box published at its birth.
            room: whether the outbox has a place for its result (`Outbox.has_room`).
        """
        op = OPS.get(self.op)
        if op is None or self.op not in capabilities:
            return self._to(CommandState.REJECTED, code=ResultCode.UNKNOWN_OP, text=f"this box does not know {self.op}")
        if not room:
            text = "too many results wait for their receipt: the box must reach its controller first"
            return self._to(CommandState.REJECTED, code=ResultCode.OUTBOX_FULL, text=text)
        try:
            read_args(op, self.args)
        except BadArgumentsError as error:
            return self._to(CommandState.REJECTED, code=error.code, text=str(error))
        return self._to(CommandState.ACCEPTED)

    def renewed(self, until_s: float, *, boot: str, now_s: float) -> "CommandRecord":
        """Return the record after its controller has signed it again: what has not begun may begin until `until_s`."""
        return self if self.state.begun else replace(self, until_s=until_s, left_s=until_s - now_s, boot=boot)

    def may_begin(self, boot: str, now_s: float) -> bool | None:
        """Whether the command is in time; None after a reboot of unknown duration: it must be signed again."""
        if boot == self.boot:
            return now_s < self.until_s
        return False if now_s >= self.left_s else None

    def expired(self) -> "CommandRecord":
        """Return the record EXPIRED: the command had not begun in the time that it was given."""
        return self._to(
            CommandState.EXPIRED, code=ResultCode.TOO_LATE, text="it had not begun in the time that it was given"
        )

    def begun(self, token: str = "") -> "CommandRecord":
        """Return the record RUNNING, to be written before the action.

        Raises:
            ValueError: for a verifiable op without a token.
        """
        if OPS[self.op].settling is RestartRule.VERIFIABLE and not token:
            raise ValueError(f"{self.op} needs a token before it begins: {OPS[self.op].proof}")
        return replace(self._to(CommandState.RUNNING), token=token, attempts=1)

    def again(self) -> "CommandRecord":
        """Return the record RUNNING once more, with the first token, to be written before the action."""
        if self.state is not CommandState.RUNNING:
            raise ValueError(f"command {self.id} is {self.state}: only what is RUNNING is done again")
        return replace(self, attempts=self.attempts + 1)

    def verifying(self) -> "CommandRecord":
        """Return the record VERIFYING: the action is over, and its outcome is checked."""
        return self._to(CommandState.VERIFYING)

    def ended(self, state: CommandState, code: str = "", text: str = "") -> "CommandRecord":
        """Return the record in a terminal state.

        Raises:
            ValueError: for a state that is not terminal, or does not follow.
        """
        if not state.terminal:
            raise ValueError(f"{state} is no end")
        return self._to(state, code=code, text=text)


def to_begin(records: Iterable[CommandRecord], *, boot: str, now_s: float) -> list[CommandRecord]:
    """Return the ACCEPTED commands that may begin now, in the order of their seq; one that must be renewed blocks none.

    Of those that are not idempotent one at a time is under way: otherwise a restart by one command could be taken for
    that of another.
    """
    in_order = sorted(records, key=lambda one: one.seq)
    busy = any(_alone(one) and one.state.begun and not one.state.terminal for one in in_order)
    accepted = [one for one in in_order if one.state is CommandState.ACCEPTED and one.may_begin(boot, now_s)]
    first = next((one.id for one in accepted if _alone(one) and not busy), None)
    return [one for one in accepted if one.id == first or not _alone(one)]


def _alone(record: CommandRecord) -> bool:
    return record.op not in OPS or OPS[record.op].alone


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryProbe:
    """The state found after a crash: this boot, CLOCK_BOOTTIME, and the evidence of a verifiable RUNNING action."""

    boot: str
    now_s: float
    evidence: Evidence = Evidence.UNREADABLE


class RecoveryStep(Enum):
    """The next step of a command after a crash, where it does not end by that."""

    BEGIN = "begin"
    """The command had not begun and is in time: admit it, or begin it."""
    AWAIT_RENEWAL = "await renewal"
    """The command had not begun, and a reboot took unknown time: it waits until it is signed again."""
    ACT_AGAIN = "act again"
    """The action is run again: write `CommandRecord.again()` first."""
    VERIFY = "verify"
    """The action is over: check its outcome."""
    PROBE_AGAIN = "probe again"
    """The action goes on without us, or cannot be probed now: probe again in a moment."""
    NONE = "none"
    """The command has ended; its result is in the outbox until the receipt."""


@dataclass(frozen=True, slots=True)
class EndStep:
    """The command ends: write this terminal state."""

    state: CommandState
    code: ResultCode
    text: str


Decision = RecoveryStep | EndStep


def after_crash(record: CommandRecord, probe: RecoveryProbe, op: Declaration | None = None) -> Decision:
    """Decide how a command in the journal goes on after a crash.

    Args:
        record: as it was written last.
        probe: what is true now; `evidence` counts for verifiable ops alone.
        op: how it is settled; taken from `OPS` where it is left out.
    """
    op = op or OPS.get(record.op)
    if record.state.terminal:
        return RecoveryStep.NONE
    if not record.state.begun:
        return _not_begun(record, probe)
    if op is None:
        return EndStep(
            CommandState.UNKNOWN, ResultCode.CUT_SHORT, "it was begun by another version of the agent, which knew it"
        )
    return _begun(record, probe, op.settling)


def _not_begun(record: CommandRecord, probe: RecoveryProbe) -> Decision:
    match record.may_begin(probe.boot, probe.now_s):
        case None:
            return RecoveryStep.AWAIT_RENEWAL
        case True:
            return RecoveryStep.BEGIN
        case False:
            return EndStep(CommandState.EXPIRED, ResultCode.TOO_LATE, "it had not begun in the time that it was given")


def _begun(record: CommandRecord, probe: RecoveryProbe, settling: RestartRule) -> Decision:
    if settling is RestartRule.VERIFIABLE:
        return _by_evidence(record, probe.evidence)
    if record.state is CommandState.VERIFYING:
        return RecoveryStep.VERIFY
    if settling is RestartRule.NEITHER:
        return EndStep(
            CommandState.UNKNOWN, ResultCode.CUT_SHORT, "the agent ended in the middle of it: look at the box"
        )
    return _again(record)


def _again(record: CommandRecord) -> Decision:
    if record.attempts < MOST_ATTEMPTS:
        return RecoveryStep.ACT_AGAIN
    return EndStep(
        CommandState.FAILED,
        ResultCode.ATTEMPTS,
        f"begun {record.attempts} times, and the agent ended in the middle of each",
    )


def _by_evidence(record: CommandRecord, evidence: Evidence) -> Decision:
    match evidence:
        case Evidence.NOT_DONE:
            return RecoveryStep.VERIFY if record.state is CommandState.VERIFYING else _again(record)
        case Evidence.DONE:
            return RecoveryStep.VERIFY
        case Evidence.UNDER_WAY | Evidence.UNREADABLE:
            return RecoveryStep.PROBE_AGAIN
        case Evidence.PUT_BACK:
            return EndStep(CommandState.ROLLED_BACK, ResultCode.CUT_SHORT, "it was put back: see edgegpu journal")
        case Evidence.BROKEN:
            return EndStep(
                CommandState.FAILED, ResultCode.INCONSISTENT, "neither done nor put back: edgegpu doctor says more"
            )
        case Evidence.OTHER:
            return EndStep(CommandState.FAILED, ResultCode.SUPERSEDED, "somebody else has changed it since")
