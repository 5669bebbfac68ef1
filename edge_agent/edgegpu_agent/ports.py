"""What the agent's parts are to each other: acts, settlers, telemetry, the link. All of it can be simulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.link.events import MessageArrived
from edgegpu_sync.messages.spec import AnyItem, AskedItem, TryKey
from edgegpu_sync.messages.telemetry import HealthPart, PodAlloc, Sample
from edgegpu_sync.messages.uplink import BoxVersions, Condition
from edgegpu_sync.rules.ops import Args, Evidence
from edgegpu_sync.rules.settle import Settlement, SharingFound
from edgegpu_sync.signing import Signer
from edgegpu_sync.states import CommandState
from edgegpu_sync.wire import Json


class ActionStopped(Exception):  # noqa: N818  (nothing went wrong: the agent ends)
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


class Action(Protocol):
    """One op. Its calls block, run on a thread of the executor, and never touch the agent's journal.

    Each may raise `ActionStopped`. What else it raises is a fault of the action's own, and ends the command as FAILED,
    ERROR.
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
class DocumentNotes(Protocol):
    """Notes of an item that know the document which it stands in."""

    def beside(self) -> Sequence[tuple[AskedItem, Settlement]]:
        """Return the items of the document as it is now, each with how it stands."""
        ...


class Settler(Protocol):
    """Brings one kind of item to stand as asked."""

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        """Do so and say what came of it: never Open. Blocks; called again after a crash, with the same notes."""
        ...


@runtime_checkable
class AbandoningSettler(Protocol):
    """A settler that leaves something in between which has to be undone where nobody asks for the item any more."""

    def abandon(self, one: AskedItem, notes: SettlerNotes) -> None:
        """Undo it. Blocks; raises what keeps it from that, in words for the log."""
        ...


Acts = Mapping[OpName, Action]
"""What a box can do; an op that is not here is not among its capabilities."""

Settlers = Mapping[type[AnyItem], Settler]
"""By the class of an item. One that is not here is settled as Unsupported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxContext:
    """This box: as it was enrolled, and how it signs. `instance` is that of the machine, as 64 hexadecimal digits."""

    device: DeviceId
    enrolment: int
    instance: str
    signer: Signer
    versions: Callable[[], BoxVersions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The boot's id (36 characters), CLOCK_BOOTTIME in seconds, and seconds since 1970, which are for people."""

    boot: str
    boot_s: Callable[[], float]
    wall_s: Callable[[], float]


class LinkPort(Protocol):
    """The link, as `edgegpu_sync.link.link.Link` is."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, turn: int | None = None) -> int | None:
        """Send with QoS 1; None: not now."""
        ...

    def ack(self, arrived: MessageArrived) -> None:
        """Acknowledge what is on the disk."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The UID of kube-system, empty where it is not known; whether this box's agent settles the app limits there."""

    uid: str = ""
    holder: bool = False


class TelemetrySource(Protocol):
    """What is seen and measured on the box; each call answers at once, from what was looked at before."""

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
        """Return who holds what, by the pod's UID; None while nothing is known."""
        ...

    def health_parts(self) -> Sequence[HealthPart]:
        """Return how each part of the box is."""
        ...

    def samples(self) -> Sequence[Sample]:
        """Return what was measured since the last call, one sample each `period_s`."""
        ...


class SharingProbe(Protocol):
    """How GPU sharing stands on the box; each call answers at once."""

    def look(self) -> SharingFound | None:
        """Return how it stands; None where that is not known."""
        ...

    def changing(self) -> bool:
        """Say whether a change of the machine is under way: what is seen then may be undone yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledItem:
    """An item that was settled, how, and where what is kept of looking at it lies."""

    asked: AskedItem
    settlement: Settlement
    notes: SettlerNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftChecks:
    """What the looks need of the worker; any thread may call them."""

    settled: Callable[[], Sequence[SettledItem]]
    landed: Callable[[str, TryKey, Settlement], None]
    noticed: Callable[[str, tuple[Condition, ...]], None]
    again: Callable[[str], None]
    on_change: Callable[[Callable[[], None]], None] = lambda _told: None
    """Has somebody told, on the worker's thread, whenever `settled` may be another one."""
