"""The agent's process where agent.yaml comes, goes and makes no sense."""

from __future__ import annotations

import json
import secrets
import threading
from typing import TYPE_CHECKING

import pytest
from kits.agent import WAIT_S, Agent, until
from kits.agentyaml import written

from edgegpu_agent.session.settings_watch import SettingsWatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def agent(short_tmp: Path) -> Iterator[Agent]:
    with Agent(short_tmp, machine=secrets.token_hex(16)) as made:
        yield made


@pytest.mark.parametrize("before", ["", "version: 1\n"])
def test_a_file_that_becomes_another_one_is_said_once(tmp_path: Path, before: str) -> None:
    path, said = tmp_path / "agent.yaml", threading.Semaphore(0)
    if before:
        path.write_text(before)
    watch = SettingsWatch(path, said.release, look_s=0.005)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        assert not said.acquire(timeout=0.05)
        path.write_text("version: 1\ncloud: {}\n")
        assert said.acquire(timeout=WAIT_S)
        path.unlink()
        assert not said.acquire(timeout=0.05)
    finally:
        watch.stop()
        thread.join(WAIT_S)
    assert not thread.is_alive()


def test_without_a_cloud_it_says_so_and_with_one_it_starts_anew(agent: Agent) -> None:
    agent.start()
    assert agent.fed()
    assert "belongs to no cloud" in agent.log
    (agent.root / "etc/edgegpu/agent.yaml").write_text(written("https://127.0.0.1:1", ""))
    assert agent.process is not None
    assert agent.process.wait(WAIT_S) == 0
    assert "is another one now: starting anew with it" in agent.log
    agent.start()
    standing = agent.root / "run/edgegpu/agent-identity.json"
    until(standing.exists, lambda: agent.log)
    assert json.loads(standing.read_text())["stand"] == "no token"
    assert agent.fed()


def test_a_file_that_makes_no_sense_is_told_and_the_rest_goes_on(agent: Agent) -> None:
    (agent.root / "etc/edgegpu/agent.yaml").write_text("version: 1\ncloud:\n  url: ftp://cloud\n")
    agent.start()
    assert agent.fed()
    told = json.loads((agent.root / "run/edgegpu/agent-identity.json").read_text())
    assert told["stand"] == "broken"
    assert "'ftp://cloud' is not an https address" in told["text"]
    assert agent.end() == 0
