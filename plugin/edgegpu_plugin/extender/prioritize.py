"""Prioritize: which of the nodes with room is the best, 0 to 10."""

from collections.abc import Iterable, Mapping

from edgegpu_core.policy import Policy
from edgegpu_plugin.extender.messages import HostPriority
from edgegpu_plugin.extender.node_capacity import TOP_LEVEL, NodeCapacity


def rank(names: Iterable[str], rooms: Mapping[str, NodeCapacity], policy: Policy) -> list[HostPriority]:
    """Score nodes: the fuller the better, so that whole cards stay free; with `spread` the emptier the better."""
    return [HostPriority(host=name, score=_score(rooms.get(name), policy)) for name in names]


def _score(room: NodeCapacity | None, policy: Policy) -> int:
    if room is None or room.problem:
        return 0
    return TOP_LEVEL - room.level if policy is Policy.SPREAD else room.level
