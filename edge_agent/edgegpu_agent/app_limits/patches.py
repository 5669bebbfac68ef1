"""The patches of a workload: a container's amounts, and how pods are replaced during one rollout. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from edgegpu_agent.kube.apps import FoundWorkload
from edgegpu_base.kube import Json
from edgegpu_core.limits.readers import container_of
from edgegpu_core.limits.workload import WorkloadKind
from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import amounts_of
from edgegpu_core.request import RequestedAmounts

ASIDE = "edgegpu.io/limits-aside"
"""The annotation of an interrupted workload: what to put back afterwards, so that no crash of ours can lose it."""

_SET_ASIDE = {
    WorkloadKind.DEPLOYMENT: "strategy",
    WorkloadKind.DAEMON_SET: "updateStrategy",
    WorkloadKind.STATEFUL_SET: "replicas",
}

Amounts = Mapping[str, str | None]
"""Resource to quantity, as it is written; None: the resource is absent."""


@dataclass(frozen=True, slots=True)
class ContainerShares:
    """A container's limits and requests of the two resources, as they are or as they are to become."""

    limits: Amounts
    requests: Amounts

    def request(self, model: ResourceModel) -> RequestedAmounts:
        """Return the limits as amounts: the API server writes 1000 as 1k."""
        limits = {name: amount for name, amount in self.limits.items() if amount is not None}
        return amounts_of({"resources": {"limits": limits}}, model)

    @classmethod
    def from_json(cls, value: Json) -> "ContainerShares":
        """Return the shares from their JSON in a note."""
        return cls(dict(value["limits"]), dict(value["requests"]))


def written(spec: Json, container: str, model: ResourceModel) -> ContainerShares:
    """Return the present shares of a container in a pod spec."""
    found = container_of(spec, container)
    resources = {} if found is None else found[1].get("resources") or {}

    def part(name: str) -> dict[str, str | None]:
        amounts = resources.get(name) or {}
        names = (model.memory_resource, model.core_resource)
        return {one: None if amounts.get(one) is None else str(amounts[one]) for one in names}

    return ContainerShares(part("limits"), part("requests"))


def wanted(now: ContainerShares, request: RequestedAmounts, model: ResourceModel) -> ContainerShares:
    """Return the shares to write; requests only where there are some now, since the API demands that they are equal."""
    pairs = ((model.memory_resource, request.memory_units), (model.core_resource, request.core))
    amounts: dict[str, str | None] = {name: str(amount) if amount else None for name, amount in pairs}
    return ContainerShares(
        amounts, {name: None if now.requests.get(name) is None else amounts[name] for name in amounts}
    )


def amounts_patch(spec: Json, container: str, change: ContainerShares) -> Json:
    """Return the patch that writes amounts into a workload's template, and nothing else."""
    found = container_of(spec, container)
    part = "containers" if found is None else found[0]
    resources: Json = {"limits": dict(change.limits), "requests": dict(change.requests)}
    return {"spec": {"template": {"spec": {part: [{"name": container, "resources": resources}]}}}}


def aside_patch(found: FoundWorkload) -> Json:
    """Return the patch that stops an app's old pods before new ones start, and notes the old strategy in ASIDE.

    A Deployment recreates once, a DaemonSet does without surge, a StatefulSet has no replicas until its pods are gone.
    """
    spec = found.spec
    match found.ref.kind:
        case WorkloadKind.DEPLOYMENT:
            before: Json = {"strategy": _rolling(spec.get("strategy") or {})}
            change: Json = {"strategy": {"type": "Recreate", "rollingUpdate": None}}
        case WorkloadKind.DAEMON_SET:
            before = {"updateStrategy": _rolling(spec.get("updateStrategy") or {})}
            change = {"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
        case WorkloadKind.STATEFUL_SET:
            return replicas_patch(found, 0)
    return {"metadata": {"annotations": {ASIDE: _text(before)}}, "spec": change}


def _rolling(strategy: Json) -> Json:
    """Return a strategy with its keys in the order in which the admission policy compares them."""
    rolling = strategy.get("rollingUpdate") or {}
    kept = {name: rolling[name] for name in ("maxUnavailable", "maxSurge") if name in rolling}
    return {"type": strategy.get("type") or "RollingUpdate", **({"rollingUpdate": kept} if kept else {})}


def replicas_patch(found: FoundWorkload, count: int) -> Json:
    """Return the patch that scales a StatefulSet down for a while, and notes its old number of replicas."""
    before = {"replicas": found.spec.get("replicas", 1)}
    return {"metadata": {"annotations": {ASIDE: _text(before)}}, "spec": {"replicas": count}}


def back_patch(found: FoundWorkload) -> Json | None:
    """Return the patch that puts back what ASIDE notes; None without that annotation.

    An annotation that cannot be read, or does not fit this kind of workload, is not ours: the patch only removes it.
    """
    text = found.annotation(ASIDE)
    if not text:
        return None
    try:
        before = json.loads(text)
    except ValueError:
        before = None
    key = _SET_ASIDE[found.ref.kind]
    kept = {key: before[key]} if isinstance(before, dict) and key in before else {}
    return {"metadata": {"annotations": {ASIDE: None}}, "spec": kept}


def _text(before: Json) -> str:
    return json.dumps(before, separators=(",", ":"))


def merged(first: Json, second: Json) -> Json:
    """Return two patches merged into one."""
    result = dict(first)
    for key, value in second.items():
        known = result.get(key)
        result[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result
