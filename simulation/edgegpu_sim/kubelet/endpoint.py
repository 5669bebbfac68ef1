"""The device manager's client of a device plugin, with errors in kubelet's words."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import grpc

from edgegpu_plugin.pb import Allocation, DevicePluginCaller, DevicePluginOptions, PreferredRequest
from edgegpu_sim.errors import SimError

_T = TypeVar("_T")
_ALLOCATE_S = 600.0
"""The time-out of Allocate: kubelet waits for ever, but a hung test shall not."""
_PRE_START_S = 30.0
_FAILED = (grpc.RpcError, ValueError)
"""The errors of a failed call. ValueError: the channel was closed during the call, because this kubelet stops."""


class DeviceError(SimError):
    """Devices cannot be allocated, or a plugin refuses a start; the text is kubelet's own."""


@dataclass(slots=True)
class PluginClient:
    """The client of a plugin, which may be missing after a restart of kubelet, or gone (`stopped_at_s`, monotonic)."""

    resource: str
    caller: DevicePluginCaller | None = None
    options: DevicePluginOptions | None = None
    stopped_at_s: float | None = None
    socket: str = ""
    """The socket's path where kubelet knows plugins by it (from 1.37 on); empty before."""

    def preferred(self, asked: PreferredRequest) -> set[str]:
        """Return the plugin's preferred devices; empty if it does not offer the call. Raises DeviceError."""
        if self.options is None or not self.options.preferred_allocation or self.caller is None:
            return set()
        try:
            return set(self.caller.preferred(asked, _ALLOCATE_S))
        except _FAILED as error:
            raise DeviceError(f"device plugin GetPreferredAllocation rpc failed with err: {go_text(error)}") from error

    def allocate(self, ids: Sequence[str]) -> Allocation:
        """Allocate devices for one container. Raises DeviceError."""
        return self._call(lambda caller: caller.allocate(ids, _ALLOCATE_S))

    def pre_start(self, ids: Sequence[str]) -> None:
        """Ask whether the container with these devices may start. Raises DeviceError."""
        try:
            self._call(lambda caller: caller.pre_start(ids, _PRE_START_S))
        except DeviceError as error:
            raise DeviceError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    @property
    def wants_pre_start(self) -> bool:
        """Whether the plugin wants PreStartContainer; False before it has registered."""
        return self.options is not None and self.options.pre_start_required

    def is_over(self, grace_s: float) -> bool:
        """Return whether the plugin has been away for longer than the grace period."""
        return self.stopped_at_s is not None and time.monotonic() - self.stopped_at_s > grace_s

    def _call(self, call: Callable[[DevicePluginCaller], _T]) -> _T:
        if self.caller is None or self.stopped_at_s is not None:
            raise DeviceError(f"endpoint {self.resource} has been stopped")
        try:
            return call(self.caller)
        except _FAILED as error:
            raise DeviceError(go_text(error)) from error


def go_text(error: Exception) -> str:
    """Return the text of a failed plugin call as kubelet prints it."""
    if not isinstance(error, grpc.Call):
        return str(error)
    name = "Canceled" if error.code() is grpc.StatusCode.CANCELLED else error.code().name.title().replace("_", "")
    return f"rpc error: code = {name} desc = {error.details()}"
