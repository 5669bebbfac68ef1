"""The watchdog is fed while all loops turn."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from edgegpu_agent.session.watchdog import LoopHealth, LoopHealthTable, VitalNotifier
from edgegpu_base.process.sdnotify import Notifier

if TYPE_CHECKING:
    from pathlib import Path


def test_one_loop_that_hangs_starves_it_and_one_that_turns_again_feeds_it(
    short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ages = {"worker": 0.0, "link": 0.0}
    vitals = LoopHealthTable()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(short_tmp / "notify"))
        manager.settimeout(0)
        notifier = VitalNotifier(Notifier(str(short_tmp / "notify"), watchdog_s=30), vitals)
        assert notifier.watchdog_s == 30
        notifier.watchdog()
        assert manager.recv(100) == b"WATCHDOG=1"
        vitals.watch({"worker": LoopHealth(lambda: ages["worker"], 60), "link": LoopHealth(lambda: ages["link"], 90)})
        ages["link"] = 91
        notifier.watchdog()
        notifier.watchdog()
        with pytest.raises(BlockingIOError):
            manager.recv(100)
        assert [one.message.partition(":")[0] for one in caplog.records] == ["the link has not turned for 91 s"]
        ages["link"] = 1
        notifier.watchdog()
        assert manager.recv(100) == b"WATCHDOG=1"
        ages["worker"] = 61
        vitals.watch({})
        notifier.watchdog()
        assert manager.recv(100) == b"WATCHDOG=1"
        for tell, said in (
            (notifier.ready, b"READY=1"),
            (notifier.stopping, b"STOPPING=1"),
            (lambda: notifier.status("x"), b"STATUS=x"),
            (lambda: notifier.extend_timeout(1), b"EXTEND_TIMEOUT_USEC=1000000"),
        ):
            tell()
            assert manager.recv(100) == said
