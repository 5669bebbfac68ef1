"""Readers of API objects: nodes with what is held there, the app's pods, quotas, the changed template."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from edgegpu_core.limits.capacity import NewPod, NodeRoom, OwnPod, Quota
from edgegpu_core.limits.nodes import read_taints
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, read_report
from edgegpu_core.nodeview import shares_held
from edgegpu_core.podview import PodView, allocatable_amounts, gpu_containers, pod_view, whole_amount
from edgegpu_core.request import RequestedAmounts, total
from edgegpu_core.sentences import sentence

Object = Mapping[str, Any]

_PARTS = ("initContainers", "containers")
_ANY_SCOPES: tuple[list[str], ...] = ([], ["NotTerminating"])
"""The scopes of quotas that surely count an app's pods."""


def read_node(node: Mapping[str, Any], pods: Iterable[PodView], base: ResourceModel) -> NodeRoom:
    """Read a node object of the API with the GPU pods that are bound to it.

    Args:
        node: the Node object.
        pods: the pods bound to it.
        base: the resource names.
    """
    metadata = node.get("metadata") or {}
    report = read_report((metadata.get("annotations") or {}).get(REPORT_ANNOTATION))
    name, labels, taints = str(metadata.get("name", "")), dict(metadata.get("labels") or {}), read_taints(node)
    if report is None:
        return NodeRoom(name=name, labels=labels, taints=taints, problem=sentence("has no GPU sharing"), model=base)
    model = replace(base, unit_mib=report.unit_mib, core_required=report.core_required)
    stale = _stale_inventory(node, report, base)
    return NodeRoom(
        name=name,
        slots=report.slots,
        held={uid: shares for uid, shares in shares_held(report, pods, model).items() if shares},
        model=model,
        policy=report.policy,
        labels=labels,
        taints=taints,
        problem=stale,
        stale=bool(stale),
        allowed=report.allowed,
    )


def _stale_inventory(node: Mapping[str, Any], report: NodeReport, base: ResourceModel) -> str:
    """Return how the plugin's report and kubelet's amounts differ; empty when they agree."""
    units = allocatable_amounts(node, base).memory_units
    return (
        ""
        if units == report.units()
        else sentence(
            "its inventory is not current: %(units)d units, kubelet offers %(offered)d",
            units=report.units(),
            offered=units,
        )
    )


def container_of(spec: Object, name: str) -> tuple[str, Object] | None:
    """Return the name of the list in a pod spec that has a container, and the container; None when no list has it."""
    found = ((part, one) for part in _PARTS for one in spec.get(part) or () if one.get("name") == name)
    return next(found, None)


def with_amounts(template: Object, container: str, request: RequestedAmounts, model: ResourceModel) -> dict[str, Any]:
    """Return a copy of a pod template with new limits of one container; amounts of 0 are removed."""
    made: dict[str, Any] = copy.deepcopy(dict(template))
    found = container_of(made.get("spec") or {}, container)
    if found is None:
        return made
    one: dict[str, Any] = dict(found[1])
    resources: dict[str, Any] = dict(one.get("resources") or {})
    pairs = ((model.memory_resource, request.memory_units), (model.core_resource, request.core))
    for part in ("limits", "requests"):
        amounts = {k: v for k, v in (resources.get(part) or {}).items() if k not in {pairs[0][0], pairs[1][0]}}
        amounts |= {resource: str(amount) for resource, amount in pairs if amount and part == "limits"}
        resources[part] = amounts
    one["resources"] = resources
    part = found[0]
    made["spec"][part] = [one if other.get("name") == container else other for other in made["spec"][part]]
    return made


def new_pod(template: Object, model: ResourceModel) -> NewPod:
    """Return the pod that a template makes."""
    seen = pod_view(template, model)
    if seen is None:
        return NewPod()
    problem = (
        sentence("annotation edgegpu.io/policy: there is no policy %(policy)r", policy=seen.bad_policy)
        if seen.bad_policy
        else ""
    )
    return NewPod(containers=seen.containers, policy=seen.policy, choice=seen.choice, problem=problem)


def own_pod(pod: Object, model: ResourceModel) -> OwnPod:
    """Read a pod of the app."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    last = str(metadata.get("name", "")).rpartition("-")[2]
    return OwnPod(
        uid=str(metadata.get("uid", "")),
        node=str(spec.get("nodeName") or ""),
        terminating=bool(metadata.get("deletionTimestamp")),
        ordinal=int(last) if last.isdecimal() else 0,
        need=total(gpu_containers(spec, model)),
    )


def read_quota(quotas: Iterable[Object], model: ResourceModel) -> Quota:
    """Return what a namespace's ResourceQuota objects leave, the tightest of each kind."""
    left: dict[str, int] = {}
    for quota in quotas:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopeSelector") or list(spec.get("scopes") or []) not in _ANY_SCOPES:
            continue
        hard, used = {**(spec.get("hard") or {}), **(status.get("hard") or {})}, status.get("used") or {}
        for key, value in hard.items():
            room = whole_amount(value) - whole_amount(used.get(key))
            left[key] = min(room, left.get(key, room))
    pods = [left[key] for key in ("pods", "count/pods") if key in left]
    return Quota(
        units=left.get(f"requests.{model.memory_resource}"),
        core=left.get(f"requests.{model.core_resource}"),
        pods=min(pods) if pods else None,
    )
