"""What the checker reads: kubelet's device checkpoint and pods of the API, by parsers of its own.

Nothing here imports the product: a mistake that both shared would be seen by neither.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MEMORY, CORE = "baidu.com/vcuda-memory", "baidu.com/vcuda-core"
CARDS_ANNOTATION = "edgegpu.io/cards"
INIT, SIDECAR, APP = "init", "sidecar", "app"
ENDED = frozenset({"Succeeded", "Failed"})


class RecordError(ValueError):
    """A record has another form than Kubernetes documents; the text says which."""


@dataclass(frozen=True, slots=True)
class Booking:
    """The device ids that kubelet has booked for one container; `pod` is a UID, of PodResources NAMESPACE/NAME."""

    pod: str
    container: str
    memory: frozenset[str] = frozenset()
    core: frozenset[str] = frozenset()

    @property
    def ids(self) -> frozenset[str]:
        return self.memory | self.core

    @property
    def cards(self) -> frozenset[str]:
        return frozenset(card_of_id(text) for text in self.ids)


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """A container that asks for a share; `kind`: init, sidecar or app."""

    name: str
    memory: int
    core: int
    kind: str = APP


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """A pod of the API, as far as shares go; `node` is empty while it is not bound."""

    uid: str
    name: str
    namespace: str = "churn"
    node: str = ""
    phase: str = "Pending"
    reason: str = ""
    running: bool = False
    """Whether it is Running with all of its containers ready."""
    started: Mapping[str, str] = field(default_factory=dict)
    """By name the last container that was started, as the runtime names it; the API may say it long after its end."""
    deleting: bool = False
    owner: str = ""
    """The UID of its controller."""
    owner_kind: str = ""
    app: str = ""
    """The workload that it is of, by its label."""
    containers: tuple[ContainerRecord, ...] = ()
    cards: Mapping[str, frozenset[str]] | None = None
    """By container, what its annotation says; None where there is none for this pod and node, or it cannot be read."""

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def runs(self) -> bool:
        """Whether it runs, or has done its work."""
        return self.running or self.phase == "Succeeded"

    @property
    def text(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid[:8]})"


@dataclass(frozen=True, slots=True)
class Failure:
    """A pod that kubelet refused at admission, and why; `pod` is its UID."""

    pod: str
    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What all sources said at one moment; None of a source: it did not answer."""

    at_s: float
    pods: tuple[PodRecord, ...] | None = None
    """Read before the others."""
    bookings: tuple[Booking, ...] | None = None
    """Of the checkpoint, which is one file that kubelet replaces: one moment."""
    listed: tuple[Booking, ...] | None = None
    """Of PodResources."""
    failures: tuple[Failure, ...] = ()
    allocatable: tuple[int, int] | None = None
    """Memory and core that the Node says it has."""
    out: frozenset[str] = field(default_factory=frozenset)
    """Cards that a fault has taken away, or that were so a moment ago."""
    wanted: Mapping[str, int] = field(default_factory=dict)
    """How many pods each workload is to have at this moment; one that is deleted, or was just changed, is left out."""


def card_of_id(text: str) -> str:
    """Return the card that a device id names, by the documented form of ids."""
    return text.split("::", 1)[0]


def read_checkpoint(text: str | bytes) -> tuple[Booking, ...]:
    """Read kubelet's device checkpoint.

    Raises:
        RecordError: it has another form.
    """
    ids: defaultdict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: {MEMORY: set(), CORE: set()})
    try:
        for entry in json.loads(text)["Data"]["PodDeviceEntries"] or []:
            if entry["ResourceName"] in {MEMORY, CORE}:
                by_numa: dict[str, list[str] | None] = entry["DeviceIDs"]
                booked = ids[entry["PodUID"], entry["ContainerName"]][entry["ResourceName"]]
                booked.update(text for some in by_numa.values() for text in some or [])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"cannot read the checkpoint: {error!r}") from error
    return tuple(
        Booking(pod, container, frozenset(both[MEMORY]), frozenset(both[CORE]))
        for (pod, container), both in ids.items()
    )


def merge(parts: Iterable[tuple[str, str, str, Iterable[str]]]) -> tuple[Booking, ...]:
    """Return a booking for each container, from parts of pod, container, resource and ids."""
    ids: defaultdict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: {MEMORY: set(), CORE: set()})
    for pod, container, resource, some in parts:
        if resource in {MEMORY, CORE}:
            ids[pod, container][resource].update(some)
    return tuple(
        Booking(pod, container, frozenset(both[MEMORY]), frozenset(both[CORE]))
        for (pod, container), both in ids.items()
    )


def read_pod(value: Mapping[str, Any]) -> PodRecord:
    """Read a pod of the API."""
    metadata, spec, status = value["metadata"], value["spec"], value.get("status") or {}
    owners: list[dict[str, str]] = metadata.get("ownerReferences") or []
    owner = next((reference for reference in owners if reference.get("controller")), {})
    statuses = status.get("containerStatuses") or []
    uid, node = metadata["uid"], spec.get("nodeName") or ""
    return PodRecord(
        uid=uid,
        name=metadata["name"],
        namespace=metadata["namespace"],
        node=node,
        phase=status.get("phase") or "Pending",
        reason=status.get("reason") or "",
        running=status.get("phase") == "Running"
        and len(statuses) == len(spec["containers"])
        and all(entry.get("ready") for entry in statuses),
        started=dict(_started(status)),
        deleting="deletionTimestamp" in metadata,
        owner=owner.get("uid", ""),
        owner_kind=owner.get("kind", ""),
        app=(metadata.get("labels") or {}).get("app", ""),
        containers=tuple(_containers(spec)),
        cards=_cards((metadata.get("annotations") or {}).get(CARDS_ANNOTATION), uid, node),
    )


def _started(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for statuses in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(statuses) or ():
            if container.get("containerID"):
                yield container["name"], container["containerID"]


def _containers(spec: Mapping[str, Any]) -> Iterable[ContainerRecord]:
    for place, kind in (("initContainers", INIT), ("containers", APP)):
        for container in spec.get(place) or ():
            limits = (container.get("resources") or {}).get("limits") or {}
            memory, core = quantity(limits.get(MEMORY)), quantity(limits.get(CORE))
            if memory or core:
                stays = kind == INIT and container.get("restartPolicy") == "Always"
                yield ContainerRecord(container["name"], memory, core, SIDECAR if stays else kind)


def quantity(value: object) -> int:
    """Read a count as the API server writes it: `250`, `1k`."""
    text = str(value or 0)
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


def _cards(text: str | None, uid: str, node: str) -> Mapping[str, frozenset[str]] | None:
    try:
        value = json.loads(text or "{}")
        if value.get("uid") != uid or value.get("node") != node or not node:
            return None
        return {name: frozenset(cards) for name, cards in value["c"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
