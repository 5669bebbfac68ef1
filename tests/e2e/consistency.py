"""The invariant that every disturbance must leave standing: all records of who holds which card say the same."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from e2e.k3s import K3s
from e2e.manifests import CORE, MEMORY
from e2e.plugin_node import PluginNode
from lab.labkit import LabError, wait_until

from edgegpu_core.deviceid import card_of
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import REPORT_ANNOTATION, read_report
from edgegpu_core.podview import PodView, pod_view
from edgegpu_core.request import ContainerRole

MODEL = ResourceModel()
Key = tuple[str, str]
"""Pod UID (kubelet's) and container, or namespace/pod and container."""
Cards = frozenset[str]


def gpu_pods(k3s: K3s, node: str) -> list[PodView]:
    """Return the live pods of a node that ask for shares, as the API has them."""
    views = (pod_view(pod, MODEL) for pod in k3s.pods())
    live = [v for v in views if v is not None and v.node == node and not v.is_terminal]
    return [replace(v, kubelet_uid=v.mirrors) if v.mirrors else v for v in live]


def wait_consistent(k3s: K3s) -> dict[Key, Cards]:
    """Wait until all records of all nodes agree; returns the cards of each container.

    Raises:
        LabError: they still differ, or a plugin that a test has started does not run; the text says where.
    """

    def probe() -> dict[Key, Cards]:
        found: dict[Key, Cards] = {}
        if not any(node.has_plugin for node in k3s.nodes.values()):
            raise LabError("no node has a plugin, so nothing can be compared")
        for node in k3s.nodes.values():
            found |= compare(k3s, node)
        return found or {("", ""): frozenset()}

    return wait_until(probe, what="ledger = checkpoint = annotations = PodResources", every_s=0.5)


def compare(k3s: K3s, node: PluginNode) -> dict[Key, Cards]:
    """Compare the records of one node; returns the cards of each container by kubelet's UID.

    Raises:
        LabError: two of them differ, or its plugin, which was started and not stopped, does not run.
    """
    if not node.has_plugin:
        return {}
    if not node.running:
        raise LabError(f"{node.name}: its plugin does not run, so nothing can be compared")
    pods = gpu_pods(k3s, node.name)
    live = {pod.kubelet_uid: pod for pod in pods}
    ids = _checkpoint(node, live)
    expected = {(pod.kubelet_uid, c.name) for pod in pods for c in pod.containers}
    _same(f"{node.name}: containers in the checkpoint", set(ids), expected)
    cards = {key: frozenset(card_of(i) for i in some) for key, some in ids.items()}
    for pod in pods:
        for container in pod.containers:
            _check_container(pod, container.name, ids[pod.kubelet_uid, container.name])
    promised = {(p.kubelet_uid, name): frozenset(c) for p in pods for name, c in (p.cards or {}).items()}
    _same(f"{node.name}: annotations against the checkpoint", promised, cards)
    status = _status(node)
    by_api = {(pod.uid, name): cards[pod.kubelet_uid, name] for pod in pods for name in _names(pod)}
    _same(f"{node.name}: the plugin's ledger against the checkpoint", status, by_api)
    listed = _pod_resources(node)
    wanted = {
        (pod.full_name, c.name): cards[pod.kubelet_uid, c.name]
        for pod in pods
        for c in pod.containers
        if c.role is not ContainerRole.INIT
    }
    _same(f"{node.name}: PodResources against the checkpoint", listed, wanted)
    _same(f"{node.name}: pods in the Node's report", _report(k3s, node), {pod.uid for pod in pods})
    return cards


def _check_container(pod: PodView, name: str, ids: frozenset[str]) -> None:
    container = next(c for c in pod.containers if c.name == name)
    memory = [i for i in ids if "::m" in i]
    core = [i for i in ids if "::c" in i]
    if (len(memory), len(core)) != (container.request.memory_units, container.request.core):
        raise LabError(f"{pod.full_name}/{name} has {len(memory)} and {len(core)} devices")
    cards = {card_of(i) for i in ids}
    if len(cards) != max(1, container.request.core // 100):
        raise LabError(f"{pod.full_name}/{name} lies on {len(cards)} cards")


def _checkpoint(node: PluginNode, live: dict[str, PodView]) -> dict[Key, frozenset[str]]:
    found: defaultdict[Key, set[str]] = defaultdict(set)
    for entry in node.checkpoint():
        if entry.pod_uid in live and entry.resource in {MEMORY, CORE}:
            found[entry.pod_uid, entry.container].update(entry.device_ids)
    return {key: frozenset(ids) for key, ids in found.items()}


def _status(node: PluginNode) -> dict[Key, Cards]:
    rows: Iterable[dict[str, Any]] = node.status()["pods"]
    return {(row["uid"], row["container"]): frozenset(card["uuid"] for card in row["cards"]) for row in rows}


def _pod_resources(node: PluginNode) -> dict[Key, Cards]:
    found: defaultdict[Key, set[str]] = defaultdict(set)
    for one in node.pod_resources():
        if one.resource in {MEMORY, CORE} and one.ids:
            found[f"{one.namespace}/{one.pod}", one.container].update(card_of(i) for i in one.ids)
    return {key: frozenset(cards) for key, cards in found.items()}


def _report(k3s: K3s, node: PluginNode) -> set[str]:
    report = read_report(k3s.get("node", node.name)["metadata"].get("annotations", {}).get(REPORT_ANNOTATION))
    if report is None:
        raise LabError(f"{node.name} has no report")
    if report.waiting:
        raise LabError(f"{node.name}: pods wait for devices: {sorted(report.waiting)}")
    return set(report.held)


def _names(pod: PodView) -> list[str]:
    return [container.name for container in pod.containers]


def _same(what: str, left: Any, right: Any) -> None:  # noqa: ANN401  (maps and sets)
    if left != right:
        raise LabError(f"{what}: {_only(left, right)} against {_only(right, left)}")


def _only(left: Any, right: Any) -> Any:  # noqa: ANN401
    if isinstance(left, dict):
        return {key: value for key, value in left.items() if right.get(key) != value}
    return left - right
