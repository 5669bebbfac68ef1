"""The cluster's nodes and servers: edgegpu's marks on them, facts of each, and where edgegpu is still lacking."""

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import REPORT_ANNOTATION, read_report
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import ENDPOINTS, NODE, Json, name_of

DOMAIN = "edgegpu.io/"
"""The prefix of all our labels and annotations."""
_THERE = "run the same install line there"

GPU_LABEL = f"{DOMAIN}gpu"
"""The label that is `true` on nodes whose cards are shared, as the user chose."""

EXTENDER_ANNOTATION = f"{DOMAIN}extender"
"""The annotation of a server with the version of edgegpu whose extender its scheduler has."""

_SERVER_ROLES = ("control-plane", "master")
_ROLE_PREFIX = "node-role.kubernetes.io/"
_NVIDIA_SIGNS = ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present")
"""Labels that NVIDIA's and Kubernetes' own discovery set on nodes with a card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the cluster knows of a node."""

    name: str
    is_server: bool
    labelled: bool
    extender: str = ""
    """The version of the extender on the node, empty without one."""
    cards: int | None = None
    """The number of cards that its plugin reports, None without a report."""
    memory_units: int = 0
    signs: tuple[str, ...] = ()
    """The labels and resources of other products that show cards."""

    @property
    def role(self) -> str:
        """`server` or `agent`, the role of the node."""
        return "server" if self.is_server else "agent"

    @property
    def seems_to_have_cards(self) -> bool:
        """Whether anything in the cluster shows that the node has cards."""
        return bool(self.cards or self.labelled or self.signs)


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """Our labels and annotations on one node."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


def facts_of(node: Json, model: ResourceModel) -> NodeFacts:
    """Return the facts in a Node object."""
    labels, annotations = _labels(node), _annotations(node)
    status = node.get("status") or {}
    capacity = status.get("capacity") or {}
    report = read_report(annotations.get(REPORT_ANNOTATION))
    signs = [sign for sign in _NVIDIA_SIGNS if labels.get(sign) == "true"]
    signs += [name for name in sorted(capacity) if name.startswith("nvidia.com/") and capacity[name] != "0"]
    return NodeFacts(
        name=name_of(node),
        is_server=any(_ROLE_PREFIX + role in labels for role in _SERVER_ROLES),
        labelled=labels.get(GPU_LABEL) == "true",
        extender=annotations.get(EXTENDER_ANNOTATION, ""),
        cards=None if report is None else len(report.slots),
        memory_units=_amount(status, model.memory_resource),
        signs=tuple(signs),
    )


def all_facts(cluster: ClusterClient, model: ResourceModel) -> tuple[NodeFacts, ...]:
    """Return the facts of every node, servers first. Raises ClusterError."""
    found = (facts_of(node, model) for node in cluster.items(NODE))
    return tuple(sorted(found, key=lambda facts: (not facts.is_server, facts.name)))


def lacking_plugin(nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    """Return the nodes that are labelled as having cards and whose plugin has not reported."""
    return tuple(node.name for node in nodes if node.labelled and node.cards is None)


def lacking_extender(nodes: Iterable[NodeFacts], version: str) -> tuple[str, ...]:
    """Return the servers whose scheduler has no extender of this version: when one leads, it binds without a card."""
    return tuple(node.name for node in nodes if node.is_server and node.extender != version)


def mark_gpu(cluster: ClusterClient, name: str) -> bool:
    """Label a node as one whose cards are shared; return whether the label changed. Raises ClusterError."""
    return _mark(cluster, name, labels={GPU_LABEL: "true"})


def mark_extender(cluster: ClusterClient, name: str, version: str) -> bool:
    """Annotate a server with the version of its scheduler's extender; return whether the annotation changed.

    Raises:
        ClusterError: among others, the server has no Node object (k3s with --disable-agent).
    """
    return _mark(cluster, name, annotations={EXTENDER_ANNOTATION: version})


def mark_server(cluster: ClusterClient, name: str, version: str, *, say: Callable[[str], None]) -> None:
    """Annotate a server as `mark_extender`; report it when the server has no Node object. Raises ClusterError."""
    try:
        mark_extender(cluster, name, version)
    except ClusterError as error:
        if not error.is_missing:
            raise
        say(
            f"note: there is no node {name} (k3s with --disable-agent?): its extender works, but an installation on "
            "another server cannot see that, and says so each time"
        )


def marks_of(node: Json) -> NodeMarks:
    """Return our labels and annotations of a Node object."""
    return NodeMarks(_ours(_labels(node)), _ours(_annotations(node)))


def clear(cluster: ClusterClient, name: str) -> NodeMarks:
    """Remove all our marks and the plugin's report from a node, and return what was removed.

    A node that is gone has none. Call it after the plugin there has stopped, because it would report again.

    Raises:
        ClusterError: the API server refuses, or is away.
    """
    node = cluster.find(NODE, name)
    marks = marks_of(node) if node else NodeMarks({}, {})
    if marks:
        gone: Json = {
            "labels": dict.fromkeys(marks.labels),
            "annotations": dict.fromkeys(marks.annotations),
        }
        cluster.patch(NODE, name, {"metadata": gone})
    return marks


def _mark(
    cluster: ClusterClient,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> bool:
    node = cluster.get(NODE, name)
    wanted = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    have = {"labels": _labels(node), "annotations": _annotations(node)}
    if all(have[part].get(key) == value for part, values in wanted.items() for key, value in values.items()):
        return False
    cluster.patch(NODE, name, {"metadata": {part: values for part, values in wanted.items() if values}})
    return True


def _labels(node: Json) -> dict[str, str]:
    return dict((node.get("metadata") or {}).get("labels") or {})


def _annotations(node: Json) -> dict[str, str]:
    return dict((node.get("metadata") or {}).get("annotations") or {})


def _ours(marks: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in marks.items() if key.startswith(DOMAIN)}


def _amount(status: Json, resource: str) -> int:
    text = str((status.get("allocatable") or {}).get(resource, "0"))
    try:
        return int(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)
    except ValueError:
        return 0


def is_here(address: str) -> bool:
    """Return whether an IP address is this machine's: only such an address can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def other_servers(cluster: ClusterClient, *, here: Callable[[str], bool] = is_here) -> tuple[str, ...]:
    """Return the addresses of the API servers on other machines; each keeps its own in default/kubernetes.

    Raises:
        ClusterError: the API server refuses, or is away.
    """
    found = cluster.find(ENDPOINTS, "kubernetes", "default")
    return tuple(ip for ip in addresses_of(found or {}) if not here(ip))


def addresses_of(endpoints: Json) -> tuple[str, ...]:
    """Return the addresses in an Endpoints object, each once."""
    found = [one for subset in endpoints.get("subsets") or [] for one in subset.get("addresses") or []]
    return tuple(dict.fromkeys(str(one["ip"]) for one in found))


def completeness(
    nodes: Iterable[Json], *, version: str, model: ResourceModel | None = None, servers_at: Sequence[str] = ()
) -> list[str]:
    """Return a sentence with a remedy for all that is still missing; empty when the installation is complete.

    Servers without the extender come first: whenever their scheduler leads, it binds GPU pods without a card.

    Args:
        nodes: Node objects as the API gives them.
        version: the version of edgegpu that every server should have.
        model: the names of the resources.
        servers_at: the addresses of the API servers (from the Endpoints default/kubernetes). A k3s server without a
            kubelet has no Node object, and is found only by these.
    """
    objects = list(nodes)
    facts = {found.name: found for found in (facts_of(node, model or ResourceModel()) for node in objects)}
    named = sorted(facts.values(), key=lambda one: one.name)
    lacking = [_server(facts[name], version) for name in lacking_extender(named, version)]
    lacking += [f"node {name} lacks the plugin: its cards are not offered; {_THERE}" for name in lacking_plugin(named)]
    seen = {address for node in objects for address in _addresses(node)}
    return lacking + [_nameless(address) for address in sorted(set(servers_at) - seen)]


def _server(facts: NodeFacts, version: str) -> str:
    if not facts.extender:
        return (
            f"server {facts.name} lacks the extender: whenever its scheduler leads, GPU pods are bound without a card; "
            f"{_THERE}"
        )
    return f"server {facts.name} has the extender of {facts.extender}, not of {version}; {_THERE}"


def _nameless(address: str) -> str:
    return f"the server at {address} has no Node object, so that nobody sees whether it has the extender; {_THERE}"


def _addresses(node: Json) -> list[str]:
    return [str(one["address"]) for one in (node.get("status") or {}).get("addresses") or []]
