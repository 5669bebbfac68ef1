"""A kubelet's side of device plugins, small and on real sockets, and the link under test beside it."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from edgegpu_base.errors import EdgegpuError
from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.inventory import Card
from edgegpu_core.model import ResourceModel
from edgegpu_plugin.kubelet.device_list import DeviceList
from edgegpu_plugin.kubelet.device_plugin import ResourcePlugin
from edgegpu_plugin.kubelet.link import KubeletLink
from edgegpu_plugin.kubelet.start_lease import StartLease
from edgegpu_plugin.pb import (
    Allocation,
    CallRefusedError,
    DevicePluginCaller,
    OfferedDevice,
    PreferredRequest,
    Registration,
    WouldWaitError,
    channel,
    registration_handler,
)

MODEL = ResourceModel()
WAIT_S = 60.0
CARD = Card(uuid="GPU-1", index=0, name="T4", memory_mib=1024, pci="00000000:01:00.0", minor=0)


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, what
        os.sched_yield()


class Kubelet:
    """Registration on kubelet.sock; dials each plugin back inside Register, as kubelet does since 1.25.

    It takes a socket's name once, as kubelet does from 1.37 on where it still counts the name's plugin as connected.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lists: dict[str, list[OfferedDevice]] = {}
        self.streams: dict[str, int] = {}
        self.names: dict[str, list[str]] = {}
        """The sockets that were registered of each resource, in order."""
        self.refusals = 0
        self._changed = threading.Condition()
        self._executor = ThreadPoolExecutor(8)
        self._server: grpc.Server | None = None
        self._links: list[grpc.Channel] = []
        self.watchers: list[threading.Thread] = []

    def start(self, *, wipe: bool = True) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir() if wipe else ():
            if path.is_socket():
                path.unlink(missing_ok=True)
        self._listen()

    def _listen(self) -> None:
        self._server = grpc.server(self._executor)
        self._server.add_generic_rpc_handlers((registration_handler(self._register),))
        self._server.add_insecure_port(f"unix://{self.folder}/kubelet.sock")
        self._server.start()

    def stop(self) -> None:
        assert self._server is not None
        for link in self._links:
            link.close()
        for watcher in self.watchers:
            watcher.join(WAIT_S)
        self._server.stop(None).wait(WAIT_S)
        self._executor.shutdown()

    def listen_again(self) -> None:
        """Make the socket anew, with all streams of plugins as they are."""
        assert self._server is not None
        self._server.stop(None).wait(WAIT_S)
        (self.folder / "kubelet.sock").unlink(missing_ok=True)
        self._listen()

    def drop(self, resource: str) -> None:
        """Let go of the newest stream of a resource, as kubelet does when its client is torn down."""
        link = next(link for link in reversed(self._links) if getattr(link, "resource", None) == resource)
        link.close()

    def wait(self, what: Callable[["Kubelet"], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: what(self), WAIT_S), (self.lists.keys(), self.streams)

    def caller(self, resource: str) -> DevicePluginCaller:
        link = channel(str(self.folder / self.names[resource][-1]))
        self._links.append(link)
        return DevicePluginCaller(link)

    def _register(self, registration: Registration) -> None:
        names = self.names.setdefault(registration.resource, [])
        if registration.endpoint in names:
            raise CallRefusedError(f"device plugin already connected: {self.folder / registration.endpoint}")
        names.append(registration.endpoint)
        if self.refusals:
            self.refusals -= 1
            raise CallRefusedError("not yet")
        link = channel(str(self.folder / registration.endpoint))
        link.resource = registration.resource  # type: ignore[attr-defined]
        self._links.append(link)
        caller = DevicePluginCaller(link)
        assert caller.options(WAIT_S) == registration.options
        watcher = threading.Thread(target=self._follow, args=(registration.resource, caller))
        watcher.start()
        self.watchers.append(watcher)

    def _follow(self, resource: str, caller: DevicePluginCaller) -> None:
        with contextlib.suppress(grpc.RpcError):
            for devices in caller.watch():
                with self._changed:
                    self.lists[resource] = devices
                    self.streams[resource] = self.streams.get(resource, 0) + 1
                    self._changed.notify_all()

    @staticmethod
    def has_both(kubelet: "Kubelet") -> bool:
        return kubelet.lists.keys() == {MODEL.memory_resource, MODEL.core_resource}


class Choose:
    """An allocator that says what it was asked, and fails where the test wants it to."""

    def __init__(self) -> None:
        self.broken = False
        self.waits: threading.Event | None = None
        """What its answers wait for, where they have to."""

    def preferred(self, kind: DeviceKind, request: PreferredRequest, *, may_wait: bool = True) -> Sequence[str]:
        self._wait(may_wait=may_wait)
        if self.broken:
            raise KeyError(kind)
        return list(request.available)[-request.size :]

    def allocate(self, kind: DeviceKind, ids: Sequence[str], *, may_wait: bool = True) -> Allocation:
        self._wait(may_wait=may_wait)
        if self.broken:
            raise KeyError(kind)
        return Allocation(envs={"IDS": ",".join(ids)})

    def pre_start(self, kind: DeviceKind, ids: Sequence[str]) -> None:
        if self.broken:
            raise CallRefusedError(f"{kind.value}: no card has {len(ids)} free")

    def _wait(self, *, may_wait: bool) -> None:
        if self.waits is not None:
            if not may_wait:
                raise WouldWaitError
            self.waits.wait()


class Box:
    """A folder of kubelet's and the link that runs on it."""

    def __init__(
        self, folder: Path, *, wall: Callable[[], float] = time.time, start_lease: StartLease | None = None
    ) -> None:
        self.folder = folder
        self.allocator = Choose()
        self.device_list = DeviceList(MODEL)
        self.device_list.set((CARD,))
        self.registered: list[float] = []
        self.restarts = 0
        self.error: EdgegpuError | None = None
        self._changed = threading.Condition()
        self.link = KubeletLink(
            folder=folder,
            plugins=self._plugins(),
            on_registered=self._note,
            on_kubelet_restart=self._restarted,
            wall=wall,
            start_lease=start_lease,
        )
        self._thread = threading.Thread(target=self._run)

    def _plugins(self) -> list[ResourcePlugin]:
        names = {DeviceKind.MEMORY: MODEL.memory_resource, DeviceKind.CORE: MODEL.core_resource}
        return [
            ResourcePlugin(kind=kind, resource=name, device_list=self.device_list, allocator=self.allocator)
            for kind, name in names.items()
        ]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.link.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def wait_registrations(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.registered) >= count, WAIT_S), self.link.waiting_for

    def _run(self) -> None:
        try:
            self.link.run()
        except EdgegpuError as error:
            self.error = error

    def _restarted(self) -> None:
        self.restarts += 1

    def _note(self, ms: float) -> None:
        with self._changed:
            self.registered.append(ms)
            self._changed.notify_all()
