"""A kubelet that waits for the devices at its start: the link on real sockets, a process in open() as its thread."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.linkkit import MODEL, WAIT_S, Box, Kubelet, until
from kits.lease import keeps_waiting

from edgegpu_plugin.kubelet.start_lease import LONGEST_WAIT_S, ShutdownState, StartLease

_READER = "import sys; open(sys.argv[1]).close()"


class Clock:
    """A clock that goes on by a step whenever somebody looks at it, at first by none."""

    def __init__(self) -> None:
        self.now_s, self.step_s = 1000.0, 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def root() -> Iterator[Path]:
    """Kubelet's root, of a short path: those of Unix sockets end at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="edgegpu-") as path:
        yield Path(path)


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Node:
    """Kubelet's folders, the link with its lease, and kubelets that come and go."""

    def __init__(self, root: Path, processes: ExitStack, lease: StartLease) -> None:
        self.lease, self.state = lease, root / "graceful_node_shutdown_state"
        self.folder = root / "device-plugins"
        self.box = Box(self.folder, start_lease=lease)
        self._processes = processes

    def start_thread(self) -> "subprocess.Popen[bytes]":
        """Start the thread of kubelet that reads the file before the first look at the pods."""
        thread = self._processes.enter_context(subprocess.Popen([sys.executable, "-c", _READER, self.state]))
        self._processes.callback(thread.kill)
        return thread

    def wait_kept(self, thread: "subprocess.Popen[bytes]") -> None:
        """Wait until the kernel keeps the thread in its open()."""
        until(lambda: keeps_waiting(self.state))
        assert thread.poll() is None

    def wait_taken(self) -> None:
        until(lambda: not self.lease.is_wanted)


@pytest.fixture
def node(root: Path, processes: ExitStack) -> Iterator[Node]:
    node = Node(root, processes, StartLease(ShutdownState(root)))
    yield node
    node.box.stop()


def test_each_start_of_kubelet_waits_for_the_lists_of_both_resources(node: Node) -> None:
    node.box.start()
    for start in (1, 2, 3):
        node.wait_taken()
        thread = node.start_thread()
        node.wait_kept(thread)
        kubelet = Kubelet(node.folder)
        kubelet.refusals = 2 * start
        kubelet.start()
        assert thread.wait(WAIT_S) == 0
        assert Kubelet.has_both(kubelet)
        until(lambda: node.box.link.start_lease.document() == {"waits": True, "why": ""})
        until(lambda: node.lease.is_wanted)
        kubelet.stop()
    assert node.box.restarts == 2


def test_a_kubelet_that_refuses_the_registration_is_let_go(root: Path, processes: ExitStack) -> None:
    clock = Clock()
    node = Node(root, processes, StartLease(ShutdownState(root), clock=clock))
    node.box.start()
    node.wait_taken()
    thread = node.start_thread()
    node.wait_kept(thread)
    kubelet = Kubelet(node.folder)
    kubelet.refusals = 1_000_000
    kubelet.start()
    until(lambda: "not yet" in node.box.link.waiting_for)
    node.wait_kept(thread)
    clock.step_s = LONGEST_WAIT_S
    assert thread.wait(WAIT_S) == 0
    assert not kubelet.lists
    kubelet.refusals = 0
    kubelet.wait(Kubelet.has_both)
    node.box.stop()
    kubelet.stop()


def test_a_kubelet_that_runs_is_never_kept(node: Node) -> None:
    kubelet = Kubelet(node.folder)
    kubelet.start()
    node.box.start()
    kubelet.wait(Kubelet.has_both)
    node.box.wait_registrations(1)
    kubelet.drop(MODEL.core_resource)  # a stream is gone, and kubelet is not
    node.box.wait_registrations(2)
    assert not node.state.exists()
    assert node.lease.document()["waits"] is None
    kubelet.stop()
    node.wait_taken()


def test_a_plugin_that_ends_lets_kubelet_go(root: Path, processes: ExitStack) -> None:
    node = Node(root, processes, StartLease(ShutdownState(root)))
    node.box.start()
    node.wait_taken()
    thread = node.start_thread()
    node.wait_kept(thread)
    node.box.stop()
    assert thread.wait(WAIT_S) == 0


def test_a_socket_that_a_dead_kubelet_left_keeps_nobody_from_the_lease(node: Node) -> None:
    """After a boot the socket of before lies there."""
    node.folder.mkdir()
    text = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
    subprocess.run([sys.executable, "-c", text, node.folder / "kubelet.sock"], check=True)
    node.box.start()
    node.wait_taken()
