"""A command on its controller's side: queued, signed, and sent again until its box has reported how it ended."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from edgegpu_sync.ids import CommandId, OpName
from edgegpu_sync.messages.downlink import Command
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.uplink import CommandNotTaken, CommandResult
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.wire import Json

RESEND_S = (10, 20, 40, 80, 160, 300)
"""Seconds of silence after which a command is sent again, by the number of sends; the last value repeats for ever."""

QUIET_S = 120
"""Seconds of silence after which the box of a received command is asked once more."""

MAX_VALID_S = 2**31 - 1

_RANK = {state: place for place, state in enumerate(CommandState)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedCommand:
    """A command in the controller's store. Only its box's result ends it: a signed command may have been done.

    `due_at_s`: until when it may begin, by the controller's clock. `state` is None while nothing was heard of it.
    """

    id: CommandId
    op: OpName
    args: Json
    due_at_s: float
    seq: int | None = None
    state: CommandState | None = None
    code: str = ""
    text: str = ""
    signed_for: Epoch | None = None
    quiet_since_s: float = 0.0
    tries: int = 0
    stamp: Stamp | None = None

    @property
    def ended(self) -> bool:
        """Whether its terminal state is known."""
        return self.state is not None and self.state.terminal

    def overdue(self, now_s: float) -> bool:
        """Whether the command should have begun by now and no result shows that it has; its box is asked then."""
        return not self.ended and now_s >= self.due_at_s and (self.state is None or not self.state.begun)

    def cancelled(self, now_s: float) -> "TrackedCommand":
        """Return the command due at once: signed again with no time left, it ends EXPIRED where it has not begun."""
        return replace(self, due_at_s=min(self.due_at_s, now_s), signed_for=None)

    def send_at_s(self, sequence: CommandSequence) -> float | None:
        """Return when to sign and send the command; None while nothing is signed for its box, or when it has ended."""
        if self.ended or not sequence.can_sign:
            return None
        if self.signed_for != sequence.epoch:
            return 0.0
        wait_s = RESEND_S[min(self.tries, len(RESEND_S)) - 1] if self.state is None else QUIET_S
        return self.quiet_since_s + wait_s

    def on_result(self, result: CommandResult, *, now_s: float) -> "TrackedCommand":
        """Return the command after its box's result. A terminal state is final; before it, states only advance."""
        if self.ended or (self.state is not None and _RANK[result.state] < _RANK[self.state]):
            return self
        return replace(
            self,
            state=result.state,
            code=result.code or "",
            text=result.text or "",
            quiet_since_s=now_s,
            stamp=result.stamp,
        )

    def on_not_taken(self, answer: CommandNotTaken) -> "TrackedCommand":
        """Return the command after its box has not taken it.

        BEHIND: its seq was used by another command and its id is not remembered, so it was never taken: it gets a new
        seq. STALE_EPOCH changes nothing: the birth that is on its way makes it be signed again, and `ask` in a receipt
        brings one that was missed.
        """
        if answer.code != ResultCode.BEHIND or answer.for_seq != self.seq or answer.epoch != self.signed_for:
            return self
        return replace(self, seq=None, signed_for=None)

    def learned(self, before: CommandSequence, after: CommandSequence) -> "TrackedCommand":
        """Return the command after its box's numbers proved to be ahead of the store's, which came from a backup.

        The store does not know whether the command was signed since, with `before.next_seq` or a later seq. Sent with
        `before.next_seq` it is taken only if it was not done: its box remembers the id, or that it forgot ids from
        there on (FORGOTTEN), or it answers BEHIND.
        """
        if self.ended or self.seq is not None or after.next_seq == before.next_seq:
            return self
        return replace(self, seq=before.next_seq, signed_for=None)

    def reimaged(self) -> "TrackedCommand":
        """Return the command after its box was enrolled anew.

        It may have been done before that, even if the store has it as never signed: the store may be from a backup.
        """
        if self.ended:
            return self
        return replace(
            self, state=CommandState.UNKNOWN, code=ResultCode.REIMAGED, text="the box was set up anew meanwhile"
        )


@dataclass(frozen=True, slots=True)
class PreparedSend:
    """The changes to write to the store in one step, before `body` is signed and sent."""

    sequence: CommandSequence
    tracked: TrackedCommand
    body: Command


def prepare_send(
    tracked: TrackedCommand, sequence: CommandSequence, *, outstanding: Collection[int], now_s: float
) -> PreparedSend | None:
    """Return a command with its seq and its body for the current birth of its box; None when it has to wait.

    Args:
        tracked: not ended.
        sequence: of its box.
        outstanding: the seqs of all commands to this enrolment without a terminal state, its own included.
        now_s: the controller's clock.
    """
    epoch, born_at_s, seq = sequence.epoch, sequence.born_at_s, tracked.seq
    if epoch is None or born_at_s is None or sequence.restored or tracked.ended:
        return None
    if seq is None:
        given = sequence.give_seq(outstanding)
        if given is None:
            return None
        sequence, seq = given
    body = Command(
        enrolment=sequence.enrolment,
        epoch=epoch,
        seq=seq,
        floor=sequence.floor([*outstanding, seq]),
        valid_s=min(MAX_VALID_S, max(0, int(tracked.due_at_s - born_at_s))),
        args=tracked.args,
    )
    tries = tracked.tries + 1 if tracked.signed_for == epoch else 1
    return PreparedSend(sequence, replace(tracked, seq=seq, signed_for=epoch, quiet_since_s=now_s, tries=tries), body)
