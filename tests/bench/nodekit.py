"""One node for measurements: the real plugin process, simulated cards, a small API and a kubelet of sockets alone."""

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import yaml
from bench.api import NODE
from bench.rawgrpc import RawCaller
from google.protobuf.message import Message

from edgegpu_base.kube import KubeClient, KubeObjects, load_kubeconfig
from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import CARDS_ANNOTATION, write_cards
from edgegpu_plugin.pb import (
    DevicePluginCaller,
    OfferedDevice,
    PodDevices,
    Registration,
    channel,
    pod_resources_handler,
    registration_handler,
)
from edgegpu_plugin.pb.gen import deviceplugin_pb2 as dp
from edgegpu_sim.driver import SimDriver, make_card

MODEL = ResourceModel()
RESOURCES = {DeviceKind.MEMORY: MODEL.memory_resource, DeviceKind.CORE: MODEL.core_resource}


class Kubelet:
    """kubelet as far as sockets go: takes registrations, dials back, keeps the first lists and books devices."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first_list_s: dict[str, float] = {}
        self._asking: dict[str, RawCaller] = {}
        self._names: dict[str, str] = {}
        self.devices: dict[str, list[str]] = {}
        self.complete = threading.Event()
        self.entries: list[dict[str, Any]] = []
        resources = folder.parent / "pod-resources"
        resources.mkdir()
        self._resources = grpc.server(ThreadPoolExecutor(4))
        self._resources.add_generic_rpc_handlers((pod_resources_handler(self._listed),))
        self._resources.add_insecure_port(f"unix://{resources}/kubelet.sock")
        self._resources.start()
        self._links: list[grpc.Channel] = []
        self._pool = ThreadPoolExecutor(8)
        self._server: grpc.Server | None = None
        self.began_s = 0.0

    def start(self) -> None:
        """Come up as a new kubelet: delete every socket, make our own."""
        self.first_list_s.clear()
        self.complete.clear()
        for path in self.folder.glob("*.sock"):
            path.unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((registration_handler(self._registered),))
        self.began_s = time.perf_counter()
        self._server.add_insecure_port(f"unix://{self.folder}/kubelet.sock")
        self._server.start()

    def stop(self) -> None:
        """Go away."""
        for link in self._links:
            link.close()
        for caller in self._asking.values():
            caller.close()
        self._links.clear()
        self._asking.clear()
        if self._server is not None:
            self._server.stop(None).wait()

    def close(self) -> None:
        """End, and do not come up again."""
        self.stop()
        self._resources.stop(None).wait()

    def _listed(self) -> list[PodDevices]:
        """Return who holds what: without it the plugin frees nothing of a pod that is gone."""
        return [
            PodDevices("default", e["PodUID"], e["ContainerName"], e["ResourceName"], e["DeviceIDs"]["-1"])
            for e in list(self.entries)
        ]

    def _registered(self, registration: Registration) -> None:
        self._names[registration.resource] = registration.endpoint
        link = channel(str(self.folder / registration.endpoint))
        self._links.append(link)
        self._pool.submit(self._follow, registration.resource, DevicePluginCaller(link))

    def _follow(self, resource: str, caller: DevicePluginCaller) -> None:
        with contextlib.suppress(grpc.RpcError):
            devices: list[OfferedDevice]
            for devices in caller.watch():
                self.devices[resource] = [device.id for device in devices]
                self.first_list_s.setdefault(resource, time.perf_counter() - self.began_s)
                if len(self.first_list_s) == len(RESOURCES) and all(self.devices.values()):
                    self.complete.set()

    def admit(self, uid: str, amounts: dict[DeviceKind, int], order: list[DeviceKind]) -> float:
        """Admit a container as kubelet does; returns the seconds that our calls took."""
        spent = 0.0
        booked = {i for entry in self.entries for i in entry["DeviceIDs"]["-1"]}
        fresh = []
        for kind in order:
            resource = RESOURCES[kind]
            asked = dp.ContainerPreferredAllocationRequest(
                available_device_ids=[i for i in self.devices[resource] if i not in booked],
                allocation_size=amounts[kind],
            )
            text, preferred_s = self._ask(
                resource, "GetPreferredAllocation", dp.PreferredAllocationRequest(container_requests=[asked])
            )
            ids = list(dp.PreferredAllocationResponse.FromString(text).container_responses[0].device_ids)
            taken = dp.ContainerAllocateRequest(devices_ids=ids)
            text, allocated_s = self._ask(resource, "Allocate", dp.AllocateRequest(container_requests=[taken]))
            spent += preferred_s + allocated_s
            assert len(ids) == amounts[kind]
            assert dp.AllocateResponse.FromString(text).container_responses[0].cdi_devices
            fresh.append(_entry(uid, resource, ids))
        self.entries += fresh
        self.write_checkpoint()
        return spent

    def _ask(self, resource: str, method: str, message: Message) -> tuple[bytes, float]:
        """Return an answer and the seconds it took; what a kubelet spends on its messages is no cost of ours."""
        if resource not in self._asking:
            self._asking[resource] = RawCaller(self.folder / self._names[resource])
        call = self._asking[resource].ready(f"/v1beta1.DevicePlugin/{method}", message.SerializeToString())
        began = time.perf_counter()
        answer = call()
        return answer, time.perf_counter() - began

    def write_checkpoint(self) -> None:
        """Write kubelet's record, whole, as it does."""
        whole = {"Data": {"PodDeviceEntries": self.entries, "RegisteredDevices": {}}, "Checksum": 0}
        temp = self.folder / "checkpoint.tmp"
        temp.write_text(json.dumps(whole))
        temp.rename(self.folder / "kubelet_internal_checkpoint")


def _entry(uid: str, resource: str, ids: list[str]) -> dict[str, Any]:
    response = base64.b64encode(b"x" * 80).decode()
    return {
        "PodUID": uid,
        "ContainerName": "main",
        "ResourceName": resource,
        "DeviceIDs": {"-1": ids},
        "AllocResp": response,
    }


class Node:
    """The plugin process of a node with some cards."""

    def __init__(self, root: Path, *, cards: int, mib: int, build: Path, run: Path, role: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        kubeconfig = self.kubeconfig = root / "kubeconfig"
        self._api = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("api.py"), kubeconfig],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._api.stdout is not None
        self._api.stdout.readline()
        self._client = KubeClient(load_kubeconfig(kubeconfig.with_suffix(".own")))
        self._pods: list[str] = []
        self.cards = [make_card(index, "NVIDIA H200", mib) for index in range(cards)]
        SimDriver.create(root / "drv", self.cards, build=build)
        devices = root / "k/device-plugins"
        devices.mkdir(parents=True)
        self.kubelet = Kubelet(devices)
        config = {
            "version": 1,
            "node_name": NODE,
            "role": role,
            "extender": {"listen": "127.0.0.1:0", "insecure": True},
            "kubelet": {"folder": str(root / "k"), "device_plugins": str(root / "k" / "device-plugins")},
            "kubernetes": {"kubeconfig": str(kubeconfig)},
            "driver": {"root": str(root / "drv"), "injection": "cdi", "cdi_folder": str(root / "cdi")},
            "paths": {"state": str(root / "state"), "run": str(run)},
            "log_level": "warning",
        }
        (root / "plugin.yaml").write_text(yaml.safe_dump(config))
        plugin = [sys.executable, "-m", "edgegpu_plugin", "--config", str(root / "plugin.yaml")]
        self.process = subprocess.Popen(["nice", "-n", "-10", *plugin])  # as its unit does

    def bind(self, number: int, amounts: dict[DeviceKind, int], card: str) -> str:
        """Put a bound and annotated pod into the API; returns its UID."""
        limits = {RESOURCES[kind]: str(amount) for kind, amount in amounts.items()}
        name = f"p{number}"
        made = self._client.create(
            "/api/v1/namespaces/default/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]},
            },
        )
        uid: str = made["metadata"]["uid"]
        annotations = {CARDS_ANNOTATION: write_cards(uid, NODE, {"main": (card,)})}
        KubeObjects(self._client).bind_pod("default", name, uid=uid, node=NODE, annotations=annotations)
        self._pods.append(name)
        return uid

    def clear(self) -> None:
        """Delete all pods, and their devices from kubelet's books."""
        for name in self._pods:
            self._client.delete(f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})
        self._pods.clear()
        self.kubelet.entries.clear()
        self.kubelet.write_checkpoint()

    def rss_mib(self) -> float:
        """Return the process's resident memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError

    def cpu_s(self) -> float:
        """Return the CPU seconds that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def requests(self) -> int:
        """Return how many requests the plugin has made to the API server."""
        return sum(self.calls_of("plugin"))

    def calls_of(self, user: str) -> tuple[int, int]:
        """Return how many reads and how many writes a user has sent to the API server."""
        assert self._api.stdin is not None
        assert self._api.stdout is not None
        self._api.stdin.write(f"{user}\n")
        self._api.stdin.flush()
        reads, writes = self._api.stdout.readline().split()
        return int(reads), int(writes)

    def deploy(self, name: str, amounts: dict[DeviceKind, int]) -> None:
        """Put a Deployment into the API that stands with its one pod available."""
        limits = {RESOURCES[kind]: str(amount) for kind, amount in amounts.items()}
        labels = {"app": name}
        pod = {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        folder = "/apis/apps/v1/namespaces/default/deployments"
        self._client.create(folder, {"metadata": {"name": name}, "spec": spec})
        counts = dict.fromkeys(("observedGeneration", "replicas", "updatedReplicas", "availableReplicas"), 1)
        self._client.patch(f"{folder}/{name}/status", {"status": counts})

    def close(self) -> None:
        """End it all."""
        self.process.terminate()
        self.process.wait(20)
        self.kubelet.close()
        self._client.close()
        assert self._api.stdin is not None
        self._api.stdin.close()
        self._api.wait(20)


@contextlib.contextmanager
def node(
    root: Path, *, cards: int, mib: int, build: Path, run: Path | None = None, role: str = "agent"
) -> Iterator[Node]:
    """Run a node; `run` is where its plugin answers, and a plugin of role `server` has the extender too."""
    made = Node(root, cards=cards, mib=mib, build=build, run=run or root / "run", role=role)
    try:
        yield made
    finally:
        made.close()
