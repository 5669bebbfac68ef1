"""The state that the link's thread shares with callers: messages to send, in flight and in quarantine."""

import contextlib
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from edgegpu_sync.errors import TooLargeError
from edgegpu_sync.link.events import FiltersGranted, MessageArrived, PublishAcknowledged
from edgegpu_sync.link.routes import BrokerRoute
from edgegpu_sync.link.rules import KeepAlive, Message, Quarantine
from edgegpu_sync.wire import WIRE_MAX_BYTES


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A publish that is to be sent."""

    token: int
    topic: str
    payload: bytes
    retain: bool


@dataclass(frozen=True, slots=True)
class AckRequest:
    """An acknowledgement that is to be sent."""

    mid: int


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A SUBSCRIBE that is to be sent."""

    token: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnsubscribeRequest:
    """An UNSUBSCRIBE that is to be sent."""

    filters: tuple[str, ...]


PendingWork = PublishRequest | AckRequest | PublishAcknowledged | SubscribeRequest | UnsubscribeRequest


@dataclass(frozen=True, slots=True)
class _InFlightMessage:
    """A message in flight, sent or received, and since when."""

    message: Message
    since: float
    size_bytes: int


class Inflight:
    """The messages in flight, usable from any thread.

    Between `end` and the next `open` no publish is accepted, and what was in flight is forgotten.
    """

    def __init__(self, clock: Callable[[], float], *, max_inflight: int) -> None:
        """Build it without a connection: no publish is accepted yet."""
        self._clock, self._max_inflight = clock, max_inflight
        self._lock = threading.Lock()
        self._connection, self._accepting, self._window, self._token = 0, False, 0, 0
        self._pending: deque[PendingWork] = deque()
        self._out: dict[int, _InFlightMessage] = {}
        self._tokens: dict[int, int] = {}
        self._subscribing: dict[int, int] = {}
        self._in: dict[int, _InFlightMessage] = {}
        self._in_bytes = 0
        self._one_at_a_time, self._had_ack = 0, False
        self.quarantine = Quarantine()

    # --- for any thread

    def publish(self, topic: str, payload: bytes, *, retain: bool, connection: int | None) -> int | None:
        """Accept a publish and return its token, or None; see `Link.publish`."""
        if not topic or "+" in topic or "#" in topic:
            raise ValueError(f"cannot publish to {topic!r}: a topic has no wildcards")
        if len(payload) > WIRE_MAX_BYTES:
            raise TooLargeError(f"cannot publish {len(payload)} bytes to {topic}: the limit is {WIRE_MAX_BYTES}")
        now, message = self._clock(), Message.of("out", topic, payload)
        with self._lock:
            window = 1 if self._one_at_a_time else self._window
            if not self._accepting or connection not in {None, self._connection} or len(self._out) >= window:
                return None
            self._token += 1
            if self.quarantine.holds(message, now):
                self._pending.append(
                    PublishAcknowledged(self._token, refused="quarantined: the connection ended twice after it")
                )
            else:
                self._out[self._token] = _InFlightMessage(message, now, len(payload))
                self._pending.append(PublishRequest(self._token, topic, payload, retain))
            return self._token

    def subscribe(self, filters: Sequence[str]) -> int | None:
        """Accept a SUBSCRIBE and return its token; None where the link is not up."""
        with self._lock:
            if not self._accepting:
                return None
            self._token += 1
            self._pending.append(SubscribeRequest(self._token, tuple(filters)))
            return self._token

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Accept an UNSUBSCRIBE; where the link is not up there is nothing to do."""
        with self._lock:
            if self._accepting:
                self._pending.append(UnsubscribeRequest(tuple(filters)))

    def ack(self, arrived: MessageArrived) -> bool:
        """Accept an acknowledgement; return False where there is nothing to acknowledge."""
        with self._lock:
            known = self._in.pop(arrived.mid, None) if arrived.connection == self._connection else None
            if known is None:
                return False
            self._in_bytes -= known.size_bytes
            self.quarantine = self.quarantine.passed(known.message)
            if arrived.mid > 0:
                self._pending.append(AckRequest(arrived.mid))
            return True

    # --- for the link's thread

    def begin(self) -> int:
        """Begin a connection and return its number; messages that arrive on it can be acknowledged."""
        with self._lock:
            self._connection += 1
            return self._connection

    def open(self, window: int) -> None:
        """Accept publishes from now on, at most `window` in flight at once."""
        with self._lock:
            self._accepting, self._window = True, min(window, self._max_inflight)

    def shut(self) -> None:
        """Accept no more publishes; accepted ones are still sent, and acknowledgements are still accepted."""
        with self._lock:
            self._accepting = False

    def end(self, *, suspect: bool, blamed: bool = False) -> None:
        """Forget all that belongs to the connection; `suspect`: messages in flight may have caused its end.

        A connection on which nothing was acknowledged yet proves nothing, unless the broker `blamed` a message:
        otherwise a network that cuts every few seconds would put the birth into quarantine. After an end with messages
        in flight they go out one at a time, so that the next end shows which one caused it.
        """
        with self._lock:
            self._one_at_a_time = len(self._out) + 1 if suspect and self._out else self._one_at_a_time
            if suspect and (blamed or self._had_ack):
                oldest = [next(iter(way.values())) for way in (self._out, self._in) if way]
                found = [(one.message, one.since) for one in oldest if one.message.topic]
                self.quarantine = self.quarantine.ended(found, self._clock())
            self._accepting = self._had_ack = False
            self._connection += 1
            self._pending.clear()
            self._out.clear()
            self._tokens.clear()
            self._subscribing.clear()
            self._in.clear()
            self._in_bytes = 0

    def queue_heartbeat(self, topic: str) -> None:
        """Queue a heartbeat: a publish that belongs to no caller and is never suspected."""
        with self._lock:
            self._token += 1
            self._out[self._token] = _InFlightMessage(Message("out", "", 0), self._clock(), 0)
            self._pending.append(PublishRequest(self._token, topic, b"", retain=False))

    def take_pending(self) -> list[PendingWork]:
        """Return what is to be done, oldest first, and empty the queue."""
        with self._lock:
            todo = list(self._pending)
            self._pending.clear()
            return todo

    def sent(self, token: int, mid: int) -> None:
        """Record the packet id under which a publish went out."""
        with self._lock:
            self._tokens[mid] = token

    def subscribing(self, token: int, mid: int) -> None:
        """Record the packet id under which a SUBSCRIBE went out."""
        with self._lock:
            self._subscribing[mid] = token

    def granted(self, mid: int) -> FiltersGranted | None:
        """Return the event for a SUBACK; None for one that nobody waits for."""
        with self._lock:
            token = self._subscribing.pop(mid, None)
            return None if token is None else FiltersGranted(token)

    def acked(self, mid: int, refused: str) -> PublishAcknowledged | None:
        """Return the event for a PUBACK; None for a heartbeat's, and for one that nobody waits for."""
        with self._lock:
            token = self._tokens.pop(mid, None)
            known = self._out.pop(token, None) if token is not None else None
            if token is None or known is None:
                return None
            self.quarantine = self.quarantine.passed(known.message)
            self._one_at_a_time, self._had_ack = max(0, self._one_at_a_time - 1), True
            return PublishAcknowledged(token, refused) if known.message.topic else None

    def received(self, arrived: MessageArrived) -> None:
        """Record a message that waits for `ack`; one in quarantine is acknowledged at once, and put out like others."""
        message = Message.of("in", arrived.topic, arrived.payload)
        now = self._clock()
        with self._lock:
            if arrived.mid > 0 and self.quarantine.holds(message, now):
                self._pending.append(AckRequest(arrived.mid))
            else:
                before = self._in.pop(arrived.mid, None)  # a broker that uses a packet id twice
                self._in_bytes += len(arrived.payload) - (before.size_bytes if before else 0)
                self._in[arrived.mid] = _InFlightMessage(message, now, len(arrived.payload))

    @property
    def waits_since(self) -> float | None:
        """Since when the oldest of our publishes has waited for its PUBACK; None when none waits."""
        with self._lock:
            return next((one.since for one in self._out.values()), None)

    @property
    def unacked_bytes(self) -> int:
        """How many bytes have arrived that are not acknowledged yet."""
        with self._lock:
            return self._in_bytes

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent and no publish is in flight."""
        with self._lock:
            return not self._pending and not self._out


@dataclass(slots=True)
class ConnectionState:
    """The state of one connection, used by the link's thread alone."""

    number: int
    route: BrokerRoute
    pulse: KeepAlive
    until: float
    """The deadline for being up, or, once the link is leaving, for the end."""
    opened: bool = False
    session_present: bool = False
    window: int = 0
    up: bool = False
    leaving: bool = False
    early: list[MessageArrived] = field(default_factory=list)
    """Messages that came before SUBACK; they are put out after `LinkUp`."""

    def next_s(self, now: float) -> float:
        """Return the seconds until the next check at the latest."""
        return max(0.0, self.until - now) if self.leaving or not self.up else self.pulse.next_s(now)


class Waker:
    """A socket pair that ends the link's wait from any thread; without its `with` block a poke does nothing."""

    def __init__(self) -> None:
        """Begin without a socket, so that a link that is never run leaves none open."""
        self._reader: socket.socket | None = None
        self._writer: socket.socket | None = None
        self._poked = False

    def __enter__(self) -> Self:
        self._poked = False
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.settimeout(0)
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._reader, self._writer):
            if end:
                end.close()

    def poke(self) -> None:
        """End the present wait, or the next one."""
        if (writer := self._writer) and not self._poked:
            self._poked = True
            with contextlib.suppress(OSError):  # full: a poke is pending already; closed: nobody waits
                writer.send(b"\0")

    def fileno(self) -> int:
        """Return the file descriptor that is readable after a poke; -1 without a socket."""
        return self._reader.fileno() if self._reader else -1

    def drain(self) -> None:
        """Discard the pokes; what they were for comes first after this."""
        if self._reader:
            with contextlib.suppress(BlockingIOError):
                self._reader.recv(4096)
        self._poked = False  # after the bytes are gone: else a poke between the two would be the last one

    def wait(self, timeout_s: float) -> None:
        """Wait for a poke, and discard it."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        poll.poll(timeout_s * 1000)
        self.drain()
