"""The messages in which a device plugin answers, made from dataclasses."""

from collections import deque
from collections.abc import Sequence

from edgegpu_plugin.pb.gen import deviceplugin_pb2 as dp
from edgegpu_plugin.pb.types import Allocation, DevicePluginOptions, OfferedDevice

_ENCODED: deque[tuple[Sequence[OfferedDevice], bytes]] = deque(maxlen=4)
"""The encoded lists of both resources, with the previous ones."""


def encode_devices(devices: Sequence[OfferedDevice]) -> bytes:
    """Return the encoded ListAndWatchResponse of a device list, made once for each list object.

    Encoding takes 5 ms and more for thousands of devices, and a kubelet that restarts waits for it.
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


def options_message(options: DevicePluginOptions) -> dp.DevicePluginOptions:
    """Return the message with a plugin's options."""
    return dp.DevicePluginOptions(
        pre_start_required=options.pre_start_required,
        get_preferred_allocation_available=options.preferred_allocation,
    )


def allocation_message(one: Allocation) -> dp.ContainerAllocateResponse:
    """Return the message with what a container is given."""
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
