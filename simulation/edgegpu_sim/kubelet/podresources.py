"""The embedded kubelet's PodResources service, which lists who holds which devices."""

from collections.abc import Callable
from pathlib import Path

from edgegpu_plugin.pb import PodDevices, pod_resources_handler
from edgegpu_sim.api.objects import Json
from edgegpu_sim.kubelet.devicemanager import DeviceManager
from edgegpu_sim.kubelet.podstatus import is_sidecar
from edgegpu_sim.kubelet.registration import serve

SOCKET = "kubelet.sock"


class PodResourcesServer:
    """The server of List; each call makes the device manager release dead pods' devices first."""

    def __init__(self, folder: Path, manager: DeviceManager, pods: Callable[[], list[Json]]) -> None:
        self._manager = manager
        self._pods = pods
        (folder / SOCKET).unlink(missing_ok=True)
        self._server = serve(folder / SOCKET, pod_resources_handler(self.devices))

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop(grace=0).wait()

    def devices(self) -> list[PodDevices]:
        """Return what every container holds, with an entry for each device, without ordinary init containers."""
        self._manager.collect()
        return [
            PodDevices(pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"], resource, [one])
            for pod in self._pods()
            for container in _listed(pod["spec"])
            for resource, ids in self._manager.devices(pod["metadata"]["uid"], container["name"]).items()
            for one in sorted(ids)
        ]


def _listed(spec: Json) -> list[Json]:
    return [c for c in spec.get("initContainers") or () if is_sidecar(c)] + list(spec["containers"])
