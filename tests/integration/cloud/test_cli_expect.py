"""A change of many boxes from the command line overwrites nothing that its person has not seen in the preview."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.clipair import Pair, made_pair
from kits.console import ANNA
from kits.details import box, card, pod
from kits.todaysstores import TodaysStores

from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kits.cloudcli import Done

LIMITS = ("limits", "set", "-l", "site=hall", "asr", "--memory", "4")
SHARING = ("sharing", "set", "-l", "site=hall", "--policy", "spread")


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todays_stores: TodaysStores) -> Iterator[Pair]:
    with made_pair(tmp_path, monkeypatch, todays_stores) as pair:
        for number, site in enumerate(("hall", "hall", "yard")):
            name = f"{site}-{number}"
            device = pair.site.add(number, name, site=site)
            pods = {"u1": pod("asr-5d98c8c9f7-x2x4z", ("main", "0", 2, 1))}
            pair.site.report(device, box(name, (card("0"),), pods, cluster=f"{number}" * 36))
        yield pair


@pytest.fixture(params=["here", "there"])
def asked(request: pytest.FixtureRequest, pair: Pair) -> Callable[..., Done]:
    """Give commands on the controller's machine, and on another one."""
    found: Callable[..., Done] = getattr(pair, request.param)
    return found


def token_of(shown: Done) -> str:
    """Return the token that the last line of a preview has."""
    option, token = shown.out.splitlines()[-1].split()
    assert option == "--expect"
    return token


def results(pair: Pair, done: Done) -> dict[str, tuple[str, str]]:
    """Return what came of an operation that was started, by box."""
    runner = OperationRunner(pair.site.store, clock=pair.site.clock)
    while runner.step():
        pass
    shown = pair.here("operations", "show", done.json["operation"]["id"], "--json").json
    return {one["name"]: (one["outcome"], one["text"]) for one in shown["results"]}


def test_limits_that_somebody_has_set_since_the_preview_stay(pair: Pair, asked: Callable[..., Done]) -> None:
    token = token_of(asked(*LIMITS, "--preview"))
    theirs = ContainerLimits(namespace="default", app="asr", container="main", memory_units=3, core=1)
    fleet = fleet_of(pair.site.store, ANNA, clock=pair.site.clock)
    fleet.set_limits(fleet.box("hall-1").device, theirs)
    found = results(pair, asked(*LIMITS, "--expect", token, "--json"))
    assert found["hall-0"] == ("STORED", "")
    outcome, text = found["hall-1"]
    assert (outcome, "anna" in text) == ("REFUSED", True), text
    assert results(pair, asked(*LIMITS, "--yes", "--json"))["hall-1"][0] == "STORED", "who has not looked means it so"


ONE = ("limits", "set", "hall-1", "asr", "--memory", "4")


def set_by_anna(pair: Pair, app: str, units: int) -> None:
    theirs = ContainerLimits(namespace="default", app=app, container="main", memory_units=units, core=1)
    fleet = fleet_of(pair.site.store, ANNA, clock=pair.site.clock)
    fleet.set_limits(fleet.box("hall-1").device, theirs)


def units_on(pair: Pair) -> list[int]:
    return [one["memory_units"] for one in pair.here("limits", "show", "hall-1", "--json").json]


def test_limits_of_one_box_that_somebody_has_set_since_the_preview_stay(pair: Pair, asked: Callable[..., Done]) -> None:
    token = token_of(asked(*ONE, "--preview"))
    assert asked(*ONE, "--preview", "--json").err.splitlines()[-1].split() == ["--expect", token]
    set_by_anna(pair, "asr", 3)
    refused = asked(*ONE, "--expect", token)
    assert (refused.code, refused.out) == (1, "")
    assert "anna has set 3 units, core 1 meanwhile" in refused.err
    assert units_on(pair) == [3]
    token = token_of(asked(*ONE, "--preview"))
    set_by_anna(pair, "ocr", 1)
    assert asked(*ONE, "--expect", token).code == 0, "what she has set is another app"
    assert sorted(units_on(pair)) == [1, 4]


def test_whose_limits_were_replaced_is_told(pair: Pair, asked: Callable[..., Done]) -> None:
    assert "replaced" not in asked(*ONE).out
    set_by_anna(pair, "asr", 1)
    shown = asked(*ONE).out
    assert "replaced what anna had set at 20" in shown
    assert ": 1 unit, core 1\n" in shown
    assert "replaced" not in asked(*ONE).out, "the same once more"
    set_by_anna(pair, "asr", 3)
    found = asked(*ONE, "--json").json["replaced"]
    assert (found["by"], found["limits"]["memory_units"]) == ("anna", 3)
    assert asked(*ONE, "--memory", "5", "--json").json["replaced"] is None, "the limits before were their own"


def test_a_token_of_another_box_is_refused(pair: Pair, asked: Callable[..., Done]) -> None:
    token = token_of(asked("limits", "set", "hall-0", "asr", "--memory", "4", "--preview"))
    for other in (token, f"0@{'kz09' * 4}"):
        refused = asked(*ONE, "--expect", other)
        assert (refused.code, "the token of another box" in refused.err) == (1, True)
    assert units_on(pair) == []


@pytest.mark.parametrize("words", [LIMITS, SHARING], ids=["limits", "sharing"])
def test_other_boxes_than_the_preview_has_shown_are_not_changed(
    pair: Pair, asked: Callable[..., Done], words: Sequence[str]
) -> None:
    token = token_of(asked(*words, "--preview"))
    assert pair.here("label", "hall-0", "site=yard").code == 0
    assert pair.here("label", "yard-2", "site=hall").code == 0
    refused = asked(*words, "--expect", token)
    assert (refused.code, refused.out) == (1, "")
    assert "joined: yard-2" in refused.err
    assert "left: hall-0" in refused.err
    assert pair.here("operations", "list", "--json").json == []


@pytest.mark.parametrize("words", [LIMITS, SHARING], ids=["limits", "sharing"])
def test_with_json_the_token_is_beside_the_list(asked: Callable[..., Done], words: Sequence[str]) -> None:
    shown, again = asked(*words, "--preview", "--json"), asked(*words, "--preview")
    assert [one["box"] for one in shown.json] == ["hall-0", "hall-1"]
    assert shown.err.splitlines()[-1].split() == ["--expect", token_of(again)]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ((*LIMITS, "--preview", "--expect", "0:"), "--preview"),
        ((*SHARING, "--preview", "--expect", "0:"), "--preview"),
        ((*LIMITS, "--expect", "x"), "--expect"),
        ((*SHARING, "--expect", "3.AAAA"), "--expect"),
        (("limits", "set", "hall-0", "asr", "--memory", "4", "--expect", "0:"), "--expect"),
        (("limits", "set", "hall-0", "asr", "--memory", "4", "--preview", "--expect", f"0@{16 * '0'}"), "--preview"),
        ((*LIMITS, "--expect", f"0@{16 * '0'}"), "--expect"),
        (("sharing", "set", "hall-0", "--policy", "spread", "--expect", "0:"), "--expect"),
    ],
)
def test_a_token_is_for_the_change_that_was_shown(pair: Pair, words: Sequence[str], option: str) -> None:
    wrong = pair.here(*words)
    assert (wrong.code, option in wrong.err) == (2, True), wrong.err
    assert pair.here("operations", "list", "--json").json == []
