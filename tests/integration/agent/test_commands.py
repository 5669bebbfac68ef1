"""`edgegpu agent` and `edgegpu journal` over a socket that answers as the agent does, and over its files."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from kits.agentyaml import written
from kits.cli import Done, edgegpu

from edgegpu_agent.identity.enrolment import token_hash
from edgegpu_agent.identity.status import EnrolmentState, IdentityStatus, write_status
from edgegpu_agent.session.local_api import LocalApi
from edgegpu_agent.settings import load
from edgegpu_agent.worker.answers import JournalAnswer, JournalLine, OpenCommand, StatusAnswer
from edgegpu_sync.messages.uplink import ItemReport, ItemState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 60.0
DEVICE = "k3f9x2m7q1w8e5r4"
HEALTHY: dict[str, Any] = {
    "device": DEVICE,
    "enrolment": 3,
    "epoch": 42,
    "age_s": 60,
    "connected": True,
    "controller_unseen_s": 3,
    "key_set": 1,
    "observed_rev": 12,
    "applied_rev": 12,
    "wanted_rev": 12,
}
REJECTED = ItemReport(state=ItemState.REJECTED, rev=12, hash="0123", retry=0, code="NO_ROOM", text="card 0 has 9 free")
LINES = (
    JournalLine(n=2, at=1_790_000_001, kind="command", about="01j9zq4v", state="SUCCEEDED", text="k3s.restart"),
    JournalLine(n=1, at=1_790_000_000, kind="command", about="01j9zq4v", state="RECEIVED", by="operator anna"),
)


class Box:
    """A root with what the agent leaves in it; `answer` is what its socket says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answer = StatusAnswer(**HEALTHY)
        self.asked: list[int] = []
        (root / "etc/edgegpu").mkdir(parents=True)
        (root / "etc/edgegpu/agent.yaml").write_text(written("https://cloud.example:8443", ""))
        self._api: LocalApi | None = None
        self._thread: threading.Thread | None = None

    def stands(self, stand: EnrolmentState = EnrolmentState.ENROLLED, **more: object) -> None:
        fields: dict[str, Any] = {
            "device": DEVICE,
            "enrolment": 3,
            "not_after_s": int(time.time()) + 90 * 86_400,
            **more,
        }
        write_status(self.root / "run/edgegpu/agent-identity.json", IdentityStatus(stand=stand, **fields))

    def serve(self) -> None:
        path = self.root / "run/edgegpu/agent.sock"
        self._api = LocalApi(path, status=lambda: self.answer, history=self.history)
        self._thread = threading.Thread(target=self._api.run)
        self._thread.start()
        ends = time.monotonic() + WAIT_S
        while not path.exists() or path.stat().st_mode & 0o777 != 0o600:
            assert time.monotonic() < ends
            os.sched_yield()

    def history(self, limit: int) -> JournalAnswer:
        self.asked.append(limit)
        return JournalAnswer(lines=LINES)

    def close(self) -> None:
        if self._api is not None and self._thread is not None:
            self._api.stop()
            self._thread.join(WAIT_S)
            assert not (self.root / "run/edgegpu/agent.sock").exists()

    def run(self, *words: str) -> Done:
        return edgegpu(*words, "--root", self.root)


@pytest.fixture
def box(short_tmp: Path) -> Iterator[Box]:
    made = Box(short_tmp)
    yield made
    made.close()


def test_a_box_without_a_cloud_is_none_that_is_wrong(short_tmp: Path) -> None:
    done = edgegpu("agent", "status", "--root", short_tmp)
    assert done.code == 0
    assert "belongs to no cloud" in done.out
    assert "edgegpu agent enrol --url URL" in done.out


def test_a_box_that_is_well(box: Box) -> None:
    box.stands()
    box.serve()
    done = box.run("agent", "status")
    assert done.code == 0, done
    for words in (
        "cloud        https://cloud.example:8443",
        f"enrolment    enrolled as {DEVICE}",
        "90 days left",
        "connection   connected, last heard 3 s ago",
        "settings     all applied (revision 12)",
        "to send      nothing",
    ):
        assert words in done.out
    document = json.loads(box.run("agent", "status", "--json").out)
    assert document["agent"]["connected"] is True
    assert document["cloud"] == {"url": "https://cloud.example:8443", "ca_sha256": ""}
    assert document["problems"] == []


def test_an_agent_that_answers_speaks_for_the_identity_too(box: Box) -> None:
    box.stands(warning="not on the link: cannot open the journal: database is locked")
    stands = IdentityStatus(stand=EnrolmentState.ENROLLED, not_after_s=int(time.time()) + 90 * 86_400).document()
    box.answer = StatusAnswer(**HEALTHY, identity=stands)
    box.serve()
    done = box.run("agent", "status")
    assert (done.code, "locked" in done.out) == (0, False), done
    assert json.loads(box.run("agent", "status", "--json").out)["identity"] == stands


def test_a_box_with_troubles_names_each_and_exits_1(box: Box) -> None:
    box.stands(
        not_after_s=int(time.time()) + 86_400 * 3, failures=4, text="the certificate cannot be renewed: no answer"
    )
    box.answer = StatusAnswer(
        **{
            **HEALTHY,
            "connected": False,
            "why_down": "connection refused",
            "wanted_rev": 13,
            "items": {"app_limits/default/asr/main": REJECTED},
            "commands": (OpenCommand(id="01j9zq4v", op="k3s.restart", seq=1, state="RUNNING"),),
            "refused": {"Forged": 2},
            "outbox_used": 0.95,
            "results_waiting": 243,
            "events_dropped": 7,
            "told": "it was of no use",
            "limits_trouble": "the account for app limits may not watch",
        }
    )
    box.serve()
    done = box.run("agent", "status")
    assert done.code == 1
    for words in (
        "3 days left, renewal failed 4 times",
        "the account for app limits may not watch",
        "connection   not connected: connection refused; last heard 3 s ago",
        "settings     revision 13 requested and not received yet, revision 12 was; applied up to revision 12",
        "app_limits/default/asr/main  Rejected  card 0 has 9 free",
        "k3s.restart  RUNNING  01j9zq4v",
        "to send      243 results, 7 events dropped, 95% of the room used",
        "not believed Forged 2",
        "  the certificate ends in 3 days; the certificate cannot be renewed: no answer",
        "  too many results wait to be sent: new commands are refused",
        "  this box's record of commands is a new one: it was of no use; enrol this box again",
        "  app_limits/default/asr/main: Rejected NO_ROOM: card 0 has 9 free",
    ):
        assert words in done.out, done.out


def test_a_link_that_is_up_names_its_route_and_what_is_wrong_with_it(box: Box) -> None:
    route = "mqtt:443 by the proxy http://proxy:3128"
    box.stands()
    box.answer = StatusAnswer(**HEALTHY, route=route)
    box.serve()
    done = box.run("agent", "status")
    assert (done.code, f"connection   connected to {route}, last heard 3 s ago" in done.out) == (0, True), done
    trouble = f"connected to {route}, which the settings name no more: what they name does not connect: x"
    box.answer = StatusAnswer(**HEALTHY, route=route, route_trouble=trouble)
    done = box.run("agent", "status")
    assert (done.code, f"Problems\n  {trouble}\n" in done.out) == (1, True), done


def test_a_controller_that_is_silent_is_told(box: Box) -> None:
    box.stands()
    box.answer = StatusAnswer(**{**HEALTHY, "controller_unseen_s": 3 * 86_400})
    box.serve()
    done = box.run("agent", "status")
    assert done.code == 1
    assert "nothing heard from the cloud for 3 d" in done.out


def test_a_refusal_is_told_with_its_remedy(box: Box) -> None:
    box.stands(
        EnrolmentState.REFUSED,
        text="the token was used",
        remedy="ask for another",
        device="",
        enrolment=0,
        not_after_s=0,
    )
    done = box.run("agent", "status")
    assert done.code == 1
    assert "not in the cloud: refused; the token was used; ask for another" in done.out


def test_an_agent_that_does_not_run_is_told(box: Box) -> None:
    assert "is it running?" in box.run("agent", "status").out
    box.stands()
    done = box.run("agent", "status")
    assert done.code == 1
    assert "cannot reach edgegpu-agent" in done.out
    journal = box.run("journal")
    assert journal.code == 1
    assert "it does not run, or this box is in no cloud" in journal.err


def test_a_configuration_that_makes_no_sense_is_told(box: Box) -> None:
    (box.root / "etc/edgegpu/agent.yaml").write_text("version: 1\ncloud:\n  url: http://cloud\n")
    done = box.run("agent", "status")
    assert done.code == 1
    assert "'http://cloud' is not an https address" in done.out


def test_the_journal_newest_last_and_as_json_as_it_came(box: Box) -> None:
    box.serve()
    done = box.run("journal", "--limit", "7")
    assert done.code == 0
    first, last = done.out.splitlines()
    assert first.endswith("command  01j9zq4v  RECEIVED  by operator anna")
    assert last.endswith("command  01j9zq4v  SUCCEEDED  k3s.restart")
    assert box.asked == [7]
    assert [one["n"] for one in json.loads(box.run("journal", "--json").out)["lines"]] == [2, 1]


def systemctl(root: Path, *, loaded: str = "loaded", on_restart: str = "") -> dict[str, str]:
    path = root / "bin/systemctl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'#!/bin/sh\necho "$@" >> "{root}/calls"\ncase "$1" in\n'
        f'show) printf "LoadState={loaded}\\nActiveState=active\\n" ;;\nrestart) {on_restart or ":"} ;;\nesac\n'
    )
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}", "EDGEGPU_TOKEN": "secret-token"}


def said(stand: EnrolmentState, **more: Any) -> str:  # noqa: ANN401  (fields of Standing)
    return json.dumps(IdentityStatus(stand=stand, token_sha256=token_hash("secret-token"), **more).document())


def enrol(root: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, *more: str) -> Done:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    words = ("agent", "enrol", "--root", str(root), "--url", "https://cloud.example", "--wait", "5", *more)
    return edgegpu(*words)


def test_enrol_writes_restarts_and_says_who_the_box_is(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = said(EnrolmentState.ENROLLED, device=DEVICE, name="hall-1", enrolment=1)
    (short_tmp / "run/edgegpu").mkdir(parents=True)
    (short_tmp / "etc").mkdir()
    env = systemctl(short_tmp, on_restart=f"echo '{answer}' > {short_tmp}/run/edgegpu/agent-identity.json")
    done = enrol(short_tmp, env, monkeypatch, "--ca-sha256", "ab" * 32)
    assert done.code == 0, done
    assert done.out == "enrolled as hall-1\n"
    token = short_tmp / "etc/edgegpu/cloud-token"
    assert token.read_text() == "secret-token\n"
    assert token.stat().st_mode & 0o777 == 0o600
    assert "ca_sha256" in (short_tmp / "etc/edgegpu/agent.yaml").read_text()
    assert "restart -- edgegpu-agent.service" in (short_tmp / "calls").read_text()
    assert "secret" not in (short_tmp / "calls").read_text()


def test_enrol_keeps_what_else_stands_in_agent_yaml(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = short_tmp / "etc/edgegpu/agent.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("version: 1\ncloud: {url: 'https://other', proxy: 'http://p:1'}\nlimits: {namespaces: [asr]}\n")
    answer = said(EnrolmentState.ENROLLED, device=DEVICE, name="hall-1", enrolment=1)
    (short_tmp / "run/edgegpu").mkdir(parents=True)
    env = systemctl(short_tmp, on_restart=f"echo '{answer}' > {short_tmp}/run/edgegpu/agent-identity.json")
    assert enrol(short_tmp, env, monkeypatch).code == 0
    read = load(path)
    assert (read.cloud.url, read.cloud.proxy, read.limits.namespaces) == (
        "https://cloud.example",
        "http://p:1",
        ("asr",),
    )


def test_enrol_tells_of_a_refusal_an_approval_and_of_no_word(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (short_tmp / "run/edgegpu").mkdir(parents=True)
    (short_tmp / "etc").mkdir()
    refused = said(EnrolmentState.REFUSED, text="it was used", remedy="ask for another", code="TOKEN_USED")
    path = short_tmp / "run/edgegpu/agent-identity.json"
    done = enrol(short_tmp, systemctl(short_tmp, on_restart=f"echo '{refused}' > {path}"), monkeypatch)
    assert done.code == 1
    assert done.out == "refused (TOKEN_USED): it was used\n  ask for another\n"
    waits = said(EnrolmentState.WAITING, text="a person has to approve this box in the cloud")
    done = enrol(short_tmp, systemctl(short_tmp, on_restart=f"echo '{waits}' > {path}"), monkeypatch)
    assert done.code == 0
    assert "edgegpu-cloud approve" in done.out
    done = enrol(short_tmp, systemctl(short_tmp), monkeypatch, "--wait", "0", "--json")
    assert done.code == 1
    assert "the agent has not answered" in json.loads(done.out)["error"]


def test_enrol_refuses_what_makes_no_sense(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = systemctl(short_tmp, loaded="not-found")
    done = enrol(short_tmp, env, monkeypatch)
    assert (done.code, "run edgegpu install first" in done.err) == (1, True)
    done = enrol(short_tmp, env, monkeypatch, "--url", "http://cloud")
    assert "cannot enrol with http://cloud: not an https address" in done.err
    done = enrol(short_tmp, {**env, "EDGEGPU_TOKEN": ""}, monkeypatch)
    assert "there is no token" in done.err
    assert not (short_tmp / "etc").exists()
