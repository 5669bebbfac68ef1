"""The watchdog is fed while all loops turn."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from edgegpu_agent.session.watchdog import LoopHealth, LoopHealthTable
from edgegpu_base.process.sdnotify import Notifier

if TYPE_CHECKING:
    from pathlib import Path


def test_one_loop_that_hangs_starves_it_and_one_that_turns_again_feeds_it(
    short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ages = {"worker": 0.0, "link": 0.0}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(short_tmp / "notify"))
        manager.settimeout(0)
        vitals = LoopHealthTable(Notifier(str(short_tmp / "notify"), watchdog_s=30))
        vitals.feed_watchdog()
        assert manager.recv(100) == b"WATCHDOG=1"
        vitals.watch({"worker": LoopHealth(lambda: ages["worker"], 60), "link": LoopHealth(lambda: ages["link"], 90)})
        ages["link"] = 91
        vitals.feed_watchdog()
        vitals.feed_watchdog()
        with pytest.raises(BlockingIOError):
            manager.recv(100)
        assert [one.message.partition(":")[0] for one in caplog.records] == ["the link has not turned for 91 s"]
        ages["link"] = 1
        vitals.feed_watchdog()
        assert manager.recv(100) == b"WATCHDOG=1"
        ages["worker"] = 61
        vitals.watch({})
        vitals.feed_watchdog()
        assert manager.recv(100) == b"WATCHDOG=1"
        vitals.report_ready()
        vitals.report_ready()
        assert manager.recv(100) == b"READY=1"
        with pytest.raises(BlockingIOError):
            manager.recv(100)
