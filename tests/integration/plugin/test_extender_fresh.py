from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from integration.extender_run import DEADLINE_S, Clock, Running, running
from integration.extender_world import cards_of, node, pod, uuid
from integration.kube_stub import Fault

from edgegpu_plugin.extender.bind import HoldBackTime

LISTS = r"GET /api/v1/pods\?(?!.*watch)"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(clock: Clock) -> Iterator[Running]:
    with running(hold_back=HoldBackTime(each_s=0, total_s=10), clock=clock) as made:
        made.add(node("n", [29, 29]))
        yield made


def bind(run: Running, name: str, units: int = 29) -> str:
    run.stub.add_pod(pod(name, (units, 1)))
    return run.bind(run.stub.pod(name), "n")


def bound_by_the_leader_before(run: Running, name: str, card: int) -> None:
    run.stub.add_pod(pod(name, (29, 1), node="n", cards={"c0": (uuid("n", card),)}))


def test_bindings_ask_for_no_list(run: Running) -> None:
    before = run.stub.count(LISTS)
    for number in range(6):
        assert bind(run, f"p{number}", 9) == ""
    assert run.stub.count(LISTS) == before


def test_a_pod_costs_four_requests_of_single_objects(run: Running) -> None:
    run.add(pod("p", (4, 1)))
    before = len(run.stub.calls)
    assert run.filter(run.stub.pod("p"), ["n"])["NodeNames"] == ["n"]
    assert run.bind(run.stub.pod("p"), "n") == ""
    assert [f"{method} {path.partition('?')[0]}" for method, path, _ in run.stub.calls[before:]] == [
        "GET /api/v1/namespaces/default/pods/p",
        "GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
        "GET /api/v1/nodes/n",
        "POST /api/v1/namespaces/default/pods/p/binding",
    ]


def test_a_new_leader_lists_once_before_its_first_binding(run: Running) -> None:
    run.stub.lead("first", 1)
    assert bind(run, "a", 4) == ""
    run.add(pod("c", (29, 1)), pod("d", (25, 1)))
    lists = run.stub.count(LISTS)
    run.stub.stall_watches()
    bound_by_the_leader_before(run, "b", 1)
    run.stub.lead("second", 2)
    # Only a list of the store shows that card 1 is taken: the watch says nothing any more, and the API server's watch
    # cache, which answers a list with resourceVersion=0, lacks b as well.
    assert "card 0 has 25 free, card 1 has 0 free" in run.bind(run.stub.pod("c"), "n")
    assert run.bind(run.stub.pod("d"), "n") == ""
    assert cards_of(run.stub.pod("d")) == {"c0": [uuid("n", 0)]}
    assert run.stub.count(LISTS) == lists + 1


def test_one_leader_lists_no_second_time(run: Running) -> None:
    run.stub.lead("first", 1)
    assert bind(run, "a", 4) == ""
    lists = run.stub.count(LISTS)
    for number in range(5):
        assert bind(run, f"p{number}", 4) == ""
    assert run.stub.count(LISTS) == lists


def test_what_the_watch_does_not_show_in_time_is_listed(run: Running, clock: Clock) -> None:
    run.add(pod("a", (29, 1)), pod("b", (29, 1)), pod("c", (4, 1)))
    run.stub.stall_watches()
    assert run.bind(run.stub.pod("a"), "n") == ""
    lists = run.stub.count(LISTS)
    clock.added += 6
    assert run.bind(run.stub.pod("b"), "n") == ""
    assert run.stub.count(LISTS) == lists + 1
    clock.added += 40  # what is assumed has expired; no list has shown b's binding
    assert "card 0 has 0 free, card 1 has 0 free" in run.bind(run.stub.pod("c"), "n")
    assert run.stub.count(LISTS) == lists + 2


def test_a_binding_without_an_answer_is_looked_for_when_its_time_is_over(run: Running, clock: Clock) -> None:
    run.add(pod("a", (29, 1)), pod("b", (29, 1)), pod("c", (29, 1)))
    run.stub.faults.append(Fault("binding", 504))
    assert "504" in run.bind(run.stub.pod("a"), "n")
    clock.added += 40
    lists = run.stub.count(LISTS)
    assert run.bind(run.stub.pod("b"), "n") == ""
    assert run.stub.count(LISTS) == lists + 1
    assert run.bind(run.stub.pod("c"), "n") == ""  # a's card: its binding had come to nothing


def test_a_picture_that_lags_and_cannot_be_renewed_binds_nothing(clock: Clock) -> None:
    with running(hold_back=HoldBackTime(each_s=0, total_s=0.5), clock=clock) as run:
        run.add(node("n", [29]))
        run.stub.stall_watches()
        fault = Fault(LISTS, 503, lasts=True)
        run.stub.faults.append(fault)
        assert bind(run, "a").startswith("edgegpu's view of the pods is behind the API server")
        assert run.stub.count("binding") == 0
        run.stub.faults.remove(fault)
        assert run.extender.state.wait_for(
            lambda: "uid-a" in {pod.uid for pod in run.extender.state.pods()}, DEADLINE_S
        )
        assert run.bind(run.stub.pod("a"), "n") == ""


def test_a_lead_that_changes_while_a_pod_is_held_back_ends_the_call() -> None:
    with running(hold_back=HoldBackTime(each_s=30, total_s=60)) as run, ThreadPoolExecutor(1) as pool:
        run.stub.lead("first", 1)
        run.add(node("n", [29, 29]), pod("first", (4, 1)), pod("second", (20, 1)))
        assert run.bind(run.stub.pod("first"), "n") == ""
        answer: Future[str] = pool.submit(run.bind, pod("second", (20, 1)), "n")
        assert run.stub.wait_called("GET /api/v1/nodes/n", 2, DEADLINE_S)
        run.stub.lead("second", 2)
        gone = run.stub.pod("first")
        run.stub.store.remove("pods", f"default/{gone['metadata']['name']}")
        run.stub.add_node(node("n", [29, 29], held={"uid-first": ()}))
        assert answer.result(DEADLINE_S) == "another scheduler leads since this binding was asked for"
        assert run.stub.count("POST .*/binding") == 1


def test_a_lease_that_may_not_be_read_names_the_remedy(run: Running) -> None:
    run.stub.faults.append(Fault("GET .*/leases/kube-scheduler", 403))
    assert bind(run, "a").endswith("apply examples/rbac.yaml of this release anew")
    assert bind(run, "b") == ""
