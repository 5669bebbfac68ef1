"""What commands to many boxes have brought back is printed, here and from another machine, page by page and bounded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kits.clipair import Pair, made_pair
from kits.todaysstores import TodaysStores

from edgegpu_cloud.cli.common import EXIT_WAITING
from edgegpu_cloud.cli.requests.operation_progress import MOST_DATA_BYTES
from edgegpu_cloud.fleet.operations.outcomes import settle_commands
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

WELL = {"version": "1", "level": "ok", "checks": 14, "troubled": []}
TROUBLE = {"name": "k3s", "level": "broken", "text": "it does not answer", "remedy": "systemctl start k3s"}
ILL = {"version": "1", "level": "broken", "checks": 14, "troubled": [TROUBLE]}
HOSTILE: tuple[Any, ...] = (
    {"level": ["x"], "troubled": "y", "checks": None},
    {"level": "broken", "troubled": ["y", 3, {"name": "\x1b[2J\nfake", "text": {"a": 1}, "level": 7}], "checks": "no"},
    {"level": "broken", "troubled": True, "checks": 10**30},
    {"level": "broken", "troubled": [{"name": "n" * 7_000}] * 3, "checks": 1},
)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todays_stores: TodaysStores) -> Iterator[Pair]:
    with made_pair(tmp_path, monkeypatch, todays_stores) as pair:
        yield pair


def answered(pair: Pair, op: str, answers: Mapping[str, Any]) -> str:
    """Return an operation that asks boxes for a command, which each has ended with such data."""
    for number, name in enumerate(sorted(answers)):
        pair.site.add(number, name, site="hall")
    words = ["--arg", "url=https://logs.example.com/in"] if op == "logs.collect" else []
    late = pair.there("command", "-l", "site=hall", op, *words, "--wait", "--timeout", "1s", "--json")
    assert (late.code, late.json["outcomes"]) == (EXIT_WAITING, {"QUEUED": len(answers)})
    id_ = str(late.json["operation"]["id"])
    OperationRunner(pair.site.store, clock=pair.site.clock).step()
    rows = pair.site.operations().boxes(id_, limit=1_000).boxes
    with pair.site.store.write() as tx:
        found = tx.commands.get([one.box.command for one in rows if one.box.command])
        ended = []
        for row in rows:
            assert row.box.command is not None
            one = found[row.box.command]
            tracked = replace(one.tracked, state=CommandState.SUCCEEDED)
            ended.append(replace(one, tracked=tracked, data=answers[row.name], ended_at_s=pair.site.now_s))
        tx.commands.put(ended)
        settle_commands(tx, ended)
    return id_


def test_the_doctors_findings_are_printed_box_by_box(pair: Pair) -> None:
    id_ = answered(pair, "doctor.run", {"hall-1": WELL, "hall-2": ILL})
    for asked in (pair.here, pair.there):
        shown = asked("operations", "show", id_)
        assert shown.out.splitlines()[2:] == [
            "BOX     OUTCOME  WHY",
            "hall-1  APPLIED  all is well",
            "hall-2  APPLIED  broken: 1 finding",
            "hall-2:",
            "  broken: k3s: it does not answer",
            "    Fix: systemctl start k3s",
            "  14 checks made",
        ]
        document = asked("operations", "show", id_, "--json").json
        assert [one["data"] for one in document["results"]] == [WELL, ILL]
        assert document["data_left_out_after"] is None
        first = asked("operations", "show", id_, "--limit", "1", "--json").json["results"]
        assert [one["name"] for one in first] == ["hall-1"]


@pytest.mark.parametrize(
    ("op", "data", "why", "more"),
    [
        (
            "inventory.refresh",
            {"cards": 2, "healthy": 1, "driver": "560.35", "problem": "one fell off"},
            "2 cards, 1 healthy, driver 560.35: one fell off",
            [],
        ),
        ("logs.collect", {"bytes": 7, "sha256": "ab"}, "7 bytes, SHA-256 ab", []),
        ("plugin.restart", {"unit": "edgegpu-plugin", "invocation": "1"}, "restarted edgegpu-plugin", []),
        (
            "evidence.check",
            {
                "containers": [
                    {"uid": "u1", "namespace": "default", "pod": "asr-1", "container": "main", "verdict": "more"}
                    | {"held": ["GPU-0"], "seen": ["GPU-0", "GPU-1"]}
                ]
            },
            "1 container checked, 1 not as it should be",
            ["hall-1:", "  default/asr-1  main: sees 2 cards, holds 1 card"],
        ),
    ],
)
def test_other_commands_say_what_they_have_brought_back(
    pair: Pair, op: str, data: dict[str, object], why: str, more: list[str]
) -> None:
    id_ = answered(pair, op, {"hall-1": data})
    shown = pair.there("operations", "show", id_).out.splitlines()
    assert shown[3:] == [f"hall-1  APPLIED  {why}", *more]
    command = pair.there("commands", "--json").json[0]["id"]
    assert "SUCCEEDED" in pair.there("watch", command).out
    assert len(pair.there("watch", command).out.splitlines()) > 1, "one box's answer is printed too"


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_box_says_it_is_printed_as_text(pair: Pair, data: object) -> None:
    id_ = answered(pair, "doctor.run", {"hall-1": data})
    for asked in (pair.here, pair.there):
        shown = asked("operations", "show", id_)
        assert shown.code == 0, shown.err
        assert "\x1b" not in shown.out
        assert all(len(line) < 1_000 for line in shown.out.splitlines())
        assert "\nfake" not in shown.out


def test_what_is_printed_of_all_boxes_is_bounded_and_says_where_it_goes_on(pair: Pair) -> None:
    text = "x" * 40_000
    number = MOST_DATA_BYTES // len(text) + 3
    big = {"level": "broken", "checks": 1, "troubled": [{"name": text}]}
    id_ = answered(pair, "doctor.run", {f"hall-{at:04d}": big for at in range(number)})
    shown = pair.there("operations", "show", id_, "--limit", "1000", "--json").json
    kept = [one for one in shown["results"] if one["data"] is not None]
    assert 0 < len(kept) < number == len(shown["results"])
    assert len(json.dumps([one["data"] for one in kept])) < MOST_DATA_BYTES + 1_000
    assert shown["data_left_out_after"] == kept[-1]["device"]
    rest = pair.there("operations", "show", id_, "--after", kept[-1]["device"], "--json").json
    assert [one["data"] for one in rest["results"]] == [big] * (number - len(kept))
    assert rest["data_left_out_after"] is None
    told = pair.there("operations", "show", id_, "--limit", "1000")
    assert f"operations show {id_} --after {kept[-1]['device']}" in told.err
