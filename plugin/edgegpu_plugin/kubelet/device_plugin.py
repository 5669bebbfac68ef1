"""The device plugin of one resource: kubelet's five calls, answered from the device list and by the allocator."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgegpu_base.errors import EdgegpuError
from edgegpu_core.deviceid import DeviceKind
from edgegpu_plugin.kubelet.device_list import DeviceList
from edgegpu_plugin.pb import (
    Allocation,
    CallRefusedError,
    DevicePluginOptions,
    OfferedDevice,
    PreferredRequest,
    StopSignal,
    WouldWaitError,
)

_log = logging.getLogger(__name__)

OPTIONS = DevicePluginOptions(pre_start_required=True, preferred_allocation=True)


class DeviceAllocator(Protocol):
    """The allocator behind the calls; gRPC's threads call it, several at once."""

    def preferred(self, kind: DeviceKind, request: PreferredRequest, *, may_wait: bool = True) -> Sequence[str]:
        """Choose `request.size` ids of `request.available`, those of `request.must_include` among them."""

    def allocate(self, kind: DeviceKind, ids: Sequence[str], *, may_wait: bool = True) -> Allocation:
        """Return what the container with these devices gets (CallRefusedError is final for its pod)."""

    def pre_start(self, kind: DeviceKind, ids: Sequence[str]) -> None:
        """Make all that the answer of `allocate` refers to (after CallRefusedError kubelet tries again)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePlugin:
    """The device plugin of one resource, an implementation of pb.DevicePlugin."""

    kind: DeviceKind
    resource: str
    device_list: DeviceList
    allocator: DeviceAllocator

    def options(self) -> DevicePluginOptions:
        """Return options that ask kubelet for both optional calls."""
        return OPTIONS

    def watch(self, stopped: StopSignal) -> Iterator[Sequence[OfferedDevice]]:
        """Return the device lists, now and at each change."""
        return self.device_list.watch(self.kind, stopped)

    def preferred(self, requests: Sequence[PreferredRequest], *, may_wait: bool = True) -> list[Sequence[str]]:
        """Answer each request without errors, since an error would be final for the pod.

        Raises:
            WouldWaitError: the allocator has to wait, and may not.
        """
        return [self._prefer(request, may_wait=may_wait) for request in requests]

    def allocate(self, requests: Sequence[Sequence[str]], *, may_wait: bool = True) -> list[Allocation]:
        """Answer each request.

        Raises:
            CallRefusedError: the allocator refuses the call or has failed.
            WouldWaitError: the allocator has to wait, or there are several requests (kubelet sends one) and it might.
        """
        if not may_wait and len(requests) > 1:
            raise WouldWaitError
        return [self._allocate(list(ids), may_wait=may_wait) for ids in requests]

    def pre_start(self, ids: Sequence[str]) -> None:
        """Prepare the start of the container with these devices.

        Raises:
            CallRefusedError: the allocator refuses the call or has failed; kubelet asks again.
        """
        try:
            self.allocator.pre_start(self.kind, list(ids))
        except CallRefusedError:
            raise
        except EdgegpuError as error:  # a foreseen case: the driver is late, or a folder cannot be written
            _log.warning("a container's start is refused: %s", error)
            raise CallRefusedError(f"edgegpu: {error}; kubelet tries again") from error
        except Exception as error:
            _log.exception("cannot prepare a container's start (%d of %s)", len(ids), self.resource)
            raise CallRefusedError(f"cannot prepare the container's start: {error}; kubelet tries again") from error

    def _prefer(self, request: PreferredRequest, *, may_wait: bool) -> Sequence[str]:
        try:
            chosen = list(self.allocator.preferred(self.kind, request, may_wait=may_wait))
        except WouldWaitError:
            raise
        except Exception:  # noqa: BLE001  (an error would be final for the pod)
            _log.exception("cannot choose %d of %s: the first free ones it is", request.size, self.resource)
            return first_free(request)
        if not _is_valid(chosen, request):
            _log.error("chose %d ids for %d of %s: the first free ones it is", len(chosen), request.size, self.resource)
            return first_free(request)
        return chosen

    def _allocate(self, ids: list[str], *, may_wait: bool) -> Allocation:
        try:
            return self.allocator.allocate(self.kind, ids, may_wait=may_wait)
        except (CallRefusedError, WouldWaitError):
            raise
        except Exception as error:
            _log.exception("cannot allocate %d of %s", len(ids), self.resource)
            raise CallRefusedError(
                f"cannot allocate {len(ids)} of {self.resource}: {error}; see the plugin's log"
            ) from error


def first_free(request: PreferredRequest) -> list[str]:
    """Return the ids that must be included and then the first available ones, `size` in all if there are as many."""
    ordered = dict.fromkeys([*request.must_include, *request.available])
    return list(ordered)[: request.size]


def _is_valid(chosen: list[str], request: PreferredRequest) -> bool:
    """Return whether kubelet would accept the whole answer; kubelet itself checks faster that the ids are free."""
    ids = set(chosen)
    return len(chosen) == len(ids) == request.size and ids.issuperset(request.must_include)
