"""gRPC clients of kubelet's interfaces: those that the plugin calls, and those that an embedded kubelet calls."""

from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from edgegpu_plugin.pb.device_messages import options_message
from edgegpu_plugin.pb.gen import deviceplugin_pb2 as dp
from edgegpu_plugin.pb.gen import podresources_pb2 as pr
from edgegpu_plugin.pb.types import (
    Allocation,
    DeviceNode,
    DevicePluginOptions,
    Mount,
    OfferedDevice,
    PodDevices,
    PreferredRequest,
    Registration,
)

_MOST_BYTES = 16 * 1024 * 1024
"""PodResources of a full node passes gRPC's default of 4 MiB; kubelet's own limit for it is 16 MiB."""


def channel(socket: str) -> grpc.Channel:
    """Open a channel to a Unix socket; nothing is sent before the first call."""
    return grpc.insecure_channel(
        f"unix://{socket}",
        options=[
            ("grpc.max_receive_message_length", _MOST_BYTES),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.default_authority", "localhost"),
            ("grpc.enable_http_proxy", 0),
        ],
    )


def _call(link: grpc.Channel, path: str, request: Any, response: Any) -> Any:  # noqa: ANN401
    return link.unary_unary(
        path, request_serializer=request.SerializeToString, response_deserializer=response.FromString
    )


class RegistrationCaller:
    """A client that registers plugins with a kubelet."""

    def __init__(self, link: grpc.Channel) -> None:
        self._register = _call(link, "/v1beta1.Registration/Register", dp.RegisterRequest, dp.Empty)

    def register(self, registration: Registration, timeout_s: float) -> None:
        """Register a plugin.

        Raises:
            grpc.RpcError: kubelet refused it, or did not answer in time.
        """
        self._register(
            dp.RegisterRequest(
                version=registration.version,
                endpoint=registration.endpoint,
                resource_name=registration.resource,
                options=options_message(registration.options),
            ),
            timeout=timeout_s,
            wait_for_ready=False,
        )


class PodResourcesCaller:
    """A client of kubelet's PodResources service, which lists who holds which devices."""

    def __init__(self, link: grpc.Channel) -> None:
        self._list = _call(link, "/v1.PodResourcesLister/List", pr.ListPodResourcesRequest, pr.ListPodResourcesResponse)

    def list(self, timeout_s: float) -> list[PodDevices]:
        """Return all pods' devices; the call makes kubelet release those of pods that are gone.

        Raises:
            grpc.RpcError: kubelet did not answer in time.
        """
        answer: pr.ListPodResourcesResponse = self._list(pr.ListPodResourcesRequest(), timeout=timeout_s)
        return [
            PodDevices(pod.namespace, pod.name, container.name, held.resource_name, tuple(held.device_ids))
            for pod in answer.pod_resources
            for container in pod.containers
            for held in container.devices
        ]


class DevicePluginCaller:
    """A client of a device plugin, as kubelet is one."""

    def __init__(self, link: grpc.Channel) -> None:
        path = "/v1beta1.DevicePlugin/"
        self._options = _call(link, path + "GetDevicePluginOptions", dp.Empty, dp.DevicePluginOptions)
        self._preferred = _call(
            link, path + "GetPreferredAllocation", dp.PreferredAllocationRequest, dp.PreferredAllocationResponse
        )
        self._allocate = _call(link, path + "Allocate", dp.AllocateRequest, dp.AllocateResponse)
        self._pre_start = _call(link, path + "PreStartContainer", dp.PreStartContainerRequest, dp.Empty)
        self._watch = link.unary_stream(
            path + "ListAndWatch",
            request_serializer=dp.Empty.SerializeToString,
            response_deserializer=dp.ListAndWatchResponse.FromString,
        )

    def options(self, timeout_s: float) -> DevicePluginOptions:
        """Ask which optional calls the plugin wants."""
        answer = self._options(dp.Empty(), timeout=timeout_s)
        return DevicePluginOptions(answer.pre_start_required, answer.get_preferred_allocation_available)

    def watch(self) -> Iterator[list[OfferedDevice]]:
        """Yield the device lists until the plugin ends the stream (grpc.RpcError)."""
        for message in self._watch(dp.Empty()):
            yield [OfferedDevice(device.id, device.health == "Healthy") for device in message.devices]

    def preferred(self, request: PreferredRequest, timeout_s: float) -> list[str]:
        """Ask which devices the plugin prefers."""
        asked = dp.ContainerPreferredAllocationRequest(
            available_device_ids=request.available,
            must_include_device_ids=request.must_include,
            allocation_size=request.size,
        )
        answer = self._preferred(dp.PreferredAllocationRequest(container_requests=[asked]), timeout=timeout_s)
        return list(answer.container_responses[0].device_ids)

    def allocate(self, ids: Sequence[str], timeout_s: float) -> Allocation:
        """Allocate devices for one container."""
        asked = dp.ContainerAllocateRequest(devices_ids=ids)
        answer = self._allocate(dp.AllocateRequest(container_requests=[asked]), timeout=timeout_s)
        one = answer.container_responses[0]
        return Allocation(
            envs=dict(one.envs),
            mounts=[Mount(m.container_path, m.host_path, m.read_only) for m in one.mounts],
            devices=[DeviceNode(d.container_path, d.host_path, d.permissions) for d in one.devices],
            annotations=dict(one.annotations),
            cdi_devices=[device.name for device in one.cdi_devices],
        )

    def pre_start(self, ids: Sequence[str], timeout_s: float) -> None:
        """Ask whether the container with these devices may start."""
        self._pre_start(dp.PreStartContainerRequest(devices_ids=ids), timeout=timeout_s)
