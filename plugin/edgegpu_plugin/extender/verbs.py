"""The extender's verbs, from wire type to wire type, and the score of the nodes with room, 0 to 10."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from edgegpu_base.kube import KubeError
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Policy
from edgegpu_core.podview import pod_view
from edgegpu_plugin.extender.bind import Binder
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.filter import filter_nodes
from edgegpu_plugin.extender.messages import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    NodeList,
    PreemptionArgs,
    PreemptionResult,
)
from edgegpu_plugin.extender.node_capacity import TOP_LEVEL, NodeCapacity
from edgegpu_plugin.extender.preempt import Preemption
from edgegpu_plugin.extender.server import NotReadyError


def rank(names: Iterable[str], rooms: Mapping[str, NodeCapacity], policy: Policy) -> list[HostPriority]:
    """Return scores of nodes: the fuller the better, so that whole cards stay free; with `spread` the emptier."""
    return [HostPriority(host=name, score=_score(rooms.get(name), policy)) for name in names]


def _score(room: NodeCapacity | None, policy: Policy) -> int:
    if room is None or room.problem:
        return 0
    return TOP_LEVEL - room.level if policy is Policy.SPREAD else room.level


READING = "edgegpu extender is still reading the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderVerbs:
    """The four verbs of the extender: filter, prioritize, preempt and bind."""

    state: ClusterState
    """The cluster's state, from which filter and prioritize answer."""
    binder: Binder
    preemption: Preemption
    model: ResourceModel
    """The resource names, and the defaults for nodes that report nothing."""
    policy: Policy
    """How nodes are ranked for pods that name no policy."""
    synced: Callable[[], bool]
    """Returns whether nodes and pods are known; before that no verb answers, since it could be wrong."""

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """Return the nodes on which a pod has room; a pod without GPU shares has it everywhere."""
        pod = pod_view(args.pod, self.model)
        names = args.names()
        if pod is None:
            return FilterResult(nodes=args.nodes, node_names=args.node_names or [])
        if not self.synced():
            return FilterResult(error=READING)
        verdict = filter_nodes(
            pod, names, rooms=self.state.capacities(names, for_uid=pod.uid, pod=pod), model=self.model
        )
        return FilterResult(
            nodes=None if args.nodes is None else _only(args.nodes, frozenset(verdict.fitting)),
            node_names=verdict.fitting if args.nodes is None else [],
            failed_nodes=verdict.unresolvable,
            failed_and_unresolvable_nodes=verdict.unresolvable,
        )

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Return the scores of the nodes that have room; for a pod without GPU shares all are equal."""
        pod = pod_view(args.pod, self.model)
        names = args.names()
        rooms = {} if pod is None else self.state.capacities(names, for_uid=pod.uid)
        return rank(names, rooms, (pod.policy if pod else None) or self.policy)

    def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """Return the victims for a pod by node; for a pod without GPU shares they are the scheduler's choice.

        Raises:
            NotReadyError: the cluster is not read yet, or the disruption budgets cannot be read.
        """
        pod = pod_view(args.pod, self.model)
        named = args.named()
        if pod is None:
            return PreemptionResult(node_name_to_meta_victims={name: one for name, one in named.items() if one.pods})
        if not self.synced():
            raise NotReadyError(READING)
        try:
            return PreemptionResult(node_name_to_meta_victims=self.preemption.choose(pod, named))
        except KubeError as error:
            raise NotReadyError(f"cannot preempt: {error}") from error

    def bind(self, args: BindingArgs) -> BindingResult:
        """Bind a pod and write its cards into the annotation."""
        if not self.synced():
            return BindingResult(error=READING)
        return BindingResult(error=self.binder.bind(args))


def _only(nodes: NodeList, names: frozenset[str]) -> NodeList:
    return NodeList(items=[item for item in nodes.items if item["metadata"]["name"] in names])
