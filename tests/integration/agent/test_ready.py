"""The agent says that it is ready when its worker has opened the journal and turns, whatever the network does."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from kits.agent import WAIT_S
from kits.agentyaml import written
from kits.identity import Cloud, CloudServer

from edgegpu_agent.session.session import cloud_tasks
from edgegpu_agent.session.watchdog import LoopHealthTable
from edgegpu_base.process.sdnotify import Notifier
from edgegpu_installer.layout import Layout
from edgegpu_installer.transaction.agent_health import AgentReply, ask_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET = "etc/edgegpu/cloud-token"  # noqa: S105  (a path)


class _ReadyNotifier(Notifier):
    def __init__(self, ready: Callable[[], None]) -> None:
        super().__init__()
        self._ready = ready

    def ready(self) -> None:
        self._ready()


class Side:
    """A root, and the tasks over it in threads; what there was when it was ready."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("etc/edgegpu", "var/lib/edgegpu/tx"):
            (root / folder).mkdir(parents=True)
        (root / "proc").symlink_to("/proc")
        (root / "etc/machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
        self.threads: list[threading.Thread] = []

    def belongs(self, url: str, ca_sha256: str = "a" * 64, *, good: bool = False) -> None:
        (self.root / "etc/edgegpu/agent.yaml").write_text(written(url, ca_sha256))
        if good:
            (self.root / SECRET).write_text("good")

    def start(self) -> None:
        self.ready, self.journals, self.looped = threading.Event(), 0, False
        vitals = LoopHealthTable(_ReadyNotifier(self._is_ready))
        layout = Layout(self.root)
        self.tasks = cloud_tasks(self.root / "etc/edgegpu/agent.yaml", layout, edgegpu="edgegpu", vitals=vitals)
        self.threads = [threading.Thread(target=task.run) for task in self.tasks]
        for thread in self.threads:
            thread.start()

    def _is_ready(self) -> None:
        assert not self.ready.is_set(), "it is said once"
        self.journals = len(list((self.root / "var/lib/edgegpu/agent").glob("*.db")))
        self.said = self.ask()
        self.ready.set()

    def ask(self) -> AgentReply | None:
        return ask_agent(self.root / "run/edgegpu/agent.sock")

    def answers(self) -> AgentReply:
        """Wait for what is said on the socket, which another task serves."""
        pause = threading.Event()
        for _ in range(int(WAIT_S / 0.02)):
            if (said := self.ask()) is not None:
                return said
            pause.wait(0.02)
        pytest.fail("nobody answers")

    def stop(self) -> None:
        for task in self.tasks:
            task.stop()
        for thread in self.threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), thread.name
        self.threads.clear()


@pytest.fixture
def side(short_tmp: Path) -> Iterator[Side]:
    made = Side(short_tmp)
    yield made
    if made.threads:
        made.stop()


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    made = Cloud(broker={"host": "127.0.0.1", "port": 9})
    with CloudServer(made):
        yield made


def enrolled(side: Side, cloud: Cloud) -> None:
    """Leave a box behind that has enrolled once, and whose agent was stopped."""
    side.belongs(cloud.url, cloud.servers.sha256, good=True)
    side.start()
    side.answers()
    side.stop()


def test_an_enrolled_box_is_ready_when_its_worker_turns_though_no_broker_is_there(side: Side, cloud: Cloud) -> None:
    enrolled(side, cloud)
    (journal,) = (side.root / "var/lib/edgegpu/agent").glob("*.db")
    journal.unlink()
    side.start()
    assert side.ready.wait(WAIT_S)
    assert side.journals == 1
    said = side.answers()
    assert not said.connected
    assert said.version


def test_a_box_without_a_token_is_ready(side: Side) -> None:
    side.belongs("https://127.0.0.1:9")
    side.start()
    assert side.ready.wait(WAIT_S)
    assert (side.journals, side.said) == (0, None)


def test_a_cloud_that_does_not_answer_keeps_no_box_from_being_ready(side: Side) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        side.belongs(f"https://127.0.0.1:{silent.getsockname()[1]}", good=True)
        side.start()
        assert side.ready.wait(WAIT_S)
        assert (side.root / SECRET).exists()
    side.stop()


def test_a_journal_that_cannot_be_used_is_said_and_ends_nobody(side: Side, cloud: Cloud) -> None:
    enrolled(side, cloud)
    path = side.root / "var/lib/edgegpu/identity/device.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"enrolment": 0}))
    side.start()
    assert side.ready.wait(WAIT_S)
    assert side.ask() is None
