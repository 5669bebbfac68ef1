"""TLS handshakes of new connections, all in one thread, so that a client takes a thread only once it has authenticated.

Every process of the machine can connect, as often as it likes. Clients that have not shown the scheduler's certificate
wait here, a bounded number of them for a short time. When there are too many, the oldest is closed. A few bytes save no
client, since sending costs nothing. A whole ClientHello does: whoever has sent one competes only with those who have,
and each of them costs its sender a new key. A client that is slow between its hello and its certificate, as a scheduler
on a busy machine is, is not pushed out by connections that say nothing.
"""

import contextlib
import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)

_AT_ONCE = 64
"""How many connections are accepted before the waiting ones are served again."""

_LOG_S = 60.0
_NO_DESCRIPTOR_S = 0.1

Admit = Callable[[socket.socket, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits for connections that are not authenticated."""

    waiting: int = 512
    """How many connections may wait for their ClientHello at once; as many more may wait after it."""
    handshake_s: float = 5.0
    """How long each connection may take, from its first packet to its certificate."""


@dataclass(eq=False, slots=True)
class _Guest:
    """A connection that has not authenticated yet."""

    sock: socket.socket
    address: Any
    until: float
    context: ssl.SSLContext
    tls: ssl.SSLSocket | None = None


class Acceptor:
    """The owner of a listening socket; `run` is its thread's work, `close` ends it from any thread."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        context: ssl.SSLContext | None,
        admit: Admit,
        clock: Callable[[], float],
        limits: ConnectionLimits,
    ) -> None:
        """Build the acceptor.

        Args:
            listener: a socket that is bound and listening.
            context: the TLS context; None admits every connection.
            admit: called with each authenticated connection, which is blocking again, and its address.
            clock: the clock of the time limits, in seconds.
            limits: the limits for connections that are not authenticated.
        """
        self._listener = listener
        self._context = context
        self._admit = admit
        self._clock = clock
        self._limits = limits
        self._guests: dict[_Guest, None] = {}  # the oldest first
        self._greeted: set[_Guest] = set()  # those of them whose ClientHello is here
        self._ended, self._logged = 0, -_LOG_S
        self._closing = threading.Event()
        self._wake, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Accept connections until `close`."""
        self._listener.settimeout(0)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        try:
            while not self._closing.is_set():
                for key, _ in self._selector.select(self._patience_s()):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.data, _Guest) and key.data in self._guests:
                        self._advance(key.data)
                self._expire()
        finally:
            for guest in list(self._guests):
                self._turn_away(guest)
            self._selector.close()
            for sock in (self._listener, self._wake, self._waker):
                sock.close()

    def close(self) -> None:
        """Stop accepting, and close the connections that wait."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def _patience_s(self) -> float | None:
        oldest = next(iter(self._guests), None)
        return None if oldest is None else max(0.0, oldest.until - self._clock())

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptor is left: make room, or wait for one
                cause = f"cannot accept: {error.strerror}"
                if not (self._drop_oldest(cause) or self._drop_oldest(cause, greeted=True)):
                    self._closing.wait(_NO_DESCRIPTOR_S)
                return
            if self._context is None:
                self._admit(sock, address)
            else:
                self._wait_for(_Guest(sock, address, self._clock() + self._limits.handshake_s, self._context))

    def _wait_for(self, guest: _Guest) -> None:
        guest.sock.settimeout(0)
        self._guests[guest] = None
        self._selector.register(guest.sock, selectors.EVENT_READ, guest)
        self._advance(guest)
        if len(self._guests) - len(self._greeted) > self._limits.waiting:
            self._drop_oldest("too many wait")

    def _advance(self, guest: _Guest) -> None:
        """Continue a connection's handshake as far as possible without waiting."""
        try:
            tls = guest.tls or self._begin(guest)
            if tls is None:
                return
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(guest.sock, selectors.EVENT_READ, guest)
            self._greet(guest)
        except ssl.SSLWantWriteError:
            self._selector.modify(guest.sock, selectors.EVENT_WRITE, guest)
        except (OSError, ValueError) as error:
            self._turn_away(guest, str(error))
        else:
            self._forget(guest)
            guest.sock.settimeout(None)
            self._admit(guest.sock, guest.address)

    def _greet(self, guest: _Guest) -> None:
        """Note a connection whose ClientHello has been read: OpenSSL knows the client's ciphers from then on."""
        if guest in self._greeted or guest.tls is None or guest.tls.shared_ciphers() is None:
            return
        self._greeted.add(guest)
        if len(self._greeted) > self._limits.waiting:
            self._drop_oldest("too many wait", greeted=True)

    def _begin(self, guest: _Guest) -> ssl.SSLSocket | None:
        """Begin the handshake of a connection that has sent data; None while it has not."""
        try:
            if not guest.sock.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError("it hung up")
        except BlockingIOError:
            return None
        self._selector.unregister(guest.sock)
        # Wrapping detaches the plain socket: from here on only the TLS socket is used.
        guest.sock = guest.tls = guest.context.wrap_socket(guest.sock, server_side=True, do_handshake_on_connect=False)
        self._selector.register(guest.sock, selectors.EVENT_READ, guest)
        return guest.tls

    def _expire(self) -> None:
        now = self._clock()
        for guest in list(self._guests):
            if guest.until > now:
                break
            self._turn_away(guest, "it took too long")

    def _drop_oldest(self, cause: str, *, greeted: bool = False) -> bool:
        """Close the oldest connection that has sent its ClientHello, or that has not; say whether there was one."""
        oldest = next((guest for guest in self._guests if (guest in self._greeted) is greeted), None)
        if oldest is not None:
            self._turn_away(oldest, cause)
        return oldest is not None

    def _forget(self, guest: _Guest) -> None:
        self._guests.pop(guest, None)
        self._greeted.discard(guest)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(guest.sock)

    def _turn_away(self, guest: _Guest, cause: str = "") -> None:
        self._forget(guest)
        guest.sock.close()
        if not cause:
            return
        self._ended += 1
        now = self._clock()
        if now - self._logged >= _LOG_S:
            _log.warning(
                "extender: connections that ended without the scheduler's certificate: %d (the last from %s: %s)",
                self._ended,
                guest.address[0],
                cause,
            )
            self._ended, self._logged = 0, now
