"""The interfaces between the agent's parts: actions, settlers, telemetry, the link. All of them can be simulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.link.events import MessageArrived
from edgegpu_sync.messages.spec import AnyItem, AskedItem, TryKey
from edgegpu_sync.messages.telemetry import HealthPart, PendingPods, PodAlloc, Sample
from edgegpu_sync.messages.uplink import BoxVersions, Condition
from edgegpu_sync.rules.ops import Args, Evidence
from edgegpu_sync.rules.settle import Settlement, SharingFound
from edgegpu_sync.signing import Signer
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.wire import Json


class ActionStopped(Exception):  # noqa: N818  (nothing went wrong: the agent ends)
    """Raised by a blocking call when the agent ends; the action goes on or is cut, which evidence shows later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOutcome:
    """The outcome of an action: a terminal state, or VERIFYING when `act` is over and `verify` finds the result."""

    state: CommandState
    code: str = ""
    text: str = ""
    data: Json | None = None

    def __post_init__(self) -> None:
        """Check that the state is terminal or VERIFYING.

        Raises:
            ValueError: for any other state.
        """
        if not self.state.terminal and self.state is not CommandState.VERIFYING:
            raise ValueError(f"no outcome: {self.state}")

    @classmethod
    def failed(cls, text: str, code: str = ResultCode.ERROR) -> "ActionOutcome":
        """Return the outcome FAILED."""
        return cls(state=CommandState.FAILED, code=code, text=text)

    @classmethod
    def rejected(cls, code: str, text: str) -> "ActionOutcome":
        """Return the outcome REJECTED: nothing was changed."""
        return cls(state=CommandState.REJECTED, code=code, text=text)


class Action(Protocol):
    """The code that carries out one op. Its calls block, run on a thread of the executor, and never touch the journal.

    Each may raise `ActionStopped`. Any other exception is a fault of the action, and ends the command as FAILED, ERROR.
    """

    def token(self, id_: CommandId, args: Args) -> str:
        """Return the token that is journalled before `act`, for `evidence`: JSON; "" where the op is not verifiable.

        It is called once per command, right before the command begins; nothing has been changed then. If a reason for a
        refusal is found here, `act` finds it again and ends REJECTED.
        """
        ...

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """Carry out the command; called again with the first token when the evidence was NOT_DONE."""
        ...

    def evidence(self, id_: CommandId, token: str) -> Evidence:
        """Return what is found of the action after a crash, and change nothing; called only for verifiable ops."""
        ...

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        """Return the outcome of the action, and change nothing; None while it is not known yet."""
        ...


class SettlerNotes(Protocol):
    """The notes that a settler keeps over crashes of the agent, for one item under one key."""

    def read(self) -> Json | None:
        """Return the last note; None when there is none."""
        ...

    def write(self, note: Json) -> None:
        """Write the note; it is on the disk when this returns."""
        ...


@runtime_checkable
class DocumentNotes(Protocol):
    """Notes of an item that also know the item's document."""

    def beside(self) -> Sequence[tuple[AskedItem, Settlement]]:
        """Return the items of the present document, each with its settlement."""
        ...


class Settler(Protocol):
    """The code that settles one kind of item."""

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        """Settle the item; return a settlement, never Open. Blocks; called again after a crash with the same notes."""
        ...


@runtime_checkable
class AbandoningSettler(Protocol):
    """A settler with intermediate states that must be undone when the item is no longer requested."""

    def abandon(self, one: AskedItem, notes: SettlerNotes) -> None:
        """Undo the intermediate state. Blocks; raises an error with a text for the log where it cannot."""
        ...


Acts = Mapping[OpName, Action]
"""The actions of a box by op; a missing op is not among the box's capabilities."""

Settlers = Mapping[type[AnyItem], Settler]
"""The settlers by the class of an item; an item without a settler is settled as Unsupported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxContext:
    """This box: its enrolment and its signer. `instance` is the machine's hash, 64 hexadecimal digits."""

    device: DeviceId
    enrolment: int
    instance: str
    signer: Signer
    versions: Callable[[], BoxVersions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The clocks: the boot id (36 characters), CLOCK_BOOTTIME in seconds, and seconds since 1970 for people."""

    boot: str
    boot_s: Callable[[], float]
    wall_s: Callable[[], float]


class LinkPort(Protocol):
    """The part of `edgegpu_sync.link.link.Link` that the worker uses."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, connection: int | None = None) -> int | None:
        """Send a message with QoS 1; None: it cannot be sent now."""
        ...

    def ack(self, arrived: MessageArrived) -> None:
        """Acknowledge a message that is on the disk."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The UID of kube-system, empty where it is not known, and whether this agent settles the cluster's app limits."""

    uid: str = ""
    holder: bool = False


class TelemetrySource(Protocol):
    """The source of inventory and measurements; each call returns at once what was read before."""

    @property
    def period_s(self) -> int:
        """Seconds between two measurements."""
        ...

    def cluster(self) -> ClusterIdentity:
        """Return the cluster and whether this agent holds its lease."""
        ...

    def inventory(self) -> Mapping[str, Any] | None:
        """Return the fields of `telemetry.Inventory` without those of an uplink; None while nothing is known."""
        ...

    def alloc(self) -> Mapping[str, PodAlloc] | None:
        """Return what each pod holds, by the pod's UID; None while nothing is known."""
        ...

    def pending(self) -> PendingPods | None:
        """Return the pods that have no card yet; None while nothing is known."""
        ...

    def health_parts(self) -> Sequence[HealthPart]:
        """Return the health of each part of the box."""
        ...

    def samples(self) -> Sequence[Sample]:
        """Return the samples since the last call, one for each `period_s`."""
        ...


class SharingProbe(Protocol):
    """The probe of GPU sharing on the box; each call returns at once."""

    def look(self) -> SharingFound | None:
        """Return the state of sharing; None where it is not known."""
        ...

    def changing(self) -> bool:
        """Return whether a change of the machine is under way; what `look` returns then may still be undone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledItem:
    """An item that was settled, its settlement, and its notes."""

    asked: AskedItem
    settlement: Settlement
    notes: SettlerNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftChecks:
    """The calls of drift checks to the worker; any thread may make them."""

    settled: Callable[[], Sequence[SettledItem]]
    landed: Callable[[str, TryKey, Settlement], None]
    noticed: Callable[[str, tuple[Condition, ...]], None]
    again: Callable[[str], None]
    on_change: Callable[[Callable[[], None]], None] = lambda _told: None
    """Registers a function that the worker's thread calls whenever `settled` may have changed."""
