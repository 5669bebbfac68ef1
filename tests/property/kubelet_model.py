"""kubelet's device manager as a pure model (read in 1.33): what it asks, takes, writes and forgets."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from edgegpu_core.choices.pod_choice import GivenChoice
from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.ledger import CheckpointEntry
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodeview import asked
from edgegpu_core.podview import PodView
from edgegpu_core.request import ContainerRequest, ContainerRole


class DevicePlugins(Protocol):
    """The calls that kubelet makes."""

    def preferred(self, kind: DeviceKind, available: list[str], must_include: list[str], size: int) -> list[str]:
        """Answer GetPreferredAllocation."""

    def allocate(self, kind: DeviceKind, ids: tuple[str, ...]) -> GivenChoice:
        """Answer Allocate with what shall hold the container, which kubelet keeps with the devices."""


Booked = dict[tuple[str, str, DeviceKind], tuple[str, ...]]
"""By pod UID, container and resource."""


@dataclass(slots=True)
class Admission:
    """A pod in the middle of its admission, advanced one call at a time."""

    pod: PodView
    steps: Iterator[str]


@dataclass(slots=True)
class KubeletModel:
    """One kubelet. `admit` begins an admission, `advance` makes its next call; all else may happen in between."""

    model: ResourceModel
    devices: Mapping[DeviceKind, tuple[str, ...]]
    plugins: DevicePlugins
    rng: random.Random
    active: dict[str, PodView] = field(default_factory=dict)
    """Pods that kubelet knows and that have not ended, the ones not admitted yet too."""
    failed: set[str] = field(default_factory=set)
    admitted: set[str] = field(default_factory=set)
    checkpoint: tuple[CheckpointEntry, ...] = ()
    writes: int = 0
    now: Admission | None = None
    answers: dict[tuple[str, str, DeviceKind], GivenChoice] = field(default_factory=dict)
    _booked: Booked = field(default_factory=dict)
    _reuse: dict[DeviceKind, set[str]] = field(default_factory=dict)

    def queue(self) -> list[PodView]:
        """Return the pods that wait for their admission, in the order in which a restarted kubelet takes them."""
        busy = "" if self.now is None else self.now.pod.kubelet_uid
        waiting = [pod for uid, pod in self.active.items() if uid not in self.admitted | {busy}]
        return sorted(waiting, key=lambda pod: pod.created)

    def admit(self, pod: PodView) -> None:
        """Begin an admission; pods are admitted one at a time."""
        assert self.now is None
        self.now = Admission(pod, self._admission(pod))

    def advance(self) -> str:
        """Make the next call (or write) of the admission; returns what was done."""
        assert self.now is not None
        done = next(self.now.steps, "")
        if not done:
            uid = self.now.pod.kubelet_uid
            self.now = None
            if uid in self.active:
                self.admitted.add(uid)
            return "admitted"
        if done == "failed":
            uid = self.now.pod.kubelet_uid
            self.now = None
            self.active.pop(uid, None)
            self.failed.add(uid)
        return done

    def restart(self) -> None:
        """Lose what is in memory: the checkpoint is read again; the incomplete are admitted anew."""
        kinds = {self.model.memory_resource: DeviceKind.MEMORY, self.model.core_resource: DeviceKind.CORE}
        self._booked = {(e.pod_uid, e.container, kinds[e.resource]): e.device_ids for e in self.checkpoint}
        self.now = None
        self.admitted = {uid for uid, pod in self.active.items() if self._is_complete(pod)}

    def _is_complete(self, pod: PodView) -> bool:
        return all(
            asked(container, kind) == 0 or (pod.kubelet_uid, container.name, kind) in self._booked
            for container in pod.containers
            for kind in DeviceKind
        )

    def end(self, uid: str) -> None:
        """All containers of a pod are gone, or it is no more."""
        self.active.pop(uid, None)
        self.admitted.discard(uid)

    def collect(self) -> None:
        """Let go of ended pods' devices, in memory only (UpdateAllocatedDevices, at an admission and at List)."""
        busy = "" if self.now is None else self.now.pod.kubelet_uid
        for key in [key for key in self._booked if key[0] not in self.active and key[0] != busy]:
            del self._booked[key]

    def in_use(self) -> Booked:
        """Return what is booked in memory."""
        return dict(self._booked)

    def _admission(self, pod: PodView) -> Iterator[str]:
        self._reuse = {kind: set() for kind in DeviceKind}
        for container in pod.containers:
            self.collect()
            changed = False
            for kind in self.rng.sample(list(DeviceKind), 2):
                if asked(container, kind) == 0 or (pod.kubelet_uid, container.name, kind) in self._booked:
                    continue
                yield f"{pod.uid} asks"
                ids = self._choose(pod.kubelet_uid, container, kind)
                if ids is None:
                    yield "failed"
                    return
                yield f"{pod.uid} prefers"
                answer = self.plugins.allocate(kind, tuple(self.rng.sample(ids, len(ids))))
                self.answers[pod.kubelet_uid, container.name, kind] = answer
                self._booked[pod.kubelet_uid, container.name, kind] = tuple(ids)
                changed = True
            if changed:
                yield f"{pod.uid} writes"
                self._write()
            self._hand_on(pod.kubelet_uid, container)

    def _choose(self, uid: str, container: ContainerRequest, kind: DeviceKind) -> list[str] | None:
        """Take reusable devices first, at random, then what the plugin prefers; None when there are too few."""
        size = asked(container, kind)
        reusable = sorted(self._reuse[kind])
        chosen = self.rng.sample(reusable, min(size, len(reusable)))
        if len(chosen) == size:
            return chosen
        taken = {text for (_, _, other), ids in self._booked.items() if other is kind for text in ids}
        available = [text for text in self.devices[kind] if text not in taken]
        if len(available) < size - len(chosen):
            return None
        offered = self.rng.sample(available + chosen, len(available) + len(chosen))
        answer = self.plugins.preferred(kind, offered, chosen, size)
        assert len(answer) == size == len(set(answer)), f"{uid}: {size} asked, {answer} preferred"
        assert set(chosen) <= set(answer) <= set(offered), f"{uid}: {answer} is no choice among what was offered"
        return answer

    def _hand_on(self, uid: str, container: ContainerRequest) -> None:
        for kind in DeviceKind:
            ids = set(self._booked.get((uid, container.name, kind), ()))
            self._reuse[kind] = (
                self._reuse[kind] | ids if container.role is ContainerRole.INIT else self._reuse[kind] - ids
            )

    def _write(self) -> None:
        names = {DeviceKind.MEMORY: self.model.memory_resource, DeviceKind.CORE: self.model.core_resource}
        entries = [
            CheckpointEntry(uid, container, names[kind], ids) for (uid, container, kind), ids in self._booked.items()
        ]
        self.checkpoint = tuple(self.rng.sample(entries, len(entries)))
        self.writes += 1
