"""The bookings of devices, and the file in which kubelet keeps them: `kubelet_internal_checkpoint`."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgegpu_plugin.pb import Allocation, DeviceNode, Mount
from edgegpu_plugin.pb.device_messages import allocation_message

_NO_NUMA_NODE = "-1"
"""kubelet's key for devices without topology."""


@dataclass(frozen=True, slots=True)
class Booking:
    """The devices of one resource that one container holds, and the plugin's answer for them."""

    ids: frozenset[str]
    response: Allocation


class Bookings:
    """The bookings by pod UID, container and resource; callers hold the device manager's lock."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, dict[str, Booking]]] = {}

    def insert(self, uid: str, container: str, resource: str, booking: Booking) -> None:
        """Record a container's devices."""
        self._pods.setdefault(uid, {}).setdefault(container, {})[resource] = booking

    def devices(self, uid: str, container: str, resource: str) -> frozenset[str] | None:
        """Return the ids that a container holds of a resource, or None."""
        booking = self.of_container(uid, container).get(resource)
        return None if booking is None else booking.ids

    def of_container(self, uid: str, container: str) -> Mapping[str, Booking]:
        """Return a container's bookings by resource."""
        return self._pods.get(uid, {}).get(container, {})

    def pods(self) -> set[str]:
        """Return the UIDs of all pods that hold something."""
        return set(self._pods)

    def delete(self, uids: Iterable[str]) -> None:
        """Release everything that these pods hold."""
        for uid in uids:
            self._pods.pop(uid, None)

    def by_resource(self) -> dict[str, set[str]]:
        """Return all held ids by resource."""
        held: dict[str, set[str]] = {}
        for containers in self._pods.values():
            for bookings in containers.values():
                for resource, booking in bookings.items():
                    held.setdefault(resource, set()).update(booking.ids)
        return held

    def write(self, path: Path, registered: Mapping[str, Iterable[str]]) -> None:
        """Write the whole checkpoint."""
        entries = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {_NO_NUMA_NODE: sorted(booking.ids)},
                "AllocResp": base64.b64encode(allocation_message(booking.response).SerializeToString()).decode(),
            }
            for uid, containers in self._pods.items()
            for container, bookings in containers.items()
            for resource, booking in bookings.items()
        ]
        devices = {resource: sorted(ids) for resource, ids in registered.items()}
        data = {"PodDeviceEntries": entries or None, "RegisteredDevices": devices}
        checksum = zlib.crc32(json.dumps(data).encode())
        temp = path.with_name(f".{path.name}.new")
        temp.write_text(json.dumps({"Data": data, "Checksum": checksum}))
        temp.replace(path)

    def read(self, path: Path) -> list[str]:
        """Read the checkpoint and return the resources that were registered; a missing file counts as empty."""
        if not path.exists():
            return []
        data = json.loads(path.read_text())["Data"]
        for entry in data["PodDeviceEntries"] or ():
            ids = frozenset(text for part in entry["DeviceIDs"].values() for text in part)
            booking = Booking(ids, _read_response(entry["AllocResp"]))
            self.insert(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], booking)
        return list(data["RegisteredDevices"])


def _read_response(text: str) -> Allocation:
    message = allocation_message(Allocation())
    message.ParseFromString(base64.b64decode(text))
    return Allocation(
        envs=dict(message.envs),
        mounts=[Mount(m.container_path, m.host_path, m.read_only) for m in message.mounts],
        devices=[DeviceNode(d.container_path, d.host_path, d.permissions) for d in message.devices],
        annotations=dict(message.annotations),
        cdi_devices=[device.name for device in message.cdi_devices],
    )


def merged(responses: Iterable[Allocation]) -> Allocation:
    """Return one allocation merged from those of all resources: the first wins for a name, CDI names occur once."""
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, DeviceNode] = {}
    names: dict[str, None] = {}
    for one in responses:
        for key, value in one.envs.items():
            envs.setdefault(key, value)
        for key, value in one.annotations.items():
            annotations.setdefault(key, value)
        for mount in one.mounts:
            mounts.setdefault(mount.container_path, mount)
        for device in one.devices:
            devices.setdefault(device.container_path, device)
        names.update(dict.fromkeys(one.cdi_devices))
    return Allocation(envs, list(mounts.values()), list(devices.values()), annotations, list(names))
