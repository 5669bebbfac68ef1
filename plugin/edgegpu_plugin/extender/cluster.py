"""The cluster as the extender knows it: nodes, GPU pods and bindings in flight, and what is free on each node."""

import threading
import time
from collections.abc import Callable, Iterable

from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import PodView
from edgegpu_plugin.extender.assumed import AssumedCache, Assumption
from edgegpu_plugin.extender.node_capacity import KnownNode, NodeCapacity, capacity_of, without_claimed
from edgegpu_plugin.extender.nominations import Nominations

ASSUMED_S = 30.0
"""How long a binding counts that the watch never shows."""

_ECHO_S = 5.0
"""How long after a binding's answer the watch may take to show it."""


class ClusterState:
    """The state behind one lock, written by reflectors and read by the verbs; a node's capacity is cached."""

    def __init__(self, model: ResourceModel, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._clock = clock
        self._changed = threading.Condition()
        self._nodes: dict[str, KnownNode] = {}
        self._node_names: dict[str, str] = {}
        self._pods: dict[str, PodView] = {}
        self._pods_on: dict[str, dict[str, PodView]] = {}
        self._bound_since: dict[str, float] = {}
        self._assumed = AssumedCache(ASSUMED_S)
        self._claims = Nominations(clock)
        self._capacities: dict[str, NodeCapacity] = {}
        self.closing = False

    # Called by the reflectors.

    def replace_nodes(self, nodes: dict[str, KnownNode]) -> None:
        """Replace all nodes, by UID."""
        with self._changed:
            for uid in self._node_names.keys() - nodes.keys():
                self._drop_node(uid)
            for uid, node in nodes.items():
                self._put_node(uid, node)
            self._changed.notify_all()

    def change_node(self, uid: str, node: KnownNode) -> None:
        """Store a new or changed node."""
        with self._changed:
            self._put_node(uid, node)
            self._changed.notify_all()

    def delete_node(self, uid: str) -> None:
        """Remove a node."""
        with self._changed:
            self._drop_node(uid)
            self._changed.notify_all()

    def replace_pods(self, pods: dict[str, PodView]) -> None:
        """Replace all GPU pods, by UID.

        A binding in flight stays assumed when its pod is missing here and was never known: the list may be older.
        """
        with self._changed:
            for uid in self._pods.keys() - pods.keys():
                self._drop_pod(uid)
            for uid in self._bound_since.keys() - pods.keys():
                if self._assumed.get(uid) is None:
                    del self._bound_since[uid]
            for pod in pods.values():
                self._put_pod(pod)
            self._changed.notify_all()

    def change_pod(self, _uid: str, pod: PodView) -> None:
        """Store a new or changed GPU pod."""
        with self._changed:
            self._put_pod(pod)
            self._changed.notify_all()

    def delete_pod(self, uid: str) -> None:
        """Remove a pod, which may be one without GPU shares."""
        with self._changed:
            self._drop_pod(uid)
            self._changed.notify_all()

    # Called by the verbs.

    def capacities(
        self, names: Iterable[str], *, for_uid: str = "", pod: PodView | None = None
    ) -> dict[str, NodeCapacity]:
        """Return what is free on these nodes for a pod, without its own assumption; unknown nodes are left out.

        With `pod`, room kept for nominated pods of equal or higher priority is not free for it.
        """
        with self._changed:
            self._expire()
            own = self._assumed.get(for_uid)
            found: dict[str, NodeCapacity] = {}
            for name in names:
                room = self._capacities.get(name) or self._make_capacity(name)
                if room is not None:
                    found[name] = room
            if own is not None and own.pod.node in found:
                found[own.pod.node] = self._without(own)
            if pod is not None:
                for name in self._claims.nodes() & found.keys():
                    found[name] = self._less_claims(found[name], pod)
            return found

    def less_claims(self, room: NodeCapacity, pod: PodView) -> NodeCapacity:
        """Return a node's capacity for a pod, less what is kept for nominated pods of equal or higher priority."""
        with self._changed:
            return self._less_claims(room, pod)

    def claim(self, pod: PodView, victims: dict[str, frozenset[str]]) -> None:
        """Keep room for a pod on the nodes where the scheduler may preempt for it; `victims` are UIDs by node."""
        with self._changed:
            self._claims.offer(pod, victims)

    def assume(self, assumption: Assumption) -> None:
        """Count a binding in flight from now on."""
        with self._changed:
            node = self._assumed.drop(assumption.pod.uid)
            self._assumed.put(assumption)
            self._bound_since[assumption.pod.uid] = assumption.since
            self._capacities.pop(node or "", None)
            self._capacities.pop(assumption.pod.node, None)

    def forget(self, uid: str) -> None:
        """Forget a binding that did not take effect."""
        with self._changed:
            node = self._assumed.drop(uid)
            if uid not in self._pods or not self._pods[uid].node:
                self._bound_since.pop(uid, None)
            self._capacities.pop(node or "", None)
            self._changed.notify_all()

    def decide(self, uid: str, *, after_s: float = 0.0) -> None:
        """Mark a binding as decided now, or after a time: a list that begins then shows whether it took effect."""
        with self._changed:
            self._assumed.decide(uid, self._clock() + after_s)

    def echo_overdue(self) -> bool:
        """Return whether the watch is overdue with a binding of ours."""
        with self._changed:
            self._expire()
            return self._assumed.unseen(self._clock() - _ECHO_S)

    def expire_assumed_by_list(self, began: float) -> None:
        """Forget bindings that were decided before a list began and that the list lacks: they did not take effect."""
        with self._changed:
            for node in self._assumed.settle(began):
                self._capacities.pop(node, None)
            self._changed.notify_all()

    def bound_to(self, node: str, *, except_uid: str) -> tuple[tuple[PodView, ...], tuple[Assumption, ...]]:
        """Return the GPU pods bound to a node and the bindings in flight to it without one pod's, of the same moment.

        Read one after the other, a binding that the watch shows in between would be in neither.
        """
        with self._changed:
            self._expire()
            assumed = tuple(one for one in self._assumed.on_node(node) if one.pod.uid != except_uid)
            return tuple(self._pods_on.get(node, {}).values()), assumed

    def bound_since(self, uid: str) -> float:
        """Return when we bound a pod or the watch first showed it as bound, which may be now."""
        with self._changed:
            return self._bound_since.setdefault(uid, self._clock())

    def node(self, name: str) -> KnownNode | None:
        """Return a node as the watch last showed it."""
        with self._changed:
            return self._nodes.get(name)

    def nodes(self) -> tuple[KnownNode, ...]:
        """Return all nodes, by name."""
        with self._changed:
            return tuple(self._nodes[name] for name in sorted(self._nodes))

    def pods(self) -> tuple[PodView, ...]:
        """Return all GPU pods."""
        with self._changed:
            return tuple(self._pods.values())

    def wait_for(self, happened: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition holds, checked at each change; return False after the timeout or `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self.closing or happened(), max(0.0, timeout_s))
            return not self.closing and happened()

    def close(self) -> None:
        """End all waits, present and future, because the process ends."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()

    # The rest runs under the lock.

    def _put_node(self, uid: str, node: KnownNode) -> None:
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._capacities.pop(node.name, None)
        self._node_names[uid] = node.name

    def _drop_node(self, uid: str) -> None:
        name = self._node_names.pop(uid, None)
        # A node that was made anew under the same name has another UID, and must not be removed with the old one.
        if name is not None and self._nodes[name].uid == uid:
            del self._nodes[name]
            self._capacities.pop(name, None)

    def _put_pod(self, pod: PodView) -> None:
        before = self._pods.get(pod.uid)
        if before == pod:
            return
        self._claims.update(pod)
        if before is not None:
            self._detach(before)
        self._pods[pod.uid] = pod
        if pod.node:
            self._pods_on.setdefault(pod.node, {})[pod.uid] = pod
            self._bound_since.setdefault(pod.uid, self._clock())
            self._capacities.pop(pod.node, None)
            self._capacities.pop(self._assumed.drop(pod.uid) or "", None)

    def _less_claims(self, room: NodeCapacity, pod: PodView) -> NodeCapacity:
        # For a pod that is being bound the assumption counts instead of the claim.
        claims = [
            claim for claim in self._claims.against(room.node.name, pod) if self._assumed.get(claim.pod.uid) is None
        ]
        return without_claimed(room, claims) if claims else room

    def _drop_pod(self, uid: str) -> None:
        self._claims.drop(uid)
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._detach(pod)
        self._capacities.pop(self._assumed.drop(uid) or "", None)
        self._bound_since.pop(uid, None)

    def _detach(self, pod: PodView) -> None:
        self._capacities.pop(pod.node, None)
        on_node = self._pods_on.get(pod.node)
        if on_node is not None:
            on_node.pop(pod.uid, None)
            if not on_node:
                del self._pods_on[pod.node]

    def _expire(self) -> None:
        for node in self._assumed.expire(self._clock()):
            self._capacities.pop(node, None)

    def _make_capacity(self, name: str) -> NodeCapacity | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        pods = self._pods_on.get(name, {}).values()
        self._capacities[name] = capacity_of(node, pods, self._assumed.on_node(name), self._model)
        return self._capacities[name]

    def _without(self, own: Assumption) -> NodeCapacity:
        name = own.pod.node
        others = [assumption for assumption in self._assumed.on_node(name) if assumption is not own]
        return capacity_of(self._nodes[name], self._pods_on.get(name, {}).values(), others, self._model)
