"""The agent's side of the cloud in this process, with a cloud that enrols and a broker that is not there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from kits.agent import until
from kits.agentside import Tasks
from kits.agentyaml import written
from kits.cli import edgegpu
from kits.identity import DEVICE, NAME, Cloud, CloudServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Side:
    """A root, and an agent over it in threads."""

    def __init__(self, root: Path, cloud: Cloud) -> None:
        self.root = root
        for folder in ("etc/edgegpu", "var/lib/edgegpu/tx"):
            (root / folder).mkdir(parents=True)
        (root / "proc").symlink_to("/proc")
        (root / "etc/machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
        (root / "etc/edgegpu/agent.yaml").write_text(written(cloud.url, cloud.servers.sha256))
        (root / "etc/edgegpu/cloud-token").write_text("good")
        self.start()

    def start(self) -> None:
        self.agent = Tasks(self.root)

    def stop(self) -> None:
        self.agent.stop()

    def status(self) -> str:
        return edgegpu("agent", "status", "--root", self.root).out

    def tells(self, words: str) -> None:
        until(lambda: words in self.status(), self.status)

    def becomes(self, enrolment: int) -> None:
        """Let the identity be of another enrolment, as a copy that was put back would."""
        path = self.root / "var/lib/edgegpu/identity/device.json"
        value = json.loads(path.read_bytes()) | {"enrolment": enrolment}
        path.write_text(json.dumps(value))


@pytest.fixture
def side(short_tmp: Path) -> Iterator[Side]:
    cloud = Cloud(broker={"host": "127.0.0.1", "port": 9})
    with CloudServer(cloud):
        made = Side(short_tmp, cloud)
        yield made
        made.stop()


def test_it_enrols_and_says_that_there_is_no_broker(side: Side) -> None:
    side.tells(f"enrolment    enrolled as {NAME} ({DEVICE})")
    side.tells("connection   not connected: ")
    assert side.agent.vitals.hanging() == ""


def test_an_identity_that_was_put_back_stays_off_and_is_told(side: Side) -> None:
    side.tells("connection   not connected: ")
    side.stop()
    side.becomes(5)
    side.start()
    side.tells(f"enrolment    enrolled as {NAME} ({DEVICE})")
    side.tells("connection   not connected: ")
    side.stop()
    side.becomes(4)
    side.start()
    side.tells("not on the link: cannot go on: the journal is of enrolment 5, the identity of 4")
    assert "enrol this box again" in side.status()
    side.stop()
    side.becomes(5)
    side.start()
    side.tells("connection   not connected: ")


def test_a_second_agent_that_is_refused_does_not_speak_for_the_first(side: Side) -> None:
    side.tells("connection   not connected: ")
    told = side.root / "run/edgegpu/agent-identity.json"
    second = Tasks(side.root)
    until(lambda: "database is locked" in told.read_text(), told.read_text)
    status = side.status()
    second.stop()
    assert f"enrolment    enrolled as {NAME} ({DEVICE})" in status
    assert "database is locked" not in status
