"""The packets of MQTT 5 that a box needs, as bytes; no I/O."""

from __future__ import annotations

import struct
from dataclasses import dataclass

CONNACK, PUBLISH, PUBACK, SUBACK, PINGRESP, DISCONNECT = 2, 3, 4, 9, 13, 14
_NO_LOCAL_PROPERTIES = b"\0"


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet as it came: its kind, its flags, and what follows its length."""

    kind: int
    flags: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Arrived:
    """A publish as it came; `mid` is 0 with QoS 0."""

    topic: str
    mid: int
    payload: bytes


def _length(number: int) -> bytes:
    found = bytearray()
    while True:
        number, digit = divmod(number, 128)
        found.append(digit | (128 if number else 0))
        if not number:
            return bytes(found)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("!H", len(data)) + data


def _packet(head: int, body: bytes) -> bytes:
    return bytes([head]) + _length(len(body)) + body


def connect(client_id: str, *, will: tuple[str, bytes], keepalive_s: int, session_s: int) -> bytes:
    """Return CONNECT with a will that is retained, QoS 1; the session goes on where the broker has one."""
    properties = b"\x11" + struct.pack("!I", session_s) + b"\x21" + struct.pack("!H", 16)
    flags = 0x20 | 0x08 | 0x04
    head = _text("MQTT") + bytes([5, flags]) + struct.pack("!H", keepalive_s) + _length(len(properties)) + properties
    topic, payload = will
    rest = _text(client_id) + b"\0" + _text(topic) + struct.pack("!H", len(payload)) + payload
    return _packet(0x10, head + rest)


def subscribe(mid: int, topic: str) -> bytes:
    """Return SUBSCRIBE, QoS 1."""
    return _packet(0x82, struct.pack("!H", mid) + _NO_LOCAL_PROPERTIES + _text(topic) + b"\x01")


def publish(mid: int, topic: str, payload: bytes, *, retain: bool) -> bytes:
    """Return PUBLISH, QoS 1."""
    return _packet(0x32 | int(retain), _text(topic) + struct.pack("!H", mid) + _NO_LOCAL_PROPERTIES + payload)


def puback(mid: int) -> bytes:
    """Return PUBACK."""
    return b"\x40\x02" + struct.pack("!H", mid)


def take(buffer: bytearray) -> Packet | None:
    """Take the first whole packet off a buffer; None while it is not whole."""
    length, at, shift = 0, 1, 0
    while True:
        if at >= len(buffer):
            return None
        digit = buffer[at]
        length |= (digit & 127) << shift
        at, shift = at + 1, shift + 7
        if not digit & 128:
            break
    if len(buffer) < at + length:
        return None
    found = Packet(buffer[0] >> 4, buffer[0] & 15, bytes(buffer[at : at + length]))
    del buffer[: at + length]
    return found


def arrived(packet: Packet) -> Arrived:
    """Read PUBLISH."""
    body = packet.body
    end = 2 + struct.unpack_from("!H", body)[0]
    topic, mid = body[2:end].decode(), 0
    if packet.flags & 6:
        mid = struct.unpack_from("!H", body, end)[0]
        end += 2
    properties, at, shift = 0, end, 0
    while True:
        properties |= (body[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if not body[at - 1] & 128:
            break
    return Arrived(topic, mid, body[at + properties :])
