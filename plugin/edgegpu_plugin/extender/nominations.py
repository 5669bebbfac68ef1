"""Nominations: room that preemption has made, kept for its pods until they are bound.

The scheduler keeps a nominated pod's room by the node's sums alone, and no card for it. So another pod, most likely the
evicted pod's successor, would take the card that has become free, be evicted again, and so on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from edgegpu_core.podview import PodView
from edgegpu_plugin.extender.node_capacity import Nomination

_OFFERED_S = 5.0
"""How long the scheduler may take to choose one of the nodes that it was offered."""

_AFTER_S = 60.0
"""How long room is kept after the scheduler withdrew the nomination, as it does while kubelet still holds devices."""


@dataclass(frozen=True, slots=True)
class _Kept:
    claim: Nomination
    until: float | None
    """None while the pod is nominated."""


class Nominations:
    """The claims of nominated pods by node, then by pod UID. Not thread-safe: the owner holds a lock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_node: dict[str, dict[str, _Kept]] = {}

    def offer(self, pod: PodView, victims: dict[str, frozenset[str]]) -> None:
        """Keep room on nodes of which the scheduler will choose one; `victims` are the UIDs of its victims by node."""
        for node, uids in victims.items():
            before = self._by_node.get(node, {}).get(pod.uid)
            until = self._clock() + _OFFERED_S if before is None or before.until is not None else None
            self._put(node, _Kept(Nomination(pod, uids), until))

    def update(self, pod: PodView) -> None:
        """Update a pod's claims when it is nominated, no longer nominated, or bound."""
        if pod.node or pod.is_terminal or pod.deleting:
            self.drop(pod.uid)
            return
        for node, kept in self._of(pod.uid):
            if node != pod.nominated and kept.until is None:
                self._put(node, _Kept(replace(kept.claim, pod=pod), self._clock() + _AFTER_S))
        if pod.nominated:
            for node, kept in self._of(pod.uid):
                if node != pod.nominated and kept.until is not None:
                    self._remove(node, pod.uid)
            before = self._by_node.get(pod.nominated, {}).get(pod.uid)
            victims = frozenset[str]() if before is None else before.claim.victims
            self._put(pod.nominated, _Kept(Nomination(pod, victims), None))

    def drop(self, uid: str) -> None:
        """Drop the claims of a pod that is bound or gone."""
        for node, _ in self._of(uid):
            self._remove(node, uid)

    def nodes(self) -> frozenset[str]:
        """Return the nodes on which room is kept."""
        if not self._by_node:
            return frozenset()
        now = self._clock()
        for node, kept in [(node, kept) for node, by_uid in self._by_node.items() for kept in by_uid.values()]:
            if kept.until is not None and kept.until < now:
                self._remove(node, kept.claim.pod.uid)
        return frozenset(self._by_node)

    def against(self, node: str, pod: PodView) -> tuple[Nomination, ...]:
        """Return the claims on a node that count against a pod: of higher priority, or earlier of equal priority."""
        if node not in self.nodes():
            return ()
        by_uid = self._by_node[node]
        own = by_uid[pod.uid].claim if pod.uid in by_uid else None
        return tuple(kept.claim for kept in by_uid.values() if kept.claim.precedes(pod, own))

    def _of(self, uid: str) -> list[tuple[str, _Kept]]:
        return [(node, by_uid[uid]) for node, by_uid in self._by_node.items() if uid in by_uid]

    def _put(self, node: str, kept: _Kept) -> None:
        self._by_node.setdefault(node, {})[kept.claim.pod.uid] = kept

    def _remove(self, node: str, uid: str) -> None:
        self._by_node[node].pop(uid, None)
        if not self._by_node[node]:
            del self._by_node[node]
