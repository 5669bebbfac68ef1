import json
from collections.abc import Iterator

import pytest
from integration.extender_run import Clock, Running, running
from integration.extender_world import Json, cards_of, node, pod, uuid
from integration.kube_stub import Fault

from edgegpu_core.choices.pod_choice import ISOLATION_ANNOTATION
from edgegpu_core.placement import Share
from edgegpu_plugin.extender.bind import HoldBackTime


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(clock: Clock) -> Iterator[Running]:
    with running(hold_back=HoldBackTime(each_s=0, total_s=5), clock=clock) as made:
        made.add(node("n", [29, 29]))
        made.add(*(low(f"low{i}", i // 2) for i in range(4)))
        yield made


def low(name: str, card: int, units: int = 10) -> Json:
    return pod(name, (units, 1), node="n", cards={"c0": (uuid("n", card),)})


def high(name: str = "high", units: int = 25, priority: int = 100, nominated: str = "") -> Json:
    item = pod(name, (units, 1), priority=priority)
    item["status"]["nominatedNodeName"] = nominated
    return item


def nominate(run: Running, item: Json) -> None:
    """Put a pod into the API server, and wait until the extender knows its nomination."""
    run.add(item)
    state, uid, node = run.extender.state, item["metadata"]["uid"], item["status"]["nominatedNodeName"]
    assert state.wait_for(lambda: any(pod.uid == uid and pod.nominated == node for pod in state.pods()), 10)


def preempt(run: Running, asking: Json, named: dict[str, list[str]]) -> dict[str, list[str]]:
    given = {name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for name, uids in named.items()}
    with run.caller() as caller:
        answer = caller.ask("/preempt", {"Pod": asking, "NodeNameToVictims": None, "NodeNameToMetaVictims": given})
    return {name: [one["UID"] for one in found["Pods"]] for name, found in answer["NodeNameToMetaVictims"].items()}


def test_two_of_one_card_go_where_the_sum_asked_for_one(run: Running) -> None:
    run.add(node("m", [29, 29]), node("full", [29]), pod("top", (29, 1), node="full", priority=100))
    named = {"n": ["uid-low3"], "full": ["uid-top"], "unheard-of": ["uid-x"]}
    # No node without victims: one alone fails the preemption on all of them.
    assert preempt(run, high(), named) == {"n": ["uid-low0", "uid-low1"]}
    assert preempt(run, high(priority=0), {"n": ["uid-low3"]}) == {}


def test_nobody_goes_for_a_pod_that_the_node_does_not_allow(run: Running) -> None:
    asking = high()
    asking["metadata"]["annotations"] = {ISOLATION_ANNOTATION: "none"}
    assert preempt(run, asking, {"n": ["uid-low3"]}) == {}


def test_whole_pods_are_understood_as_well(run: Running) -> None:
    value = {"Pod": high(), "NodeNameToVictims": {"n": {"Pods": [run.stub.pod("low3")], "NumPDBViolations": 0}}}
    with run.caller() as caller:
        answer = caller.ask("/preempt", value)
    pods = [{"UID": "uid-low0"}, {"UID": "uid-low1"}]
    assert answer == {"NodeNameToMetaVictims": {"n": {"Pods": pods, "NumPDBViolations": 0}}}


def test_pods_without_shares_that_were_named_still_go(run: Running) -> None:
    assert preempt(run, high(), {"n": ["uid-low3", "uid-web"]}) == {"n": ["uid-low0", "uid-low1", "uid-web"]}
    # There is room for it on a card: what the node lacks is something else, and the choice the scheduler's.
    assert preempt(run, high(units=9), {"n": ["uid-low3"]}) == {"n": ["uid-low3"]}
    assert preempt(run, pod("plain"), {"n": ["uid-web"], "m": []}) == {"n": ["uid-web"]}


def test_budgets_are_counted_and_their_absence_is_no_answer(run: Running) -> None:
    protected = run.stub.pod("low0") | {}
    protected["metadata"] = {**protected["metadata"], "labels": {"app": "kept"}}
    run.stub.add_pod(protected)
    assert run.extender.state.wait_for(
        lambda: any(pod.uid == "uid-low0" and pod.labels for pod in run.extender.state.pods()), 10
    )
    run.stub.budgets.append(
        {
            "metadata": {"namespace": "default", "name": "b"},
            "spec": {"selector": {"matchLabels": {"app": "kept"}}},
            "status": {"disruptionsAllowed": 0},
        }
    )
    assert preempt(run, high(), {"n": ["uid-low3"]}) == {"n": ["uid-low2", "uid-low3"]}
    run.stub.faults.append(Fault("poddisruptionbudgets", 403, lasts=True))
    with run.caller() as caller:
        status, text = caller.call("/preempt", json.dumps({"Pod": high(), "NodeNameToMetaVictims": {}}).encode())
    assert status == 503
    assert b"cannot preempt: cannot GET /apis/policy/v1/poddisruptionbudgets: 403" in text


def test_budgets_come_from_the_watch_cache_once_for_all_nodes(run: Running) -> None:
    run.add(node("m", [29, 29]), *(pod(f"m{i}", (10, 1), node="m", cards={"c0": (uuid("m", 0),)}) for i in range(2)))
    before = len(run.stub.calls)
    assert preempt(run, high(units=29), {"n": ["uid-low3"], "m": ["uid-m0"]}).keys() == {"n", "m"}
    ((method, path, _),) = run.stub.calls[before:]
    assert f"{method} {path.partition('?')[0]}" == "GET /apis/policy/v1/poddisruptionbudgets"
    assert "resourceVersion=0" in path.partition("?")[2].split("&")


def test_a_binding_that_came_to_nothing_makes_no_victim(run: Running) -> None:
    """The scheduler knows no pod there of this UID, and would end the preemption on all nodes."""
    run.add(node("m", [29]), pod("old", (20, 1), node="m", cards={"c0": (uuid("m", 0),)}, priority=1))
    run.add(pod("fresh", (9, 1)))
    run.stub.faults.append(Fault("binding", 504))
    assert "504" in run.bind(run.stub.pod("fresh"), "m")
    # Its room stays taken, since the binding may be under way. It would be the cheapest victim.
    assert preempt(run, high(units=9), {"m": ["uid-old"]}) == {"m": ["uid-old"]}
    # Named by the scheduler it is in the scheduler's snapshot.
    assert preempt(run, high(units=9), {"m": ["uid-fresh"]}) == {"m": ["uid-fresh"]}


def test_every_victim_was_named_or_is_bound_to_that_node_by_the_watch(run: Running) -> None:
    unknown: dict[str, tuple[Share, ...]] = {"uid-unknown": (Share(uuid("m", 1), 3, 1),)}
    run.add(node("m", [29, 29], held=unknown))
    run.add(*(pod(f"m{i}", (5, 1), node="m", cards={"c0": (uuid("m", i // 4),)}, priority=i % 3) for i in range(8)))
    run.add(pod("ended", (5, 1), node="m", cards={"c0": (uuid("m", 0),)}, phase="Succeeded"))
    nominate(run, pod("nominated", (2, 1), priority=-1) | {"status": {"phase": "Pending", "nominatedNodeName": "m"}})
    run.add(*(pod(f"on-way-{units}", (units, 1), priority=-2) for units in (7, 4)))
    run.stub.stall_watches()
    for units in (7, 4):
        assert run.bind(run.stub.pod(f"on-way-{units}"), "m") == ""
    living = [one for one in run.extender.state.pods() if not one.is_terminal]
    bound = {name: {one.uid for one in living if one.node == name} for name in ("n", "m")}
    assert bound["m"] == {f"uid-m{i}" for i in range(8)}
    named = {"n": ["uid-low3"], "m": ["uid-m7", "uid-web"]}
    chosen = [
        preempt(run, asking, named)
        for asking in (
            *(high(units=units) for units in range(1, 30)),
            *(pod("two", (units, 1), (units, 1), priority=100) for units in range(1, 30, 4)),
            pod("whole", (0, 100), priority=100),
        )
    ]
    for one in chosen:
        for name, uids in one.items():
            assert set(uids) <= bound[name] | set(named[name])
    assert len({tuple(uids) for one in chosen for uids in one.values()}) > 5


def test_the_freed_card_is_kept_for_the_pod_that_others_went_for(run: Running) -> None:
    assert preempt(run, high(), {"n": ["uid-low3"]}) == {"n": ["uid-low0", "uid-low1"]}
    nominate(run, high(nominated="n"))
    run.add(pod("low0-again", (10, 1)), pod("low1-again", (10, 1)))
    for name in ("low0", "low1"):
        run.stub.store.remove("pods", f"default/{name}")
    run.wait_seen()
    again = run.stub.pod("low0-again")
    refused = run.filter(again, ["n"])["FailedAndUnresolvableNodes"]["n"]
    assert refused == (
        "needs 10 vcuda-memory on one card; card 0 has 4 free, card 1 has 9 free; room is kept for default/high"
    )
    assert "card 0 has 4 free" in run.bind(again, "n")
    # The scheduler takes the nomination back while kubelet still holds devices; the card stays kept for a while.
    nominate(run, high())
    assert run.filter(again, ["n"])["NodeNames"] == []
    assert run.filter(high(), ["n"])["NodeNames"] == ["n"]
    assert run.filter(pod("higher", (29, 1), priority=101), ["n"])["NodeNames"] == ["n"]
    assert run.filter(pod("equal", (29, 1), priority=100), ["n"])["NodeNames"] == []
    assert run.bind(run.stub.pod("high"), "n") == ""
    assert cards_of(run.stub.pod("high")) == {"c0": [uuid("n", 0)]}
    assert "kept" not in run.filter(again, ["n"])["FailedAndUnresolvableNodes"]["n"]


def test_room_is_not_kept_for_ever(run: Running, clock: Clock) -> None:
    run.stub.store.remove("pods", "default/low0")
    run.stub.store.remove("pods", "default/low1")
    nominate(run, high(nominated="n"))
    run.add(pod("later", (10, 1)))
    assert run.filter(run.stub.pod("later"), ["n"])["NodeNames"] == []
    nominate(run, high())
    clock.added += 61
    assert run.filter(run.stub.pod("later"), ["n"])["NodeNames"] == ["n"]


def test_a_second_pod_counts_the_first_as_placed(run: Running) -> None:
    assert preempt(run, high("one"), {"n": ["uid-low3"]}) == {"n": ["uid-low0", "uid-low1"]}
    nominate(run, high("one", nominated="n"))
    run.add(high("two"))
    assert preempt(run, run.stub.pod("two"), {"n": ["uid-low3"]}) == {"n": ["uid-low2", "uid-low3"]}
    nominate(run, high("two", nominated="n"))
    run.add(high("three"))
    assert preempt(run, run.stub.pod("three"), {"n": ["uid-low3"]}) == {}
