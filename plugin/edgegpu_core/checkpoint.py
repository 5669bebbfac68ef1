"""Reads kubelet's own record of allocated devices, `kubelet_internal_checkpoint`, in both of its formats."""

import json
from dataclasses import dataclass
from typing import Any


class CheckpointError(ValueError):
    """The file is no device checkpoint of kubelet; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The devices of one resource that kubelet booked for one container; init containers stand in it as well."""

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


def parse_checkpoint(text: str | bytes) -> tuple[CheckpointEntry, ...]:
    """Read the checkpoint; dead pods' entries are in it too, until kubelet writes it again.

    `DeviceIDs` is a list up to Kubernetes 1.19 and a map from NUMA node to list since then.

    Raises:
        CheckpointError: not JSON, or not of either shape.
    """
    try:
        return tuple(_entry(entry) for entry in json.loads(text)["Data"]["PodDeviceEntries"] or ())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"cannot read kubelet's device checkpoint: {type(error).__name__}: {error}") from error


def _entry(value: Any) -> CheckpointEntry:  # noqa: ANN401  (foreign JSON)
    ids = value["DeviceIDs"]
    lists = list(ids.values()) if isinstance(ids, dict) else [ids]
    if not all(part is None or isinstance(part, list) for part in lists):
        raise TypeError("DeviceIDs is neither a list nor a map of lists")
    found = tuple(text for part in lists for text in part or ())
    names = (value["PodUID"], value["ContainerName"], value["ResourceName"])
    "".join((*names, *found))  # raises TypeError for what is no text, at a fifth of the cost of looking at each
    return CheckpointEntry(*names, found)
