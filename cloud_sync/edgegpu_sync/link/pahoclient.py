"""One MQTT connection by paho, which drives no thread, no reconnect and no queue of its own here.

No other module imports paho. A client of paho serves one connection and is used by one thread. Its callbacks only
record facts, which `step` returns afterwards: nothing that follows from a fact runs inside paho, where an exception
would be lost or would end the loop.
"""

import logging
import select
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgegpu_sync.link.rules import V5, ConnectionEnd, Protocol
from edgegpu_sync.wire import WIRE_MAX_BYTES

PACKET_MAX_BYTES = WIRE_MAX_BYTES + 1_024
"""The largest packet: a payload with topic and properties."""

_UNSUPPORTED, _TAKEN_OVER = 0x84, 0x8E
_BUSY = {0x88, 0x89, 0x97, 0x9F}
"""Reason codes of a busy broker: server unavailable, server busy, quota exceeded, connection rate exceeded."""
_BLAMES = {0x81, 0x82, 0x83, 0x87, 0x90, 0x95, 0x99, 0x9A, 0x9B}
"""Reason codes that blame one of our messages.

Malformed packet, protocol error, implementation specific error, not authorized, topic name invalid, packet too large,
payload format invalid, retain not supported, QoS not supported.
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options with which a connection begins."""

    client_id: str
    protocol: Protocol
    keepalive_s: int
    will: tuple[str, bytes] | None
    session_s: int
    receive_max: int
    clean_session: bool = False
    """Discard the session that the broker may still hold."""


@dataclass(frozen=True, slots=True)
class ConnAck:
    """CONNACK: the broker accepts us. `window`: how many of our publishes may be in flight; 3.1.1 does not say."""

    session_present: bool
    window: int
    keepalive_s: int


@dataclass(frozen=True, slots=True)
class SubAck:
    """SUBACK; `refused` has the broker's reasons for the filters that it does not grant."""

    mid: int
    refused: str


@dataclass(frozen=True, slots=True)
class PublishReceived:
    """PUBLISH; `mid` is below 0 where it came with QoS 0, which is not acknowledged to the broker."""

    topic: str
    payload: bytes
    retained: bool
    mid: int


@dataclass(frozen=True, slots=True)
class PubAck:
    """PUBACK; `refused` is the broker's reason (MQTT 5) where it has not accepted the publish."""

    mid: int
    refused: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The connection has ended; `blamed`: the broker says that one of our messages is the cause."""

    ending: ConnectionEnd
    why: str
    blamed: bool = False


Fact = ConnAck | SubAck | PublishReceived | PubAck | ConnectionClosed


class _Client(Client):
    """paho's client on an open connection: its own way to connect leaves sockets open, and cannot be stopped."""

    connected_socket: ssl.SSLSocket

    def _create_socket(self) -> ssl.SSLSocket:
        return self.connected_socket


class _LastError(logging.Logger):
    """Keeps the last error of a client in `last`; a logger with a level spares the text of each packet."""

    def __init__(self) -> None:
        super().__init__("paho", logging.ERROR)
        self.last = ""

    def handle(self, record: logging.LogRecord) -> None:
        """Keep what it says."""
        self.last = record.getMessage()


class MqttConnection:
    """An MQTT connection over `sock`, which it owns. Only one thread may use it."""

    def __init__(self, sock: ssl.SSLSocket, options: ConnectOptions) -> None:
        """Send CONNECT; `step` returns what follows."""
        self._facts, self._errors, self._accepted = list[Fact](), _LastError(), False
        self._unnumbered = 0
        five = options.protocol == V5
        clean = options.clean_session or options.session_s == 0
        self._client = client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=options.client_id,
            clean_session=None if five else clean,
            protocol=MQTTProtocolVersion.MQTTv5 if five else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,  # otherwise paho goes from 3.1.1 to 3.1 by itself
            manual_ack=True,
        )
        client.connected_socket = sock
        client.max_inflight_messages = 0  # no limit: paho queues what is above one; `Inflight` has ours
        client.on_connect, client.on_subscribe, client.on_message = self._connected, self._subscribed, self._on_message
        client.on_publish, client.on_disconnect = self._acked, self._disconnected
        client.enable_logger(self._errors)
        if options.will:
            client.will_set(options.will[0], options.will[1], qos=1, retain=True)
        if five:
            client.connect("made", 1, options.keepalive_s, clean_start=clean, properties=_properties(options))
        else:
            client.connect("made", 1, options.keepalive_s)

    def step(self, *, wake: int, timeout_s: float, read: bool = True) -> list[Fact]:
        """Wait for work at most `timeout_s` seconds or until `wake` is readable; do it and return the facts.

        Without `read` nothing is read from the broker: it has to wait until we have room.
        """
        sock = self._client.socket()
        if isinstance(sock, ssl.SSLSocket):
            poll = select.poll()
            poll.register(wake, select.POLLIN)
            poll.register(sock, (select.POLLIN if read else 0) | (select.POLLOUT if self._client.want_write() else 0))
            more = read and sock.pending() > 0
            ready = dict(poll.poll(0 if more or self._facts else min(timeout_s, 3600.0) * 1000))
            self._guarded(lambda: self._read_and_write(sock, ready.get(sock.fileno(), 0), more=more))
        elif not self._facts:
            self._facts.append(ConnectionClosed(self._ending(), "the connection was closed"))
        facts, self._facts = self._facts, []
        return facts

    def subscribe(self, filters: Sequence[str]) -> int:
        """Send SUBSCRIBE, QoS 1 for each; return its packet id, which `SubAck` will name; 0: the connection ended."""
        _, mid = self._client.subscribe([(one, 1) for one in filters])
        return mid or 0

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Send UNSUBSCRIBE."""
        self._client.unsubscribe(list(filters))

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> int:
        """Send PUBLISH with QoS 1; return its packet id, which `PubAck` will name."""
        return self._client.publish(topic, payload, qos=1, retain=retain).mid

    def ack(self, mid: int) -> None:
        """Send PUBACK."""
        self._client.ack(mid, 1)

    def disconnect(self) -> None:
        """Send DISCONNECT where the connection is open."""
        self._client.on_disconnect = None
        self._client.disconnect()

    def close(self) -> None:
        """Close the connection; without a DISCONNECT before, the broker publishes the will."""
        self._client.on_disconnect = None
        self._client.connected_socket.close()

    def _read_and_write(self, sock: ssl.SSLSocket, ready: int, *, more: bool) -> None:
        if more or ready & ~select.POLLOUT:
            self._client.loop_read()
            while self._client.socket() is sock and sock.pending() and not self._too_large():
                self._client.loop_read()
            if self._too_large():
                why = f"a message of more than {PACKET_MAX_BYTES} bytes came"
                self._facts.append(ConnectionClosed(ConnectionEnd.OVERSIZE, why))
                return
        if ready & select.POLLOUT:
            self._client.loop_write()
        # No loop_misc: it sends a ping each keep-alive, whatever else was sent. The heartbeat does more, for less.

    def _guarded(self, turn: Callable[[], None]) -> None:
        # The border to the library: the broker may send anything, and paho's reader may raise anything.
        try:
            turn()
        except Exception:
            log.exception("cannot read what the broker sends")
            self._facts.append(ConnectionClosed(self._ending(), "cannot read what the broker sends"))

    def _too_large(self) -> bool:
        # paho would read up to 256 MiB into memory; only an MQTT 5 broker respects the limit in CONNECT.
        return self._client._in_packet["remaining_length"] > PACKET_MAX_BYTES  # noqa: SLF001

    def _ending(self) -> ConnectionEnd:
        if self._accepted:
            return ConnectionEnd.LOST
        return ConnectionEnd.REFUSED if "[SSL" in self._errors.last else ConnectionEnd.CLOSED_EARLY

    def _connected(
        self, _c: Client, _u: object, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            self._facts.append(ConnectionClosed(_refusal(reason), f"the broker refuses: {reason}"))
            return
        self._accepted = True
        window = getattr(properties, "ReceiveMaximum", 65_535)
        self._facts.append(ConnAck(flags.session_present, window, self._client.keepalive))

    def _subscribed(self, _c: Client, _u: object, mid: int, reasons: list[ReasonCode], _p: Properties | None) -> None:
        refused = dict.fromkeys(str(one) for one in reasons if one.is_failure)
        self._facts.append(SubAck(mid, ", ".join(refused)))

    def _on_message(self, _c: Client, _u: object, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "?"  # refused later: no topic of ours
        self._unnumbered += message.qos == 0  # amqtt sends retained ones with QoS 0; they count until `ack`, too
        mid = message.mid if message.qos else -self._unnumbered
        self._facts.append(PublishReceived(topic, bytes(message.payload), message.retain, mid))

    def _acked(self, _c: Client, _u: object, mid: int, reason: ReasonCode, _p: Properties | None) -> None:
        self._facts.append(PubAck(mid, str(reason) if reason.is_failure else ""))

    def _disconnected(
        self, _c: Client, _u: object, flags: DisconnectFlags, reason: ReasonCode, _p: Properties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            ending = ConnectionEnd.REFUSED if reason.value == _TAKEN_OVER else self._ending()
            why = f"the broker closes the connection: {reason}"
            self._facts.append(ConnectionClosed(ending, why, blamed=reason.value in _BLAMES))
        else:
            self._facts.append(
                ConnectionClosed(
                    self._ending(), f"the connection was closed{self._errors.last and ': '}{self._errors.last}"
                )
            )


def _properties(options: ConnectOptions) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = options.session_s
    properties.ReceiveMaximum = options.receive_max
    properties.MaximumPacketSize = PACKET_MAX_BYTES
    return properties


def _refusal(reason: ReasonCode) -> ConnectionEnd:
    if reason.value == _UNSUPPORTED:
        return ConnectionEnd.UNSUPPORTED
    return ConnectionEnd.BUSY if reason.value in _BUSY else ConnectionEnd.REFUSED
