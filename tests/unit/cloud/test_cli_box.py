"""What `edgegpu-cloud box` shows: cards with what is held of them, health, and no holes where nothing is known."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from kits.details import STAMP, box, card, pod, saying

from edgegpu_cloud.cli.boxes.show import show_box
from edgegpu_sync.messages.spec import PolicyItem, Spec
from edgegpu_sync.messages.uplink import ItemReport, ItemState
from edgegpu_sync.states import ResultCode
from edgegpu_sync.topics import TopicKind

REV, RETRY = 5, 1
"""Of the one item that is requested."""


def test_cards_and_health_stand_there(capsys: pytest.CaptureFixture[str]) -> None:
    cards = (card("0"), card("1"), card("2", healthy=False, text="Xid 79"), card("3", excluded=True))
    pods = {"u1": pod("asr-1", ("main", "0", 4, 1), ("side", "1", 0, 100)), "u2": pod("tts-1", ("main", "0", 6, 1))}
    found = box(cards=cards, pods=pods)
    parts = [{"name": "k3s", "state": "bad", "text": "does not answer"}, {"name": "disk", "state": "ok", "text": "x"}]
    health = replace(
        found.latest[TopicKind.ALLOC], kind=TopicKind.HEALTH, body={**STAMP, "state": "bad", "parts": parts}
    )
    versions = {"agent": "1.0", "k3s": "", "driver": "580.1", "os": ""}
    show_box(
        replace(found, latest={**found.latest, TopicKind.HEALTH: health}, box=replace(found.box, versions=versions))
    )
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "  pods without a card: its agent does not report them"
    assert "  agent 1.0, driver 580.1" in lines
    assert any(line.startswith("  health: bad, ") for line in lines)
    assert [line for line in lines if "does not answer" in line or "disk" in line] == ["    k3s bad: does not answer"]
    assert [line.split(None, 1)[1].split("  ", 1)[1].strip() for line in lines[-8:-4]] == [
        "7424 MiB  10 of 29    healthy",
        "7424 MiB  29 of 29    healthy",
        "7424 MiB  0 of 29     not healthy: Xid 79",
        "7424 MiB  0 of 29     excluded",
    ]
    assert [re.split(r"\s{2,}", line) for line in lines[-4:]] == [
        ["POD", "CONTAINER", "CARD", "UNITS", "CORE", "USES"],
        ["default/asr-1", "main", "0", "4", "1", "-"],
        ["default/tts-1", "main", "0", "6", "1", "-"],
        ["default/asr-1", "side", "1", "29", "100", "-"],
    ]


def test_each_pod_has_what_it_uses_and_the_figures_their_age(capsys: pytest.CaptureFixture[str]) -> None:
    pods = {"u1": pod("asr-1", ("main", "0", 4, 1)), "u2": pod("tts-1", ("main", "0", 6, 1))}
    now_s = int(time.time())
    uses = [
        {"card": "GPU-0", "uid": "u1", "container": "main", "processes": 1, "memory_mib": 1_536},
        {"card": "GPU-0", "uid": "u2", "container": "main", "processes": 1},
        {"card": "GPU-0", "uid": "u3", "processes": 1, "memory_mib": 5},
        {"card": "GPU-0", "processes": 2, "memory_mib": 110},
    ]
    samples = [{"at": now_s - 125, "cards": [], "memory_use": uses}]
    found = saying(box(pods=pods), TopicKind.METRICS, period_s=60, samples=samples)
    heard = replace(found.latest[TopicKind.METRICS], at_s=now_s - 120)
    show_box(replace(found, latest={**found.latest, TopicKind.METRICS: heard}))
    *lines, _ = capsys.readouterr().out.splitlines()
    assert [re.split(r"\s{2,}", line)[-1] for line in lines[-5:-3]] == [
        "1.5 GiB of 1 GiB (over)",
        "not reported of 1.5 GiB",
    ]
    assert lines[-3:] == [
        "  card 0: 5 MiB used by u3, without a share of it (1 process)",
        "  card 0: 110 MiB used outside of pods (2 processes)",
        "  USES as measured 2 min ago",
    ]


def test_pods_without_a_card_have_the_box_s_words(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "needs 20 vcuda-memory on one card; card 0 has 9 free"
    asks = [{"name": "main", "memory_units": 20, "core": 10}]
    waits = {"uid": "u7", "namespace": "default", "name": "llm-0", "state": "pending", "reason": reason}
    silent = "connection refused; heard last at 2026-01-01 00:00:00 UTC"
    pending = {"cluster": True, "more": 2, "silent": silent, "pods": [{**waits, "containers": asks}]}
    show_box(saying(box(), TopicKind.ALLOC, pods={}, pending=pending))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4] == f"  the API server is silent, they may be old: {silent}"
    assert re.split(r"\s{2,}", lines[-2]) == ["default/llm-0", "pending", "-", "20 units core 10", reason]
    assert lines[-1] == "  and 2 more pods"


def test_a_box_that_has_told_nothing_is_shown_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_box(replace(box(), latest={}))
    out = capsys.readouterr().out
    assert ("has not connected yet" in out, "cards: not heard" in out, "health: not heard" in out) == (True,) * 3


def told(state: ItemState, code: str | None = None, *, rev: int = REV, retry: int = RETRY) -> ItemReport:
    return ItemReport(state=state, rev=rev, hash="0" * 64, retry=retry, code=code)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (None, "waiting for the box  -"),
        (told(ItemState.OPEN), "waiting for the box  -"),
        (told(ItemState.APPLIED, rev=REV - 1), "waiting for the box  -"),
        (told(ItemState.APPLIED, retry=RETRY - 1), "waiting for the box  -"),
        (told(ItemState.REJECTED, ResultCode.NOT_INSTALLED), "waits for GPU sharing  NOT_INSTALLED"),
        (told(ItemState.ELSEWHERE), "applied by another box  -"),
        (told(ItemState.APPLIED), "Applied  -"),
        (told(ItemState.REJECTED, ResultCode.NO_ROOM), "Rejected  NO_ROOM"),
        (told(ItemState.FAILED, ResultCode.NOT_INSTALLED), "Failed  NOT_INSTALLED"),
        (told(ItemState.PENDING), "Pending  -"),
        (told(ItemState.UNSUPPORTED), "Unsupported  -"),
    ],
)
def test_what_was_requested_stands_there_in_words(
    capsys: pytest.CaptureFixture[str], report: ItemReport | None, words: str
) -> None:
    """Reports on an older revision or an earlier try are none."""
    found = box()
    items = {"policy": report} if report is not None else {}
    spec = Spec(policy=PolicyItem(policy="spread", rev=REV, retry=RETRY))
    show_box(replace(found, spec=spec, box=replace(found.box, rev=REV, items=items)))
    lines = capsys.readouterr().out.splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.split() == ["REQUESTED", "STATE", "WHY"])
    assert re.split(r"\s{2,}", lines[at + 1].strip()) == ["policy", *words.split("  ")]
