"""What systemd is told."""

import os
import socket
from pathlib import Path

import pytest

from edgegpu_base.process.sdnotify import notifier


@pytest.mark.parametrize("abstract", [False, True])
def test_messages_reach_the_socket(tmp_path: Path, *, abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = f"@edgegpu-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
        manager.bind("\0" + address[1:] if abstract else address)
        manager.settimeout(5)
        told = notifier({"NOTIFY_SOCKET": address})
        told.ready()
        told.status("waiting for\nkubelet")
        told.watchdog()
        told.extend_timeout(1.5)
        told.stopping()
        assert [manager.recv(100) for _ in range(5)] == [
            b"READY=1",
            b"STATUS=waiting for kubelet",
            b"WATCHDOG=1",
            b"EXTEND_TIMEOUT_USEC=1500000",
            b"STOPPING=1",
        ]
        assert told.watchdog_s is None


def test_without_a_manager_nothing_is_said() -> None:
    told = notifier({})
    assert told.watchdog_s is None
    for call in (told.ready, told.watchdog, told.stopping):
        call()
    told.status("x")
    told.extend_timeout(1)


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_for_this_process(environ: dict[str, str], seconds: float | None) -> None:
    assert notifier({"NOTIFY_SOCKET": "/run/x", **environ}).watchdog_s == seconds
