"""The drain before sharing goes: a node must offer no more than its pods hold, so that no pod is bound blindly."""

import time
from collections.abc import Callable

from edgegpu_core.model import ResourceModel
from edgegpu_installer.changes import Deadline
from edgegpu_installer.cluster import shares
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import NODE
from edgegpu_installer.cluster.nodes import facts_of

WITHIN_S = 40.0
"""The plugin notices the change within 5 s, and kubelet publishes what it offers every 10 s."""

_LOOK_S = 1.0


def drain(
    cluster: ClusterClient,
    model: ResourceModel,
    *,
    node: str,
    deadline: Deadline,
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait, up to a limit, until none of a node's memory units is free; report it when the wait was in vain.

    While the journal says that sharing is being taken off, the plugin offers no more than pods hold. Otherwise a pod
    that waits for a card would be bound by the node's sum as soon as the scheduler has no extender any more.
    """
    limit = Deadline(deadline.clock() + min(WITHIN_S, deadline.remaining_s()), deadline.clock)
    say(f"waiting until {node} offers no more than its pods hold")
    why = ""
    while not limit.passed():
        try:
            free = _free(cluster, model, node)
        except ClusterError as error:
            why = str(error)
        else:
            if free <= 0:
                return
            why = f"{free} units are still offered"
        pause(_LOOK_S)
    say(f"going on although pods that wait for a card may be placed on {node} now and not start: {why}")


def _free(cluster: ClusterClient, model: ResourceModel, node: str) -> int:
    found = cluster.find(NODE, node)
    if found is None:
        return 0
    held = sum(map(shares.units_of, shares.in_use(cluster, model, node=node)))
    return facts_of(found, model).memory_units - held
