"""The agent's process where the machine's clock is wrong by decades, by libfaketime: a token, commands, a renewal."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.agent import WAIT_S, Agent, Cloud, until

from edgegpu_sync.messages.spec import Isolation, IsolationMode, Spec
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("clocks") / "cloud")
    made.start("mosquitto", "controller")
    yield made
    made.close()


RESTARTS = 'trap "kill -9 $child; exit" TERM; while :; do "$@" & child=$!; wait $child; done'
"""As systemd does: under load libfaketime makes a sleep fail now and then, which ends the process."""


class Wrong(Agent):
    """An agent on a machine whose clock is set by a file; what counts from the boot is not touched."""

    def leap(self, years: int) -> None:
        (self.root / "clock").write_text(f"{years:+d}y")

    def begin(self, years: int) -> None:
        self.leap(years)
        env = {
            **os.environ,
            "LD_PRELOAD": str(faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self.root / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "BOX": str(self.root),
        }
        command = [sys.executable, "-W", "ignore", "-m", "edgegpu_agent", "--root", str(self.root)]
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(["sh", "-c", RESTARTS, "sh", *command], env=env, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(WAIT_S)


def faketime() -> Path:
    """Return the library that stands before the clock."""
    if shutil.which("faketime") is None:
        if "CI" in os.environ:
            pytest.fail("faketime is not on the PATH: apt-get install faketime")
        pytest.skip("faketime is not on the PATH: apt-get install faketime")
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@pytest.fixture
def wrong(short_tmp: Path) -> Iterator[Wrong]:
    with Wrong(short_tmp, machine=secrets.token_hex(16)) as made:
        yield made


def test_a_clock_that_is_behind_and_then_ahead_by_decades_keeps_nothing_from_its_end(
    cloud: Cloud, wrong: Wrong
) -> None:
    wrong.belongs(cloud.line("wrong"))
    cloud.serves()
    wrong.begin(-30)
    cloud.online("wrong")
    assert cloud.end("wrong", "identity.rotate").state is CommandState.SUCCEEDED

    wrong.leap(0)  # somebody sets it right, under the agent that runs
    assert cloud.end("wrong", "identity.rotate").state is CommandState.SUCCEEDED

    wrong.kill()
    wrong.begin(30)  # its own certificate seems to have ended, and that of the broker
    assert cloud.end("wrong", "identity.rotate").state is CommandState.SUCCEEDED
    rev = cloud.fleet.set_spec("wrong", lambda _: Spec(isolation=Isolation(rev=0, mode=IsolationMode.NONE)))
    until(lambda: (seen := cloud.box("wrong")) is not None and seen.applied_rev == rev, lambda: cloud.box("wrong"))
    assert wrong.log.count("the certificate was renewed") <= 1, "a clock renews nothing without end"


def test_a_box_that_knows_no_better_says_that_its_clock_is_ahead_and_enrols_when_it_is_right(
    cloud: Cloud, wrong: Wrong
) -> None:
    wrong.belongs(cloud.line("ahead"))
    cloud.serves()
    wrong.begin(30)

    standing = wrong.root / "run/edgegpu/agent-identity.json"  # what `edgegpu agent status` shows
    until(lambda: standing.exists() and "is this box's clock right" in standing.read_text(), lambda: wrong.log)
    assert cloud.box("ahead") is None
    wrong.kill()  # it would try again by itself, in a while
    wrong.begin(0)
    cloud.online("ahead")
    assert not (wrong.root / "etc/edgegpu/cloud-token").exists()
