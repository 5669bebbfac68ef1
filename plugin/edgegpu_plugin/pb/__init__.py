"""kubelet's gRPC interfaces in our own words: dataclasses, handlers for servers and callers for clients.

Only this package touches generated code. Names and field numbers: pb/proto.
"""

from edgegpu_plugin.pb.clients import DevicePluginCaller, PodResourcesCaller, RegistrationCaller, channel
from edgegpu_plugin.pb.device_messages import encode_devices
from edgegpu_plugin.pb.device_server import DevicePluginServer, ServingLoop
from edgegpu_plugin.pb.servers import pod_resources_handler, registration_handler
from edgegpu_plugin.pb.types import (
    API_VERSION,
    Allocation,
    Device,
    DeviceNode,
    DevicePlugin,
    Mount,
    Options,
    PodDevices,
    PreferredRequest,
    RefusedError,
    Registration,
    StopSignal,
    WouldWaitError,
)

__all__ = [
    "API_VERSION",
    "Allocation",
    "Device",
    "DeviceNode",
    "DevicePlugin",
    "DevicePluginCaller",
    "DevicePluginServer",
    "Mount",
    "Options",
    "PodDevices",
    "PodResourcesCaller",
    "PreferredRequest",
    "RefusedError",
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
