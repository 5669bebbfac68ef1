"""NVIDIA's own MPS control daemon, without a card: what the plugin's questions to it get."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from driver.cache import Unpacked
from driver.report import Figures
from kits.mqtt import wait_for

from edgegpu_plugin.containers.mps.daemon import PROGRAM, MpsDaemon

pytestmark = pytest.mark.driver

QUESTION = "get_default_active_thread_percentage"
WAIT_S = 60.0


@pytest.fixture
def root(driver: Unpacked) -> Path:
    if driver.program(PROGRAM) is None:
        pytest.skip(f"the packages of branch {driver.branch.name} have no {PROGRAM}")
    return driver.root


@contextmanager
def started(mps: MpsDaemon) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the daemon as its unit does, by the file that the plugin has written, and wait until it answers."""
    mps.prepare(wanted=True)
    environment = dict(line.split("=", 1) for line in mps.settings.read_text().splitlines())
    with (mps.log / "output").open("w") as output:
        process = subprocess.Popen([environment["PROGRAM"], "-f"], env=environment, stdout=output, stderr=output)
    try:
        wait_for(lambda: mps.ask(QUESTION) is not None, what="MPS answers", timeout_s=WAIT_S)
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_daemon_is_started_asked_and_let_go(root: Path, short_tmp: Path, figures: Figures) -> None:
    mps = MpsDaemon(root=root, run=short_tmp / "run")
    assert (mps.ask(QUESTION), mps.clients(), mps.is_there) == (None, None, False)
    with started(mps) as process:
        assert mps.ask(QUESTION) == "100.0\n"
        assert (mps.problem([]), mps.clients(), mps.is_there) == ("", frozenset(), True)
        assert mps.ask("get_client_list 4711") == "Server 4711 not found\n"
        other = MpsDaemon(root=root, run=short_tmp / "other")
        other.prepare(wanted=True)
        assert other.problem([]).startswith(f"another MPS daemon runs on this machine (process {process.pid})")
        mps.end_unneeded()
        assert process.wait(WAIT_S) == 0
    assert (mps.ask(QUESTION), mps.is_there) == (None, False)
    figures.note("MPS", daemon="answers")


def test_a_server_that_fails_for_want_of_a_card_is_no_client(root: Path, short_tmp: Path) -> None:
    mps = MpsDaemon(root=root, run=short_tmp / "run")
    answers = set()

    def has_failed() -> bool:
        answers.add(mps.clients())
        return "exited with status 1" in (mps.log / "output").read_text()

    with started(mps) as process:
        assert mps.ask("start_server -uid 0") == ""
        wait_for(has_failed, what="the server has ended", timeout_s=WAIT_S)
        assert "no CUDA-capable device is detected" in (mps.log / "output").read_text()
        assert answers <= {frozenset(), None}
        assert (mps.clients(), mps.problem([])) == (frozenset(), "")
        mps.end_unneeded()
        assert process.wait(WAIT_S) == 1  # its own end: systemd would start it again, if it were still wanted
