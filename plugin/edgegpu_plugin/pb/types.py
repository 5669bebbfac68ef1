"""The messages on kubelet's sockets as plain dataclasses, and the interface of a device plugin."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

API_VERSION = "v1beta1"


class CallRefusedError(Exception):
    """A call of kubelet is answered with an error, whose text appears in the pod's events."""


class WouldWaitError(Exception):
    """A call that may not wait would have to; it has changed nothing, and is repeated where it may wait."""


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """One device that is offered to kubelet."""

    id: str
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class DevicePluginOptions:
    """The optional calls that a plugin asks kubelet for."""

    pre_start_required: bool
    preferred_allocation: bool


@dataclass(frozen=True, slots=True)
class Registration:
    """A plugin's registration with kubelet: the socket's name in kubelet's folder and the resource."""

    endpoint: str
    resource: str
    options: DevicePluginOptions
    version: str = API_VERSION


@dataclass(frozen=True, slots=True)
class PreferredRequest:
    """A GetPreferredAllocation request: which `size` of `available`, with `must_include`, a container should get."""

    available: Sequence[str]
    must_include: Sequence[str]
    size: int


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the host that is mounted into the container."""

    container_path: str
    host_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node of the host that the container gets."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a container is given; kubelet stores it and replays it after a reboot."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    devices: Sequence[DeviceNode] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices that a container holds, as kubelet lists them (one resource may have several entries: merge them)."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: Sequence[str]


class DevicePlugin(Protocol):
    """The five calls that kubelet makes; each may raise CallRefusedError.

    The calls that a pod's admission waits for run on the event loop first, with `may_wait` False. There they answer
    without waiting for disk, network or another pod, or raise WouldWaitError.
    """

    def options(self) -> DevicePluginOptions:
        """Answer GetDevicePluginOptions."""

    def watch(self, stopped: "StopSignal") -> Iterator[Sequence[OfferedDevice]]:
        """Yield the full device list at once and again at each change, until `stopped` signals the stream's end."""

    def preferred(self, requests: Sequence[PreferredRequest], *, may_wait: bool = True) -> list[Sequence[str]]:
        """Answer GetPreferredAllocation: one list for each request."""

    def allocate(self, requests: Sequence[Sequence[str]], *, may_wait: bool = True) -> list[Allocation]:
        """Answer Allocate: one response for each list of ids."""

    def pre_start(self, ids: Sequence[str]) -> None:
        """Answer PreStartContainer."""


class StopSignal(Protocol):
    """The signal that a stream has ended."""

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call back once when the stream ends, whoever ended it."""
