"""What an installation of the whole cluster still lacks, in sentences for the user: no call to anything in here."""

from collections.abc import Iterable, Sequence

from edgegpu_core.model import ResourceModel
from edgegpu_installer.cluster.kinds import Json
from edgegpu_installer.cluster.nodes import NodeFacts, facts_of, lacking_extender, lacking_plugin

_THERE = "run the same install line there"


def completeness(
    nodes: Iterable[Json], *, version: str, model: ResourceModel | None = None, servers_at: Sequence[str] = ()
) -> list[str]:
    """Return what is still missing, a sentence each, with what to do; empty when the installation is complete.

    A server without the extender comes first: whenever its scheduler leads, it binds GPU pods without a card.

    Args:
        nodes: Node objects as the API gives them.
        version: the version of edgegpu that every server should have.
        model: the names of the resources.
        servers_at: the addresses of the API servers (of the Endpoints default/kubernetes). A k3s server that runs no
            kubelet has no Node object, and is found by these alone.
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
