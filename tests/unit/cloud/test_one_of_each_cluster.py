"""Limits for many boxes: which box of each cluster is asked, and which container is meant, found by the database."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.clusterboxes import ClusterBox, put_boxes
from kits.stores import open_store

from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter, PageOrder
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.selectors import read_selector
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.store import ControllerStore

NOW_S = 1_790_000_000.0
HALL = BoxFilter(selector="site=hall", askable=True, one_of_each_cluster=True)
LIMITS = ContainerLimits(namespace="default", app="asr", container="", memory_units=4, core=1)
ARGS = {"namespace": "default", "app": "asr", "memory_units": 4, "core": 1}


def operations(store: ControllerStore, scope: str = "") -> Operations:
    access = Access("anna", Role.ADMIN, read_selector(scope)) if scope else Access("anna")
    return Operations(store, clock=lambda: NOW_S, access=access)


def asked(store: ControllerStore, where: BoxFilter, *, scope: str = "") -> list[str]:
    """Return the names of the boxes that an operation with a filter is for."""
    made = operations(store, scope)
    view = made.start(OperationKind.LIMITS, {**ARGS, "container": "main"}, where=where)
    return sorted(one.name for one in made.boxes(view.operation.id, limit=1_000).boxes)


def expected(boxes: Sequence[ClusterBox], *, scope: str = "") -> list[str]:
    """Return the same by looking at every box."""
    seen = [one for one in boxes if not scope or f"site={one.labels['site']}" == scope]
    chosen = [one for one in seen if one.labels["site"] == "hall"]
    found = set()
    for cluster in {one.cluster or one.device for one in chosen}:
        here = [one for one in seen if (one.cluster or one.device) == cluster]
        mine = [one for one in here if one in chosen]
        settles = [one for one in here if one.cluster and one.holder and one.online]
        order = [*settles, *(one for one in mine if one.online), *mine]
        found.add(min(order, key=lambda one: (one not in settles, not one.online, one.name)).name)
    return sorted(found)


BOX = st.fixed_dictionaries(
    {
        "cluster": st.sampled_from(["", "c1c1c1c1", "c2c2c2c2", "c3c3c3c3"]),
        "holder": st.booleans(),
        "online": st.booleans(),
        "labels": st.sampled_from([{"site": "hall"}, {"site": "yard"}]),
    }
)


@settings(deadline=None, max_examples=25)
@given(st.lists(BOX, min_size=1, max_size=12))
def test_of_each_cluster_one_box_is_asked_the_one_that_applies_its_limits(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, object]]
) -> None:
    boxes = [ClusterBox(number=at, name=f"box-{at:02d}", **one) for at, one in enumerate(values)]  # type: ignore[arg-type]
    store = open_store(tmp_path_factory.mktemp("fleet") / "controller.db")
    put_boxes(store, boxes, now_s=NOW_S)
    for scope in ("", "site=hall"):
        wanted = expected(boxes, scope=scope)
        if wanted:
            assert asked(store, HALL, scope=scope) == wanted
        else:
            with pytest.raises(NotFoundError, match="none has these labels"):
                asked(store, HALL, scope=scope)
    store.close()


CLUSTERS = (
    ClusterBox(number=1, name="a-agent", cluster="c1c1c1c1", labels={"site": "hall"}, containers=["main"]),
    ClusterBox(number=2, name="a-server", cluster="c1c1c1c1", holder=True, labels={"site": "yard"}),
    ClusterBox(number=3, name="b-1", cluster="c2c2c2c2", holder=True, online=False, labels={"site": "hall"}),
    ClusterBox(number=4, name="b-2", cluster="c2c2c2c2", labels={"site": "hall"}),
    ClusterBox(number=5, name="c-alone", labels={"site": "hall"}),
)


@pytest.fixture
def filled(store: ControllerStore) -> ControllerStore:
    """Return a store, on each engine, with boxes of which some share a cluster."""
    put_boxes(store, CLUSTERS, now_s=NOW_S)
    return store


def test_who_applies_the_limits_is_asked_though_it_has_not_the_labels(filled: ControllerStore) -> None:
    assert asked(filled, HALL) == ["a-server", "b-2", "c-alone"]
    assert asked(filled, HALL, scope="site=hall") == ["a-agent", "b-2", "c-alone"], "as far as the person sees"
    fleet = Fleet(filled, clock=lambda: NOW_S, by="anna")
    assert [one.name for one in fleet.page(HALL, PageOrder(limit=2)).boxes] == ["a-server", "b-2"]
    assert fleet.counts(HALL).boxes == 3


def test_other_changes_are_never_for_one_box_of_a_cluster(filled: ControllerStore) -> None:
    with pytest.raises(CloudError, match="each box has its own"):
        operations(filled).start(OperationKind.INSTALL, {}, where=HALL)


def container(store: ControllerStore, scope: str = "") -> str:
    view = operations(store, scope).start(OperationKind.LIMITS, ARGS, where=HALL)
    return str(view.operation.args["container"])


class TestContainer:
    def test_that_which_holds_shares_anywhere_in_the_clusters_is_meant(self, filled: ControllerStore) -> None:
        assert container(filled) == "main", "by the report of a box that is not asked"
        more = ClusterBox(number=9, name="z", cluster="c1c1c1c1", labels={"site": "yard"}, containers=["asr", "side"])
        put_boxes(filled, [more], now_s=NOW_S)
        assert container(filled) == "asr", "of one cluster the app's namesake, whatever else there is"
        assert container(filled, scope="site=hall") == "main", "what the person does not see is not told"

    def test_several_are_not_guessed(self, filled: ControllerStore) -> None:
        more = ClusterBox(number=9, name="z", labels={"site": "hall"}, containers=["decoder"])
        put_boxes(filled, [more], now_s=NOW_S)
        with pytest.raises(CloudError, match=r"it has decoder, main") as found:
            container(filled)
        assert found.value.remedy == "name it: --container decoder"

    def test_a_rollout_is_for_the_one_that_is_meant_on_all_of_its_boxes(self, filled: ControllerStore) -> None:
        request = RolloutRequest(change=LIMITS, selector="site=hall")
        rollouts = Rollouts(filled, clock=lambda: NOW_S, access=Access("anna"))
        assert "default/asr main:" in rollouts.preview(request).words
        assert "default/asr main:" in rollouts.show(rollouts.start(request)).words
        named = replace(request, change=replace(LIMITS, container="side"))
        assert "default/asr side:" in rollouts.preview(named).words

    def test_a_rollout_over_boxes_of_several_is_refused_with_their_names(self, filled: ControllerStore) -> None:
        """The first box alone would have said main: it is the last whose pod is another."""
        put_boxes(
            filled, [ClusterBox(number=9, name="z", labels={"site": "hall"}, containers=["decoder"])], now_s=NOW_S
        )
        request = RolloutRequest(change=LIMITS, selector="site=hall")
        rollouts = Rollouts(filled, clock=lambda: NOW_S, access=Access("anna"))
        for ask in (rollouts.preview, rollouts.outline, rollouts.start):
            with pytest.raises(CloudError, match=r"it has decoder, main") as found:
                ask(request)
            assert found.value.remedy == "name it: --container decoder"
        assert rollouts.all() == []

    def test_an_app_whose_name_ends_like_a_pods_is_found(self, store: ControllerStore) -> None:
        labels = {"site": "hall"}
        one = ClusterBox(number=1, name="a", labels=labels, app="asr-x2", ending="zfpmp", containers=["decoder"])
        put_boxes(store, [one], now_s=NOW_S)
        view = operations(store).start(OperationKind.LIMITS, {**ARGS, "app": "asr-x2"}, where=HALL)
        assert view.operation.args["container"] == "decoder", "it is listed as asr: a DaemonSet's pod may be so called"

    def test_without_pods_that_counts_whose_limits_were_requested(self, filled: ControllerStore) -> None:
        other = {**ARGS, "app": "other"}
        start = operations(filled).start
        assert start(OperationKind.LIMITS, other, where=HALL).operation.args["container"] == "other"
        wanted = replace(LIMITS, app="other", container="decoder")
        Fleet(filled, clock=lambda: NOW_S, by="anna").set_limits("b-1", wanted)
        assert start(OperationKind.LIMITS, other, where=HALL).operation.args["container"] == "decoder"

    def test_a_name_that_no_app_has_is_refused(self, filled: ControllerStore) -> None:
        for app in ("", "a\0b", "x" * 300):
            with pytest.raises(CloudError):
                operations(filled).start(OperationKind.LIMITS, {**ARGS, "app": app}, where=HALL)
            with pytest.raises(CloudError):
                operations(filled).preview_limits(replace(LIMITS, app=app), HALL)


class TestPreview:
    def test_each_box_is_judged_with_its_cluster_page_by_page(self, filled: ControllerStore) -> None:
        ops = operations(filled)
        first = ops.preview_limits(replace(LIMITS, memory_units=40), HALL, limit=2)
        assert (first.container, [one.name for one in first.boxes], first.next) == ("main", ["a-server", "b-2"], "b-2")
        rest = ops.preview_limits(replace(LIMITS, container="main"), HALL, after=first.next, limit=2)
        assert ([one.name for one in rest.boxes], rest.next) == (["c-alone"], "")
        (agent, _), one = (first.boxes, first.boxes[0].preview)
        assert one is not None
        assert (agent.name, one.fits, {card.node for card in one.cards}) == ("a-server", False, {"a-agent", "a-server"})
        mine = operations(filled, "site=hall").preview_limits(LIMITS, HALL, limit=1).boxes[0].preview
        assert mine is not None
        assert {card.node for card in mine.cards} == {"a-agent"}, "what the person does not see is not told"

    def test_a_box_that_has_reported_nothing_is_not_known(self, store: ControllerStore) -> None:
        put_boxes(store, [ClusterBox(number=1, name="a", labels={"site": "hall"}, silent=True)], now_s=NOW_S)
        (one,) = operations(store).preview_limits(LIMITS, HALL).boxes
        assert (one.preview, "has not told yet" in one.text) == (None, True)

    def test_no_boxes_are_an_error_and_no_empty_answer(self, filled: ControllerStore) -> None:
        with pytest.raises(NotFoundError, match="none has these labels"):
            operations(filled).preview_limits(LIMITS, BoxFilter(selector="site=moon", one_of_each_cluster=True))
