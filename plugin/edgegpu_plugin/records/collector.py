"""The release of ended pods, whose entries stay in kubelet's checkpoint until kubelet writes it again."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from edgegpu_core.podview import PodView
from edgegpu_plugin.records.node_state import NodeState, PodName, Snapshot

_LOG = logging.getLogger(__name__)

ASK_S, ASK_MOST_S = 1.0, 60.0
"""How long to wait before kubelet is asked again about the same pods: doubled each time, from first to second."""


FOLDER_S = 60.0
"""How long kubelet keeps the folder of a pod, and lists the pod no more, before that pod counts as gone all the same.

A kubelet that has just started does not list static pods before it has read their files, and removes no folder before
that. Where something keeps it from removing one, it goes on to answer without the pod.
"""

KEPT_S = 30.0
"""How long kubelet's list of an ended pod's devices is believed. kubelet 1.22 to 1.24 keeps the devices of the pod that
it admitted last until the next admission begins (`pendingAdmissionPod`), perhaps of a pod that waits for them. It
releases those of other pods once it has ended their sandbox, within a second or two."""


class _Intervals:
    """The intervals at which kubelet is asked about some pods: at once when they are others, then ever more seldom."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._subject: frozenset[str] = frozenset()
        self._wait_s, self._ask_at_s = ASK_S, 0.0

    def is_due(self, subject: frozenset[str]) -> bool:
        """Return whether to ask about these pods now; then the next time is later."""
        now_s = self._clock()
        if not subject <= self._subject:
            self._wait_s, self._ask_at_s = ASK_S, now_s
        self._subject = subject
        if not subject or now_s < self._ask_at_s:
            return False
        self._ask_at_s = now_s + self._wait_s
        self._wait_s = min(2 * self._wait_s, ASK_MOST_S)
        return True


class KubeletFacts(Protocol):
    """Queries about pods that the API does not show as live. None means no answer: then nothing is released."""

    def listed_ids(self) -> frozenset[str] | None:
        """Return the device ids in PodResources; the call makes kubelet release those of ended pods."""

    def listed_names(self) -> Mapping[str, PodName] | None:
        """Return the names of the pods in PodResources by our device ids; no API server is needed for it."""

    def known_uids(self) -> frozenset[str] | None:
        """Return the UIDs that kubelet's own pod list or the container runtime still has."""

    def folder_uids(self) -> frozenset[str] | None:
        """Return the UIDs of the pods of which kubelet still keeps a folder."""

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
        self._mirrors, self._unknown, self._unnamed = _Intervals(clock), _Intervals(clock), _Intervals(clock)
        self._released: frozenset[str] = frozenset()
        self._folder_since: dict[str, float] = {}
        """Pods that kubelet does not list and of which it keeps a folder, with the time since when."""
        self._kept_since: dict[str, float] = {}
        """Ended pods without running containers that kubelet still lists, with the time since when."""
        self._left: set[str] = set()
        """The pods that the API, kubelet and the runtime no longer have, and whose devices kubelet does not list."""
        self._left_at: object = None
        """The checkpoint that showed them: who stands in a newer one may be a static pod that has come back."""

    def learn(self) -> None:
        """Ask kubelet about pods in its checkpoint that our watch has not shown, at growing intervals.

        Such a pod may have got the card of a twin that waits. Until the pod is known, the twin's promise cannot be
        corrected, and a report would show a held card as free. kubelet may give no answer, or, while it starts, one
        without the pod. So it is asked again, as it is while the mirror of a static pod is missing, perhaps for ever:
        its answer is the list of all pods.
        """
        is_unknown, is_unshown = self._unknown.is_due(self._strangers()), self._mirrors.is_due(self._state.unshown())
        if is_unknown or is_unshown:
            pods = self._kubelet_facts.pods()
            if pods is not None:
                self._state.learn_pods(pods)

    def learn_names(self) -> None:
        """Ask kubelet alone what the pods in its checkpoint are called, while the API server has not been read."""
        if self._unnamed.is_due(self._strangers() - self._state.named()):
            names = self._kubelet_facts.listed_names()
            if names is not None:
                self._state.set_names(
                    {
                        one.pod_uid: names[id_]
                        for one in self._state.recorded()
                        for id_ in one.device_ids
                        if id_ in names
                    }
                )

    def _strangers(self) -> frozenset[str]:
        """Return the holders in kubelet's checkpoint, by its UID, that neither the API nor kubelet's list has shown."""
        snapshot = self._state.snapshot()
        holders = frozenset(snapshot.view.ledger.pods()) & frozenset(self._state.booked())
        return holders - snapshot.pods.keys()

    def collect(self) -> bool:
        """Release pods once, and return whether a pod is left that has ended and still holds devices.

        A pod in a terminal phase is released when PodResources no longer shows its ids, or has shown only this ended
        pod's for `KEPT_S` after its last container ended. A pod that is gone from the API (also by a forced deletion)
        must have left kubelet's pod list and the container runtime as well: its container may run on, and PodResources
        hides init containers. That is asked once for each checkpoint: it may show a pod that is gone for days.
        """
        snapshot = self._state.snapshot()
        doubtful = self._ended_holders(snapshot)
        if not snapshot.checkpoint_read:  # it may have entries by now that we have not read
            return bool(doubtful)
        if not doubtful:
            self._left = set()
            self._settle(frozenset())
            return False
        if self._left_at != snapshot.checkpoint_stamp:
            self._left, self._left_at = set(), snapshot.checkpoint_stamp
        listed = self._kubelet_facts.listed_ids()
        gone = {uid for uid, pod in doubtful.items() if pod is None}
        known = self._known(gone) if gone - self._left else frozenset[str]()
        left = gone & self._left if known is None else gone - known
        if listed is None:
            return self._settle_dropped(doubtful.keys(), left)
        # An entry that kubelet has dropped stands before those that it has: devices may be another pod's by now.
        owners = {id_: entry.pod_uid for entry in self._state.recorded() for id_ in entry.device_ids}
        held = {owners[id_] for id_ in listed & owners.keys()}
        self._left = left - held
        held -= self._kept({uid: pod for uid, pod in doubtful.items() if pod is not None and uid in held})
        released = frozenset(uid for uid in doubtful.keys() - held if uid not in gone or uid in left)
        self._settle(released)
        return len(released) < len(doubtful)

    def _settle_dropped(self, doubtful: AbstractSet[str], left: AbstractSet[str]) -> bool:
        """Release, of the pods that have left, those that kubelet's record lacks, while PodResources does not answer.

        PodResources shows what is in that record, so it would not show these pods. Without this a node whose service
        is somewhere else would fill up with pods that are gone. Returns whether a pod is left that still holds devices.
        """
        released = self._released | (left & self._state.dropped())
        self._settle(released & doubtful)
        return bool(doubtful - released)

    def _known(self, gone: AbstractSet[str]) -> frozenset[str] | None:
        """Return the pods that kubelet or the runtime still has, of those that the API does not show.

        Where the API server has never shown a pod, kubelet's list alone would be the witness that it has gone. It shows
        nothing of a static pod while kubelet starts. So the folder that kubelet keeps of a pod counts as well.
        """
        known = self._kubelet_facts.known_uids()
        if known is None:
            self._folder_since = {}
            return None
        folders, now_s = self._kubelet_facts.folder_uids(), self._clock()
        unseen = {uid for uid in gone - known if not self._state.was_deleted(uid)}
        since = self._folder_since
        self._folder_since = {uid: since.get(uid, now_s) for uid in (unseen if folders is None else unseen & folders)}
        return known | {uid for uid, since_s in self._folder_since.items() if now_s - since_s < FOLDER_S}

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
