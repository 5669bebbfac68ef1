"""Bindings in flight: counted until the watch shows them, and for a limited time only."""

from dataclasses import dataclass

from edgegpu_core.placement import Share
from edgegpu_core.podview import PodView


@dataclass(frozen=True, slots=True)
class Assumption:
    """A pod that we are binding or have bound; `pod` already has node and cards, `held` is what it takes."""

    pod: PodView
    held: tuple[Share, ...]
    since: float
    """When it was assumed, in seconds of the owner's clock."""


class AssumedCache:
    """The assumed bindings by pod UID. Not thread-safe: the owner holds a lock.

    A binding that was sent is *decided* from some moment on: it has taken effect or never will, and a list that begins
    later shows which. Until the watch shows the binding, or such a list was read, it is `unseen`.
    """

    __slots__ = ("_by_node", "_by_uid", "_decided", "_limit_s", "_lost")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._by_uid: dict[str, Assumption] = {}
        self._by_node: dict[str, set[str]] = {}
        self._decided: dict[str, float] = {}
        self._lost: float | None = None

    def put(self, assumption: Assumption) -> None:
        """Count a pod's binding from now on, in place of an earlier assumption."""
        uid, node = assumption.pod.uid, assumption.pod.node
        self.drop(uid)
        self._by_uid[uid] = assumption
        self._by_node.setdefault(node, set()).add(uid)

    def decide(self, uid: str, when: float) -> None:
        """Set the moment from which on a list shows whether a binding took effect."""
        if uid in self._by_uid:
            self._decided[uid] = when

    def drop(self, uid: str) -> str | None:
        """Forget a pod's assumption and return its node."""
        self._decided.pop(uid, None)
        assumption = self._by_uid.pop(uid, None)
        if assumption is None:
            return None
        node = assumption.pod.node
        self._by_node[node].discard(uid)
        if not self._by_node[node]:
            del self._by_node[node]
        return node

    def get(self, uid: str) -> Assumption | None:
        """Return the assumption about a pod."""
        return self._by_uid.get(uid)

    def on_node(self, node: str) -> tuple[Assumption, ...]:
        """Return the assumptions on a node."""
        return tuple(self._by_uid[uid] for uid in self._by_node.get(node, ()))

    def expire(self, now: float) -> set[str]:
        """Forget assumptions older than the limit and return their nodes.

        Such a binding may have taken effect all the same, so it stays `unseen` until a list was read.
        """
        old = [uid for uid, assumption in self._by_uid.items() if now - assumption.since > self._limit_s]
        for uid in old:
            if uid in self._decided:
                self._lost = max(self._lost or 0.0, self._decided[uid])
        return {node for uid in old if (node := self.drop(uid)) is not None}

    def unseen(self, before: float) -> bool:
        """Return whether a binding that was decided before a moment, or one that has expired, is not seen yet."""
        return self._lost is not None or any(when < before for when in self._decided.values())

    def settle(self, began: float) -> set[str]:
        """Forget assumptions that a list begun at that moment would have shown but did not; return their nodes."""
        if self._lost is not None and self._lost <= began:
            self._lost = None
        shown = [uid for uid, when in self._decided.items() if when <= began]
        return {node for uid in shown if (node := self.drop(uid)) is not None}
