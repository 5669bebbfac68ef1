"""gRPC handlers: the servers' side of kubelet's interfaces (ours, and for an embedded kubelet kubelet's own)."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import grpc

from edgegpu_plugin.pb.gen import deviceplugin_pb2 as dp
from edgegpu_plugin.pb.gen import podresources_pb2 as pr
from edgegpu_plugin.pb.types import (
    Allocation,
    Device,
    DevicePlugin,
    Options,
    PodDevices,
    PreferredRequest,
    RefusedError,
    Registration,
    StopCallback,
)


class _Stop:
    """A stream's end, by gRPC's own callback."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context

    def on_stop(self, callback: StopCallback) -> None:
        """Call back when the stream ends; at once when it has ended already."""
        if not self._context.add_callback(callback):
            callback()


def _refuse(context: grpc.ServicerContext, error: RefusedError) -> NoReturn:
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    raise AssertionError  # abort raises


def _unary(request: Any, response: Any, call: Callable[[Any], Any]) -> "grpc.RpcMethodHandler[Any, Any]":  # noqa: ANN401
    def handle(message: Any, context: grpc.ServicerContext) -> Any:  # noqa: ANN401
        try:
            return call(message)
        except RefusedError as error:
            _refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def device_plugin_handler(plugin: DevicePlugin) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serve a device plugin as `v1beta1.DevicePlugin`."""

    def watch(_: dp.Empty, context: grpc.ServicerContext) -> Iterator[bytes]:
        for devices in plugin.watch(_Stop(context)):
            yield encode_devices(devices)

    def preferred(message: dp.PreferredAllocationRequest) -> dp.PreferredAllocationResponse:
        asked = [
            PreferredRequest(list(r.available_device_ids), list(r.must_include_device_ids), r.allocation_size)
            for r in message.container_requests
        ]
        answers = [dp.ContainerPreferredAllocationResponse(device_ids=ids) for ids in plugin.preferred(asked)]
        return dp.PreferredAllocationResponse(container_responses=answers)

    def allocate(message: dp.AllocateRequest) -> dp.AllocateResponse:
        given = plugin.allocate([r.devices_ids for r in message.container_requests])
        return dp.AllocateResponse(container_responses=[allocation_message(one) for one in given])

    def pre_start(message: dp.PreStartContainerRequest) -> dp.Empty:
        plugin.pre_start(message.devices_ids)
        return dp.Empty()

    def options(_: dp.Empty) -> dp.DevicePluginOptions:
        return options_message(plugin.options())

    return grpc.method_handlers_generic_handler(
        "v1beta1.DevicePlugin",
        {
            "GetDevicePluginOptions": _unary(dp.Empty, dp.DevicePluginOptions, options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                watch,
                request_deserializer=dp.Empty.FromString,
                response_serializer=bytes,
            ),
            "GetPreferredAllocation": _unary(dp.PreferredAllocationRequest, dp.PreferredAllocationResponse, preferred),
            "Allocate": _unary(dp.AllocateRequest, dp.AllocateResponse, allocate),
            "PreStartContainer": _unary(dp.PreStartContainerRequest, dp.Empty, pre_start),
        },
    )


def registration_handler(register: Callable[[Registration], None]) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serve `v1beta1.Registration`, as kubelet does."""

    def call(m: dp.RegisterRequest) -> dp.Empty:
        options = Options(m.options.pre_start_required, m.options.get_preferred_allocation_available)
        register(Registration(m.endpoint, m.resource_name, options, m.version))
        return dp.Empty()

    return grpc.method_handlers_generic_handler(
        "v1beta1.Registration", {"Register": _unary(dp.RegisterRequest, dp.Empty, call)}
    )


def pod_resources_handler(devices: Callable[[], Sequence[PodDevices]]) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serve `v1.PodResourcesLister` with List alone, as kubelet 1.20 does."""

    def call(_: pr.ListPodResourcesRequest) -> pr.ListPodResourcesResponse:
        pods: dict[tuple[str, str], dict[str, list[pr.ContainerDevices]]] = {}
        for one in devices():
            held = pr.ContainerDevices(resource_name=one.resource, device_ids=one.ids)
            pods.setdefault((one.namespace, one.pod), {}).setdefault(one.container, []).append(held)
        return pr.ListPodResourcesResponse(
            pod_resources=[
                pr.PodResources(
                    namespace=namespace,
                    name=name,
                    containers=[pr.ContainerResources(name=c, devices=some) for c, some in containers.items()],
                )
                for (namespace, name), containers in pods.items()
            ]
        )

    return grpc.method_handlers_generic_handler(
        "v1.PodResourcesLister", {"List": _unary(pr.ListPodResourcesRequest, pr.ListPodResourcesResponse, call)}
    )


_ENCODED: deque[tuple[Sequence[Device], bytes]] = deque(maxlen=4)
"""The lists of both resources and their predecessors."""


def encode_devices(devices: Sequence[Device]) -> bytes:
    """Return the ListAndWatchResponse of a device list on the wire; made once for each list object.

    It takes 5 ms and more for thousands of devices, and a kubelet that restarts waits for it.
    """
    for known, encoded in tuple(_ENCODED):
        if known is devices:
            return encoded
    message = dp.ListAndWatchResponse(
        devices=[dp.Device(id=device.id, health="Healthy" if device.healthy else "Unhealthy") for device in devices]
    )
    encoded = message.SerializeToString()
    _ENCODED.append((devices, encoded))
    return encoded


def options_message(options: Options) -> dp.DevicePluginOptions:
    """Return the message of a plugin's options."""
    return dp.DevicePluginOptions(
        pre_start_required=options.pre_start_required,
        get_preferred_allocation_available=options.preferred_allocation,
    )


def allocation_message(one: Allocation) -> dp.ContainerAllocateResponse:
    """Return the message of what a container is given."""
    return dp.ContainerAllocateResponse(
        envs=one.envs,
        mounts=[
            dp.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only) for m in one.mounts
        ],
        devices=[
            dp.DeviceSpec(container_path=d.container_path, host_path=d.host_path, permissions=d.permissions)
            for d in one.devices
        ],
        annotations=one.annotations,
        cdi_devices=[dp.CDIDevice(name=name) for name in one.cdi_devices],
    )
