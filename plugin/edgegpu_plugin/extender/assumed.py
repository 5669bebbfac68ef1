"""Bindings on their way: counted until the cluster shows them, and for a limited time only."""

from dataclasses import dataclass

from edgegpu_core.placement import Share
from edgegpu_core.podview import PodView


@dataclass(frozen=True, slots=True)
class Assumption:
    """A pod that we are binding or have bound; `pod` says so already (node and cards), `held` is what it takes."""

    pod: PodView
    held: tuple[Share, ...]
    since: float
    """When it was assumed, in seconds of the owner's clock."""


class AssumedCache:
    """Assumptions by pod UID. Not thread-safe: its owner holds a lock."""

    __slots__ = ("_by_node", "_by_uid", "_limit_s")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._by_uid: dict[str, Assumption] = {}
        self._by_node: dict[str, set[str]] = {}

    def put(self, assumption: Assumption) -> None:
        """Count a pod from now on; what was assumed of it before is forgotten."""
        uid, node = assumption.pod.uid, assumption.pod.node
        self.drop(uid)
        self._by_uid[uid] = assumption
        self._by_node.setdefault(node, set()).add(uid)

    def drop(self, uid: str) -> str | None:
        """Forget a pod; return the node on which it was assumed."""
        assumption = self._by_uid.pop(uid, None)
        if assumption is None:
            return None
        node = assumption.pod.node
        self._by_node[node].discard(uid)
        if not self._by_node[node]:
            del self._by_node[node]
        return node

    def get(self, uid: str) -> Assumption | None:
        """Return what is assumed of a pod."""
        return self._by_uid.get(uid)

    def on_node(self, node: str) -> tuple[Assumption, ...]:
        """Return what is assumed on a node."""
        return tuple(self._by_uid[uid] for uid in self._by_node.get(node, ()))

    def expire(self, now: float) -> set[str]:
        """Forget what is older than the limit; return the nodes concerned."""
        old = [uid for uid, assumption in self._by_uid.items() if now - assumption.since > self._limit_s]
        return {node for uid in old if (node := self.drop(uid)) is not None}
