"""An MQTT client of bytes on a TLS socket, which keeps no rule: what a box's root can send with its certificate."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgegpu_sync.link.events import Address

_CONNECT, _PUBLISH, _SUBSCRIBE, _SUBACK, _PING, _PONG = 0x10, 0x30, 0x82, 0x90, 0xC0, 0xD0


def _length(number: int) -> bytes:
    digits = bytearray()
    while True:
        number, digit = divmod(number, 128)
        digits.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(digits)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _packet(head: int, body: bytes) -> bytes:
    return bytes([head]) + _length(len(body)) + body


def publish_packet(topic: str, payload: bytes) -> bytes:
    """Return a publish with QoS 0."""
    return _packet(_PUBLISH, _text(topic) + payload)


class RawMqtt:
    """A connection by MQTT 3.1.1 that was accepted; use it with `with`."""

    def __init__(self, address: Address) -> None:
        context = ssl.create_default_context(cafile=str(address.ca))
        context.check_hostname = False
        context.load_cert_chain(str(address.cert), str(address.key))
        self._socket = context.wrap_socket(socket.create_connection((address.host, address.port), timeout=60))
        hello = _text("MQTT") + bytes([4, 0]) + struct.pack(">H", 300) + _text(address.client_id)
        self._socket.sendall(_packet(_CONNECT, hello))
        _, answer = self._read()
        assert answer[1] == 0, f"the broker refuses the connection: {answer[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, packets: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(packets)

    def subscribe(self, filters: Sequence[str]) -> list[int]:
        """Subscribe with QoS 1 in one packet; return the broker's code for each filter, 128: refused."""
        body = struct.pack(">H", 1) + b"".join(_text(one) + b"\1" for one in filters)
        self.send(_packet(_SUBSCRIBE, body))
        while True:
            head, answer = self._read()
            if head == _SUBACK:
                return list(answer[2:])

    def ping(self) -> int:
        """Wait until the broker has read all that was sent; return how many messages it has sent meanwhile."""
        self.send(_packet(_PING, b""))
        messages = 0
        while True:
            head, _ = self._read()
            if head == _PONG:
                return messages
            messages += head & 0xF0 == _PUBLISH

    def _read(self) -> tuple[int, bytes]:
        head, size, shift = self._exactly(1)[0], 0, 0
        while True:
            digit = self._exactly(1)[0]
            size |= (digit & 0x7F) << shift
            shift += 7
            if not digit & 0x80:
                return head, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker has ended the connection"
            data += part
        return data
