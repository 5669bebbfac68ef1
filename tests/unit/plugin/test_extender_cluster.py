import pytest
from integration.extender_world import MODEL, Json, node, pod, uuid

from edgegpu_core.placement import Share
from edgegpu_core.podview import PodView, pod_view
from edgegpu_plugin.extender.assumed import Assumption
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.node_capacity import known_node


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state(clock: Clock) -> ClusterState:
    made = ClusterState(MODEL, clock=clock)
    put_node(made, node("n", [29, 29]))
    return made


def view(item: Json) -> PodView:
    found = pod_view(item, MODEL)
    assert found is not None
    return found


def put_node(state: ClusterState, item: Json) -> None:
    state.change_node(item["metadata"]["uid"], known_node(item, MODEL))


def put_pod(state: ClusterState, item: Json) -> None:
    state.change_pod(item["metadata"]["uid"], view(item))


def bound(name: str, card: int = 0, on: str = "n") -> Json:
    return pod(name, (4, 10), node=on, cards={"c0": (uuid(on, card),)})


def assume(state: ClusterState, name: str, clock: Clock, on: str = "n") -> None:
    state.assume(Assumption(view(bound(name, on=on)), (Share(uuid(on, 0), 4, 10),), clock.now))


def memory(state: ClusterState, name: str = "n", *, for_uid: str = "") -> list[int]:
    return state.capacities([name], for_uid=for_uid)[name].free.memory


def test_each_change_shows(state: ClusterState) -> None:
    assert memory(state) == [29, 29]
    put_pod(state, bound("a"))
    assert memory(state) == [25, 29]
    put_node(state, node("n", [29, 29], held={"uid-a": (Share(uuid("n", 1), 4, 10),)}))
    assert memory(state) == [29, 25]
    put_node(state, node("n", [29, 29]))
    state.delete_pod("uid-a")
    assert memory(state) == [29, 29]
    state.delete_node("uid-n")
    assert state.capacities(["n"]) == {}


def test_what_is_free_is_kept_until_something_changes_there(state: ClusterState) -> None:
    put_node(state, node("m", [29]))
    before = state.capacities(["n", "m"])
    put_pod(state, bound("a", on="m"))
    state.delete_pod("uid-that-is-of-no-interest")
    after = state.capacities(["n", "m"])
    assert after["n"] is before["n"]
    assert after["m"] is not before["m"]


def test_a_list_replaces_everything(state: ClusterState) -> None:
    put_pod(state, bound("old"))
    put_pod(state, bound("kept"))
    state.replace_pods({"uid-kept": view(bound("kept")), "uid-new": view(bound("new"))})
    assert {found.name for found in state.pods()} == {"kept", "new"}
    state.replace_nodes({"uid-m": known_node(node("m", [9]), MODEL)})
    assert [found.name for found in state.nodes()] == ["m"]


def test_a_node_made_anew_does_not_go_with_its_old_self(state: ClusterState) -> None:
    again = node("n", [9])
    again["metadata"]["uid"] = "uid-n-2"
    put_node(state, again)
    state.delete_node("uid-n")
    assert memory(state) == [9]


def test_an_assumed_pod_counts_for_others_and_not_for_itself(state: ClusterState, clock: Clock) -> None:
    assume(state, "a", clock)
    assert memory(state) == [25, 29]
    assert memory(state, for_uid="uid-a") == [29, 29]
    state.forget("uid-a")
    assert memory(state) == [29, 29]


def test_an_assumption_moves_with_its_pod(state: ClusterState, clock: Clock) -> None:
    put_node(state, node("m", [29]))
    assume(state, "a", clock)
    assert memory(state) == [25, 29]
    assume(state, "a", clock, on="m")
    assert (memory(state), memory(state, "m")) == ([29, 29], [25])


def test_an_assumption_ends_when_its_pod_is_seen_bound_or_gone(state: ClusterState, clock: Clock) -> None:
    assume(state, "a", clock)
    put_pod(state, pod("a", (4, 10)))
    assert len(state.bound_to("n", except_uid="")[1]) == 1
    put_pod(state, bound("a"))
    assert state.bound_to("n", except_uid="")[1] == ()
    assert memory(state) == [25, 29]
    assume(state, "b", clock)
    state.delete_pod("uid-b")
    assert memory(state) == [25, 29]


def test_an_assumption_outlives_a_list_that_may_be_older_and_ends_by_time(state: ClusterState, clock: Clock) -> None:
    assume(state, "a", clock)
    state.replace_pods({})
    assert memory(state) == [25, 29]
    clock.now += 31
    assert memory(state) == [29, 29]


def test_a_pod_is_bound_since_we_bound_it_or_saw_it(state: ClusterState, clock: Clock) -> None:
    assume(state, "a", clock)
    clock.now += 2
    put_pod(state, bound("a"))
    put_pod(state, bound("b"))
    clock.now += 5
    assert (state.bound_since("uid-a"), state.bound_since("uid-b")) == (1000, 1002)
    assert state.bound_since("uid-never-heard-of") == 1007
    state.replace_pods({"uid-a": view(bound("a"))})
    assert state.bound_since("uid-b") == 1007


def test_closing_ends_all_waiting(state: ClusterState) -> None:
    assert not state.wait_for(lambda: False, 0)
    assert state.wait_for(lambda: True, 0)
    state.close()
    assert not state.wait_for(lambda: False, 60)
