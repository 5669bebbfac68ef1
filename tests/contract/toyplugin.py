"""A device plugin of one resource that does as it is told, so that a kubelet can be watched."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from edgegpu_plugin.pb import (
    Allocation,
    CallRefusedError,
    DevicePluginOptions,
    DevicePluginServer,
    OfferedDevice,
    PreferredRequest,
    Registration,
    RegistrationCaller,
    ServingLoop,
    StopSignal,
    channel,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


class ToyPlugin:
    """Offers devices `toy-0` … of one resource; keeps what it was asked."""

    def __init__(self, folder: Path, resource: str, *, count: int, options: DevicePluginOptions | None = None) -> None:
        self.resource = resource
        self.wanted: list[str] = []
        """Ids that GetPreferredAllocation answers, as many as are asked for; without any it answers none."""
        self.refuse_allocate = ""
        self.before_allocate: Callable[[], None] = lambda: None
        self.refuse_preferred = ""
        self.refuse_start = ""
        self.preferred_calls: list[PreferredRequest] = []
        self.allocations: list[frozenset[str]] = []
        self.starts: list[frozenset[str]] = []
        self._folder = folder
        self._socket = ""
        self._options = options or DevicePluginOptions(pre_start_required=True, preferred_allocation=True)
        self._changed = threading.Condition()
        self._devices = [OfferedDevice(f"toy-{i}") for i in range(count)]
        self._version = 0
        self._loop = ServingLoop(ThreadPoolExecutor(8))
        self._server: DevicePluginServer | None = None

    def serve(self, *, anew: bool = True) -> None:
        """Serve and register, on a socket of a new name unless the test wants the last one."""
        if anew:
            self._socket = f"{self.resource.replace('/', '-')}-{secrets.token_hex(4)}.sock"
        path = self._folder / self._socket
        path.unlink(missing_ok=True)
        self._server = DevicePluginServer(self, address=f"unix://{path}", loop=self._loop)
        self.register()

    def register(self) -> None:
        """Register the socket, as it is. Raises grpc.RpcError where kubelet refuses it."""
        with channel(str(self._folder / "kubelet.sock")) as link:
            RegistrationCaller(link).register(Registration(self._socket, self.resource, self._options), 10)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop().result()
            self._server = None

    def offer(self, devices: Sequence[OfferedDevice]) -> None:
        with self._changed:
            self._devices = list(devices)
            self._version += 1
            self._changed.notify_all()

    def options(self) -> DevicePluginOptions:
        return self._options

    def watch(self, stopped: StopSignal) -> Iterator[Sequence[OfferedDevice]]:
        over = threading.Event()

        def end() -> None:
            with self._changed:
                over.set()
                self._changed.notify_all()

        stopped.on_stop(end)
        seen = -1
        while not over.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._version != seen or over.is_set())  # noqa: B023
                seen, devices = self._version, list(self._devices)
            yield devices

    def preferred(self, requests: Sequence[PreferredRequest], *, may_wait: bool = True) -> list[Sequence[str]]:  # noqa: ARG002
        if self.refuse_preferred:
            raise CallRefusedError(self.refuse_preferred)
        self.preferred_calls += requests
        return [self.wanted[: request.size] for request in requests]

    def allocate(self, requests: Sequence[Sequence[str]], *, may_wait: bool = True) -> list[Allocation]:  # noqa: ARG002
        self.before_allocate()
        if self.refuse_allocate:
            raise CallRefusedError(self.refuse_allocate)
        self.allocations += [frozenset(ids) for ids in requests]
        return [Allocation(envs={"TOY": ",".join(sorted(ids))}) for ids in requests]

    def pre_start(self, ids: Sequence[str]) -> None:
        if self.refuse_start:
            raise CallRefusedError(self.refuse_start)
        self.starts.append(frozenset(ids))
