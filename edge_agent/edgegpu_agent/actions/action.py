"""What the worker asks of an act and of a settler, and what they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from edgegpu_sync.ids import CommandId, OpName
from edgegpu_sync.messages.spec import AnyItem, Asked
from edgegpu_sync.rules.ops import Args, Evidence
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import CommandState
from edgegpu_sync.wire import Json


class ActStop(Exception):  # noqa: N818  (nothing went wrong: the agent ends)
    """Raised out of a blocking call when the agent ends: the act goes on without it or is cut, evidence tells later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOutcome:
    """What came of an act: a terminal state, or VERIFYING when the act is over and `verify` tells what came of it."""

    state: CommandState
    code: str = ""
    text: str = ""
    data: Json | None = None

    def __post_init__(self) -> None:
        """Hold what a state may be.

        Raises:
            ValueError: for a state in which nothing is over.
        """
        if not self.state.terminal and self.state is not CommandState.VERIFYING:
            raise ValueError(f"no outcome: {self.state}")


class Act(Protocol):
    """One op. Its calls block, run on a thread of the executor, and never touch the agent's journal.

    Each may raise `ActStop`. What else it raises is a fault of the act's own, and ends the command as FAILED, ERROR.
    """

    def token(self, id_: CommandId, args: Args) -> str:
        """Return what is journalled before the act, by which `evidence` can tell: JSON; "" where it is not verifiable.

        It is asked once per command, right before it begins; nothing has been changed then. A refusal that is found
        here comes again from `act`, which then ends REJECTED.
        """
        ...

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """Do it. Called again with the first token when evidence said that it was not done."""
        ...

    def evidence(self, id_: CommandId, token: str) -> Evidence:
        """Say what is found of the act after a crash; it changes nothing. Asked of verifiable ops alone."""
        ...

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        """Look at what came of it; None: it cannot be said yet, ask again in a moment. It changes nothing."""
        ...


class SettlerNotes(Protocol):
    """What a settler keeps over crashes of the agent, for one item under one key."""

    def read(self) -> Json | None:
        """Return what was written last; None when nothing was."""
        ...

    def write(self, note: Json) -> None:
        """Keep it; on the disk when this returns."""
        ...


@runtime_checkable
class Beside(Protocol):
    """Notes of an item that know the document which it stands in."""

    def beside(self) -> Sequence[tuple[Asked, Settlement]]:
        """Return the items of the document as it is now, each with how it stands."""
        ...


class Settler(Protocol):
    """Brings one kind of item to stand as asked."""

    def settle(self, one: Asked, notes: SettlerNotes) -> Settlement:
        """Do so and say what came of it: never Open. Blocks; called again after a crash, with the same notes."""
        ...


@runtime_checkable
class Abandons(Protocol):
    """A settler that leaves something in between which has to be undone where nobody asks for the item any more."""

    def abandon(self, one: Asked, notes: SettlerNotes) -> None:
        """Undo it. Blocks; raises what keeps it from that, in words for the log."""
        ...


Acts = Mapping[OpName, Act]
"""What a box can do; an op that is not here is not among its capabilities."""

Settlers = Mapping[type[AnyItem], Settler]
"""By the class of an item. One that is not here is settled as Unsupported."""
