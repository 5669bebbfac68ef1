"""The verb bind: chooses a pod's cards and writes node and cards in one request, one pod at a time on each node.

kubelet's calls for devices do not name the pod: they have an amount of one resource, nothing else. Two containers with
the same amount of a resource look the same in such a call. That does no harm where they are interchangeable, since
each may get the other's cards. Where they are not, the second must wait until the first has its devices.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from edgegpu_base.kube import Conflict, Json, KubeError, KubeObjects, NotFound, Unavailable
from edgegpu_base.kube.objects import BIND_S
from edgegpu_core.choices.pod_choice import choice_refusal
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import PlacementRefusal, place, plan_pod
from edgegpu_core.podview import CARDS_ANNOTATION, PodView, pod_view, write_cards
from edgegpu_core.request import ContainerRole, ImpossibleRequest, RequestedAmounts
from edgegpu_plugin.extender.assumed import Assumption
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.filter import policy_problem
from edgegpu_plugin.extender.freshness import Freshness, StaleWatchError
from edgegpu_plugin.extender.messages import BindingArgs
from edgegpu_plugin.extender.node_capacity import KnownNode, capacity_of, known_node


def ambiguous(one: PodView, other: PodView) -> bool:
    """Return whether a call for a container of one pod could be mistaken for one of the other with bad effect."""
    alike = _same_constraints(one, other)
    return any(
        _look_alike(p.request, q.request) and not (alike and p.request == q.request)
        for p in one.containers
        for q in other.containers
    )


def _look_alike(p: RequestedAmounts, q: RequestedAmounts) -> bool:
    """Return whether a call for one of the two resources looks the same for both containers."""
    same_memory = p.memory_units == q.memory_units != 0
    same_core = p.core == q.core != 0
    return same_memory or same_core


def _same_constraints(one: PodView, other: PodView) -> bool:
    """Return whether containers of the two pods with equal requests may swap cards, and what holds them.

    An init container ties all containers of its pod to its own card. Equal amounts mean the same number of cards.
    """
    plain = all(container.role is not ContainerRole.INIT for pod in (one, other) for container in pod.containers)
    return plain and (one.policy, one.bad_policy, one.choice) == (other.policy, other.bad_policy, other.choice)


class FifoLocks:
    """One lock per name, granted in the order of the requests; an unused name takes no memory."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queues: dict[str, deque[object]] = {}

    @contextmanager
    def hold(self, name: str, timeout_s: float) -> Iterator[bool]:
        """Hold the lock of `name` for the block; the value is False when it was not granted in time."""
        ticket = object()
        with self._changed:
            queue = self._queues.setdefault(name, deque())
            queue.append(ticket)
            self._changed.notify_all()
            mine = self._changed.wait_for(lambda: queue[0] is ticket, max(0.0, timeout_s))
        try:
            yield mine
        finally:
            with self._changed:
                queue.remove(ticket)
                if not queue:
                    del self._queues[name]
                self._changed.notify_all()

    def wait_for_waiters(self, name: str, count: int, timeout_s: float) -> bool:
        """Wait until that many callers wait for the lock of `name`; return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._queues.get(name, ())) > count, timeout_s)


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldBackTime:
    """How long a pod waits for earlier pods for which it could be mistaken."""

    each_s: float = 3.0
    """The wait for one pod, from its binding: a kubelet that has not asked by then is busy or down."""
    total_s: float = 20.0
    """The whole wait of one call, with that for the node's lock; the scheduler's time-out must be longer."""


@dataclass(frozen=True, slots=True)
class _BindingTarget:
    """A node just read from the API server, the pods bound to it, and the other bindings in flight to it."""

    node: KnownNode
    pods: tuple[PodView, ...]
    assumed: tuple[Assumption, ...]


class _RefusedError(Exception):
    """The pod cannot be bound; the scheduler shows the text and tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binder:
    """The binder of pods. It reads pod and node afresh for each binding, by one key each, and has other pods by watch.

    `freshness` says why no binding of an earlier leader is missed. Filter answers from the watched state and may
    accept a pod for which there is no room any more; bind then refuses it.
    """

    objects: KubeObjects
    state: ClusterState
    freshness: Freshness
    model: ResourceModel
    hold_back: HoldBackTime
    clock: Callable[[], float]
    _node_locks: FifoLocks = field(default_factory=FifoLocks, init=False)

    def bind(self, args: BindingArgs) -> str:
        """Bind a pod; return why it is not bound, or an empty text."""
        ends = self.clock() + self.hold_back.total_s
        with self._node_locks.hold(args.node, self.hold_back.total_s) as mine:
            if not mine:
                return f"waited {self.hold_back.total_s:g} s for earlier bindings to node {args.node}"
            try:
                self._bind_locked(args, ends)
            except (_RefusedError, StaleWatchError) as refusal:
                return str(refusal)
            except KubeError as error:
                return str(error)
        return ""

    def _bind_locked(self, args: BindingArgs, ends: float) -> None:
        term: str | None = None
        while True:
            raw = self.objects.get_pod(args.pod_namespace, args.pod_name)
            pod = self._pod_to_place(args, raw)
            if pod is None:
                return
            version = str(raw["metadata"].get("resourceVersion", ""))
            term = self.freshness.require(version=version, term=term, ends=ends)
            target = self._read_target(args.node, pod)
            earlier = self._mistakable(pod, target)
            if not earlier:
                self._bind_now(pod, target)
                return
            self._wait_for(earlier, args.node, ends)

    def _pod_to_place(self, args: BindingArgs, raw: Json) -> PodView | None:
        """Return the pod that needs cards and a binding; None when nothing is left to do.

        Then it is bound as asked already, or it has no GPU request and is bound here.
        """
        name = f"{args.pod_namespace}/{args.pod_name}"
        uid = str(raw["metadata"]["uid"])
        if uid != args.pod_uid:
            raise _RefusedError(f"pod {name} was replaced: uid {args.pod_uid} was asked for, {uid} is there")
        pod = pod_view(raw, self.model)
        node = str(raw["spec"].get("nodeName") or "")
        if node == args.node and (pod is None or pod.cards is not None):
            return None
        if node:
            raise _RefusedError(
                f"pod {name} is bound to node {node} already, not by edgegpu's extender for {args.node}"
            )
        if pod is None:
            # It has no GPU request, and the scheduler wants it bound all the same.
            self.objects.bind_pod(args.pod_namespace, args.pod_name, uid=uid, node=args.node, annotations={})
        return pod

    def _read_target(self, node: str, pod: PodView) -> _BindingTarget:
        """Read the node's pods first, then its report: a pod that ends in between is counted rather than missed."""
        pods, assumed = self.state.bound_to(node, except_uid=pod.uid)
        view = known_node(self.objects.get_node(node), self.model)
        return _BindingTarget(view, pods, assumed)

    def _mistakable(self, pod: PodView, target: _BindingTarget) -> dict[str, float]:
        """Return the earlier pods that wait for devices and could be mistaken for this one: UID to end of the wait."""
        report = target.node.report
        served = frozenset() if report is None else report.held.keys() - report.waiting
        on_way = {assumption.pod.uid: assumption.pod for assumption in target.assumed}
        promised = on_way | {other.uid: other for other in target.pods if other.cards is not None}
        limits = {
            uid: self.state.bound_since(uid) + self.hold_back.each_s
            for uid, other in promised.items()
            if other.phase == "Pending" and uid not in served and uid != pod.uid and ambiguous(pod, other)
        }
        now = self.clock()
        return {uid: limit for uid, limit in limits.items() if limit > now}

    def _wait_for(self, earlier: dict[str, float], node: str, ends: float) -> None:
        """Wait until the earlier pods have their devices or the wait for them is over."""

        def served() -> bool:
            view = self.state.node(node)
            report = None if view is None else view.report
            return report is not None and earlier.keys() <= report.held.keys() - report.waiting

        until = min(max(earlier.values()), ends)
        self.state.wait_for(served, until - self.clock())
        if self.state.closing:
            raise _RefusedError("edgegpu extender is stopping")
        if self.clock() >= ends:
            raise _RefusedError(
                f"held back {self.hold_back.total_s:g} s: {len(earlier)} earlier pod(s) on node {node} that kubelet's "
                "calls could be mistaken for do not have their devices yet",
            )

    def _bind_now(self, pod: PodView, target: _BindingTarget) -> None:
        node = target.node.name
        room = self.state.less_claims(capacity_of(target.node, target.pods, target.assumed, self.model), pod)
        problem = policy_problem(pod) or room.problem
        plan = plan_pod(pod.containers, room.model)
        if isinstance(plan, ImpossibleRequest):
            raise _RefusedError(plan.reason)
        if problem or target.node.report is None:
            raise _RefusedError(f"node {node} {problem}" if room.problem else problem)
        if refusal := choice_refusal(pod.choice, target.node.report.allowed):
            raise _RefusedError(refusal)
        placed = place(plan, room.free, pod.policy or target.node.report.policy)
        if isinstance(placed, PlacementRefusal):
            raise _RefusedError(placed.reason)
        bound = replace(pod, node=node, cards=placed.cards)
        # Counted before it is sent: from here on no other call may give the cards away, whatever the answer is.
        self.state.assume(Assumption(bound, placed.held, self.clock()))
        self._send(bound)
        _log.info("bound pod %s to node %s: %s", pod.full_name, node, placed.cards)

    def _send(self, bound: PodView) -> None:
        annotations = {CARDS_ANNOTATION: write_cards(bound.uid, bound.node, bound.cards or {})}
        try:
            self.objects.bind_pod(bound.namespace, bound.name, uid=bound.uid, node=bound.node, annotations=annotations)
        except (Conflict, Unavailable) as error:
            self._check_outcome(bound, error)
        except KubeError:
            self.state.forget(bound.uid)
            raise
        self.state.decide(bound.uid)

    def _check_outcome(self, bound: PodView, error: KubeError) -> None:
        """Check whether a binding took effect whose answer was an error; return if it did, else raise the error."""
        self.state.decide(bound.uid, after_s=BIND_S)
        try:
            raw = self.objects.get_pod(bound.namespace, bound.name)
        except NotFound:
            self.state.forget(bound.uid)
            raise
        found = pod_view(raw, self.model)
        if found is not None and found.uid == bound.uid and found.node == bound.node and found.cards == bound.cards:
            return
        unbound = found is not None and found.uid == bound.uid and not found.node
        # A request without an answer may still be under way: it stays assumed, until it is seen or too old.
        if not unbound or isinstance(error, Conflict):
            self.state.forget(bound.uid)
        raise error
