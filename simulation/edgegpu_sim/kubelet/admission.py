"""Admission of one pod as by kubelet: devices for each of its containers, then the node's own predicates."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgegpu_sim.api.objects import Json, amount, limits
from edgegpu_sim.kubelet.devicemanager import DeviceManager
from edgegpu_sim.kubelet.endpoint import DeviceError
from edgegpu_sim.kubelet.podstatus import is_sidecar


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why a pod is not admitted, which is final."""

    reason: str
    message: str


def allocate_pod(pod: Json, manager: DeviceManager, *, running: Iterable[str]) -> Rejection | None:
    """Allocate devices for a pod's containers in their order, init containers first.

    Later containers may reuse the devices of ordinary init containers; sidecars and apps keep theirs.

    Args:
        pod: the pod object.
        manager: the device manager.
        running: names of the containers that ran before this kubelet started.
    """
    uid, spec, going = pod["metadata"]["uid"], pod["spec"], set(running)
    inits = list(spec.get("initContainers") or ())
    reusable: dict[str, set[str]] = {}
    manager.begin(uid)
    for index, container in enumerate([*inits, *spec["containers"]]):
        name = container["name"]
        asked = {resource: size for resource, size in limits(container).items() if size}
        try:
            manager.allocate(uid, name, asked, reusable=reusable, running=name in going)
        except DeviceError as error:
            return Rejection("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
        keeps = index >= len(inits) or is_sidecar(container)
        for resource, ids in manager.devices(uid, name).items():
            if keeps:
                reusable.get(resource, set()).difference_update(ids)
            else:
                reusable.setdefault(resource, set()).update(ids)
    return None


def fits_node(
    pod: Json, others: Iterable[Json], *, allocatable: Mapping[str, Any], manager: DeviceManager
) -> Rejection | None:
    """Check extended resources and the number of pods by the node's own counts, as the scheduler would.

    Resources that the node does not list are not checked. For a pod that holds devices the node counts as having at
    least as many as are taken (the node's status may be older than the device manager).
    """
    found = list(others)
    most_pods = amount(allocatable.get("pods", 110))
    if len(found) >= most_pods:
        return _out_of("pods", 1, len(found), most_pods)
    for resource, size in request_of(pod["spec"]).items():
        if resource not in allocatable or not size:
            continue
        used = sum(request_of(other["spec"]).get(resource, 0) for other in found)
        room = amount(allocatable[resource])
        if manager.holds(pod["metadata"]["uid"]):
            room = max(room, manager.held_of(resource))
        if used + size > room:
            return _out_of(resource, size, used, room)
    return None


def request_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return a pod's total request: apps and sidecars together, or the largest init container if that is more."""
    total: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        for resource, size in limits(container).items():
            if is_sidecar(container):
                total[resource] = total.get(resource, 0) + size
                peak[resource] = max(peak.get(resource, 0), total[resource])
            else:
                peak[resource] = max(peak.get(resource, 0), total.get(resource, 0) + size)
    for container in spec["containers"]:
        for resource, size in limits(container).items():
            total[resource] = total.get(resource, 0) + size
    return {resource: max(total.get(resource, 0), peak.get(resource, 0)) for resource in {**total, **peak}}


def _out_of(resource: str, size: int, used: int, room: int) -> Rejection:
    counts = f"requested: {size}, used: {used}, capacity: {room}"
    return Rejection(f"OutOf{resource}", f"Node didn't have enough resource: {resource}, {counts}")
