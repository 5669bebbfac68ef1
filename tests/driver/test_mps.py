"""NVIDIA's own MPS control daemon, without a card: what the plugin's questions to it get."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from driver.cache import Unpacked
from driver.report import Figures
from kits.mqtt import wait_for

from edgegpu_base.listeners import listener
from edgegpu_plugin.containers.mps.daemon import PROGRAM, MpsDaemon

pytestmark = pytest.mark.driver

UNIT = Path(__file__).resolve().parents[2] / "systemd/edgegpu-mps.service"
QUESTION = "get_default_active_thread_percentage"
WAIT_S = 60.0


@pytest.fixture
def root(driver: Unpacked) -> Path:
    if driver.program(PROGRAM) is None:
        pytest.skip(f"the packages of branch {driver.branch.name} have no {PROGRAM}")
    return driver.root


def unit_command(mps: MpsDaemon) -> list[str]:
    """Return what the unit runs, with this daemon's file of settings in the place of the machine's."""
    text = UNIT.read_text().replace("\\\n", "").replace("$$", "$").replace("/run/edgegpu/mps.env", str(mps.settings))
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    return shlex.split(command.removeprefix("ExecStart="))


@contextmanager
def started(mps: MpsDaemon) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the daemon as its unit does, by the file that the plugin has written, and wait until it answers."""
    mps.prepare(wanted=True)
    environment = dict(line.split("=", 1) for line in mps.settings.read_text().splitlines())
    process = subprocess.Popen(unit_command(mps), env=environment, start_new_session=True)
    try:
        wait_for(lambda: mps.ask(QUESTION) is not None, what="MPS answers", timeout_s=WAIT_S)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)


def lines(mps: MpsDaemon) -> int:
    """Return how many lines the daemon has written."""
    return len((mps.log / "daemon.log").read_text().splitlines())


def test_a_daemon_is_started_asked_and_let_go(root: Path, short_tmp: Path, figures: Figures) -> None:
    mps = MpsDaemon(root=root, run=short_tmp / "run", proc=Path("/proc"))
    assert (mps.ask(QUESTION), mps.clients(), mps.is_there) == (None, None, False)
    with started(mps) as process:
        assert mps.ask(QUESTION) == "100.0\n"
        assert (mps.problem([]), mps.clients(), mps.is_there) == ("", frozenset(), True)
        assert mps.ask("get_client_list 4711") == "Server 4711 not found\n"
        before = lines(mps)
        for _ in range(50):
            assert mps.problem([]) == ""
        assert lines(mps) == before, "what has answered is asked again within a minute"
        assert mps.ask(QUESTION) == "100.0\n"
        figures.note("MPS", lines=lines(mps) - before)
        other = MpsDaemon(root=root, run=short_tmp / "other", proc=Path("/proc"))
        other.prepare(wanted=True)
        assert other.problem([]).startswith("another MPS daemon runs on this machine (process ")
        mps.end_unneeded()
        assert process.wait(WAIT_S) == 0
    assert (mps.ask(QUESTION), mps.is_there) == (None, False)
    figures.note("MPS", daemon="answers")


def test_a_server_that_fails_for_want_of_a_card_is_no_client(root: Path, short_tmp: Path) -> None:
    mps = MpsDaemon(root=root, run=short_tmp / "run", proc=Path("/proc"))
    answers = set()

    def has_failed() -> bool:
        answers.add(mps.clients())
        return "exited with status 1" in (mps.log / "daemon.log").read_text()

    with started(mps) as process:
        assert mps.ask("start_server -uid 0") == ""
        wait_for(has_failed, what="the server has ended", timeout_s=WAIT_S)
        assert "no CUDA-capable device is detected" in (mps.log / "daemon.log").read_text()
        assert answers <= {frozenset(), None}
        assert (mps.clients(), mps.problem([])) == (frozenset(), "")
        mps.prepare(wanted=False)
        mps.end_unneeded()
        assert process.wait(WAIT_S) == 0  # the daemon's own status is 1 then, by which systemd would start it again


def test_the_socket_of_a_daemon_that_was_killed_is_no_daemon(root: Path, short_tmp: Path) -> None:
    mps = MpsDaemon(root=root, run=short_tmp / "run", proc=Path("/proc"))
    with started(mps) as process:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)
        socket = mps.pipe / "control"
        wait_for(lambda: listener(socket) is None, what="the daemon has ended too", timeout_s=WAIT_S)
        assert socket.exists()
        mps.end_unneeded()
        assert not mps.is_there
