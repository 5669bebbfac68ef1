"""A pod as placement sees it, read from the API's JSON: its GPU containers, where it is, and what it was promised."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgegpu_core.choices.driver_capabilities import capabilities_of
from edgegpu_core.choices.pod_choice import NO_CHOICE, PodChoice, read_choice
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Policy, parse_policy
from edgegpu_core.request import ContainerRequest, ContainerRole, RequestedAmounts

CARDS_ANNOTATION = "edgegpu.io/cards"
"""Written by the extender with the binding: which container gets which cards."""

POLICY_ANNOTATION = "edgegpu.io/policy"
"""Set by a pod's author: a placement policy for this pod."""

_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_HASH_ANNOTATION = "kubernetes.io/config.hash"
_SOURCE_ANNOTATION = "kubernetes.io/config.source"
_NOBODY = "-"
"""`PodView.mirrors` of an object that is marked as a mirror but is not its node's."""
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

Cards = dict[str, tuple[str, ...]]
"""Container name to the UUIDs of its cards."""


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """The image of a container: as its spec names it, and by the digest that the runtime said when it last ran."""

    container: str
    reference: str
    digest: str = ""
    """Empty while it has not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod that asks for GPU shares."""

    uid: str
    namespace: str
    name: str
    node: str = ""
    phase: str = "Pending"
    reason: str = ""
    created: str = ""
    started: str = ""
    """When kubelet took the pod, as the API writes times; empty before."""
    deleting: bool = False
    containers: tuple[ContainerRequest, ...] = ()
    """The containers that ask for shares, in the order in which kubelet allocates."""
    cards: Cards | None = None
    """What the annotation promises on this node; None when there is no valid one."""
    policy: Policy | None = None
    bad_policy: str = ""
    """The text of a policy annotation that names no policy."""
    choice: PodChoice = NO_CHOICE
    """What its annotations ask of how its containers are held."""
    driver_capabilities: tuple[tuple[str, str], ...] = ()
    """What its GPU containers set NVIDIA's variable of that name to, by name, where they set it."""
    images: tuple[ContainerImage, ...] = ()
    """The images of its GPU containers."""
    priority: int = 0
    controlled: bool = False
    kubelet_uid: str = ""
    """The UID in kubelet's records: the pod's own, or for a recognized mirror that of its static pod."""
    mirrors: str = ""
    """The UID of the static pod that this object claims to mirror. Any author can write that, so it must be checked."""
    restarts: bool = True
    """Whether its restart policy is Always, so that it cannot succeed."""
    unscheduled: str = ""
    """Why the scheduler has not placed it, in the scheduler's words."""
    running: tuple[tuple[str, str], ...] = ()
    """Its GPU containers that run, by name, with the runtime's id of each."""
    is_static: bool = False
    """Whether the pod comes from a file on its node, so that evicting it is no remedy."""
    nominated: str = ""
    """The node where preemption made room for the pod, while it is not bound."""
    labels: tuple[tuple[str, str], ...] = ()
    """For the selectors of disruption budgets."""

    @property
    def is_terminal(self) -> bool:
        """Whether all containers of the pod have ended for good."""
        return self.phase in TERMINAL_PHASES

    def has_started(self, container: str) -> bool:
        """Return whether a container of the pod runs, or has run, by the API: then kubelet has given it its devices."""
        return self.phase == "Running" or any(name == container for name, _ in self.running)

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


def gpu_containers(spec: Mapping[str, Any], model: ResourceModel) -> tuple[ContainerRequest, ...]:
    """Return the containers of a pod spec that ask for shares, init containers first, as kubelet allocates.

    Amounts are read from `limits` (the API server demands that requests of extended resources are equal to them).
    """
    found: list[ContainerRequest] = []
    for field, plain in (("initContainers", ContainerRole.INIT), ("containers", ContainerRole.APP)):
        for container in spec.get(field) or ():
            request = amounts_of(container, model)
            if request.memory_units or request.core:
                sidecar = plain is ContainerRole.INIT and container.get("restartPolicy") == "Always"
                found.append(ContainerRequest(container["name"], ContainerRole.SIDECAR if sidecar else plain, request))
    return tuple(found)


def amounts_of(container: Mapping[str, Any], model: ResourceModel) -> RequestedAmounts:
    """Return the GPU amounts in the limits of a container of a pod spec; 0 for an amount that is missing."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return RequestedAmounts(
        whole_amount(limits.get(model.memory_resource)), whole_amount(limits.get(model.core_resource))
    )


def allocatable_amounts(node: Mapping[str, Any], model: ResourceModel) -> RequestedAmounts:
    """Return the amounts of a Node object's allocatable, which writes quantities as limits do ("1k" for 1000)."""
    return amounts_of({"resources": {"limits": (node.get("status") or {}).get("allocatable")}}, model)


def mirrored_uid(pod: Mapping[str, Any]) -> str:
    """Return the UID of the static pod that an API object mirrors; "" when it is not marked as its node's own.

    kubelet makes a mirror with the static pod's UID in both annotations, owned by the Node (1.17 and newer). The API
    server demands that of kubelets and of nobody else, so the marks alone prove nothing.
    """
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    shown = str(annotations.get(_MIRROR_ANNOTATION) or "")
    owned = any(
        (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) == ("v1", "Node", spec.get("nodeName"))
        for owner in metadata.get("ownerReferences") or ()
    )
    return shown if owned and annotations.get(_HASH_ANNOTATION) == shown else ""


def is_mirror(pod: Mapping[str, Any]) -> bool:
    """Return whether kubelet takes an API object for a mirror: it never runs it, and deletes it if it made none."""
    return _MIRROR_ANNOTATION in ((pod.get("metadata") or {}).get("annotations") or {})


def as_kubelet_lists(pod: Mapping[str, Any], *, uid: str = "") -> dict[str, Any]:
    """Return an API object as kubelet's own list has it: as an ordinary pod, or with `uid` as that static pod."""
    metadata = dict(pod.get("metadata") or {})
    annotations = {**(metadata.get("annotations") or {}), _SOURCE_ANNOTATION: "file" if uid else "api"}
    return {**pod, "metadata": {**metadata, "uid": uid or metadata.get("uid", ""), "annotations": annotations}}


def pod_view(pod: Mapping[str, Any], model: ResourceModel, *, by_kubelet: bool = False) -> PodView | None:
    """Read a pod object; None when it asks for no share.

    Args:
        pod: an object of the API, or of kubelet's own list.
        model: the resources' names.
        by_kubelet: the object is from kubelet's list, whose annotations mark static pods; in the API any author can
            write them.
    """
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    containers = gpu_containers(spec, model)
    if not containers:
        return None
    annotations = metadata.get("annotations") or {}
    uid, node = str(metadata.get("uid", "")), str(spec.get("nodeName") or "")
    policy, bad = _policy(annotations.get(POLICY_ANNOTATION))
    specs = _specs(spec, containers)
    return PodView(
        uid=uid,
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        node=node,
        phase=str(status.get("phase") or "Pending"),
        reason=str(status.get("reason") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        started=str(status.get("startTime") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        containers=containers,
        cards=read_cards(annotations.get(CARDS_ANNOTATION), uid, node),
        policy=policy,
        bad_policy=bad,
        choice=read_choice(annotations),
        driver_capabilities=_driver_capabilities(specs),
        images=_images(specs, status),
        priority=int(spec.get("priority") or 0),
        controlled=any(owner.get("controller") for owner in metadata.get("ownerReferences") or ()),
        kubelet_uid=uid,
        mirrors="" if by_kubelet or not is_mirror(pod) else mirrored_uid(pod) or _NOBODY,
        restarts=(spec.get("restartPolicy") or "Always") == "Always",
        running=_running(status, containers),
        unscheduled="" if node else _unscheduled(status),
        is_static=by_kubelet and annotations.get(_SOURCE_ANNOTATION, "api") != "api",
        nominated="" if node else str(status.get("nominatedNodeName") or ""),
        labels=tuple((sys.intern(key), sys.intern(value)) for key, value in (metadata.get("labels") or {}).items()),
    )


def _specs(spec: Mapping[str, Any], containers: tuple[ContainerRequest, ...]) -> list[Mapping[str, Any]]:
    """Return the GPU containers' parts of a pod's spec."""
    wanted = {container.name for container in containers}
    listed = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return [one for one in listed if one["name"] in wanted]


def _driver_capabilities(specs: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((one["name"], text) for one in specs if (text := capabilities_of(one)))


def _images(specs: Iterable[Mapping[str, Any]], status: Mapping[str, Any]) -> tuple[ContainerImage, ...]:
    told = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    digests = {one.get("name"): str(one.get("imageID") or "").rpartition("@")[2] for one in told}
    return tuple(
        ContainerImage(one["name"], sys.intern(str(one.get("image") or "")), sys.intern(digests.get(one["name"], "")))
        for one in specs
    )


def _running(status: Mapping[str, Any], containers: tuple[ContainerRequest, ...]) -> tuple[tuple[str, str], ...]:
    wanted = {container.name for container in containers}
    listed = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return tuple(
        (str(one["name"]), str(one.get("containerID") or "").rpartition("/")[2])
        for one in listed
        if one.get("name") in wanted and one.get("containerID") and (one.get("state") or {}).get("running") is not None
    )


def _unscheduled(status: Mapping[str, Any]) -> str:
    """Return the message of the condition PodScheduled, or its reason when it has no message (SchedulingGated)."""
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return str(one.get("message") or one.get("reason") or "")
    return ""


def write_cards(uid: str, node: str, cards: Cards) -> str:
    """Return the value of the cards annotation."""
    value = {"v": 1, "uid": uid, "node": node, "c": {name: list(uuids) for name, uuids in cards.items()}}
    return json.dumps(value, separators=(",", ":"))


def read_cards(text: str | None, uid: str, node: str) -> Cards | None:
    """Read a cards annotation; None unless it is complete and for this very pod and node.

    The UID and the node must match, since pod templates copy annotations and authors can write them.
    """
    if not text:
        return None
    try:
        value = json.loads(text)
        if value["v"] != 1 or value["uid"] != uid or not node or value["node"] != node:
            return None
        return {name: _uuids(cards) for name, cards in value["c"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _uuids(value: object) -> tuple[str, ...]:
    """Return a list of strings as a tuple; any other iterable is refused."""
    if not isinstance(value, list) or not all(isinstance(card, str) for card in value):
        raise TypeError("not a list of cards")
    return tuple(value)


_MOST_AMOUNT = (1 << 63) - 1
"""The most that a quantity may be: the API server caps larger ones (apimachinery, resource.Quantity)."""
_QUANTITY = re.compile(r"([0-9]{1,40})(?:([kMGTPE]|[KMGTPE]i)|[eE]([0-9]{1,2}))?")
_FACTORS = {"k": 1000, "Ki": 1024} | {
    letter + binary: (1024 if binary else 1000) ** power
    for power, letter in enumerate("MGTPE", start=2)
    for binary in ("", "i")
}


def whole_amount(value: object) -> int:
    """Read a quantity that is a count: the API server admits whole numbers only, in any of these forms."""
    found = _QUANTITY.fullmatch(str(value or 0))
    if found is None:
        return 0
    digits, suffix, exponent = found.groups()
    factor: int = 10 ** int(exponent) if exponent else _FACTORS.get(suffix, 1)
    return min(int(digits) * factor, _MOST_AMOUNT)


def _policy(text: str | None) -> tuple[Policy | None, str]:
    if text is None:
        return None, ""
    try:
        return parse_policy(text), ""
    except ValueError:
        return None, text
