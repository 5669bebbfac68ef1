"""A broker that says on a real TLS socket what a test wants it to say: refusals, silence, rubbish."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kits.mqttcerts import SERVER_NAMES, TestCa

from edgegpu_sync.link.events import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, DISCONNECT = 1, 2, 3, 4, 8, 9, 14


@dataclass(frozen=True, slots=True)
class Packet:
    """An MQTT control packet: its type, its flags, and all behind its length."""

    type: int
    flags: int
    rest: bytes

    @property
    def protocol(self) -> int:
        """Of a CONNECT: 4 is 3.1.1."""
        return self.rest[6]

    @property
    def mid(self) -> bytes:
        """Of a SUBSCRIBE, or of a PUBLISH with QoS 1."""
        start = 0 if self.type == SUBSCRIBE else 2 + int(struct.unpack("!H", self.rest[:2])[0])
        return self.rest[start : start + 2]


def packed(kind: int, rest: bytes, *, flags: int = 0) -> bytes:
    """Return a packet's bytes."""
    length, left = bytearray(), len(rest)
    while True:
        left, low = divmod(left, 128)
        length.append(low | (0x80 if left else 0))
        if not left:
            return bytes([kind << 4 | flags]) + bytes(length) + rest


def publish(topic: str, payload: bytes, *, mid: int, five: bool) -> bytes:
    """Return a PUBLISH with QoS 1."""
    name = topic.encode()
    head = struct.pack("!H", len(name)) + name + struct.pack("!H", mid) + (b"\0" if five else b"")
    return packed(PUBLISH, head + payload, flags=2)


class Peer:
    """One connection to the fake."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.five = True

    def read(self) -> Packet | None:
        """Return the next packet; None at the end."""
        with suppress(OSError):
            if first := self._sock.recv(1):
                length, shift = 0, 0
                while True:
                    byte = self._sock.recv(1)[0]
                    length, shift = length | (byte & 127) << shift, shift + 7
                    if byte < 128:
                        break
                rest = b""
                while len(rest) < length:
                    rest += self._sock.recv(length - len(rest))
                return Packet(first[0] >> 4, first[0] & 15, rest)
        return None

    def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._sock.sendall(data)

    def welcome(self, connect: Packet) -> None:
        """Accept a CONNECT."""
        self.five = connect.protocol == 5
        self.say(packed(CONNACK, b"\0\0\0" if self.five else b"\0\0"))

    def grant(self, subscribe: Packet, code: int = 1) -> None:
        """Answer a SUBSCRIBE."""
        self.say(packed(SUBACK, subscribe.mid + (b"\0" if self.five else b"") + bytes([code])))

    def acknowledge(self, publish_: Packet) -> None:
        """Answer a PUBLISH."""
        self.say(packed(PUBACK, publish_.mid))


def obliging(peer: Peer) -> None:
    """Be a broker that takes everything, and delivers nothing."""
    while packet := peer.read():
        match packet.type:
            case 1:
                peer.welcome(packet)
            case 8:
                peer.grant(packet)
            case 3:
                peer.acknowledge(packet)
            case 12:
                peer.say(packed(13, b""))


class FakeBroker:
    """Serves one connection after the other with `script`; when it returns the connection is closed."""

    def __init__(
        self,
        folder: Path,
        script: Callable[[Peer], None],
        *,
        names: Sequence[str] = SERVER_NAMES,
        days: tuple[float, float] = (-1, 365),
    ) -> None:
        self._script, self._folder = script, folder
        ca = TestCa("authority")
        self._ca, self._mine = ca.write(folder / "fake-ca.crt"), ca.issue(folder, "fake", names=names, days=days)
        self._client = ca.issue(folder, "client")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self._mine.cert, self._mine.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, name="fake broker")
        self.failed: BaseException | None = None

    def address(self, client_id: str) -> Address:
        """Return how to reach it."""
        port = int(self._listener.getsockname()[1])
        cert, key = self._client.cert, self._client.key
        return Address(host="127.0.0.1", port=port, client_id=client_id, ca=self._ca, cert=cert, key=key)

    def demand(self, authority: TestCa) -> None:
        """Take only who shows a certificate of that authority."""
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_verify_locations(authority.write(self._folder / "demanded.crt"))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        assert self.failed is None, self.failed

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            with plain, suppress(OSError), self._context.wrap_socket(plain, server_side=True) as sock:
                sock.settimeout(10)
                try:
                    self._script(Peer(sock))
                except AssertionError as error:
                    self.failed = error
