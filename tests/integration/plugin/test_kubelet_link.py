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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from integration.linkkit import MODEL, WAIT_S, Box, Kubelet, until

from edgegpu_core.inventory import Card
from edgegpu_plugin.kubelet.endpoint import socket_stem, sockets_of
from edgegpu_plugin.pb import DevicePluginCaller, PreferredRequest


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
    assert box.device_list.set((sick,))
    kubelet.wait(lambda k: all(not d.healthy for devices in k.lists.values() for d in devices))
    assert len(kubelet.lists[MODEL.memory_resource]) == 2
    assert not box.device_list.set((sick,))


def test_calls_reach_the_allocator(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    box.wait_registrations(1)
    caller = kubelet.caller(MODEL.memory_resource)
    assert caller.preferred(PreferredRequest(["a", "b", "c"], [], 2), WAIT_S) == ["b", "c"]
    assert caller.allocate(["a", "b"], WAIT_S).envs == {"IDS": "a,b"}
    caller.pre_start(["a"], WAIT_S)


def test_an_answer_that_has_to_wait_holds_nobody_else_up(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    box.wait_registrations(1)
    caller = kubelet.caller(MODEL.memory_resource)
    may_go = box.allocator.waits = threading.Event()
    with ThreadPoolExecutor(2) as callers:
        preferring = callers.submit(caller.preferred, PreferredRequest(["a", "b"], [], 1), WAIT_S)
        allocating = callers.submit(caller.allocate, ["a"], WAIT_S)
        caller.pre_start(["a"], WAIT_S)
        assert not preferring.done()
        assert not allocating.done()
        may_go.set()
        assert preferring.result() == ["b"]
        assert allocating.result().envs == {"IDS": "a"}


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


@pytest.mark.parametrize("wipe", [False, True], ids=["sockets", "folder"])
def test_deleted_sockets_cut_no_streams_and_the_next_registration_makes_new_ones(
    box: Box, kubelets: Callable[[], Kubelet], folder: Path, *, wipe: bool
) -> None:
    kubelet = kubelets()
    kubelet.wait(Kubelet.has_both)
    box.wait_registrations(1)
    for path in folder.glob("edgegpu/*.sock"):
        path.unlink()
    if wipe:
        (folder / "edgegpu").rmdir()
    box.device_list.set(())
    kubelet.wait(lambda k: not any(k.lists.values()))
    assert kubelet.streams == {MODEL.memory_resource: 2, MODEL.core_resource: 2}
    assert len(box.registered) == 1
    kubelet.drop(MODEL.core_resource)
    box.wait_registrations(2)
    assert [path.name for path in sockets_of(folder, MODEL.core_resource)] == [
        Path(kubelet.names[MODEL.core_resource][-1]).name
    ]


def test_each_registration_has_a_socket_of_its_own(box: Box, kubelets: Callable[[], Kubelet], folder: Path) -> None:
    """Kubelet 1.37 refuses a second Register of a socket and forgets the plugin that it has there."""
    kubelet = kubelets()
    kubelet.wait(Kubelet.has_both)
    for count in (2, 3, 4):
        box.wait_registrations(count - 1)
        kubelet.drop(MODEL.core_resource)
        box.wait_registrations(count)
        kubelet.wait(lambda k, count=count: k.streams[MODEL.core_resource] == count)  # type: ignore[misc]
    assert len(set(kubelet.names[MODEL.core_resource])) == 4
    assert len(kubelet.names[MODEL.memory_resource]) == 1
    newest = {kubelet.names[resource][-1] for resource in (MODEL.memory_resource, MODEL.core_resource)}
    assert {f"edgegpu/{path.name}" for path in (folder / "edgegpu").iterdir()} == newest


def test_a_kubelet_that_serves_its_socket_anew_keeps_the_streams_it_has(
    box: Box, kubelets: Callable[[], Kubelet], folder: Path
) -> None:
    """Kubelet listens anew in the same process when its registration server fails (serveWithRetry)."""
    kubelet = kubelets()
    kubelet.wait(Kubelet.has_both)
    box.wait_registrations(1)
    kubelet.listen_again()
    box.wait_registrations(2)
    kubelet.wait(lambda k: k.streams == {MODEL.memory_resource: 2, MODEL.core_resource: 2})
    box.device_list.set(())
    kubelet.wait(lambda k: not any(k.lists.values()))
    kubelet.wait(lambda k: k.streams == {MODEL.memory_resource: 4, MODEL.core_resource: 4})
    assert len(list(folder.glob("edgegpu/*"))) == 2


def test_a_stream_that_kubelet_let_go_is_registered_again(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    kubelet.wait(Kubelet.has_both)  # a list is sent before kubelet has read it: dropped in between, it is never counted
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


def test_a_folder_that_cannot_be_looked_at_is_waited_for(folder: Path, kubelets: Callable[[], Kubelet]) -> None:
    folder.symlink_to("x" * 300)
    box = Box(folder)
    box.start()
    until(lambda: "File name too long" in box.link.waiting_for)
    folder.unlink()
    kubelet = kubelets()
    kubelet.wait(Kubelet.has_both)
    box.stop()
    assert box.error is None


def placed(path: Path) -> Path:
    """The path, with its folder made."""
    path.parent.mkdir(exist_ok=True)
    return path


@pytest.mark.parametrize("mark", ["", "@0badcafe"], ids=["of an earlier release", "of a plugin that was killed"])
def test_a_dead_socket_is_removed(folder: Path, kubelets: Callable[[], Kubelet], mark: str) -> None:
    kubelet = kubelets()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(placed(folder / f"{socket_stem(MODEL.memory_resource)}{mark}.sock")))
    box = Box(folder)
    box.start()
    kubelet.wait(Kubelet.has_both)
    box.stop()
    assert box.error is None
    assert not (folder / "edgegpu").exists()


@pytest.mark.parametrize("late", [False, True], ids=["at the start", "while it runs"])
def test_a_socket_that_another_process_serves_is_refused(
    folder: Path, kubelets: Callable[[], Kubelet], *, late: bool
) -> None:
    kubelet = kubelets()
    box = Box(folder)
    if late:
        box.start()
        box.wait_registrations(1)
    path = placed(folder / f"{socket_stem(MODEL.core_resource)}@0badcafe.sock")
    code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]+'.new'); s.listen(); import os\n"
    code += "os.rename(sys.argv[1]+'.new', sys.argv[1]); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as foreign:
        assert foreign.stdout is not None
        assert foreign.stdout.readline() == b"up\n"
        if late:
            kubelet.drop(MODEL.core_resource)  # at the next registration it is seen
        else:
            box.start()
        box.join()
        foreign.send_signal(signal.SIGTERM)
    assert f"pid {foreign.pid}) answers there" in str(box.error)
    assert path.exists()  # somebody else's is left alone


def test_a_file_in_the_way_is_refused(folder: Path, kubelets: Callable[[], Kubelet]) -> None:
    kubelets()
    (folder / "edgegpu").write_text("")
    box = Box(folder)
    box.start()
    box.join()
    assert f"cannot make the folder {folder}/edgegpu: " in str(box.error)


def test_custom_names_have_sockets_of_their_own() -> None:
    assert socket_stem("baidu.com/vcuda-memory") == "edgegpu/baidu.com_vcuda-memory"
    long = "a" * 60 + ".example.com/memory"
    assert socket_stem(long) != socket_stem(long + "2")
    assert len(socket_stem(long)) < 60


def test_sockets_of_a_resource_whose_name_begins_alike_are_no_others(tmp_path: Path) -> None:
    for name in ("a.io_gpu@12.sock", "a.io_gpu.sock", "a.io_gpu-small@12.sock", "a.io_gpu.sock.old"):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(placed(tmp_path / "edgegpu" / name)))
    (tmp_path / "edgegpu/a.io_gpu@34.sock").write_text("no socket")
    assert [path.name for path in sockets_of(tmp_path, "a.io/gpu")] == ["a.io_gpu.sock", "a.io_gpu@12.sock"]


def test_a_client_that_names_the_socket_as_authority_is_served(box: Box, kubelets: Callable[[], Kubelet]) -> None:
    """Kubelets before 1.24 send the path of the socket as :authority."""
    kubelet = kubelets()
    box.wait_registrations(1)
    path = box.folder / kubelet.names[MODEL.memory_resource][-1]
    with grpc.insecure_channel(f"unix://{path}", options=[("grpc.default_authority", str(path))]) as link:
        assert DevicePluginCaller(link).options(WAIT_S).preferred_allocation


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o555)
    box = Box(folder)
    box.start()
    box.join()
    assert f"cannot write to kubelet's folder {folder}: run the plugin as root" in str(box.error)


def test_a_touched_kubelet_socket_is_no_new_kubelet(box: Box, kubelets: Callable[[], Kubelet], folder: Path) -> None:
    kubelet = kubelets()
    box.wait_registrations(1)
    kubelet.wait(lambda k: all(k.lists.get(one) for one in (MODEL.memory_resource, MODEL.core_resource)))
    (folder / "kubelet.sock").chmod(0o700)
    box.device_list.set(())
    kubelet.wait(lambda k: not any(k.lists.values()))
    assert kubelet.streams == {MODEL.memory_resource: 2, MODEL.core_resource: 2}
    assert len(box.registered) == 1


def test_a_stop_ends_the_streams(folder: Path, kubelets: Callable[[], Kubelet]) -> None:
    kubelet = kubelets()
    box = Box(folder)
    box.start()
    box.wait_registrations(1)
    box.stop()
    for watcher in kubelet.watchers:
        watcher.join(WAIT_S)
        assert not watcher.is_alive()


@pytest.mark.parametrize("wall_s", [0.0, 4e9], ids=["back", "ahead"])
def test_a_clock_that_is_set_makes_no_registration_longer_or_negative(folder: Path, wall_s: float) -> None:
    kubelet = Kubelet(folder)
    kubelet.start()
    box = Box(folder, wall=lambda: wall_s)
    box.start()
    try:
        box.wait_registrations(1)
        assert 0 < box.registered[0] < WAIT_S * 1000
    finally:
        box.stop()
        kubelet.stop()
