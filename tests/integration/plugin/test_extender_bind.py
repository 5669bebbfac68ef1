from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from integration.extender_run import DEADLINE_S, Running, running
from integration.extender_world import Json, cards_of, node, pod, uuid
from integration.kube_stub import Fault

from edgegpu_core.placement import Share
from edgegpu_plugin.extender.bind import HoldBackTime

PATIENT = HoldBackTime(each_s=30, total_s=60)


@pytest.fixture
def run() -> Iterator[Running]:
    with running(hold_back=HoldBackTime(each_s=0, total_s=5)) as made:
        made.add(node("n", [29, 29]))
        yield made


def bindings(run: Running) -> int:
    return run.stub.count("POST .*/binding")


def test_node_and_cards_are_written_in_one_request(run: Running) -> None:
    for name, units, card in (("a", 4, 0), ("b", 20, 0), ("c", 20, 1)):
        asking = pod(name, (units, 1))
        run.add(asking)
        assert run.bind(asking, "n") == ""
        bound = run.stub.pod(name)
        assert bound["spec"]["nodeName"] == "n"
        assert cards_of(bound) == {"c0": [uuid("n", card)]}
    assert bindings(run) == 3
    assert run.stub.count("PATCH|PUT") == 0


def test_every_container_gets_its_card(run: Running) -> None:
    asking = pod("a", (20, 1), (20, 1))
    run.add(asking)
    assert run.bind(asking, "n") == ""
    assert cards_of(run.stub.pod("a")) == {"c0": [uuid("n", 0)], "c1": [uuid("n", 1)]}


def test_the_pods_policy_wins_over_the_nodes(run: Running) -> None:
    for name in ("a", "b"):
        asking = pod(name, (4, 1), policy="spread")
        run.add(asking)
        assert run.bind(asking, "n") == ""
    assert cards_of(run.stub.pod("b")) == {"c0": [uuid("n", 1)]}


@pytest.mark.parametrize(
    ("asking", "words"),
    [
        (pod("p", (30, 1)), "needs 30 vcuda-memory on one card; card 0 has 29 free, card 1 has 29 free"),
        (pod("p", (4, 0)), "without vcuda-core"),
        (pod("p", (4, 1), policy="tight"), "no placement policy 'tight'"),
        (pod("p", (4, 1), isolation="none"), "upgrade edgegpu there"),
    ],
)
def test_what_does_not_fit_is_not_bound(run: Running, asking: Json, words: str) -> None:
    run.add(asking)
    assert words in run.bind(asking, "n")
    assert bindings(run) == 0


def test_an_inventory_that_is_not_current_binds_nothing(run: Running) -> None:
    asking = pod("p", (4, 1))
    run.add(asking, node("stale", [29], allocatable=0))
    assert run.bind(asking, "stale").startswith("node stale inventory not current")


def test_the_pod_is_looked_at_afresh(run: Running) -> None:
    asking = pod("p", (4, 1))
    assert "not found" in run.bind(asking, "n")
    run.add(asking)
    other = pod("p", (4, 1))
    other["metadata"]["uid"] = "uid-earlier"
    assert "was replaced" in run.bind(other, "n")
    assert run.bind(asking, "n") == ""
    assert run.bind(asking, "n") == ""
    assert "is bound to node n already" in run.bind(asking, "m")
    assert bindings(run) == 1


def test_a_pod_that_asks_for_nothing_of_ours_is_simply_bound(run: Running) -> None:
    asking = pod("p")
    run.stub.add_pod(asking)
    assert run.bind(asking, "n") == ""
    assert cards_of(run.stub.pod("p")) == {}


@pytest.mark.parametrize(
    "fault", [Fault("binding", 500, takes_effect=True), Fault("binding", takes_effect=True, drop=True)]
)
def test_a_binding_whose_answer_was_lost_is_found_out(run: Running, fault: Fault) -> None:
    asking = pod("p", (4, 1))
    run.add(asking)
    run.stub.faults.append(Fault(fault.pattern, fault.status, takes_effect=fault.takes_effect, drop=fault.drop))
    assert run.bind(asking, "n") == ""
    assert cards_of(run.stub.pod("p")) == {"c0": [uuid("n", 0)]}


def test_a_binding_that_may_still_be_under_way_keeps_its_card(run: Running) -> None:
    asking, other = pod("p", (29, 1)), pod("q", (29, 1))
    run.add(asking, other)
    run.stub.faults.append(Fault("binding", 504))
    assert "504" in run.bind(asking, "n")
    assert run.bind(other, "n") == ""
    assert cards_of(run.stub.pod("q")) == {"c0": [uuid("n", 1)]}
    assert run.filter(asking, ["n"])["NodeNames"] == ["n"]
    assert run.bind(asking, "n") == ""
    assert cards_of(run.stub.pod("p")) == {"c0": [uuid("n", 0)]}


@pytest.mark.parametrize("status", [403, 404, 409])
def test_a_binding_that_was_refused_gives_its_card_back(run: Running, status: int) -> None:
    asking = pod("p", (29, 1))
    run.add(asking)
    run.stub.faults.append(Fault("binding", status))
    assert str(status) in run.bind(asking, "n")
    assert run.extender.state.bound_to("n", except_uid="")[1] == ()


def test_a_pod_that_another_scheduler_bound_meanwhile(run: Running) -> None:
    asking = pod("p", (4, 1))
    run.add(asking, node("m", [29]))
    bound = pod("p", (4, 1), node="m")
    run.stub.add_pod(bound)
    assert "is bound to node m already" in run.bind(asking, "n")


def test_other_pods_are_waited_for_that_could_be_mistaken_for_this_one() -> None:
    with running(hold_back=PATIENT) as run, ThreadPoolExecutor(1) as pool:
        run.add(node("n", [29, 29]), pod("first", (4, 1)), pod("second", (20, 1)))
        assert run.bind(run.stub.pod("first"), "n") == ""
        answer: Future[str] = pool.submit(run.bind, pod("second", (20, 1)), "n")
        assert run.stub.wait_called("GET /api/v1/nodes/n", 2, DEADLINE_S)
        waiting: dict[str, tuple[Share, ...]] = {"uid-first": (Share(uuid("n", 0), 4, 1),)}
        run.stub.add_node(node("n", [29, 29], held=waiting, waiting=["uid-first"]))
        assert run.extender.state.wait_for(lambda: promised(run), DEADLINE_S)
        assert not answer.done()
        assert bindings(run) == 1
        run.stub.add_node(node("n", [29, 29], held=waiting))
        assert answer.result(DEADLINE_S) == ""
        assert bindings(run) == 2


def test_replicas_and_pods_on_other_nodes_are_not_waited_for() -> None:
    with running(hold_back=PATIENT) as run:
        run.add(node("n", [29, 29]), node("m", [29]))
        for name, units, where in (("a", 4, "n"), ("b", 4, "n"), ("c", 20, "m")):
            run.add(pod(name, (units, 1)))
            assert run.bind(run.stub.pod(name), where) == ""


def test_an_earlier_pod_is_waited_for_a_limited_time() -> None:
    with running(hold_back=HoldBackTime(each_s=0.2, total_s=30)) as run:
        run.add(node("n", [29]), pod("first", (4, 1)), pod("second", (20, 1)))
        assert run.bind(run.stub.pod("first"), "n") == ""
        assert run.bind(run.stub.pod("second"), "n") == ""


def test_one_call_waits_a_limited_time_in_all() -> None:
    with running(hold_back=HoldBackTime(each_s=30, total_s=0.2)) as run:
        run.add(node("n", [29]), pod("first", (4, 1)), pod("second", (20, 1)))
        assert run.bind(run.stub.pod("first"), "n") == ""
        error = run.bind(run.stub.pod("second"), "n")
        assert error.startswith("held back 0.2 s: 1 earlier pod(s) on node n")
        assert bindings(run) == 1


def test_stopping_ends_the_wait() -> None:
    with running(hold_back=PATIENT) as run, ThreadPoolExecutor(1) as pool:
        run.add(node("n", [29]), pod("first", (4, 1)), pod("second", (20, 1)))
        assert run.bind(run.stub.pod("first"), "n") == ""
        answer: Future[str] = pool.submit(run.bind, pod("second", (20, 1)), "n")
        assert run.stub.wait_called("GET /api/v1/nodes/n", 2, DEADLINE_S)
        run.extender.stop()
        assert answer.result(DEADLINE_S) == "edgegpu extender is stopping"


def test_many_at_once_never_overbook_a_card() -> None:
    sizes = [3, 7, 11, 13, 20, 5, 9, 15, 2, 8, 29, 1] * 3
    with running(hold_back=HoldBackTime(each_s=0, total_s=60)) as run, ThreadPoolExecutor(8) as pool:
        run.add(node("n", [29, 29]), node("m", [40]))
        pods = [pod(f"p{i}", (units, 7)) for i, units in enumerate(sizes)]
        for item in pods:
            run.stub.add_pod(item)
        # Some answers are lost, with and without effect: the scheduler tries such pods again, so do we.
        run.stub.faults += [Fault("binding", 500, takes_effect=i % 2 == 0) for i in range(6)]
        for attempt in range(3):
            nodes = ["n", "m"] if attempt % 2 == 0 else ["m", "n"]
            list(pool.map(lambda item, names=nodes: [run.bind(item, name) for name in names], pods))
        used: dict[str, int] = {}
        for item, units in zip(pods, sizes, strict=True):
            for card in cards_of(run.stub.pod(item["metadata"]["name"])).get("c0", []):
                used[card] = used.get(card, 0) + units
        assert all(count <= (40 if card == uuid("m", 0) else 29) for card, count in used.items())
        # Nothing was left free that some pod still waits for, but what lost answers keep assumed.
        assert sum(used.values()) >= 98 - 30


def promised(run: Running) -> bool:
    known = run.extender.state.node("n")
    return known is not None and known.report is not None and "uid-first" in known.report.held
