"""The link to kubelet on real sockets, against a kubelet that does what the real one does with device plugins."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from edgegpu_core.deviceid import Kind
from edgegpu_core.inventory import Card
from edgegpu_core.model import ResourceModel
from edgegpu_plugin.board import DeviceBoard
from edgegpu_plugin.devices import ResourcePlugin
from edgegpu_plugin.endpoint import socket_name
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.kubelet import KubeletLink
from edgegpu_plugin.pb import (
    Allocation,
    Device,
    DevicePluginCaller,
    PreferredRequest,
    RefusedError,
    Registration,
    channel,
    registration_handler,
)

MODEL = ResourceModel()
WAIT_S = 10.0
CARD = Card(uuid="GPU-1", index=0, name="T4", memory_mib=1024, pci="00000000:01:00.0", minor=0)


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, what
        os.sched_yield()


class Kubelet:
    """Registration on kubelet.sock; dials each plugin back inside Register, as kubelet does since 1.25."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lists: dict[str, list[Device]] = {}
        self.streams: dict[str, int] = {}
        self.refusals = 0
        self._changed = threading.Condition()
        self._executor = ThreadPoolExecutor(8)
        self._server: grpc.Server | None = None
        self._links: list[grpc.Channel] = []
        self._watchers: list[threading.Thread] = []

    def start(self, *, wipe: bool = True) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir() if wipe else ():
            if path.is_socket():
                path.unlink(missing_ok=True)
        self._server = grpc.server(self._executor)
        self._server.add_generic_rpc_handlers((registration_handler(self._register),))
        self._server.add_insecure_port(f"unix://{self.folder}/kubelet.sock")
        self._server.start()

    def stop(self) -> None:
        assert self._server is not None
        for link in self._links:
            link.close()
        for watcher in self._watchers:
            watcher.join(WAIT_S)
        self._server.stop(None).wait(WAIT_S)
        self._executor.shutdown()

    def drop(self, resource: str) -> None:
        """Let go of one plugin's stream, as kubelet does when its client is torn down."""
        link = next(link for link in self._links if getattr(link, "resource", None) == resource)
        link.close()

    def wait(self, what: Callable[["Kubelet"], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: what(self), WAIT_S), (self.lists.keys(), self.streams)

    def caller(self, resource: str) -> DevicePluginCaller:
        link = channel(str(self.folder / socket_name(resource)))
        self._links.append(link)
        return DevicePluginCaller(link)

    def _register(self, registration: Registration) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RefusedError("not yet")
        link = channel(str(self.folder / registration.endpoint))
        link.resource = registration.resource  # type: ignore[attr-defined]
        self._links.append(link)
        caller = DevicePluginCaller(link)
        assert caller.options(WAIT_S) == registration.options
        watcher = threading.Thread(target=self._follow, args=(registration.resource, caller))
        watcher.start()
        self._watchers.append(watcher)

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

    def preferred(self, kind: Kind, request: PreferredRequest) -> Sequence[str]:
        if self.broken:
            raise KeyError(kind)
        return list(request.available)[-request.size :]

    def allocate(self, kind: Kind, ids: Sequence[str]) -> Allocation:
        if self.broken:
            raise KeyError(kind)
        return Allocation(envs={"IDS": ",".join(ids)})

    def pre_start(self, kind: Kind, ids: Sequence[str]) -> None:
        if self.broken:
            raise RefusedError(f"{kind.value}: no card has {len(ids)} free")


class Box:
    """A folder of kubelet's and the link that runs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.allocator = Choose()
        self.board = DeviceBoard(MODEL)
        self.board.set((CARD,))
        self.registered: list[float] = []
        self.restarts = 0
        self.error: PluginError | None = None
        self._changed = threading.Condition()
        self.link = KubeletLink(
            folder=folder, plugins=self._plugins(), on_registered=self._note, on_kubelet_restart=self._restarted
        )
        self._thread = threading.Thread(target=self._run)

    def _plugins(self) -> list[ResourcePlugin]:
        names = {Kind.MEMORY: MODEL.memory_resource, Kind.CORE: MODEL.core_resource}
        return [
            ResourcePlugin(kind=kind, resource=name, board=self.board, allocator=self.allocator)
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
        except PluginError as error:
            self.error = error

    def _restarted(self) -> None:
        self.restarts += 1

    def _note(self, ms: float) -> None:
        with self._changed:
            self.registered.append(ms)
            self._changed.notify_all()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: those of Unix sockets end at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="edgegpu-") as path:
        yield Path(path) / "device-plugins"


@pytest.fixture
def box(folder: Path) -> Iterator[Box]:
    box = Box(folder)
    box.start()
    yield box
    box.stop()


@pytest.fixture
def kubelets(folder: Path) -> Iterator[Callable[[], Kubelet]]:
    """Makes kubelets; each new one replaces the one before."""
    with contextlib.ExitStack() as stack:

        def make() -> Kubelet:
            kubelet = Kubelet(folder)
            kubelet.start()
            stack.callback(kubelet.stop)
            return kubelet

        yield make


def test_both_resources_are_registered_soon_after_the_socket_appears(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    kubelet.wait(Kubelet.has_both)
    box.wait_registrations(1)
    assert len(kubelet.lists[MODEL.memory_resource]) == 4
    assert len(kubelet.lists[MODEL.core_resource]) == 100
    assert box.link.registered
    assert box.link.waiting_for == ""
    assert 0 < box.registered[0] == box.link.last_registration_ms
    assert box.restarts == 0


def test_a_kubelet_that_was_there_before_is_found(folder: Path, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    box = Box(folder)
    box.start()
    kubelet.wait(Kubelet.has_both)
    box.wait_registrations(1)
    box.stop()
    assert not list(folder.glob("*edgegpu*"))


def test_a_restarted_kubelet_is_registered_with_again(box: Box, folder: Path) -> None:
    for round_ in range(1, 6):
        kubelet = Kubelet(folder)
        kubelet.start()
        kubelet.wait(Kubelet.has_both)
        box.wait_registrations(round_)
        assert box.restarts == round_ - 1
        kubelet.stop()
    assert max(box.registered) < 2000  # what is promised is measured by the bench, on a quiet machine


def test_a_change_of_the_cards_reaches_both_streams(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    kubelet.wait(Kubelet.has_both)
    sick = Card(uuid="GPU-1", index=0, name="T4", memory_mib=512, pci="00000000:01:00.0", minor=0, healthy=False)
    assert box.board.set((sick,))
    kubelet.wait(lambda k: all(not d.healthy for devices in k.lists.values() for d in devices))
    assert len(kubelet.lists[MODEL.memory_resource]) == 2
    assert not box.board.set((sick,))


def test_calls_reach_the_allocator(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    box.wait_registrations(1)
    caller = kubelet.caller(MODEL.memory_resource)
    assert caller.preferred(PreferredRequest(["a", "b", "c"], [], 2), WAIT_S) == ["b", "c"]
    assert caller.allocate(["a", "b"], WAIT_S).envs == {"IDS": "a,b"}
    caller.pre_start(["a"], WAIT_S)


def test_a_failing_allocator_never_makes_the_preference_fail(
    box: Box, kubelets: Callable[[], Kubelet], caplog: pytest.LogCaptureFixture
) -> None:
    kubelet = kubelets()
    box.wait_registrations(1)
    box.allocator.broken = True
    caller = kubelet.caller(MODEL.core_resource)
    assert caller.preferred(PreferredRequest(["a", "b", "c"], ["c"], 2), WAIT_S) == ["c", "a"]
    with pytest.raises(grpc.RpcError, match="cannot allocate 1 of baidu"):
        caller.allocate(["a"], WAIT_S)
    with pytest.raises(grpc.RpcError, match="c: no card has 1 free"):
        caller.pre_start(["a"], WAIT_S)
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)


def test_deleted_sockets_come_back_without_cutting_streams(
    box: Box, kubelets: Callable[[], Kubelet], folder: Path
) -> None:
    kubelet = kubelets()
    kubelet.wait(Kubelet.has_both)
    box.wait_registrations(1)
    for path in folder.glob("edgegpu-*.sock"):
        path.unlink()
    for resource in (MODEL.memory_resource, MODEL.core_resource):
        until((folder / socket_name(resource)).exists)
        assert kubelet.caller(resource).options(WAIT_S).pre_start_required
    box.board.set(())
    kubelet.wait(lambda k: not any(k.lists.values()))
    assert kubelet.streams == {MODEL.memory_resource: 2, MODEL.core_resource: 2}
    assert len(box.registered) == 1


def test_a_stream_that_kubelet_let_go_is_registered_again(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    box.wait_registrations(1)
    kubelet.drop(MODEL.core_resource)
    box.wait_registrations(2)
    assert box.restarts == 0
    kubelet.wait(lambda k: k.streams == {MODEL.memory_resource: 1, MODEL.core_resource: 2})


def test_a_refusing_kubelet_is_asked_again(box: Box, folder: Path) -> None:
    kubelet = Kubelet(folder)
    kubelet.refusals = 5
    kubelet.start()
    box.wait_registrations(1)
    kubelet.stop()


def test_a_missing_folder_is_waited_for(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    box = Box(folder)
    box.start()
    until(lambda: box.link.waiting_for != "")
    box.stop()
    assert f"waiting for kubelet's folder {folder}" in caplog.text
    assert caplog.text.count("waiting for") == 1


def test_a_dead_socket_is_replaced(folder: Path, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / socket_name(MODEL.memory_resource)))
    box = Box(folder)
    box.start()
    kubelet.wait(Kubelet.has_both)
    box.stop()
    assert box.error is None


@pytest.mark.parametrize("late", [False, True], ids=["at the start", "while it runs"])
def test_a_socket_that_another_process_serves_is_refused(
    folder: Path, kubelets: Callable[[], Kubelet], *, late: bool
) -> None:
    kubelets()
    box = Box(folder)
    if late:
        box.start()
        box.wait_registrations(1)
    path = folder / socket_name(MODEL.core_resource)
    code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]+'.new'); s.listen(); import os\n"
    code += "os.rename(sys.argv[1]+'.new', sys.argv[1]); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as foreign:
        assert foreign.stdout is not None
        assert foreign.stdout.readline() == b"up\n"
        if not late:
            box.start()
        box.join()
        foreign.send_signal(signal.SIGTERM)
    assert f"pid {foreign.pid}) answers there" in str(box.error)
    assert path.exists()  # somebody else's is left alone


def test_a_file_in_the_way_is_refused(folder: Path, kubelets: Callable[[], Kubelet]) -> None:
    kubelets()
    (folder / socket_name(MODEL.core_resource)).write_text("")
    box = Box(folder)
    box.start()
    box.join()
    assert "is no socket; move the file away" in str(box.error)


def test_custom_names_have_sockets_of_their_own() -> None:
    assert socket_name("baidu.com/vcuda-memory") == "edgegpu-baidu.com_vcuda-memory.sock"
    long = "a" * 60 + ".example.com/memory"
    assert socket_name(long) != socket_name(long + "2")
    assert len(socket_name(long)) < 70


def test_a_client_that_names_the_socket_as_authority_is_served(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    """Kubelets before 1.24 send the path of the socket as :authority."""
    kubelets()
    box.wait_registrations(1)
    path = box.folder / socket_name(MODEL.memory_resource)
    with grpc.insecure_channel(f"unix://{path}", options=[("grpc.default_authority", str(path))]) as link:
        assert DevicePluginCaller(link).options(WAIT_S).preferred_allocation
