"""What the worker is given: who it is, the clock, the link, telemetry, threads for acts. All of it can be simulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from edgegpu_sync.ids import DeviceId
from edgegpu_sync.link.events import Arrived
from edgegpu_sync.messages.telemetry import HealthPart, PodAlloc, Sample
from edgegpu_sync.messages.uplink import Versions
from edgegpu_sync.rules.settle import SharingFound
from edgegpu_sync.signing import Signer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """This box: as it was enrolled, and how it signs. `instance` is that of the machine, as 64 hexadecimal digits."""

    device: DeviceId
    enrolment: int
    instance: str
    signer: Signer
    versions: Callable[[], Versions]


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

    def ack(self, arrived: Arrived) -> None:
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


class NoTelemetry:
    """A box on which nothing is seen."""

    period_s = 60

    def cluster(self) -> ClusterIdentity:
        """None is known."""
        return ClusterIdentity()

    def inventory(self) -> Mapping[str, Any] | None:
        """Nothing is known."""
        return None

    def alloc(self) -> Mapping[str, PodAlloc] | None:
        """Nothing is known."""
        return None

    def health_parts(self) -> Sequence[HealthPart]:
        """Nothing is looked at."""
        return ()

    def samples(self) -> Sequence[Sample]:
        """Nothing is measured."""
        return ()


class SharingSight(Protocol):
    """How GPU sharing stands on the box; each call answers at once."""

    def look(self) -> SharingFound | None:
        """Return how it stands; None where that is not known."""
        ...

    def changing(self) -> bool:
        """Say whether a change of the machine is under way: what is seen then may be undone yet."""
        ...


class SharingUnseen:
    """A box on which nothing is known of it."""

    def look(self) -> None:
        """Nothing is known."""

    def changing(self) -> bool:
        """Nothing is."""
        return False


@dataclass(frozen=True, slots=True)
class Raised:
    """A call ended with this; `stopped`: because the agent ends, and nothing is known of it."""

    error: Exception
    stopped: bool = False


class Executor(Protocol):
    """Runs calls that block beside the worker, and gives back what came of them on the worker's thread."""

    def start(self, name: str, work: Callable[[], T], then: Callable[[T | Raised], None]) -> None:
        """Run `work` now; `then` is called on the worker's thread."""
        ...
