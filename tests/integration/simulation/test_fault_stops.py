"""The plugin process's end: at whatever moment, in time, with status 0, its sockets gone and no complaint."""

from __future__ import annotations

import random
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest
from kits.daily import of_the_day
from kits.fault import CARD, MEMORY, STOP_S, WAIT_S, Box, mute_server

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.process.tasks import Task, TaskGroup
from edgegpu_plugin.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MOMENTS = 30
DAYS = 3
"""So many days of runs see all moments; with TEST_FULL=1 one does."""
LONGEST_S = 1.5
"""A start takes about one second."""


@pytest.fixture
def box(short_tmp: Path, simdriver_build: Path) -> Iterator[Box]:
    made = sound(short_tmp, simdriver_build)
    yield made
    made.close()


def sound(folder: Path, build: Path) -> Box:
    """A server on which all is well, the extender behind TLS."""
    box = Box(folder, build)
    box.start_api()
    box.driver(CARD)
    box.certificates()
    box.config["role"] = "server"
    return box


def end_at(box: Box, moment_s: float) -> None:
    """Start, and end it after so many seconds; the moment is what the test is about, there is no event to wait for."""
    box.start_kubelet()
    process = box.start()
    threading.Event().wait(moment_s)
    minded = process.catches(signal.SIGTERM)
    process.signal(signal.SIGTERM)
    status = process.ends(STOP_S)
    assert status == 0 or (not minded and status == -signal.SIGTERM), (moment_s, status, process.log)
    assert box.sockets() == [], moment_s
    for word in ("Traceback", "left behind", "failed", "cannot"):
        assert word not in process.log, (moment_s, process.log)


def test_at_any_moment_of_the_start(short_tmp: Path, simdriver_build: Path) -> None:
    draw = random.Random(7)
    moments = [0.0, *(draw.uniform(0, LONGEST_S) for _ in range(MOMENTS - 1))]

    def attempt(moment_s: float) -> None:
        folder = short_tmp / f"moment{moments.index(moment_s)}"
        folder.mkdir()
        box = sound(folder, simdriver_build)
        try:
            end_at(box, moment_s)
        finally:
            box.close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(attempt, of_the_day(moments, DAYS)))


def test_after_a_kill_what_was_left_behind_is_no_hindrance(box: Box) -> None:
    box.start_kubelet()
    first = box.start()
    first.shows(kubelet={"registered": True})
    first.signal(signal.SIGKILL)
    assert first.ends() == -signal.SIGKILL
    assert len(box.sockets()) == 3
    second = box.start()
    second.shows(kubelet={"registered": True}, api={"synced": True})
    second.signal(signal.SIGTERM)
    second.stop()  # told twice
    assert second.log.rstrip().endswith("stopped")
    assert box.sockets() == []


def test_while_a_container_waits_for_the_driver(short_tmp: Path, simdriver_build: Path) -> None:
    box = Box(short_tmp, simdriver_build)
    try:
        box.start_api()
        box.save_inventory(CARD)
        memory, _ = box.save_checkpoint("uid-1", CARD)
        box.start_kubelet()
        process = box.start()
        process.shows(kubelet={"registered": True})
        with ThreadPoolExecutor(1) as pool:
            start = pool.submit(box.kubelet.caller(MEMORY).pre_start, memory, WAIT_S)
            process.says("a container's start waits for the driver")
            process.stop()
            with pytest.raises(grpc.RpcError):
                start.result()
        assert box.sockets() == []
    finally:
        box.close()


def looked(kubelet: socket.socket) -> socket.socket:
    """Return the first connection, by which the plugin looks whether kubelet listens: it registers next."""
    return kubelet.accept()[0]


def dialled(kubelet: socket.socket) -> socket.socket:
    """Return the connection of the registration, the first that sends anything."""
    while True:
        link, _ = kubelet.accept()
        link.settimeout(WAIT_S)
        if link.recv(1):
            return link
        link.close()


@pytest.mark.parametrize("moment", [looked, dialled])
def test_while_kubelet_the_api_server_and_the_driver_are_all_mute(
    box: Box, moment: Callable[[socket.socket], socket.socket]
) -> None:
    box.driver(CARD).hang("*")
    box.save_inventory(CARD)
    box.set("driver", nvml_timeout_s=60)
    box.kubelet.folder.mkdir(parents=True)
    with mute_server() as url, socket.socket(socket.AF_UNIX) as kubelet:
        box.point_to(url)
        kubelet.bind(str(box.kubelet.folder / "kubelet.sock"))
        kubelet.listen()
        kubelet.settimeout(WAIT_S)
        process = box.start()
        with moment(kubelet):
            process.shows(kubelet={"registered": False})
            process.stop()
    assert "left behind" not in process.log
    assert box.sockets() == []


def test_a_task_that_ends_by_itself_ends_all_as_a_failure() -> None:
    ends = threading.Event()
    group = TaskGroup()
    group.start([Task("patient", lambda: wait(ends), ends.set), Task("hasty", lambda: None, lambda: None)])
    with pytest.raises(EdgegpuError, match="hasty ended by itself"):
        group.wait()
    assert group.ended
    assert ends.is_set()


def test_who_makes_the_group_names_the_error_of_a_task_that_ends_by_itself() -> None:
    group = TaskGroup(ended_by_itself=lambda name: PluginError(f"{name} is over"))
    with pytest.raises(PluginError, match="hasty is over"):
        group.run([Task("hasty", lambda: None, lambda: None)])


def test_who_ends_the_group_may_say_why_and_the_first_counts() -> None:
    ends = threading.Event()
    group = TaskGroup()
    group.end(PluginError("over"))
    group.end(PluginError("over again"))
    with pytest.raises(PluginError, match=r"over$"):
        group.run([Task("patient", lambda: wait(ends), ends.set)])
    told = TaskGroup()
    told.end()
    told.end(PluginError("after the end"))
    told.run([])


def test_the_first_failure_is_the_one_that_counts() -> None:
    ends = threading.Event()

    def fail(after: Callable[[], object], text: str) -> None:
        after()
        raise PluginError(text)

    group = TaskGroup()
    group.start(
        [
            Task("second", lambda: fail(ends.wait, "second"), ends.set),
            Task("first", lambda: fail(str, "first"), lambda: None),
        ]
    )
    with pytest.raises(EdgegpuError, match="first"):
        group.wait()


def test_a_task_that_does_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    ends = threading.Event()
    group = TaskGroup(grace_s=0.1)
    group.start([Task("stubborn", lambda: wait(ends), lambda: None)])
    group.end()
    group.wait()
    assert "stubborn does not end within 0.1 s: left behind" in caplog.text
    ends.set()


def wait(event: threading.Event) -> None:
    assert event.wait(WAIT_S)
