"""The queue of pods that wait for a node: when each is tried again, and which events bring refused ones back."""

from dataclasses import dataclass
from typing import Any

from edgegpu_sim.api import Json, StoreEvent

_TERMINAL = {"Succeeded", "Failed"}


@dataclass(slots=True)
class QueuedPod:
    """One pod in the queue with its attempts; a parked pod waits for an event of the cluster."""

    attempts: int = 0
    tried_s: float = 0.0
    parked: bool = False
    by_extender: bool = False


@dataclass(frozen=True, slots=True)
class AttemptBackoff:
    """The time between attempts: it doubles from `first_s` to `most_s`; parked pods are tried after `flush_s`."""

    first_s: float = 0.05
    most_s: float = 1.0
    flush_s: float = 300.0

    def due_s(self, waiting: QueuedPod) -> float:
        """Return the time at which a pod is tried again."""
        if not waiting.attempts:
            return 0.0
        wait_s = min(self.first_s * 2.0 ** (waiting.attempts - 1), self.most_s)
        return waiting.tried_s + (self.flush_s if waiting.parked else wait_s)


def frees_or_adds(change: StoreEvent) -> bool:
    """Return whether after a write kube-scheduler tries pods again that lacked a node's resources."""
    if change.resource == "nodes":
        return change.gone or change.old is None or _offer(change.old) != _offer(change.new)
    if change.resource != "pods" or not _is_placed(change.old):
        return False
    return change.gone or _has_ended(change.new) > _has_ended(change.old)


def is_any_event(change: StoreEvent) -> bool:
    """Return whether a write brings back pods that an extender refused: every event does, also a node's annotation."""
    if change.resource == "pods" and _is_placed(change.new) and not _is_placed(change.old):
        return True
    return frees_or_adds(change)


def _offer(node: Json) -> tuple[Any, ...]:
    metadata, status = node["metadata"], node.get("status") or {}
    ready = [(c["type"], c["status"]) for c in status.get("conditions") or ()]
    return metadata.get("annotations"), metadata.get("labels"), node.get("spec"), status.get("allocatable"), ready


def _is_placed(pod: Json | None) -> bool:
    return pod is not None and bool(pod["spec"].get("nodeName"))


def _has_ended(pod: Json | None) -> bool:
    return pod is not None and pod["status"].get("phase") in _TERMINAL
