"""What a cluster says of itself when a test fails: its nodes, its scheduler, its events and k3s's log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from e2e.k3s import K3s
from e2e.realbed import RealBed
from e2e.schedulerprobe import scheduler_stacks
from lab.labkit import LabError, Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.machine import Machine
    from e2e.plugin_node import PluginNode

_LINES = 25
_READYZ = "https://127.0.0.1:10259/readyz?verbose"
"""Of kube-scheduler; it answers without a certificate (its flag --authorization-always-allow-paths)."""
_COLUMNS = "LAST:.lastTimestamp,OF:.involvedObject.name,TYPE:.type,REASON:.reason,MESSAGE:.message"
_WORSE = re.compile(r"[WEF]\d{4} |time=.*level=(warn|error|fatal)")


def cluster_of(values: list[Any]) -> K3s | None:
    """Return the cluster among a test's fixtures."""
    clusters = [value for value in values if isinstance(value, K3s)]
    clusters += [value.cluster for value in values if isinstance(value, RealBed)]
    return clusters[0] if clusters else None


def cluster_words(cluster: K3s) -> str:
    """Return what a cluster says of itself, in a screen or two; what does not answer says why.

    A scheduler that has left a pod alone is made to print its stacks: that ends k3s, which starts again.
    """
    server = cluster.server
    parts: list[tuple[str, Callable[[], str]]] = [
        ("nodes", lambda: "\n".join(_node_words(cluster, name) for name in cluster.nodes)),
        ("kube-scheduler", lambda: server.exec("curl", "-skS", "-m", "10", _READYZ, check=False).stdout),
        ("last events", lambda: _last(_events(server))),
        ("k3s's log, without what is information", lambda: _last(_warnings(server))),
    ]
    parts += [(f"the plugin's log on {node.name}", _plugin_words(node)) for node in cluster.nodes.values()]
    parts.append(("pods that the scheduler has not looked at", lambda: _unscheduled_words(cluster)))
    return "\n".join(f"--- {title}\n{_answer(ask)}" for title, ask in parts)


def _node_words(cluster: K3s, name: str) -> str:
    node = cluster.get("node", name)
    states = {row["type"]: row["status"] for row in node["status"]["conditions"]}
    taints = [f"{taint['key']}:{taint['effect']}" for taint in node["spec"].get("taints", [])]
    return f"{name}: {states}, taints {taints}, offers {cluster.allocatable(name)}"


def _plugin_words(node: PluginNode) -> Callable[[], str]:
    return lambda: _last(node.plugin_log())


def _unscheduled_words(cluster: K3s) -> str:
    pods = [pod for pod in cluster.pods() if not pod["spec"].get("nodeName") and not pod["status"].get("conditions")]
    names = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]
    if not pods or not isinstance(cluster.server, Node):
        return ", ".join(names) or "none"
    return f"{', '.join(names)}; k3s ends with these stacks of its scheduler:\n{scheduler_stacks(cluster.server)}"


def _events(server: Machine) -> str:
    return server.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", "-o", f"custom-columns={_COLUMNS}").stdout


def _warnings(server: Machine) -> str:
    """Return the lines of klog's and logrus's that are warnings or worse."""
    lines = server.log().splitlines() if isinstance(server, Node) else []
    return "\n".join(line for line in lines if _WORSE.match(line))


def _last(text: str) -> str:
    return "\n".join(line[:300] for line in text.splitlines()[-_LINES:])


def _answer(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except (LabError, OSError, KeyError, ValueError) as error:
        return f"no answer: {error}"
