"""Where the cluster's API servers are, one at each server: of those without a Node object nothing else is known."""

import socket
from collections.abc import Callable

from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.cluster.kinds import ENDPOINTS, Json


def is_here(address: str) -> bool:
    """Say whether an IP address is this machine's: only such a one can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def other_servers(cluster: ClusterClient, *, here: Callable[[str], bool] = is_here) -> tuple[str, ...]:
    """Return the addresses of the API servers on other machines, as each keeps its own in default/kubernetes.

    Raises:
        ClusterError: the API server refuses, or is away.
    """
    found = cluster.find(ENDPOINTS, "kubernetes", "default")
    return tuple(ip for ip in addresses_of(found or {}) if not here(ip))


def addresses_of(endpoints: Json) -> tuple[str, ...]:
    """Return the addresses in an Endpoints object, each once."""
    found = [one for subset in endpoints.get("subsets") or [] for one in subset.get("addresses") or []]
    return tuple(dict.fromkeys(str(one["ip"]) for one in found))
