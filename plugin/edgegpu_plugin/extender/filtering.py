"""Filter: which nodes have room for a pod, and in plain words why the others have not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgegpu_core import reasons
from edgegpu_core.inventory import Free
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import PodPlan, Refusal, fits, place, plan_pod
from edgegpu_core.podview import PodView
from edgegpu_core.policy import Policy, parse_policy
from edgegpu_core.request import Unplaceable
from edgegpu_plugin.extender.room import Room

GROUPED_FROM = 6
"""From this many nodes on reasons go without numbers: an event holds 1 024 characters, and counts equal reasons."""

UNKNOWN_NODE = "is not known to edgegpu yet"


@dataclass(slots=True)
class Verdict:
    """The nodes that have room, and the others with their reasons.

    `failed` are those where preemption may help, `hopeless` those where it cannot.
    """

    fitting: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    hopeless: dict[str, str] = field(default_factory=dict)


def policy_problem(pod: PodView) -> str:
    """Say what is wrong with a pod's policy annotation; empty when nothing is."""
    if not pod.bad_policy:
        return ""
    try:
        parse_policy(pod.bad_policy)
    except ValueError as error:
        return f"annotation edgegpu.io/policy: {error}"
    return ""


def judge(pod: PodView, names: Iterable[str], *, rooms: Mapping[str, Room], model: ResourceModel) -> Verdict:
    """Sort the nodes into those with room for a pod and the others.

    Args:
        pod: one that asks for GPU shares.
        names: the nodes in question.
        rooms: what is free on each; it lacks the nodes that are unknown.
        model: for the nodes that say nothing of their own.
    """
    names = list(names)
    problem = policy_problem(pod)
    if problem:
        return Verdict(hopeless=dict.fromkeys(names, problem))
    case = _Case(pod, model, grouped=len(names) >= GROUPED_FROM)
    verdict = Verdict()
    for name in names:
        case.judge(name, rooms.get(name), verdict)
    return verdict


class _Case:
    """One pod's case: plans and reasons are made once for all nodes of the same make."""

    def __init__(self, pod: PodView, model: ResourceModel, *, grouped: bool) -> None:
        self._pod = pod
        self._model = model
        self._grouped = grouped
        self._plans: dict[ResourceModel, PodPlan | Unplaceable] = {}
        self._never: dict[tuple[ResourceModel, tuple[tuple[int, bool], ...]], bool] = {}
        self._words: dict[ResourceModel, str] = {}

    def judge(self, name: str, room: Room | None, verdict: Verdict) -> None:
        plan = self._plan(self._model if room is None else room.model)
        if isinstance(plan, Unplaceable):
            verdict.hopeless[name] = plan.reason
        elif room is None:
            verdict.hopeless[name] = UNKNOWN_NODE
        elif room.problem or room.node.report is None:
            verdict.hopeless[name] = room.problem
        else:
            reason = self._refusal(plan, room, self._pod.policy or room.node.report.policy)
            if not reason:
                verdict.fitting.append(name)
            elif self._preemption_may_help(plan, room):
                verdict.failed[name] = reason
            else:
                verdict.hopeless[name] = reason

    def _plan(self, model: ResourceModel) -> PodPlan | Unplaceable:
        plan = self._plans.get(model)
        if plan is None:
            plan = self._plans[model] = plan_pod(self._pod.containers, model)
        return plan

    def _preemption_may_help(self, plan: PodPlan, room: Room) -> bool:
        """Say whether a pod of lower priority holds something here, and the pod would fit without it."""
        if room.lowest_priority is None or room.lowest_priority >= self._pod.priority:
            return False
        key = (room.model, room.shape)
        never = self._never.get(key)
        if never is None:
            never = self._never[key] = not fits(plan, Free(room.free.slots))
        return not never

    def _refusal(self, plan: PodPlan, room: Room, policy: Policy) -> str:
        """Return why a pod does not fit, in as many words as there is room for; empty when it fits."""
        simple = len(plan.containers) == 1 and not plan.one_card and not plan.containers[0][1].whole
        # For one share of one card `fits` is right and fast. Else the search depends on the policy, and what it
        # finds here is what bind will find.
        if simple and fits(plan, room.free):
            return ""
        if simple and self._grouped:
            return self._grouped_words(plan)
        answer = place(plan, room.free, policy)
        if not isinstance(answer, Refusal):
            return ""
        if not self._grouped:
            return answer.reason
        head, numbers, _ = answer.reason.partition(";")
        return f"{head}; no card has that free" if numbers else head

    def _grouped_words(self, plan: PodPlan) -> str:
        if plan.model not in self._words:
            self._words[plan.model] = reasons.grouped(plan.containers[0][1], plan.model)
        return self._words[plan.model]
