"""The embedded kubelet's device manager: what is offered, what is taken, and which devices a container gets.

It does the same as that of Kubernetes 1.33 to 1.37 (pkg/kubelet/cm/devicemanager), in the same order and with the same
texts; where Go iterates over a map or a set, the order comes from a random source.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_plugin.pb import Allocation, OfferedDevice, PreferredRequest
from edgegpu_sim.kubelet.bookings import Booking, Bookings, merged
from edgegpu_sim.kubelet.endpoint import DeviceError, PluginClient

CHECKPOINT = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The devices for the node's status: all, the healthy ones, and resources that are gone for good."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    removed: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Claim:
    """One container's request for one resource while devices are chosen for it."""

    resource: str
    size: int
    taken: set[str] = field(default_factory=set)

    @property
    def needed(self) -> int:
        return self.size - len(self.taken)


class DeviceManager:
    """The device manager of one node; thread-safe. No lock is held during a plugin's call."""

    def __init__(
        self,
        folder: Path,
        *,
        order: random.Random,
        active: Callable[[], set[str]],
        grace_s: float = 300.0,
        keeps_last: bool = False,
    ) -> None:
        """Read the checkpoint.

        Args:
            folder: the folder of the checkpoint.
            order: the source of order where Go has none.
            active: returns the UIDs of the pods that kubelet has and that have not ended.
            grace_s: how long the capacity of a plugin that has gone is kept.
            keeps_last: whether the pod that was admitted last keeps its devices until another is admitted, though it
                has ended, as in 1.22 and 1.24 (`pendingAdmissionPod`; 1.20 and 1.33 have none).
        """
        self._path = folder / CHECKPOINT
        self._order = order
        self._active = active
        self._grace_s = grace_s
        self._lock = threading.RLock()
        self._bookings = Bookings()
        self._endpoints: dict[str, PluginClient] = {}
        self._connected: dict[str, dict[str, PluginClient]] = {}
        """The plugins that kubelet takes for connected, by resource and socket; before 1.37 one of each resource."""
        self._healthy: dict[str, set[str]] = {}
        self._unhealthy: dict[str, set[str]] = {}
        self._allocated: dict[str, set[str]] = {}
        self._keeps_last = keeps_last
        self._last = ""
        self.sources_ready = False
        """False until the first pods after a start were handled: until then nothing is released."""
        for resource in self._bookings.read(self._path):
            self._healthy[resource], self._unhealthy[resource] = set(), set()
            self._endpoints[resource] = PluginClient(resource, stopped_at_s=time.monotonic())
        self._allocated = self._bookings.by_resource()

    def connected(self, resource: str, endpoint: PluginClient) -> None:
        """Store a plugin that has registered.

        Raises:
            DeviceError: a plugin at this socket counts as connected (from 1.37 on).
        """
        with self._lock:
            connected = self._connected.setdefault(resource, {})
            if endpoint.socket and endpoint.socket in connected:
                raise DeviceError(f"device plugin already connected: {endpoint.socket}")
            connected[endpoint.socket] = endpoint
            self._endpoints[resource] = endpoint

    def listed(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Store a plugin's device list, and write the checkpoint."""
        with self._lock:
            self._healthy[resource] = {device.id for device in devices if device.healthy}
            self._unhealthy[resource] = {device.id for device in devices if not device.healthy}
            self._save()

    def disconnected(self, resource: str, socket: str) -> None:
        """Mark the devices of the last plugin that has gone as unhealthy at once; before, another takes its place."""
        with self._lock:
            connected = self._connected.get(resource, {})
            endpoint = connected.pop(socket, None)
            if endpoint is None:
                return
            endpoint.stopped_at_s = time.monotonic()
            if connected:
                self._endpoints[resource] = self._order.choice(list(connected.values()))
                return
            self._unhealthy.setdefault(resource, set()).update(self._healthy.get(resource, ()))
            self._healthy[resource] = set()

    def capacity(self) -> NodeDevices:
        """Return what the node offers; resources whose plugin has been away for too long are dropped."""
        with self._lock:
            removed = {name for name, endpoint in self._endpoints.items() if endpoint.is_over(self._grace_s)}
            for resource in removed:
                for table in (self._endpoints, self._healthy, self._unhealthy):
                    table.pop(resource, None)
            if removed:
                self._save()
            healthy = {resource: len(ids) for resource, ids in self._healthy.items()}
            total = {resource: count + len(self._unhealthy.get(resource, ())) for resource, count in healthy.items()}
            return NodeDevices(total, healthy, frozenset(removed))

    def collect(self) -> None:
        """Release the devices of dead pods, without writing the checkpoint."""
        active = self._active()
        with self._lock:
            if not self.sources_ready:
                return
            dead = self._bookings.pods() - active - {self._last}
            if dead:
                self._bookings.delete(dead)
                self._allocated = self._bookings.by_resource()

    def begin(self, uid: str) -> None:
        """Store the pod whose admission begins."""
        with self._lock:
            self._last = uid if self._keeps_last else ""

    def knows(self, resource: str) -> bool:
        """Return whether a resource belongs to a device plugin."""
        with self._lock:
            return resource in self._healthy or resource in self._allocated

    def allocate(
        self, uid: str, container: str, limits: Mapping[str, int], *, reusable: Mapping[str, set[str]], running: bool
    ) -> None:
        """Allocate all resources of one container, in random order; the checkpoint is written after the last.

        Args:
            uid: the pod's UID.
            container: the container's name.
            limits: its limits of extended resources.
            reusable: what earlier ordinary init containers of the pod hold, by resource.
            running: whether it ran already when this kubelet started.

        Raises:
            DeviceError: the text is kubelet's; devices of an earlier resource stay booked.
        """
        wrote, collected = False, False
        for resource in self._order.sample(list(limits), len(limits)):
            if not self.knows(resource):
                continue
            if not collected:
                self.collect()
                collected = True
            claim = _Claim(resource, limits[resource])
            if not self._claim(uid, container, claim, reusable=reusable.get(resource, set()), running=running):
                continue
            self._book(uid, container, claim)
            wrote = True
        if wrote:
            with self._lock:
                self._save()

    def devices(self, uid: str, container: str) -> dict[str, frozenset[str]]:
        """Return the ids that a container holds, by resource."""
        with self._lock:
            return {resource: booking.ids for resource, booking in self._bookings.of_container(uid, container).items()}

    def holds(self, uid: str) -> bool:
        """Return whether a pod holds any device."""
        with self._lock:
            return uid in self._bookings.pods()

    def held_of(self, resource: str) -> int:
        """Return how many devices of a resource are taken."""
        with self._lock:
            return len(self._allocated.get(resource, ()))

    def options(self, uid: str, container: str, limits: Iterable[str]) -> Allocation:
        """Ask each resource's plugin whether the container may start, and return what it is given.

        Raises:
            DeviceError: a plugin refused the start, or is gone.
        """
        names = list(limits)
        for resource in self._order.sample(names, len(names)):
            if self.knows(resource):
                self._pre_start(uid, container, resource)
        with self._lock:
            bookings = list(self._bookings.of_container(uid, container).values())
        return merged(booking.response for booking in self._order.sample(bookings, len(bookings)))

    def _claim(self, uid: str, container: str, claim: _Claim, *, reusable: set[str], running: bool) -> bool:
        """Choose devices for a claim; return False when there is nothing to allocate."""
        resource = claim.resource
        with self._lock:
            held = self._bookings.devices(uid, container, resource)
            if held is not None and len(held) != claim.size:
                changed = f"changed request for resource {resource!r} from {len(held)} to {claim.size}"
                raise DeviceError(f'pod "{uid}" container "{container}" {changed}')
            if not self.sources_ready and running:
                return False
            self._check_healthy(resource, held or frozenset())
            if held is not None:
                return False
            self._take(claim, reusable)
            if claim.needed == 0:
                return True
            available = self._healthy[resource] - self._allocated.get(resource, set())
            if len(available) < claim.needed:
                raise DeviceError(
                    f"requested number of devices unavailable for {resource}. "
                    f"Requested: {claim.needed}, Available: {len(available)}"
                )
            asked = PreferredRequest(
                available=self._shuffled(available | claim.taken),
                must_include=self._shuffled(claim.taken),
                size=claim.size,
            )
        preferred = self._endpoint(resource).preferred(asked)
        with self._lock:
            self._take(claim, preferred & available)
            self._take(claim, available)
        return True

    def _check_healthy(self, resource: str, held: frozenset[str]) -> None:
        healthy = self._healthy.get(resource)
        if healthy is None:
            raise DeviceError(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise DeviceError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not healthy >= held:
            why = f"cannot allocate unhealthy devices {resource}"
            raise DeviceError(f"previously allocated devices are no longer healthy; {why}")

    def _take(self, claim: _Claim, ids: set[str]) -> None:
        for device in self._shuffled(ids - claim.taken)[: claim.needed]:
            claim.taken.add(device)
            self._allocated.setdefault(claim.resource, set()).add(device)

    def _book(self, uid: str, container: str, claim: _Claim) -> None:
        try:
            response = self._endpoint(claim.resource).allocate(self._shuffled(claim.taken))
        except DeviceError:
            with self._lock:
                self._allocated = self._bookings.by_resource()
            raise
        with self._lock:
            self._bookings.insert(uid, container, claim.resource, Booking(frozenset(claim.taken), response))

    def _pre_start(self, uid: str, container: str, resource: str) -> None:
        endpoint = self._endpoint(resource)
        if not endpoint.wants_pre_start:
            return
        with self._lock:
            ids = self._bookings.devices(uid, container, resource)
        if ids is None:
            what = f"pod {uid}, container {container}, resource {resource}"
            raise DeviceError(f"no devices found allocated in local cache for {what}")
        endpoint.pre_start(self._shuffled(ids))

    def _endpoint(self, resource: str) -> PluginClient:
        with self._lock:
            found = self._endpoints.get(resource)
        if found is None:
            raise DeviceError(f"endpoint not found in cache for a registered resource: {resource}")
        return found

    def _shuffled(self, ids: Iterable[str]) -> list[str]:
        found = sorted(ids)  # a set's own order differs between runs
        self._order.shuffle(found)
        return found

    def _save(self) -> None:
        self._bookings.write(self._path, self._healthy)
