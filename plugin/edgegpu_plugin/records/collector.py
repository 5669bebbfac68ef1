"""The release of ended pods, whose entries stay in kubelet's checkpoint until kubelet writes it again."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from edgegpu_core.podview import PodView
from edgegpu_plugin.records.node_state import NodeState, Snapshot

_LOG = logging.getLogger(__name__)

MIRROR_S, MIRROR_MOST_S = 1.0, 60.0
"""How long to wait for a static pod's mirror before kubelet is asked again: doubled each time, from first to second."""


KEPT_S = 30.0
"""How long kubelet's list of an ended pod's devices is believed. kubelet 1.22 to 1.24 keeps the devices of the pod that
it admitted last until the next admission begins (`pendingAdmissionPod`), perhaps of a pod that waits for them. It
releases those of other pods once it has ended their sandbox, within a second or two."""


class KubeletFacts(Protocol):
    """Queries about pods that the API does not show as live. None means no answer: then nothing is released."""

    def listed_ids(self) -> frozenset[str] | None:
        """Return the device ids in PodResources; the call makes kubelet release those of ended pods."""

    def known_uids(self) -> frozenset[str] | None:
        """Return the UIDs that kubelet's own pod list or the container runtime still has."""

    def pods(self) -> Sequence[PodView] | None:
        """Return the pods in kubelet's own list that ask for shares."""


class Collector:
    """The release of pods in the ledger as soon as, and not before, kubelet has released their devices."""

    def __init__(
        self, state: NodeState, kubelet_facts: KubeletFacts, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._state = state
        self._kubelet_facts = kubelet_facts
        self._clock = clock
        self._unshown: frozenset[str] = frozenset()
        self._mirror_wait_s = MIRROR_S
        self._ask_at_s = 0.0
        self._released: frozenset[str] = frozenset()
        self._asked_for: frozenset[str] = frozenset()
        self._kept_since: dict[str, float] = {}
        """Ended pods without running containers that kubelet still lists, with the time since when."""
        self._left: set[str] = set()
        """The pods that the API, kubelet and the runtime no longer have, and whose devices kubelet does not list."""

    def learn(self) -> None:
        """Ask kubelet about pods in its checkpoint that our watch has not shown, once for each set of such pods.

        Such a pod may have got the card of a twin that waits. Until the pod is known, the twin's promise cannot be
        corrected, and a report would show a held card as free. While the mirror of a static pod is missing, perhaps
        for ever, kubelet is asked at growing intervals, since its answer is the list of all pods.
        """
        known = self._state.snapshot().pods
        unknown = frozenset(uid for uid in self._state.booked() if uid not in known)
        if not unknown <= self._asked_for or self._is_mirror_late():
            pods = self._kubelet_facts.pods()
            if pods is not None:
                self._state.learn_pods(pods)
        self._asked_for = unknown

    def _is_mirror_late(self) -> bool:
        unshown, now_s = self._state.unshown(), self._clock()
        if unshown != self._unshown:
            self._unshown, self._mirror_wait_s, self._ask_at_s = unshown, MIRROR_S, now_s
        if not unshown or now_s < self._ask_at_s:
            return False
        self._ask_at_s = now_s + self._mirror_wait_s
        self._mirror_wait_s = min(2 * self._mirror_wait_s, MIRROR_MOST_S)
        return True

    def collect(self) -> bool:
        """Release pods once, and return whether a pod is left that has ended and still holds devices.

        A pod in a terminal phase is released when PodResources no longer shows its ids, or has shown only this ended
        pod's for `KEPT_S` after its last container ended. A pod that is gone from the API (also by a forced deletion)
        must have left kubelet's pod list and the container runtime as well: its container may run on, and PodResources
        hides init containers. That is asked once: a pod that is gone does not come back, and the checkpoint may show
        it for days.
        """
        snapshot = self._state.snapshot()
        doubtful = self._ended_holders(snapshot)
        if not snapshot.checkpoint_read:  # it may have entries by now that we have not read
            return bool(doubtful)
        if not doubtful:
            self._left = set()
            self._settle(frozenset())
            return False
        listed = self._kubelet_facts.listed_ids()
        gone = {uid for uid, pod in doubtful.items() if pod is None}
        known = self._kubelet_facts.known_uids() if gone - self._left else frozenset[str]()
        if listed is None:
            return True
        held = {entry.pod_uid for entry in self._state.recorded() if not listed.isdisjoint(entry.device_ids)}
        left = gone & self._left if known is None else gone - known
        self._left = left - held
        held -= self._kept({uid: pod for uid, pod in doubtful.items() if pod is not None and uid in held})
        released = frozenset(uid for uid in doubtful.keys() - held if uid not in gone or uid in left)
        self._settle(released)
        return len(released) < len(doubtful)

    def _kept(self, ended: Mapping[str, PodView]) -> frozenset[str]:
        """Return the pod that kubelet still lists only because it has admitted no other pod since."""
        now_s = self._clock()
        still = {uid for uid, pod in ended.items() if not pod.running}
        self._kept_since = {uid: self._kept_since.get(uid, now_s) for uid in still}
        if len(ended) > 1:  # only one was admitted last: kubelet keeps these for another reason
            return frozenset()
        return frozenset(uid for uid, since_s in self._kept_since.items() if now_s - since_s >= KEPT_S)

    def _ended_holders(self, snapshot: Snapshot) -> Mapping[str, PodView | None]:
        found: dict[str, PodView | None] = {}
        for entry in self._state.recorded():
            pod = snapshot.pods.get(entry.pod_uid)
            if entry.resource in {snapshot.view.model.memory_resource, snapshot.view.model.core_resource} and (
                pod is None or pod.is_terminal
            ):
                found[entry.pod_uid] = pod
        return found

    def _settle(self, released: frozenset[str]) -> None:
        for uid in released - self._released:
            _LOG.info("pod %s let go of its devices", uid)
        self._released = released
        self._state.set_released(released)
