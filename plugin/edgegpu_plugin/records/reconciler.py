"""The reconciler: releases devices, keeps report and annotations in step, handles refused, lost and dead pods."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from edgegpu_base.kube import KubeError, Unavailable
from edgegpu_core import reasons
from edgegpu_core.admission import admission_verdict, would_fit
from edgegpu_core.nodeview import NodeView, is_complete
from edgegpu_core.podview import CARDS_ANNOTATION, PodView, write_cards
from edgegpu_plugin.records.collector import Collector
from edgegpu_plugin.records.node_state import NodeState, PodNote, Snapshot
from edgegpu_plugin.records.publisher import Publisher

_LOG = logging.getLogger(__name__)

IDLE_S = 5.0
"""How often the records are compared when nothing happens."""

EAGER_S = 0.25
"""How often kubelet is asked again while a pod has ended and its devices are still booked."""

EAGER_FOR_S, PATIENT_S = 60.0, 1.0
"""For how long kubelet is asked so often, and how often then: a container may outlive a pod deleted by force."""

GATHER_S = 0.02
"""How long changes are gathered before a step: kubelet's calls for one container come within milliseconds, and the
reconciler shall not run beside them."""

RETRY_S = 1.0
"""How long to wait after a failed write to the API."""

_HELD = "until it goes, nobody else can have its devices; without nodeName in its template it would wait and hold none"
_HELD_BARE = "until it is deleted, nobody else can have its devices"
_REMEDY_BARE = "there is room now, but it has no controller that would make it again: delete it and create it again"
_REMEDY_STATIC = "there is room now: move its file out of the static pod folder and back to place it anew"

UNRECORDED_S = 5.0
"""How long kubelet must have no record of a live container before that is said: a pod that ends is dropped from
kubelet's record a moment before, or after, the API shows its end."""

_UNEXPECTED, _OUT_OF = "UnexpectedAdmissionError", "OutOf"


class PodWriter(Protocol):
    """Writes to pods of this node; each method may raise KubeError."""

    def annotate(self, pod: PodView, annotations: dict[str, str]) -> None:
        """Write annotations of the pod with this UID."""

    def evict(self, pod: PodView) -> None:
        """Evict the pod; a disruption budget may refuse that."""

    def delete(self, pod: PodView) -> None:
        """Delete the pod with this UID."""

    def warn(self, pod: PodView, reason: str, message: str) -> None:
        """Write a Warning event on the pod; a repeated one only raises its count."""


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """A pod that may not start where it is, whose card is gone, or that runs without it, and why."""

    pod: PodView
    reason: str
    card_missing: bool = False
    container: str = ""
    """The container in question; empty for the whole pod."""


@dataclass(eq=False, slots=True, kw_only=True)
class Reconciler:
    """The reconciler: `step` compares and repairs once, `run` does so at every change and every few seconds."""

    state: NodeState
    collector: Collector
    publisher: Publisher
    pods: PodWriter
    synced: Callable[[], bool]
    beat: Callable[[], None]
    missing_s: float
    """How long a pod waits for a card that is gone or not offered."""
    find_cardless: Callable[[Snapshot], tuple[RefusedPod, ...]] = lambda _: ()
    find_notes: Callable[[Snapshot], Iterable[PodNote]] = lambda _: ()
    """Finds what pods should get otherwise, as what they ask of the driver and do not get."""
    changed: Callable[[], None] = lambda: None
    """Called after a step that a change of the state has led to."""
    look_at_images: Callable[[Snapshot], None] = lambda _: None
    """Looks at the images of containers that have started since the last step."""
    clean_containers: Callable[[], None] = lambda: None
    """Removes what was made for containers that are gone."""
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _missing_since: dict[str, float] = field(default_factory=dict, init=False)
    _lost_since: dict[str, float] = field(default_factory=dict, init=False)
    _held_since: float | None = field(default=None, init=False)
    _given_up: dict[str, str] = field(default_factory=dict, init=False)
    refused: tuple[RefusedPod, ...] = field(default=(), init=False)
    lost: tuple[RefusedPod, ...] = field(default=(), init=False)
    """Pods whose card is gone, also running ones."""
    cardless: tuple[RefusedPod, ...] = field(default=(), init=False)
    """Containers that run without the cards that they were given."""
    unrecorded: tuple[RefusedPod, ...] = field(default=(), init=False)
    """Containers that run, and of whose devices kubelet has no record."""
    _unrecorded_since: dict[tuple[str, str], float] = field(default_factory=dict, init=False)
    last_error: str = field(default="", init=False)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Reconcile until `stopping` returns true; the state's `changed` wakes the worker."""
        woken = True
        while not stopping():
            self.state.changed.clear()
            wait_s = self.step()
            if woken:
                self.changed()
            self.beat()
            woken = self.state.changed.wait(wait_s)
            if woken:
                self.pause(GATHER_S)

    def step(self) -> float:
        """Compare and repair once, and return how many seconds the next step may wait."""
        waits = [IDLE_S]
        if not self.synced():  # a pod that the watch has not shown yet must not count as gone
            self.collector.learn_names()
            return EAGER_S
        try:
            self.collector.learn()
            waits.append(self._collect())
            self.beat()  # a call to a silent API server may take as long as the watchdog allows
            snapshot = self.state.snapshot()
            self.look_at_images(snapshot)
            if snapshot.view.slots:
                self.publisher.publish(snapshot)
                if self.publisher.wait_s is not None:
                    waits.append(self.publisher.wait_s)
            self._adopt(snapshot)
            self._correct(self.state.snapshot())
            waits.append(self._handle_lost(self.state.snapshot()))
            self._handle_refused(self.state.snapshot())
            self._handle_cardless(self.state.snapshot())
            self._handle_unrecorded(self.state.snapshot())
            self._warn_of_faults(self.state.snapshot())
            for note in self.find_notes(self.state.snapshot()):
                self.pods.warn(note.pod, note.reason, f"container {note.container}: {note.text}")
            self._delete_dead_pods(snapshot)
            self.clean_containers()
        except (KubeError, OSError) as error:
            if str(error) != self.last_error:
                _LOG.warning("cannot keep the cluster's records in step: %s; trying again", error)
            self.last_error = str(error)
            return min(RETRY_S, *waits)
        self.last_error = ""
        return min(waits)

    def _collect(self) -> float:
        """Release ended pods, and return how many seconds the next step may wait."""
        if not self.collector.collect():
            self._held_since = None
            return IDLE_S
        now_s = self.clock()
        self._held_since = now_s if self._held_since is None else self._held_since
        return EAGER_S if now_s - self._held_since < EAGER_FOR_S else PATIENT_S

    def _adopt(self, snapshot: Snapshot) -> None:
        """Promise admitted pods without a placement the cards that they have.

        Whose the devices are is a guess until kubelet has written them: a twin would be promised what another got, and
        the other would be refused at its start.
        """
        view = snapshot.view
        for uid in view.pods.keys() - snapshot.unwritten:
            pod = view.pods[uid]
            for container in pod.containers:
                promised = view.promises.get(uid, {}).get(container.name)
                if promised is None and is_complete(container, view.ledger.grant(uid, container.name)):
                    verdict = admission_verdict(pod, container, view)
                    if verdict.admitted:
                        self.state.admit(uid, container.name, verdict.cards)

    def _correct(self, snapshot: Snapshot) -> None:
        """Correct the cards annotation of pods that got other cards than promised.

        Also of a pod that is ending: its devices are booked until kubelet has let go of them, and people read there
        whose they are, as an extender does where the node's report is missing.
        """
        view = snapshot.view
        for uid, pod in view.pods.items():
            promise = view.promises.get(uid)
            if promise and promise != pod.cards:
                text = write_cards(pod.uid, pod.node, promise)
                if self._given_up.get(uid) == text:
                    continue
                _LOG.info("%s: annotation corrected to %s", pod.full_name, promise)
                try:
                    self.pods.annotate(pod, {CARDS_ANNOTATION: text})
                except Unavailable:
                    raise
                except KubeError as error:
                    _LOG.warning("cannot annotate %s: %s", pod.full_name, error)
                    self._given_up[uid] = text
        self._given_up = {uid: text for uid, text in self._given_up.items() if uid in view.pods}

    def _handle_lost(self, snapshot: Snapshot) -> float:
        """Write events for pods whose card is gone; evict a pod with a controller when the card stays away.

        kubelet leaves such a pod running, and the scheduler counts its request against the cards that are left. The
        eviction does not depend on room elsewhere. Returns how many seconds the next step may wait.
        """
        wait_s = IDLE_S
        self.lost = _lost(snapshot, self.missing_s)
        now_s = self.clock()
        self._lost_since = {one.pod.uid: self._lost_since.get(one.pod.uid, now_s) for one in self.lost}
        for one in self.lost:
            self.pods.warn(one.pod, "GPUCardGone", one.reason)
            left_s = self._lost_since[one.pod.uid] + self.missing_s - now_s
            if one.pod.controlled and not one.pod.is_static and left_s <= 0:
                _LOG.info("%s is evicted: its card is gone", one.pod.full_name)
                gone_for = reasons.duration(self.missing_s)
                self.pods.warn(one.pod, "GPUEvicted", f"its card has been gone for {gone_for}")
                self.pods.evict(one.pod)
            elif left_s > 0:
                wait_s = min(wait_s, left_s)
        return wait_s

    def _handle_refused(self, snapshot: Snapshot) -> None:
        """Write events for pods that may not start; evict one once it would fit anew, since its devices are frozen.

        Only a pod with a controller is evicted: a bare one would not be made again, and a static one keeps its devices.
        Only containers with all their devices are judged: between its two calls a container is not sound for a moment.
        """
        view = snapshot.view
        lost = {one.pod.uid for one in self.lost}
        refused = _refused(view) if view.slots else ()  # without cards no pod can be judged
        self.refused = tuple(one for one in refused if one.pod.uid not in lost)
        now_s = self.clock()
        missing = [one.pod.uid for one in self.refused if one.card_missing]
        self._missing_since = {uid: self._missing_since.get(uid, now_s) for uid in missing}
        for one in self.refused:
            pod = one.pod
            may_come = one.card_missing and now_s - self._missing_since[pod.uid] < self.missing_s
            if may_come or not would_fit(pod, view):
                held = "" if one.card_missing else f"; {_HELD if pod.controlled else _HELD_BARE}"
                self.pods.warn(pod, "GPURefused", one.reason + held)
            elif pod.is_static:
                self.pods.warn(pod, "GPURefused", f"{one.reason}; {_REMEDY_STATIC}")
            elif not pod.controlled:
                self.pods.warn(pod, "GPURefused", f"{one.reason}; {_REMEDY_BARE}")
            else:
                _LOG.info("%s is evicted, since there is room for it now: %s", pod.full_name, one.reason)
                self.pods.warn(pod, "GPUEvicted", f"it could not start, and there is room for it now: {one.reason}")
                self.pods.evict(pod)

    def _handle_cardless(self, snapshot: Snapshot) -> None:
        """Write events for containers that run without their cards, because the injection failed."""
        lost = {one.pod.uid for one in self.lost}
        self.cardless = tuple(one for one in self.find_cardless(snapshot) if one.pod.uid not in lost)
        for one in self.cardless:
            self.pods.warn(one.pod, "GPUMissing", one.reason)

    def _handle_unrecorded(self, snapshot: Snapshot) -> None:
        """Write events for containers that kubelet has lost its record of: they run on, and nothing of theirs goes."""
        now_s, since = self.clock(), self._unrecorded_since
        self._unrecorded_since = {key: since.get(key, now_s) for key in snapshot.unrecorded}
        self.unrecorded = tuple(
            RefusedPod(
                pod, reasons.unrecorded(name, controlled=pod.controlled, is_static=pod.is_static), container=name
            )
            for (uid, name), since_s in self._unrecorded_since.items()
            if now_s - since_s >= UNRECORDED_S and not (pod := snapshot.view.pods[uid]).deleting
        )
        for one in self.unrecorded:
            self.pods.warn(one.pod, "GPUUnrecorded", one.reason)

    def _warn_of_faults(self, snapshot: Snapshot) -> None:
        """Write events for pods with a share of a card that is there and out of order: they stay, nothing new comes."""
        for uid, pod in snapshot.view.pods.items():
            held = {card for grant in snapshot.view.ledger.grants(uid).values() for card in grant.cards()}
            for card in (snapshot.cards[uuid] for uuid in sorted(held & snapshot.cards.keys())):
                if card.answers and card.problem and not pod.deleting:
                    self.pods.warn(pod, "GPUFault", f"card {card.label} is out of order: {card.problem}")

    def _delete_dead_pods(self, snapshot: Snapshot) -> None:
        """Delete pods that died at admission and whose controller has made new ones, with an event.

        A pod that ran when a new kubelet refused it is not `Failed`: kubelet ends it, and if it obeys TERM it
        has "Succeeded", without a reason (seen on 1.33). A pod with restartPolicy Always succeeds in no other way.
        """
        names = (snapshot.view.model.memory_resource, snapshot.view.model.core_resource)
        reasons = {_UNEXPECTED, *(_OUT_OF + name for name in names)}
        for pod in snapshot.pods.values():
            died = pod.phase == "Failed" and pod.reason in reasons
            ended = pod.phase == "Succeeded" and pod.restarts
            if (died or ended) and pod.controlled and not pod.deleting:
                why = pod.reason or "ended by a new kubelet that did not admit it"
                _LOG.info("%s died at admission (%s): deleted, its controller makes a new one", pod.full_name, why)
                self.pods.warn(pod, "GPUAdmissionFailed", f"died at admission ({why}); deleted by edgegpu")
                self.pods.delete(pod)


def _lost(snapshot: Snapshot, wait_s: float) -> tuple[RefusedPod, ...]:
    found: list[RefusedPod] = []
    for uid, pod in snapshot.view.pods.items():
        cards = () if pod.deleting else snapshot.gone_cards(uid)
        if cards:
            reason = reasons.card_gone(cards, wait_s=wait_s, controlled=pod.controlled, is_static=pod.is_static)
            found.append(RefusedPod(pod, reason, card_missing=True))
    return tuple(found)


def _refused(view: NodeView) -> tuple[RefusedPod, ...]:
    found: list[RefusedPod] = []
    for uid, pod in view.pods.items():
        if pod.phase != "Pending" or pod.deleting:
            continue
        complete = [c for c in pod.containers if is_complete(c, view.ledger.grant(uid, c.name))]
        verdicts = [verdict for c in complete if not (verdict := admission_verdict(pod, c, view)).admitted]
        if verdicts:
            found.append(RefusedPod(pod, verdicts[0].reason, any(verdict.card_missing for verdict in verdicts)))
    return tuple(found)
