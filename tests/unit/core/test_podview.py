"""Pods from the API's JSON: which containers ask for shares, what is promised, and whom to believe."""

import json
from typing import Any

import pytest
from property.cases import MODEL, NODE, box

from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Policy
from edgegpu_core.podview import (
    CARDS_ANNOTATION,
    POLICY_ANNOTATION,
    gpu_containers,
    is_mirror,
    mirrored_uid,
    pod_view,
    read_cards,
    write_cards,
)
from edgegpu_core.request import ContainerRole


def container(name: str, memory: object = None, core: object = None, **more: object) -> dict[str, Any]:
    limits = {MODEL.memory_resource: memory, MODEL.core_resource: core}
    return {"name": name, "resources": {"limits": {k: v for k, v in limits.items() if v is not None}}, **more}


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    metadata = {"uid": "u", "namespace": "ns", "name": "p", "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeName": NODE, "containers": list(containers)}, **more}


def test_containers_in_kubelets_order_with_their_roles() -> None:
    spec = {
        "containers": [container("plain"), container("a", "4", "10"), container("b", "2")],
        "initContainers": [
            container("i", "1", "1"),
            container("s", "8", "20", restartPolicy="Always"),
            container("n", restartPolicy="Always"),
        ],
    }
    assert gpu_containers(spec, MODEL) == (
        box("i", 1, 1, ContainerRole.INIT),
        box("s", 8, 20, ContainerRole.SIDECAR),
        box("a", 4, 10),
        box("b", 2, 0),
    )


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [
        ("7", 7),
        (7, 7),
        ("2k", 2000),
        ("2Ki", 2048),
        ("1M", 10**6),
        ("1Mi", 2**20),
        ("1G", 10**9),
        ("1Gi", 2**30),
        ("2e3", 2000),
        ("2E3", 2000),
        ("3E", 3 * 10**18),
    ],
)
def test_quantities_as_the_api_server_writes_them(quantity: object, amount: int) -> None:
    [found] = gpu_containers({"containers": [container("a", quantity)]}, MODEL)
    assert found.request.memory_units == amount


@pytest.mark.parametrize(
    "quantity", ["", "0", "k", "²", "1.5", "-3", "x", "1e", "e3", "5m", None, [], {}, "9e9999999999"]
)
def test_what_is_no_whole_amount_asks_for_nothing(quantity: object) -> None:
    assert gpu_containers({"containers": [container("a", quantity, "0")]}, MODEL) == ()


MOST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [("1000000000000000001", 10**18 + 1), (str(MOST), MOST), ("9" * 40, MOST), ("100E", MOST), ("1e99", MOST)],
)
def test_an_amount_of_any_length_counts(quantity: str, amount: int) -> None:
    """A pod that asks for more than there is must not run as one that asks for nothing."""
    (found,) = gpu_containers({"containers": [container("a", quantity, "0")]}, MODEL)
    assert found.request.memory_units == amount


def test_other_names_are_configuration() -> None:
    model = ResourceModel(memory_resource="example.org/mem", core_resource="example.org/cores")
    assert gpu_containers({"containers": [container("a", "4", "10")]}, model) == ()
    other = {"name": "a", "resources": {"limits": {"example.org/mem": "4", "example.org/cores": "10"}}}
    assert gpu_containers({"containers": [other]}, model) == (box("a", 4, 10),)


@pytest.mark.parametrize("empty", [{}, {"spec": None}, {"spec": {"containers": None}}, pod(container("plain"))])
def test_a_pod_without_shares_is_none(empty: dict[str, Any]) -> None:
    assert pod_view(empty, MODEL) is None


def test_a_pod_with_everything() -> None:
    raw = pod(
        container("main", "4", "10"),
        annotations={CARDS_ANNOTATION: write_cards("u", NODE, {"main": ("GPU-0",)}), POLICY_ANNOTATION: "spread"},
        status={"phase": "Failed", "reason": "UnexpectedAdmissionError"},
    )
    raw["metadata"] |= {
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:01Z",
        "ownerReferences": [{"controller": True}],
    }
    raw["spec"]["priority"] = 7
    view = pod_view(raw, MODEL)
    assert view is not None
    assert (view.uid, view.kubelet_uid, view.full_name, view.node) == ("u", "u", "ns/p", NODE)
    assert (view.phase, view.reason, view.is_terminal) == ("Failed", "UnexpectedAdmissionError", True)
    assert (view.created, view.deleting, view.priority, view.controlled) == ("2026-01-01T00:00:00Z", True, 7, True)
    assert (view.cards, view.policy, view.bad_policy) == ({"main": ("GPU-0",)}, Policy.SPREAD, "")
    assert not view.is_static


def test_an_unknown_policy_is_kept_for_the_reason() -> None:
    view = pod_view(pod(container("main", "4", "10"), annotations={POLICY_ANNOTATION: "random"}), MODEL)
    assert view is not None
    assert (view.policy, view.bad_policy) == (None, "random")


MIRROR = {"kubernetes.io/config.mirror": "hash", "kubernetes.io/config.hash": "hash"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "n", "controller": True}


def mirror(**metadata: object) -> dict[str, Any]:
    raw = pod(container("main", "4", "10"), annotations=MIRROR | {"kubernetes.io/config.source": "file"})
    raw["metadata"] |= {"ownerReferences": [OWNER]} | metadata
    return raw


def test_a_mirror_says_which_static_pod_it_shows_and_is_not_believed_by_itself() -> None:
    view = pod_view(mirror(), MODEL)
    assert view is not None
    assert (view.uid, view.kubelet_uid, view.mirrors, view.is_static) == ("u", "u", "hash", False)


@pytest.mark.parametrize(
    "forged",
    [
        {"ownerReferences": []},
        {"ownerReferences": None},
        {"ownerReferences": [OWNER | {"name": "another-node"}]},
        {"ownerReferences": [OWNER | {"kind": "ReplicaSet", "apiVersion": "apps/v1"}]},
        {"annotations": {"kubernetes.io/config.mirror": "hash"}},
        {"annotations": MIRROR | {"kubernetes.io/config.hash": "other"}},
        {"annotations": {"kubernetes.io/config.mirror": ""}},
    ],
)
def test_a_mirror_that_is_none_of_its_nodes_shows_nobody(forged: dict[str, Any]) -> None:
    raw = mirror(**forged)
    view = pod_view(raw, MODEL)
    assert view is not None
    assert is_mirror(raw)
    assert (mirrored_uid(raw), view.kubelet_uid, view.is_static) == ("", "u", False)
    assert view.mirrors not in {"", "hash"}


def test_an_author_cannot_pass_a_pod_off_as_another_or_as_static() -> None:
    for name in ("kubernetes.io/config.hash", "kubernetes.io/config.source"):
        view = pod_view(pod(container("main", "4", "10"), annotations={name: "file"}), MODEL)
        assert view is not None
        assert (view.kubelet_uid, view.mirrors, view.is_static) == ("u", "", False)


def test_of_static_pods_kubelets_own_list_tells() -> None:
    raw = pod(container("main", "4", "10"), annotations={"kubernetes.io/config.source": "file"})
    view = pod_view(raw, MODEL, by_kubelet=True)
    assert view is not None
    assert (view.kubelet_uid, view.is_static) == ("u", True)


CARDS = {"main": ("GPU-0", "GPU-1"), "init": ("GPU-0",)}


def test_the_annotation_round_trips() -> None:
    text = write_cards("u", NODE, {"main": ("GPU-0",)})
    assert text == '{"v":1,"uid":"u","node":"box-1","c":{"main":["GPU-0"]}}'
    assert read_cards(write_cards("u", NODE, CARDS), "u", NODE) == CARDS


def test_the_annotation_of_another_pod_or_node_is_ignored() -> None:
    text = write_cards("u", NODE, CARDS)
    assert read_cards(text, "v", NODE) is None
    assert read_cards(text, "u", "box-2") is None
    assert read_cards(write_cards("u", "", CARDS), "u", "") is None


def forged(cards: object, version: object = 1) -> str:
    return json.dumps({"v": version, "uid": "u", "node": NODE, "c": cards})


VERSIONS: list[object] = [2, "1", None, []]
SHAPES: list[object] = ["GPU-0", 7, [7], [["GPU-0"]], {"GPU-0": 1}, None]


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "{", "null", "7", "[]", '"x"', "{}", "[" * 100_000, '{"a":' * 100_000),
        *(forged({"main": ["GPU-0"]}, version) for version in VERSIONS),
        *(forged(cards) for cards in SHAPES),
        *(forged({"main": cards}) for cards in SHAPES),
    ],
)
def test_forged_annotations_promise_nothing(text: str | None) -> None:
    assert read_cards(text, "u", NODE) is None
