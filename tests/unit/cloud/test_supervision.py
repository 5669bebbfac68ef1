"""The supervisor of `serve`: real processes, and a system that has none left for a moment."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from edgegpu_cloud.supervision import Supervised, SupervisedProcess, Supervisor


def test_a_part_that_cannot_be_started_again_yet_leaves_the_other_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stands(line: Supervised) -> int:
        line.ready()
        signal.pause()
        return 0

    def falls(line: Supervised) -> int:
        line.ready()
        return 3

    parts = [
        SupervisedProcess("the controller", "steady", stands),
        SupervisedProcess("HTTPS", "falls", falls, wait_s=0.01),
    ]
    supervisor = Supervisor(parts)
    fork, pids = os.fork, list[int]()

    def short() -> int:
        pids.append(0)
        if len(pids) == 3:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if pid := fork():
            pids[-1] = pid
            if len(pids) == 4:
                supervisor.stop()
        return pid

    monkeypatch.setattr(os, "fork", short)
    assert supervisor.run() == 0
    assert len(pids) == 4, "it was tried once more"
    assert [one.getMessage().partition(":")[0] for one in caplog.records][:2] == [
        "HTTPS has ended (status 3)",
        "cannot start HTTPS again",
    ]
    assert "the controller has ended" not in caplog.text
    for part in parts:
        assert part.line is None
        with pytest.raises(ChildProcessError):
            os.waitpid(part.pid, os.WNOHANG)


def test_a_first_start_that_fails_ends_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to process 0 would be one to the whole group of who called."""
    told = list[int]()
    monkeypatch.setattr(os, "kill", lambda pid, _: told.append(pid))

    def none() -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "fork", none)
    with pytest.raises(OSError, match="memory"):
        Supervisor([SupervisedProcess("HTTPS", "https", lambda _: 0)]).run()
    assert told == []
