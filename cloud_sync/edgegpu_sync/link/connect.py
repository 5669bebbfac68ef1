"""The connection below MQTT: TCP, then TLS with our certificate, on a thread that can be abandoned."""

import socket
import ssl
import threading
from collections.abc import Callable

from edgegpu_sync.link.errors import LinkError
from edgegpu_sync.link.events import Address
from edgegpu_sync.link.routes import BrokerRoute
from edgegpu_sync.link.rules import ConnectionEnd
from edgegpu_sync.link.tunnel import connect_by

NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which Python has no name: everything but the dates is checked."""

TCP_S, TLS_S = 5.0, 15.0
"""The timeouts of TCP and of the TLS handshake.

A SYN is sent again after 1 and 3 s. A broker to which thousands reconnect needs time for each handshake.
"""

_FOREIGN_CODES = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for a chain that does not lead to our CA (X509_V_ERR_*)."""
_OPENED = "; if a proxy or a firewall opens TLS on the way, it has to pass this name on unopened"


def tls_context(address: Address) -> ssl.SSLContext:
    """Return a context that verifies the broker by our CA alone, host name included, and presents our certificate.

    Raises:
        LinkError: when a file is missing or is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not address.check_dates:
        context.verify_flags |= NO_CHECK_TIME
    try:
        context.load_verify_locations(address.ca)
        context.load_cert_chain(address.cert, address.key)
    except (OSError, ValueError) as error:
        where = f"{address.ca}, {address.cert}, {address.key}"
        raise LinkError(ConnectionEnd.REFUSED, f"cannot use the certificates: {error} ({where})") from error
    return context


def dial(address: Address, route: BrokerRoute) -> ssl.SSLSocket:
    """Connect by TCP and TLS, through the route's proxy if there is one.

    Blocks for up to 5 s for each address of the host or the proxy, 15 s for the proxy's answer, 15 s for the handshake.

    Raises:
        LinkError: REFUSED where we, the broker or the proxy refuse; BUSY where an answer takes too long; ABSENT for all
            else.
    """
    context = tls_context(address)
    plain = _tcp(route)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(TLS_S)
        return context.wrap_socket(plain, server_hostname=route.host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        opened = _OPENED if error.verify_code in _FOREIGN_CODES else ""
        raise LinkError(ConnectionEnd.REFUSED, f"cannot do TLS with {route}: {error}{opened}") from error
    except (OSError, ValueError) as error:
        plain.close()
        raise LinkError(_why_not(error), f"cannot do TLS with {route}: {error}") from error


def _tcp(route: BrokerRoute) -> socket.socket:
    if route.proxy is not None:
        return connect_by(route.proxy, route.host, route.port, tcp_s=TCP_S)
    try:
        return socket.create_connection((route.host, route.port), timeout=TCP_S)
    except (OSError, ValueError) as error:  # ValueError: no name that can be looked up
        raise LinkError(ConnectionEnd.ABSENT, f"cannot connect to {route}: {error}") from error


def _why_not(error: Exception) -> ConnectionEnd:
    match error:
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return ConnectionEnd.ABSENT  # a proxy without a broker behind it
        case ssl.SSLError() | ValueError():
            return ConnectionEnd.REFUSED
        case TimeoutError():
            return ConnectionEnd.BUSY
        case _:
            return ConnectionEnd.ABSENT


class DialThread:
    """One `dial` on a thread of its own, which is abandoned on stop: nothing ends the lookup of a name early."""

    def __init__(self, address: Address, route: BrokerRoute, done: Callable[[], None]) -> None:
        """Start the thread, which calls `done` when there is a result."""
        self._lock = threading.Lock()
        self._left = False
        self._result: ssl.SSLSocket | BaseException | None = None
        self._address, self._route, self._done = address, route, done
        threading.Thread(target=self._run, name="link-dial", daemon=True).start()

    def _run(self) -> None:
        try:
            result: ssl.SSLSocket | BaseException = dial(self._address, self._route)
        except BaseException as error:  # noqa: BLE001 - raised again in `result`, on the thread that asked
            result = error
        with self._lock:
            if self._left:
                if isinstance(result, ssl.SSLSocket):
                    result.close()
                return
            self._result = result
        self._done()

    def result(self) -> ssl.SSLSocket | None:
        """Return the connection, once; None until it is made.

        Raises:
            LinkError: it cannot be made.
        """
        with self._lock:
            result, self._result = self._result, None
        if isinstance(result, BaseException):
            raise result
        return result

    def leave(self) -> None:
        """Abandon the dial: a connection that is made later is closed."""
        with self._lock:
            self._left = True
            if isinstance(self._result, ssl.SSLSocket):
                self._result.close()
            self._result = None
