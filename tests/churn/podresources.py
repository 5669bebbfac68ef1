"""kubelet's PodResources, read by hand: one gRPC call, and the few fields of its answer that say who has what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
from churn.records import Booking, RecordError, merge

_METHOD = "/v1.PodResourcesLister/List"
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20))
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# Field numbers of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
_PODS, _NAME, _NAMESPACE, _CONTAINERS = 1, 1, 2, 3
_CONTAINER_NAME, _CONTAINER_DEVICES = 1, 2
_RESOURCE, _DEVICE_IDS = 1, 2


def ask(socket: Path, timeout_s: float) -> tuple[Booking, ...] | None:
    """Return what kubelet lists, pods by NAMESPACE/NAME; None where it does not answer."""
    with grpc.insecure_channel(f"unix://{socket}", options=_OPTIONS) as channel:
        call = channel.unary_unary(_METHOD, request_serializer=bytes, response_deserializer=bytes)
        try:
            answer: bytes = call(b"", timeout=timeout_s)
        except grpc.RpcError:
            return None
    return read_list(answer)


def read_list(answer: bytes) -> tuple[Booking, ...]:
    """Read a ListPodResourcesResponse.

    Raises:
        RecordError: it is cut short.
    """
    return merge(_parts(answer))


def _parts(answer: bytes) -> Iterator[tuple[str, str, str, list[str]]]:
    for pod in _all(answer, _PODS):
        name = f"{_text(pod, _NAMESPACE)}/{_text(pod, _NAME)}"
        for container in _all(pod, _CONTAINERS):
            for devices in _all(container, _CONTAINER_DEVICES):
                ids = [text.decode() for text in _all(devices, _DEVICE_IDS)]
                yield name, _text(container, _CONTAINER_NAME), _text(devices, _RESOURCE), ids


def _text(message: bytes, field: int) -> str:
    return next((value.decode() for value in _all(message, field)), "")


def _all(message: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the values of a field that is text, bytes or a message; other kinds are passed over."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, kind = key >> 3, key & 7
        if kind == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise RecordError("the answer of PodResources is cut short")
            if field == wanted:
                yield message[at : at + size]
            at += size
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            at += 8 if kind == _FIXED64 else 4
        else:
            raise RecordError(f"the answer of PodResources has a field of kind {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message):
            raise RecordError("the answer of PodResources is cut short")
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
