"""The scheduling loop: one pod at a time, bindings in parallel, failures in kube-scheduler's words."""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgegpu_sim.api import ApiError, Json, Registry
from edgegpu_sim.api.objects import now_text
from edgegpu_sim.api.podrules import with_condition
from edgegpu_sim.scheduler.extender import ExtenderCallError, ExtenderClient, ExtenderSettings
from edgegpu_sim.scheduler.fit import NodeRefusal, NodeUse, message, refusal, uses
from edgegpu_sim.scheduler.queue import AttemptBackoff, QueuedPod, frees_or_adds, is_any_event

_NAME = "default-scheduler"
_TERMINAL = {"Succeeded", "Failed"}
_LOOK_S = 0.5
_DOWN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The scheduler's configuration."""

    extender: ExtenderSettings | None = None
    backoff: AttemptBackoff = field(default_factory=AttemptBackoff)
    preemption: bool = True
    """Whether events end with the result of preemption, as they do by default."""


class SimScheduler:
    """The simulated scheduler, which binds pods to nodes until it is stopped."""

    def __init__(self, settings: SchedulerSettings, *, registry: Registry, order: random.Random) -> None:
        self._settings = settings
        self._registry = registry
        self._order = order
        self._extender = ExtenderClient(settings.extender) if settings.extender else None
        self._lock = threading.Lock()
        self._waiting: dict[str, QueuedPod] = {}
        self._assumed: dict[str, tuple[str, Json]] = {}
        self._binders: list[threading.Thread] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the scheduler and wait for bindings in progress."""
        self._stop.set()
        self._registry.store.wake()
        self._thread.join()
        for binder in self._binders:
            binder.join()
        if self._extender is not None:
            self._extender.close()

    def parked(self) -> int:
        """Return how many pods wait for an event of the cluster."""
        with self._lock:
            return sum(waiting.parked for waiting in self._waiting.values())

    def _run(self) -> None:
        version = seen = 0
        while not self._stop.is_set():
            try:
                version = self._registry.store.version
                self._bring_back(seen)
                seen = version
                due_s = self._round()
            except ApiError:
                self._stop.wait(_DOWN_S)
                continue
            wait_s = max(0.0, min(due_s - time.monotonic(), _LOOK_S))
            self._registry.store.wait(version, wait_s, self._stop.is_set)

    def _bring_back(self, since: int) -> None:
        try:
            changes = self._registry.changes(since)
        except ApiError as error:
            if error.reason != "Expired":
                raise
            self._unpark(any_event=True, freed=True)
            return
        freed = any(frees_or_adds(change) for change in changes)
        self._unpark(any_event=freed or any(is_any_event(change) for change in changes), freed=freed)

    def _unpark(self, *, any_event: bool, freed: bool) -> None:
        with self._lock:
            for waiting in self._waiting.values():
                if freed or (any_event and waiting.by_extender):
                    waiting.parked = False

    def _round(self) -> float:
        """Try every pod that is due; return when the next one is due."""
        pods = self._registry.items("pods")
        with self._lock:
            known = {pod["metadata"]["uid"]: pod for pod in pods}
            self._assumed = {
                uid: pair
                for uid, pair in self._assumed.items()
                if uid in known and not known[uid]["spec"].get("nodeName")
            }
            pending = [pod for uid, pod in known.items() if uid not in self._assumed and _is_ours(pod)]
            self._waiting = {
                p["metadata"]["uid"]: self._waiting.get(p["metadata"]["uid"], QueuedPod()) for p in pending
            }
            backoff, waiting = self._settings.backoff, self._waiting
            now_s = time.monotonic()
            due = [pod for pod in pending if backoff.due_s(waiting[pod["metadata"]["uid"]]) <= now_s]
        self._binders = [binder for binder in self._binders if binder.is_alive()]
        for pod in sorted(due, key=_rank):
            if not self._stop.is_set():
                self._try(pod)
        with self._lock:
            return min((backoff.due_s(waiting) for waiting in self._waiting.values()), default=now_s + _LOOK_S)

    def _try(self, pod: Json) -> None:
        nodes = self._registry.items("nodes")
        used = self._uses()
        refusals: dict[str, NodeRefusal] = {}
        for node in nodes:
            name = node["metadata"]["name"]
            why = refusal(pod, node, used.get(name, NodeUse()))
            if why is not None:
                refusals[name] = why
        feasible = [n["metadata"]["name"] for n in nodes if n["metadata"]["name"] not in refusals]
        extender = self._extender if self._extender is not None and self._extender.interested(pod) else None
        by_extender = False
        try:
            if extender is not None and feasible:
                kept, more = self._ask(extender, pod, feasible)
                by_extender, feasible = len(kept) < len(feasible), kept
                refusals.update(more)
            chosen = self._choose(extender, pod, feasible)
        except ExtenderCallError as error:
            self._failed(pod, "SchedulerError", str(error))
            return
        if chosen is None:
            text = message(refusals, nodes=len(nodes), preemption=self._settings.preemption)
            self._failed(
                pod, "Unschedulable", text if nodes else "no nodes available to schedule pods", by_extender=by_extender
            )
            return
        self._assume(extender, pod, chosen)

    def _ask(
        self, extender: ExtenderClient, pod: Json, feasible: Sequence[str]
    ) -> tuple[list[str], Mapping[str, NodeRefusal]]:
        try:
            answer = extender.filter(pod, feasible)
        except ExtenderCallError:
            if extender.settings.ignorable:
                return list(feasible), {}
            raise
        return list(answer.nodes), answer.refusals

    def _choose(self, extender: ExtenderClient | None, pod: Json, feasible: Sequence[str]) -> str | None:
        """Return the best node; the extender is asked only when there is a choice."""
        if len(feasible) < 2:  # noqa: PLR2004  (a choice needs two)
            return feasible[0] if feasible else None
        scores = extender.scores(pod, feasible) if extender is not None else {}
        best = max(scores.get(name, 0) for name in feasible)
        return self._order.choice([name for name in feasible if scores.get(name, 0) == best])

    def _uses(self) -> dict[str, NodeUse]:
        pods = [p for p in self._registry.items("pods") if p["status"].get("phase") not in _TERMINAL]
        placed = [(p["spec"]["nodeName"], p) for p in pods if p["spec"].get("nodeName")]
        known = {p["metadata"]["uid"] for _, p in placed}
        with self._lock:
            return uses([*placed, *(pair for uid, pair in self._assumed.items() if uid not in known)])

    def _assume(self, extender: ExtenderClient | None, pod: Json, node: str) -> None:
        with self._lock:
            self._assumed[pod["metadata"]["uid"]] = (node, pod)
        binder = threading.Thread(target=self._bind, args=(extender, pod, node), name="binder")
        self._binders.append(binder)
        binder.start()

    def _bind(self, extender: ExtenderClient | None, pod: Json, node: str) -> None:
        metadata = pod["metadata"]
        try:
            if extender is not None:
                self._bind_by(extender, pod, node)
            else:
                self._bind_self(pod, node)
        except (ExtenderCallError, ApiError) as error:
            with self._lock:
                self._assumed.pop(metadata["uid"], None)
            self._failed(pod, "SchedulerError", f"binding rejected: {error}")
            self._unpark(any_event=True, freed=True)
            return
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self._event(pod, "Scheduled", text, kind="Normal")

    def _bind_by(self, extender: ExtenderClient, pod: Json, node: str) -> None:
        try:
            extender.bind(pod, node)
        except ExtenderCallError:
            if not extender.settings.ignorable:
                raise
            self._bind_self(pod, node)

    def _bind_self(self, pod: Json, node: str) -> None:
        metadata = pod["metadata"]
        named = {"name": metadata["name"], "uid": metadata["uid"]}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        self._registry.bind(metadata["namespace"], metadata["name"], {"metadata": named, "target": target})

    def _failed(self, pod: Json, reason: str, text: str, *, by_extender: bool = False) -> None:
        metadata = pod["metadata"]
        with self._lock:
            waiting = self._waiting.setdefault(metadata["uid"], QueuedPod())
            waiting.attempts, waiting.tried_s = waiting.attempts + 1, time.monotonic()
            # A pod with an error is tried again by itself; a pod that did not fit waits for an event.
            waiting.parked, waiting.by_extender = reason == "Unschedulable", by_extender
        self._event(pod, "FailedScheduling", text, kind="Warning")
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": text}
        try:
            current = self._registry.get("pods", metadata["namespace"], metadata["name"])
            conditions = current["status"].get("conditions") or ()
            old: Json = next((c for c in conditions if c["type"] == "PodScheduled"), {})
            if {**old, "lastTransitionTime": ""} == {**condition, "lastTransitionTime": ""}:
                return
            stamped = {**condition, "lastTransitionTime": now_text()}
            change = {"metadata": {"uid": metadata["uid"]}}
            status = {"conditions": with_condition(current["status"], stamped)}
            self._registry.patch(
                "pods", metadata["namespace"], metadata["name"], {**change, "status": status}, sub="status"
            )
        except ApiError:
            return  # the pod is gone or the API is down: the next attempt will show which

    def _event(self, pod: Json, reason: str, text: str, *, kind: str) -> None:
        try:
            self._registry.event(pod, reason=reason, message=text, kind=kind, source=_NAME)
        except ApiError:
            return


def _is_ours(pod: Json) -> bool:
    spec, metadata = pod["spec"], pod["metadata"]
    return not (
        spec.get("nodeName")
        or metadata.get("deletionTimestamp")
        or spec.get("schedulerName", _NAME) != _NAME
        or pod["status"].get("phase") in _TERMINAL
    )


def _rank(pod: Json) -> tuple[int, str, int]:
    metadata = pod["metadata"]
    return -int(pod["spec"].get("priority") or 0), metadata["creationTimestamp"], int(metadata["resourceVersion"])
