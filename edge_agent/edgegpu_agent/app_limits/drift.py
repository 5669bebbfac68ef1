"""Drift of an app's limits: how they differ from the requested ones, and which manager wrote them. Pure."""

from typing import Any

from edgegpu_agent.kube.apps import FoundWorkload
from edgegpu_agent.kube.client import MANAGER
from edgegpu_base.kube import Json
from edgegpu_core.limits.readers import container_of
from edgegpu_core.model import ResourceModel, short_name
from edgegpu_core.podview import amounts_of
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.uplink import Condition
from edgegpu_sync.wire import clipped

MOST_FIGHTS = 3
"""How often limits that somebody else wrote back are set again; after that, the condition only names who fights."""


def current_amounts(found: FoundWorkload, container: str, model: ResourceModel) -> RequestedAmounts | None:
    """Return the present limits of a container; None when the app has no such container."""
    have = container_of(found.template.get("spec") or {}, container)
    return None if have is None else amounts_of(have[1], model)


def words(request: RequestedAmounts, model: ResourceModel) -> str:
    """Return amounts as text for people."""
    if not request.memory_units and not request.core:
        return "no limits"
    memory, core = short_name(model.memory_resource), short_name(model.core_resource)
    return f"{request.memory_units} {memory} and {request.core} {core}"


def drifted(
    found: FoundWorkload,
    container: str,
    now: RequestedAmounts,
    *,
    asked: RequestedAmounts,
    model: ResourceModel,
    fights: int,
) -> Condition:
    """Return the condition of an app that has other limits than requested; `fights`: how often they were set again."""
    text = f"it stands at {words(now, model)}, asked were {words(asked, model)}"
    if fights:
        times = {1: "once", 2: "twice", 3: "three times"}.get(fights, f"{fights} times")
        text += f"; set again {times}" + (", and written back each time" if fights >= MOST_FIGHTS else "")
    manager = writer(found, container, model)
    return Condition(type="Drifted", manager=clipped(manager, 200), text=clipped(text))


def missing(text: str) -> Condition:
    """Return the condition of an app that no longer exists."""
    return Condition(type="Missing", text=clipped(text))


def writer(found: FoundWorkload, container: str, model: ResourceModel) -> str:
    """Return the manager that wrote the amounts last, from `managedFields`; empty when they do not show it.

    A manager that removed the amounts owns no field of them. Then the answer is the manager that wrote last into the
    workload at all, except us and the controllers.
    """
    entries = [one for one in found.item["metadata"].get("managedFields") or () if not one.get("subresource")]
    others = sorted((one for one in entries if one.get("manager") != MANAGER), key=_time)
    owners = [one for one in others if _owns(one.get("fieldsV1") or {}, container, model)]
    found_one = (owners or others or [{}])[-1]
    return str(found_one.get("manager") or "")


def _time(entry: Json) -> str:
    return str(entry.get("time") or "")


def _owns(fields: Json, container: str, model: ResourceModel) -> bool:
    template = _at(fields, "f:spec", "f:template", "f:spec")
    key = f'k:{{"name":"{container}"}}'
    for part in ("f:containers", "f:initContainers"):
        resources = _at(template, part, key, "f:resources")
        for kind in ("f:limits", "f:requests"):
            names = _at(resources, kind)
            if f"f:{model.memory_resource}" in names or f"f:{model.core_resource}" in names:
                return True
    return False


def _at(value: Json, *keys: str) -> Json:
    found: Any = value
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
