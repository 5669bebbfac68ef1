"""gRPC handlers of the interfaces that kubelet itself serves, for an embedded kubelet."""

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from edgegpu_plugin.pb.gen import deviceplugin_pb2 as dp
from edgegpu_plugin.pb.gen import podresources_pb2 as pr
from edgegpu_plugin.pb.types import (
    CallRefusedError,
    DevicePluginOptions,
    PodDevices,
    Registration,
)


def _unary(request: Any, response: Any, call: Callable[[Any], Any]) -> "grpc.RpcMethodHandler[Any, Any]":  # noqa: ANN401
    def handle(message: Any, context: grpc.ServicerContext) -> Any:  # noqa: ANN401
        try:
            return call(message)
        except CallRefusedError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))  # raises
            raise

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def registration_handler(register: Callable[[Registration], None]) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return the gRPC handler of `v1beta1.Registration`, as kubelet serves it."""

    def call(m: dp.RegisterRequest) -> dp.Empty:
        options = DevicePluginOptions(m.options.pre_start_required, m.options.get_preferred_allocation_available)
        register(Registration(m.endpoint, m.resource_name, options, m.version))
        return dp.Empty()

    return grpc.method_handlers_generic_handler(
        "v1beta1.Registration", {"Register": _unary(dp.RegisterRequest, dp.Empty, call)}
    )


def pod_resources_handler(devices: Callable[[], Sequence[PodDevices]]) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return the gRPC handler of `v1.PodResourcesLister` with List alone, as kubelet 1.20 serves it."""

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
