"""`edgegpu-cloud serve` as an operator's units, killed, and flooded: minutes, so `make bugs` runs it."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from kits.cloudprocess import Cloud, parts, running
from kits.mqtt import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.chaos


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with running(tmp_path) as made:
        yield made


def test_both_fall_with_a_serve_that_is_killed_and_the_next_one_begins_at_once(cloud: Cloud) -> None:
    process = cloud.processes.pop()
    process.kill()
    process.wait(30)
    (cloud.work / "serve.log").unlink()
    cloud.serve()
    assert cloud.enrols("after-a-kill")


def test_units_of_their_own_and_a_second_of_each_is_refused(cloud: Cloud) -> None:
    cloud.end()
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--folder", str(cloud.folder)]
    with ExitStack() as ends, (cloud.work / "serve.log").open("ab") as log:
        for one in ("--no-https", "--no-link"):
            process = subprocess.Popen([*words, one], stderr=log)
            ends.callback(process.wait, 30)
            ends.callback(process.terminate)
        wait_for(lambda: b"connected: asking" in cloud.log(), what="the controller is on the link")
        wait_for(lambda: b"boxes enrol at" in cloud.log(), what="HTTPS answers")
        assert cloud.enrols("of-units")
        for more in (["--no-https"], ["--no-link"], []):
            done = subprocess.run([*words, *more], capture_output=True, text=True, check=False, timeout=60)
            assert (done.returncode, "another `edgegpu-cloud serve` does" in done.stderr) == (1, True), done.stderr
    assert cloud.run("boxes").err.startswith("edgegpu-cloud: the controller is not running")


def test_a_flood_of_connections_leaves_https_and_the_link_to_the_boxes(cloud: Cloud) -> None:
    """More than there are places, none of which says a word."""
    port = int(cloud.url.rpartition(":")[2])
    with cloud.live("flooded"), ExitStack() as flood:
        before = parts(cloud)
        for _ in range(1_300):
            flood.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        assert cloud.enrols("in-a-flood")
        assert cloud.ok("command", "flooded", "k3s.restart", "--yes", "--wait", "--json").json["state"] == "SUCCEEDED"
    assert b"Traceback" not in cloud.log()
    assert cloud.log().count(b"in the last minute") <= 2
    assert parts(cloud) == before, "nothing fell"
