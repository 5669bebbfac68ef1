"""An amount of an app's limits that a change does not name stays as it is on each box, here and through the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kits.clipair import Pair, made_pair
from kits.console import ANNA
from kits.details import box, card, pod, reported
from kits.todaysstores import TodaysStores

from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kits.cloudcli import Done

ITEM = "app_limits__default__asr__main"
HELD = {
    "hall-0": ((12, 10),),
    "hall-1": ((4, 20),),
    "hall-2": ((12, 30),),
    "hall-3": ((12, 10), (12, 20)),
    "hall-4": (),
    "hall-5": ((80, 100),),
}
"""What the pods of the app hold on each box: units and core. On `hall-5` it has a whole card."""


def report(pair: Pair, name: str, held: tuple[tuple[int, int], ...], **items: Any) -> None:  # noqa: ANN401  (the item's fields)
    """Let a box report the app's pods, and how its items stand."""
    number = int(name.rpartition("-")[2])
    pods = {
        f"u{at}": pod(f"asr-5d98c8c9f7-x2x4{'bcdf'[at]}", ("main", "0", *amounts)) for at, amounts in enumerate(held)
    }
    said = box(name, (card("0", units=80),), pods)
    device = fleet_of(pair.site.store, ANNA, clock=pair.site.clock).box(name).device
    pair.site.report(device, reported(said, cluster=f"{number:08d}", rev=9, **items))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todays_stores: TodaysStores) -> Iterator[Pair]:
    with made_pair(tmp_path, monkeypatch, todays_stores) as pair:
        for number, (name, held) in enumerate(HELD.items()):
            pair.site.add(number, name, site="hall")
            report(pair, name, held)
        yield pair


@pytest.fixture(params=["here", "there"])
def asked(request: pytest.FixtureRequest, pair: Pair) -> Callable[..., Done]:
    """Give commands on the controller's machine, and on another one."""
    found: Callable[..., Done] = getattr(pair, request.param)
    return found


def requested(pair: Pair, name: str) -> list[tuple[int, int]]:
    """Return what is requested of a box now: units and core of each container."""
    return [(one["memory_units"], one["core"]) for one in pair.here("limits", "show", name, "--json").json]


def set_by_anna(pair: Pair, name: str, units: int, core: int) -> None:
    whole = ContainerLimits(namespace="default", app="asr", container="main", memory_units=units, core=core)
    fleet = fleet_of(pair.site.store, ANNA, clock=pair.site.clock)
    fleet.set_limits(fleet.box(name).device, whole)


def outcomes(pair: Pair, done: Done) -> dict[str, tuple[str, str]]:
    """Return what came of an operation that was started, by box."""
    runner = OperationRunner(pair.site.store, clock=pair.site.clock)
    while runner.step():
        pass
    shown = pair.here("operations", "show", done.json["operation"]["id"], "--json").json
    return {one["name"]: (one["outcome"], one["text"]) for one in shown["results"]}


def test_memory_alone_keeps_the_core_that_the_pods_hold(pair: Pair, asked: Callable[..., Done]) -> None:
    done = asked("limits", "set", "hall-0", "asr", "--memory", "10")
    assert (done.code, requested(pair, "hall-0")) == (0, [(10, 10)]), done.err
    done = asked("limits", "set", "hall-1", "asr", "--core", "25")
    assert (done.code, requested(pair, "hall-1")) == (0, [(4, 25)]), done.err


def test_memory_alone_keeps_the_core_that_was_requested(pair: Pair, asked: Callable[..., Done]) -> None:
    set_by_anna(pair, "hall-0", 12, 30)
    asked("limits", "set", "hall-0", "asr", "--memory", "10")
    assert requested(pair, "hall-0") == [(10, 30)], "the box has not answered: the request stands"
    [item] = pair.here("limits", "show", "hall-0", "--json").json
    for state, more, expected in (
        ("Applied", {}, 30),
        ("Rejected", {"code": "NO_ROOM"}, 10),
        ("Rejected", {"code": "NOT_INSTALLED"}, 30),
        ("Failed", {"code": "TIMED_OUT"}, 30),
        ("Failed", {"code": "NO_ROOM", "restored": True}, 10),
        ("Applied", {"conditions": [{"type": "Drifted", "manager": "kubectl"}]}, 10),
    ):
        set_by_anna(pair, "hall-0", 12, 30)
        report(pair, "hall-0", ((12, 10),), **{ITEM: {"state": state, "rev": 99, **more}})
        asked("limits", "set", "hall-0", "asr", "--memory", "11")
        assert requested(pair, "hall-0") == [(11, expected)], (state, more, item)


def test_of_a_whole_card_the_core_is_known_and_the_memory_is_not(pair: Pair, asked: Callable[..., Done]) -> None:
    assert asked("limits", "set", "hall-5", "asr", "--memory", "7").code == 0
    assert requested(pair, "hall-5") == [(7, 100)]
    pair.here("limits", "forget", "hall-5", "asr")
    refused = asked("limits", "set", "hall-5", "asr", "--core", "50")
    assert (refused.code, requested(pair, "hall-5")) == (1, [])
    assert "no memory is given, and what it has there is not known" in refused.err
    assert "give the memory too" in refused.err


@pytest.mark.parametrize("name", ["hall-3", "hall-4"])
def test_a_box_where_the_core_is_not_known_is_refused(pair: Pair, asked: Callable[..., Done], name: str) -> None:
    for more in ((), ("--preview",)):
        refused = asked("limits", "set", name, "asr", "--container", "main", "--memory", "10", *more)
        assert (refused.code, requested(pair, name)) == (1, []), refused.out
        assert f"of default/asr/main on {name}: no core is given, and what it has there is not known" in refused.err
        assert "give the core too" in refused.err
    assert asked("limits", "set", name, "asr", "--container", "main", "--memory", "10", "--core", "2").code == 0
    assert requested(pair, name) == [(10, 2)]


def test_no_memory_takes_the_limits_away_and_none_named_is_refused(pair: Pair, asked: Callable[..., Done]) -> None:
    assert asked("limits", "set", "hall-0", "asr", "--memory", "0").code == 0
    assert requested(pair, "hall-0") == [(0, 0)]
    report(pair, "hall-0", (), **{ITEM: {"state": "Applied", "rev": 99}})
    refused = asked("limits", "set", "hall-0", "asr", "--memory", "10")
    assert (refused.code, "no core is given" in refused.err) == (1, True), "it has none, and none is no amount"
    for words in (("hall-1",), ("-l", "site=hall")):
        refused = asked("limits", "set", *words, "asr", "--container", "main")
        assert (refused.code, "nothing is named" in refused.err) == (1, True), refused.err
    assert asked("limits", "set", "hall-1", "asr", "--on-drift", "enforce").code == 0
    assert requested(pair, "hall-1") == [(4, 20)], "what is done on drift is named alone"


def test_many_boxes_keep_each_its_own(pair: Pair, asked: Callable[..., Done]) -> None:
    set_by_anna(pair, "hall-2", 12, 35)
    found = outcomes(pair, asked("limits", "set", "-l", "site=hall", "asr", "--memory", "10", "--yes", "--json"))
    kept = {name: requested(pair, name) for name in HELD}
    assert kept == {
        "hall-0": [(10, 10)],
        "hall-1": [(10, 20)],
        "hall-2": [(10, 35)],
        "hall-3": [],
        "hall-4": [],
        "hall-5": [(10, 100)],
    }
    states = {name: outcome for name, (outcome, _) in found.items()}
    assert states == {name: "STORED" if kept[name] else "REFUSED" for name in HELD}
    assert "no core is given, and what it has there is not known" in found["hall-3"][1]


def test_the_api_changes_a_part_and_refuses_a_whole_without_it(pair: Pair) -> None:
    client, path = pair.site.api("otto"), "/boxes/hall-0/limits/default/asr/main"
    assert client.put(path, json={"memory_units": 10}).status_code == 422
    assert client.patch(path, json={"memory_units": 10}).status_code == 200
    assert requested(pair, "hall-0") == [(10, 10)]
    seen = client.get(path).json()
    assert (seen["memory_units"], seen["core"]) == (10, 10)
    assert client.patch(path, json={"core": 15, "on_drift": "enforce"}).json()["replaced"] is None
    assert requested(pair, "hall-0") == [(10, 15)]
    unknown = client.patch("/boxes/hall-4/limits/default/asr/main", json={"memory_units": 10})
    assert (unknown.status_code, "not known" in unknown.json()["detail"]) == (422, True)
    nothing = client.patch(path, json={})
    assert (nothing.status_code, "nothing is named" in nothing.json()["detail"]) == (422, True)
    body = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 8}
    judged = client.post("/boxes/hall-1/limits/preview", json=body).json()
    assert (judged["before"], judged["after"]) == (
        {"memory_units": 4, "core": 20},
        {"memory_units": 8, "core": 20},
    )


def test_the_preview_says_what_there_is_and_what_would_be(asked: Callable[..., Done]) -> None:
    shown = asked("limits", "set", "hall-1", "asr", "--memory", "8", "--preview").out
    assert "8 units, core 20\n  now 4 units, core 20\n" in shown
    found = asked("limits", "set", "hall-1", "asr", "--memory", "8", "--preview", "--json").json
    assert (found["before"], found["need_units"], found["need_core"]) == ({"memory_units": 4, "core": 20}, 8, 20)


def test_the_preview_of_many_boxes_counts_each_step_over_all_of_them(pair: Pair, asked: Callable[..., Done]) -> None:
    set_by_anna(pair, "hall-1", 12, 10)
    pair.site.add(6, "hall-6", site="hall")
    steps = [
        "12/10 -> 10/10 on 2 boxes",
        "12/30 -> 10/30 on 1 box",
        "?/100 -> 10/100 on 1 box",
        "12/? -> refused, for want of what it has on 1 box",
        "?/? -> refused, for want of what it has on 1 box",
        "not asked: 1 (another box of the cluster is, or it has reported none)",
    ]
    shown = asked("limits", "set", "-l", "site=hall", "asr", "--memory", "10", "--preview")
    assert shown.out.partition("units/core on all boxes:\n  ")[2].splitlines()[:6] == [
        steps[0],
        *(f"  {one}" for one in steps[1:]),
    ]
    listed = asked("limits", "set", "-l", "site=hall", "asr", "--memory", "10", "--preview", "--json").json
    kept = [(one["before"]["core"], one["need_core"]) for one in listed if "before" in one]
    assert kept == [(10, 10), (10, 10), (30, 30), (100, 100)]
    start = ("rollouts", "start", "limits", "asr", "--container", "main", "--memory", "10", "-l", "site=hall")
    planned = asked(*start, "--preview")
    assert all(f"  {one}\n" in planned.out for one in steps), planned
    document = asked(*start, "--preview", "--json").json["steps"]
    assert document["steps"][0] == {
        "before": {"memory_units": 12, "core": 10},
        "after": {"memory_units": 10, "core": 10},
        "boxes": 2,
    }
    assert (document["not_asked"], document["not_judged"], document["steps"][-1]["after"]) == (1, 0, None)
    whole = asked("limits", "set", "-l", "site=hall", "asr", "--memory", "10", "--core", "1", "--preview").out
    assert "  12/10 -> 10/1 on 2 boxes\n" in whole
    assert "  ?/? -> 10/1 on 1 box\n" in whole


def test_pods_on_another_box_of_the_cluster_count(pair: Pair, asked: Callable[..., Done]) -> None:
    holder, other = pair.site.add(7, "yard-7", site="yard"), pair.site.add(8, "yard-8", site="yard")
    pair.site.report(holder, reported(box("yard-7", (card("0"),)), cluster="00000007"))
    pods = {"u1": pod("asr-5d98c8c9f7-x2x4b", ("main", "0", 6, 40))}
    pair.site.report(other, reported(box("yard-8", (card("0"),), pods), cluster="00000007", holder=False))
    pair.site.connect(holder)
    shown = asked("limits", "set", "-l", "site=yard", "asr", "--memory", "5", "--preview").out
    assert "  6/40 -> 5/40 on 1 box\n" in shown, "one box of the cluster is asked"
    assert asked("limits", "set", "yard-7", "asr", "--memory", "5").code == 0
    assert requested(pair, "yard-7") == [(5, 40)]
    pair.here("limits", "forget", "yard-7", "asr")
    found = outcomes(pair, asked("limits", "set", "-l", "site=yard", "asr", "--memory", "4", "--yes", "--json"))
    assert ({name: one for name, (one, _) in found.items()}, requested(pair, "yard-7")) == (
        {"yard-7": "STORED"},
        [(4, 40)],
    )
