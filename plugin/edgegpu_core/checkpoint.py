"""Reads kubelet's own record of allocated devices, `kubelet_internal_checkpoint`, in both of its formats."""

import json
from dataclasses import dataclass
from typing import Any


class CheckpointError(ValueError):
    """The file is no device checkpoint of kubelet; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The devices of one resource that kubelet booked for one container; init containers stand in it as well."""

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


def parse_checkpoint(text: str | bytes) -> tuple[Entry, ...]:
    """Read the checkpoint; dead pods' entries are in it too, until kubelet writes it again.

    `DeviceIDs` is a list up to Kubernetes 1.19 and a map from NUMA node to list since then.

    Raises:
        CheckpointError: not JSON, or not of either shape.
    """
    try:
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or ()
        return tuple(
            Entry(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], _ids(entry["DeviceIDs"]))
            for entry in entries
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"cannot read kubelet's device checkpoint: {type(error).__name__}: {error}") from error


def _ids(value: Any) -> tuple[str, ...]:  # noqa: ANN401  (foreign JSON: list or map)
    if isinstance(value, dict):
        return tuple(text for part in value.values() for text in part)
    return tuple(value or ())
