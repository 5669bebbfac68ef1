"""The verb preempt: which pods have to go for one of higher priority, on the nodes that the scheduler has found.

The scheduler chooses victims by the sums of a node, which say nothing about its cards. It lets an extender choose other
pods of the node, by the UIDs of its snapshot (kube-scheduler 1.33, pkg/scheduler/extender.go, convertPodUIDToPod). A
UID that it does not know, or a node without victims, fails the whole preemption.

So a victim that it has not named is a pod that our watch shows bound to that node. The watch and the snapshot may
differ for a moment; then nobody is evicted, and the scheduler tries again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgegpu_core.choices.pod_choice import choice_refusal
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import PodPlan, plan_pod
from edgegpu_core.podview import PodView
from edgegpu_core.preemption import Budget, choose_victims, violations
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.filter import policy_problem
from edgegpu_plugin.extender.messages import MetaPod, MetaVictims
from edgegpu_plugin.extender.node_capacity import NodeCapacity

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """The choice of victims on one card, with their room kept for the pod that preempts them."""

    state: ClusterState
    model: ResourceModel
    budgets: Callable[[], Sequence[Budget]]
    """Reads all PodDisruptionBudgets, and may raise KubeError."""

    def choose(self, pod: PodView, named: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Return the victims by node; nodes on which no eviction helps are left out.

        Raises:
            KubeError: the disruption budgets cannot be read.
        """
        if policy_problem(pod):
            return {}
        budgets = self.budgets()
        rooms = self.state.capacities(named, for_uid=pod.uid, pod=pod)
        chosen: dict[str, MetaVictims] = {}
        for name, victims in named.items():
            room = rooms.get(name)
            found = None if room is None else self._on_node(pod, room, victims, budgets)
            if found is not None:
                chosen[name] = found
        uids = {name: frozenset(one.uid for one in victims.pods) for name, victims in chosen.items()}
        self.state.claim(pod, uids)
        _log.info("preemption for pod %s: %s", pod.full_name, {name: sorted(found) for name, found in uids.items()})
        return chosen

    def _on_node(
        self, pod: PodView, room: NodeCapacity, named: MetaVictims, budgets: Sequence[Budget]
    ) -> MetaVictims | None:
        plan = plan_pod(pod.containers, room.model)
        report = room.node.report
        may_come = report is not None and not choice_refusal(pod.choice, report.allowed)
        if room.problem or not may_come or not isinstance(plan, PodPlan):
            return None
        # The scheduler may have given a binding in flight up, and then knows no such pod on the node.
        unsure = room.in_flight - {one.uid for one in named.pods}
        holders = [replace(holder, pod=None) if holder.uid in unsure else holder for holder in room.holders]
        victims = choose_victims(plan, pod.priority, slots=room.free.slots, holders=holders, budgets=budgets)
        if victims is None:
            return None
        if not victims:
            return named if named.pods else None  # the cards have room: another resource is missing
        ours = {holder.uid for holder in holders}
        # The scheduler named pods without a share for another resource that the node lacks; they still have to go.
        others = [one for one in named.pods if one.uid not in ours]
        uids = [MetaPod(UID=victim.uid) for victim in victims]
        # For pods without shares the scheduler's number of those beyond a budget counts.
        beyond = violations(victims, budgets) + min(len(others), named.violations)
        return MetaVictims(pods=[*uids, *others], NumPDBViolations=beyond)
