"""The state of this node behind one lock: cards, pods, kubelet's records and promises."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from edgegpu_base.files import stamp
from edgegpu_core.allocation_matching import AllocationMatcher
from edgegpu_core.choices.answers import given_by, least
from edgegpu_core.choices.pod_choice import NODE_WITHOUT, AllowedChoices, GivenChoice
from edgegpu_core.inventory import Card, CardCapacity, slots
from edgegpu_core.ledger import CheckpointEntry, CheckpointError, Ledger, parse_checkpoint
from edgegpu_core.model import ModelError, ResourceModel
from edgegpu_core.nodeview import NodeView, corrected_promises
from edgegpu_core.placement import Policy
from edgegpu_core.podview import Cards, PodView

_LOG = logging.getLogger(__name__)

_MOST_DELETED = 1024
"""How many deleted pods are remembered: kubelet's own list may have them a little longer than the API."""


class PodName(NamedTuple):
    """A pod's namespace and name."""

    namespace: str
    name: str


_NO_NAMES: Mapping[str, PodName] = {}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The node at one moment: its view, its ended pods, all cards of the machine, and what kubelet has not written."""

    view: NodeView
    pods: Mapping[str, PodView]
    """All pods of the node by kubelet's UID, also ended ones."""
    checkpoint_read: bool
    """Whether kubelet's checkpoint could be read; while it cannot, nothing is released."""
    unwritten: frozenset[str] = frozenset()
    """kubelet's UIDs of the pods with devices that its checkpoint does not hold yet."""
    cards: Mapping[str, Card] = field(default_factory=dict)
    """Every card of this machine by UUID, also excluded ones, and cards that are gone as last seen."""
    gone: frozenset[str] = frozenset()
    """The UUIDs of cards that are gone: the driver no longer lists them, or gets no answer from them."""
    unrecorded: tuple[tuple[str, str], ...] = ()
    """The containers of live pods, by kubelet's UID and by name, whose devices kubelet has no record of any more."""
    checkpoint_stamp: tuple[int, ...] = ()
    """Which file kubelet's checkpoint was when it was read; another one for each write."""
    is_told: bool = True
    """Whether the API server has listed the node's pods since the start of this process."""
    names: Mapping[str, PodName] = field(default_factory=dict)
    """The names, by kubelet's UID, of pods that PodResources listed while the API server was not read yet."""

    deleted: frozenset[str] = frozenset()
    """The pods that the API server has shown, and then their end."""

    def gone_cards(self, uid: str) -> tuple[Card, ...]:
        """Return the cards that are gone and of which a pod, by kubelet's UID, has devices."""
        held = {card for grant in self.view.ledger.grants(uid).values() for card in grant.cards()}
        return tuple(self.cards[card] for card in sorted(held & self.gone))


@dataclass(frozen=True, slots=True)
class PodNote:
    """What the people of a pod should know of it, whatever it does."""

    pod: PodView
    container: str
    reason: str
    """What an event on the pod is called by."""
    text: str


class NodeState:
    """Cards, pods and kubelet's records of one node.

    `changed` is set at each change and wakes the reconciler. The allocator holds `lock` from the start of a call of
    kubelet to its answer, so that two calls see each other.
    """

    _dropped: tuple[CheckpointEntry, ...] = ()
    """The entries of earlier checkpoints that kubelet's newest lacks, of pods that nobody has seen end."""
    _names: Mapping[str, PodName] = _NO_NAMES
    """The names of pods by kubelet's UID, as PodResources lists them."""

    def __init__(
        self,
        *,
        model: ResourceModel,
        policy: Policy,
        checkpoint: Path,
        unit_wanted_mib: int | None = None,
        on_unit: Callable[[ResourceModel], None] = lambda _model: None,
    ) -> None:
        """Begin with no cards and no pods.

        The unit becomes `unit_wanted_mib` as soon as no pod on this node holds a share: kubelet's records are in
        devices, which in units of another size would be other amounts of memory. `on_unit` is called then, on any
        thread, under the lock.
        """
        self.lock = threading.RLock()
        self.changed = threading.Event()
        self.pods_changed = threading.Condition(self.lock)
        self.matcher = AllocationMatcher()
        self.model, self.policy, self._checkpoint = model, policy, checkpoint
        self._stamp: tuple[int, ...] = ()
        self._entries: tuple[CheckpointEntry, ...] = ()
        self._booked = Ledger()
        self._given: dict[tuple[str, str], GivenChoice] = {}
        self._allowed = NODE_WITHOUT
        self.checkpoint_problem = ""
        """Why kubelet's checkpoint cannot be read, in words; empty when it can."""
        self._cards: tuple[Card, ...] = ()
        self._slots: tuple[CardCapacity, ...] = ()
        self._machine: dict[str, Card] = {}
        self._gone_cards: frozenset[str] = frozenset()
        self._told: dict[str, PodView] = {}
        """Pods by API UID, from the watch, or from kubelet where that was earlier; mirrors are not resolved."""
        self._is_told = False
        """Whether the watch has listed all pods once."""
        self._statics: dict[str, PodView] = {}
        """The static pods in kubelet's own list, by its UID."""
        self._shown: frozenset[str] = frozenset()
        """The static pods that have their mirror."""
        self.unit_wanted_mib = unit_wanted_mib
        """The configured size of a unit while it is not in use yet; None once it is."""
        self._on_unit = on_unit
        self._pods: dict[str, PodView] = {}
        self._deleted: deque[str] = deque(maxlen=_MOST_DELETED)
        self._learned: set[str] = set()
        self._unlisted: frozenset[str] = frozenset()
        """Pods in kubelet's checkpoint that neither the watch nor kubelet's own list has."""
        self._released: frozenset[str] = frozenset()
        self._overrides: dict[str, Cards] = {}
        self._snapshot: Snapshot | None = None

    def set_cards(self, cards: tuple[Card, ...]) -> None:
        """Set the cards that are offered."""
        with self.lock:
            self._cards, self._slots = cards, slots(cards, self.model)
            self.invalidate()

    def set_machine(self, cards: Iterable[Card], gone: Iterable[Card] = ()) -> None:
        """Set the cards that the driver lists, also excluded ones, and those that it no longer lists."""
        with self.lock:
            there, lost = tuple(cards), tuple(gone)
            self._machine = {card.uuid: card for card in (*lost, *there)}
            silent = (card.uuid for card in there if not card.answers)
            self._gone_cards = frozenset((*silent, *(card.uuid for card in lost)))
            self.invalidate()

    def set_allowed(self, allowed: AllowedChoices) -> None:
        """Set what pods may choose on this node."""
        with self.lock:
            if allowed != self._allowed:
                self._allowed = allowed
                self.invalidate()

    def cards(self) -> tuple[Card, ...]:
        """Return the cards that are offered."""
        return self._cards

    def replace_pods(self, pods: Iterable[PodView]) -> None:
        """Replace all pods of this node at once."""
        with self.lock:
            before = self._told
            self._told, self._is_told = {pod.uid: pod for pod in pods}, True
            self._deleted.extend(before.keys() - self._told.keys() - self._learned)  # kubelet's list may be newer
            self._learned.clear()
            self._pods_changed()

    def put_pod(self, pod: PodView) -> None:
        """Store a new or changed pod of this node."""
        with self.lock:
            if self._told.get(pod.uid) != pod:
                self._told[pod.uid] = pod
                self._pods_changed()

    def learn_pods(self, pods: Iterable[PodView]) -> None:
        """Take the pods of kubelet's own list that the watch has not shown; for the others the watch counts.

        kubelet's list may be older than what we know: a pod that was deleted meanwhile would stay for ever, since the
        watch shows its end only once. A static pod has another UID in that list than its mirror has in the API.
        """
        with self.lock:
            listed = {pod.kubelet_uid: pod for pod in pods}
            statics = {uid: pod for uid, pod in listed.items() if pod.is_static}
            if statics != self._statics:
                self._statics = statics
                self._pods_changed()
            for uid, pod in listed.items():
                if not pod.is_static and uid not in self._told and uid not in self._deleted:
                    self._learned.add(uid)
                    self.put_pod(pod)
            unlisted = frozenset(self._booked.pods()) - listed.keys() - self._pods.keys()
            if unlisted != self._unlisted:
                self._unlisted = unlisted
                self.invalidate()

    def drop_pod(self, uid: str) -> None:
        """Forget a pod, by its API UID; its devices stay booked until kubelet has released them.

        The watch also calls this for pods without GPU shares, which change nothing.
        """
        with self.lock:
            if self._told.pop(uid, None) is not None:
                self._deleted.append(uid)
                self._pods_changed()

    def unshown(self) -> frozenset[str]:
        """Return kubelet's static pods that have no mirror: it will come soon, or the pod has gone meanwhile."""
        with self.lock:
            return frozenset(self._statics) - self._shown

    def was_deleted(self, uid: str) -> bool:
        """Return whether the API server has shown a pod, and then its end."""
        with self.lock:
            return uid in self._deleted

    def named(self) -> frozenset[str]:
        """Return kubelet's UIDs of the pods that PodResources has named."""
        return frozenset(self._names)

    def set_names(self, names: Mapping[str, PodName]) -> None:
        """Set the names of pods as PodResources lists them."""
        with self.lock:
            if names != self._names:
                self._names = dict(names)
                self.invalidate()

    def set_released(self, uids: Iterable[str]) -> None:
        """Set the pods that are still in kubelet's checkpoint but no longer hold anything."""
        with self.lock:
            released = frozenset(uids)
            if released != self._released:
                self._released = released
                if any(entry.pod_uid in released for entry in self._dropped):
                    self._book(self._entries[len(self._dropped) :], self._dropped)
                self.invalidate()

    def kubelet_restarted(self) -> None:
        """Forget the admission in progress: a new kubelet begins it anew."""
        with self.lock:
            self.matcher.forget()
            self.invalidate()

    def checkpoint_written(self) -> None:
        """Read kubelet's checkpoint now, so that the next admission need not wait for it."""
        self.snapshot()

    def snapshot(self) -> Snapshot:
        """Return the node's present snapshot, with promises corrected by what kubelet booked."""
        with self.lock:
            self._read_checkpoint()
            if self._snapshot is None:
                self._snapshot = self._build_snapshot()
            return self._snapshot

    def invalidate(self) -> None:
        """Drop the cached snapshot after a change, and wake the reconciler."""
        self._snapshot = None
        self.changed.set()

    def _build_snapshot(self) -> Snapshot:
        with self.lock:
            live = {uid: pod for uid, pod in self._pods.items() if not pod.is_terminal}
            ledger = self._booked.only(uid for uid in self._booked.pods() if uid in live or uid not in self._released)
            self.matcher.add_to(ledger, live)
            if self._is_told and not self._has_holders(ledger) and not self.checkpoint_problem:
                self._take_unit()
            annotated = {uid: pod.cards for uid, pod in live.items() if pod.cards is not None}
            view = NodeView(
                model=self.model,
                policy=self.policy,
                slots=self._slots,
                pods=live,
                ledger=ledger,
                promises=annotated | {uid: cards for uid, cards in self._overrides.items() if uid in live},
                allowed=self._allowed,
                given=self._given,
            )
            strange = set(ledger.pods()) - live.keys()
            promises = corrected_promises(view, gone={uid for uid in strange if self._has_ended(uid)})
            # Kept once there: the watch may yet show the annotation of an earlier correction.
            self._overrides = {
                uid: cards for uid, cards in promises.items() if uid in self._overrides or cards != annotated.get(uid)
            }
            settled = replace(view, promises=promises)
            return Snapshot(
                settled,
                dict(self._pods),
                not self.checkpoint_problem,
                self.matcher.unwritten(),
                self._machine,
                self._gone_cards,
                tuple(self._find_unrecorded(settled)),
                self._stamp,
                self._is_told,
                self._names,
                frozenset(self._deleted),
            )

    def _find_unrecorded(self, view: NodeView) -> Iterator[tuple[str, str]]:
        """Yield the containers whose devices kubelet has no record of: it dropped them, or has none while they run."""
        dropped = {(entry.pod_uid, entry.container) for entry in self._dropped}
        for uid, pod in view.pods.items():
            for container in pod.containers:
                is_without = pod.has_started(container.name) and not view.ledger.grant(uid, container.name).ids
                if is_without or (uid, container.name) in dropped:
                    yield uid, container.name

    def _has_holders(self, ledger: Ledger) -> bool:
        """Return whether a pod may hold devices; of a mirror whose static pod kubelet has not listed yet too."""
        pods = (*self._pods.values(), *self._told.values())
        return bool(ledger.pods()) or any(not pod.is_terminal for pod in pods)

    def _take_unit(self) -> None:
        if self.unit_wanted_mib is None:
            return
        model = replace(self.model, unit_mib=self.unit_wanted_mib)
        try:
            model.check_device_count([card.memory_mib for card in self._cards])
        except ModelError as error:
            _LOG.error("units stay at %d MiB: %s", self.model.unit_mib, error)
            return
        _LOG.info("nobody holds a share: units are of %d MiB from now on", model.unit_mib)
        self.model, self.unit_wanted_mib = model, None
        self._slots = slots(self._cards, model)
        self._on_unit(model)

    def _has_ended(self, uid: str) -> bool:
        """Return whether a holder that is not live has surely ended, and is no pod that the watch will still show."""
        return uid in self._pods or uid in self._unlisted or uid in self._deleted

    def admit(self, uid: str, container: str, cards: tuple[str, ...]) -> None:
        """Promise a container without a placement the cards on which it was admitted."""
        with self.lock:
            pod = self._pods.get(uid)
            if pod is None:
                return
            promise = dict(self._overrides.get(uid) or pod.cards or {})
            if promise.get(container) != cards:
                promise[container] = cards
                self._overrides[uid] = promise
                self.invalidate()

    def booked(self) -> tuple[str, ...]:
        """Return kubelet's UIDs of the pods in its checkpoint that hold or held devices of ours."""
        with self.lock:
            self._read_checkpoint()
            return self._booked.pods()

    def recorded(self) -> tuple[CheckpointEntry, ...]:
        """Return the entries of kubelet's checkpoint, including those of dead pods."""
        with self.lock:
            self._read_checkpoint()
            return self._entries

    def dropped(self) -> frozenset[str]:
        """Return the pods of earlier checkpoints, by kubelet's UID, of which its newest has nothing."""
        with self.lock:
            self._read_checkpoint()
            written = {entry.pod_uid for entry in self._entries[len(self._dropped) :]}
            return frozenset(entry.pod_uid for entry in self._dropped) - written

    def _by_kubelet_uid(self) -> dict[str, PodView]:
        """Return the pods by kubelet's UID, with each mirror in place of the static pod that it mirrors.

        Whoever may create a pod may mark it as a mirror of anything. A mirror counts only when kubelet has a static pod
        of that UID and name; then it is the only object of this name. A pod with that UID of its own is never replaced.
        A static pod is dropped with its mirror: if kubelet still has it, it makes another mirror and is asked again.
        """
        found = {uid: pod for uid, pod in self._told.items() if not pod.mirrors}
        mirrors = {}
        for pod in self._told.values():
            static = self._statics.get(pod.mirrors)
            if static is not None and static.full_name == pod.full_name and pod.mirrors not in found:
                mirrors[pod.mirrors] = replace(pod, kubelet_uid=pod.mirrors, is_static=True)
        lost = self._shown - mirrors.keys()
        self._statics = {uid: pod for uid, pod in self._statics.items() if uid not in lost}
        self._shown = frozenset(mirrors)
        return self._statics | mirrors | found

    def _pods_changed(self) -> None:
        self._pods = self._by_kubelet_uid()
        self._overrides = {uid: cards for uid, cards in self._overrides.items() if uid in self._pods}
        self.pods_changed.notify_all()
        self.invalidate()

    def _read_checkpoint(self) -> None:
        """Read kubelet's checkpoint if it has changed; kubelet replaces the file by a rename."""
        found: tuple[int, ...] = ()
        entries: tuple[CheckpointEntry, ...] = ()
        try:
            found = stamp(self._checkpoint)
            if found == self._stamp:
                self._note("")
                return
            entries = parse_checkpoint(self._checkpoint.read_bytes())
        except FileNotFoundError:
            if not self._stamp:
                self._note("")
                return
        except (OSError, CheckpointError) as error:
            self._note(f"{self._checkpoint}: {error}; what it said before counts, and nothing is released")
            return
        self._note("")
        self._stamp = found
        self._book(entries, self._entries)
        self.matcher.forget()
        self.invalidate()

    def _book(self, entries: Sequence[CheckpointEntry], before: Iterable[CheckpointEntry]) -> None:
        """Take the entries of kubelet's checkpoint, and keep those of before that it lacks until their pods have ended.

        kubelet forgets all containers when it starts on a checkpoint that is missing or cut, and goes on with an empty
        one; its own running containers are not admitted anew (seen on 1.33). So a record that has gone is no witness
        that its pod has: the collector asks others. The entries of before stand first: where kubelet gives their
        devices to another, that is who starts with them.
        """
        names = {self.model.memory_resource, self.model.core_resource}
        listed = {(entry.pod_uid, entry.container, entry.resource) for entry in entries}
        self._dropped = tuple(
            entry
            for entry in before
            if entry.resource in names
            and (entry.pod_uid, entry.container, entry.resource) not in listed
            and entry.pod_uid not in self._released
            and not self._is_terminal(entry.pod_uid)
        )
        self._entries = (*self._dropped, *entries)
        self._booked = Ledger.of_entries(self._entries, self.model, self._booked)
        self._given = _given(self._entries, self.model)

    def _is_terminal(self, uid: str) -> bool:
        return uid in self._pods and self._pods[uid].is_terminal

    def _note(self, problem: str) -> None:
        """Log once that the checkpoint cannot be read, and once that it can be read again."""
        if problem == self.checkpoint_problem:
            return
        if problem:
            _LOG.error("%s", problem)
        else:
            _LOG.info("%s can be read again", self._checkpoint)
        self.checkpoint_problem = problem
        self.invalidate()


def _given(entries: Iterable[CheckpointEntry], model: ResourceModel) -> dict[tuple[str, str], GivenChoice]:
    """Return what kubelet's stored answers give each container: of two answers that differ, the least strict."""
    found: dict[tuple[str, str], list[GivenChoice]] = {}
    for entry in entries:
        if entry.resource in {model.memory_resource, model.core_resource}:
            found.setdefault((entry.pod_uid, entry.container), []).append(given_by(entry.answer))
    return {key: least(some) for key, some in found.items()}
