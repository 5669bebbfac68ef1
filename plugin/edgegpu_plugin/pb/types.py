"""What crosses kubelet's sockets, as plain values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

API_VERSION = "v1beta1"


class CallRefusedError(Exception):
    """A call that is answered with an error; its text reaches the pod's events."""


class WouldWaitError(Exception):
    """A call that may not wait found that it has to; it has changed nothing, and is made again where it may."""


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """One device that is offered."""

    id: str
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class DevicePluginOptions:
    """Which of the optional calls a plugin wants."""

    pre_start_required: bool
    preferred_allocation: bool


@dataclass(frozen=True, slots=True)
class Registration:
    """A plugin's announcement to kubelet: the socket's name in kubelet's folder and the resource."""

    endpoint: str
    resource: str
    options: DevicePluginOptions
    version: str = API_VERSION


@dataclass(frozen=True, slots=True)
class PreferredRequest:
    """kubelet's question which `size` of `available` a container should get; `must_include` are among them."""

    available: Sequence[str]
    must_include: Sequence[str]
    size: int


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the host in the container."""

    container_path: str
    host_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node of the host in the container."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a container is given: kubelet stores it and replays it after a reboot."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    devices: Sequence[DeviceNode] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices that kubelet says a container holds (several entries for one resource are possible: merge them)."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: Sequence[str]


class DevicePlugin(Protocol):
    """The five calls that kubelet makes; each may raise RefusedError.

    Those that a pod's admission waits for come on the event loop first, with `may_wait` False: they answer without
    disk, network or another pod's turn, or raise WouldWaitError.
    """

    def options(self) -> DevicePluginOptions:
        """Answer GetDevicePluginOptions."""

    def watch(self, stopped: "StopSignal") -> Iterator[Sequence[OfferedDevice]]:
        """Yield the full device list at once and again at each change, until `stopped` says so."""

    def preferred(self, requests: Sequence[PreferredRequest], *, may_wait: bool = True) -> list[Sequence[str]]:
        """Answer GetPreferredAllocation: one list for each request."""

    def allocate(self, requests: Sequence[Sequence[str]], *, may_wait: bool = True) -> list[Allocation]:
        """Answer Allocate: one response for each list of ids."""

    def pre_start(self, ids: Sequence[str]) -> None:
        """Answer PreStartContainer."""


class StopSignal(Protocol):
    """Says when a stream's other end went away."""

    def on_stop(self, callback: "StopCallback") -> None:
        """Call back once when the stream ends, whoever ended it."""


class StopCallback(Protocol):
    """Takes nothing, gives nothing."""

    def __call__(self) -> None:
        """Be told."""
