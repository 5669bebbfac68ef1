"""kubelet's gRPC interfaces as dataclasses, handlers for servers and callers for clients.

Only this package touches generated code. Names and field numbers: pb/proto.
"""

from edgegpu_plugin.pb.clients import DevicePluginCaller, PodResourcesCaller, RegistrationCaller, channel
from edgegpu_plugin.pb.device_messages import encode_devices
from edgegpu_plugin.pb.device_server import DevicePluginServer, ServingLoop
from edgegpu_plugin.pb.servers import pod_resources_handler, registration_handler
from edgegpu_plugin.pb.types import (
    API_VERSION,
    Allocation,
    CallRefusedError,
    DeviceNode,
    DevicePlugin,
    DevicePluginOptions,
    Mount,
    OfferedDevice,
    PodDevices,
    PreferredRequest,
    Registration,
    StopSignal,
    WouldWaitError,
)

__all__ = [
    "API_VERSION",
    "Allocation",
    "CallRefusedError",
    "DeviceNode",
    "DevicePlugin",
    "DevicePluginCaller",
    "DevicePluginOptions",
    "DevicePluginServer",
    "Mount",
    "OfferedDevice",
    "PodDevices",
    "PodResourcesCaller",
    "PreferredRequest",
    "Registration",
    "RegistrationCaller",
    "ServingLoop",
    "StopSignal",
    "WouldWaitError",
    "channel",
    "encode_devices",
    "pod_resources_handler",
    "registration_handler",
]
