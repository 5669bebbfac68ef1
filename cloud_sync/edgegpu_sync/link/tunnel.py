"""HTTP CONNECT: a TCP connection to the broker through a site's proxy, over which TLS is spoken with the broker."""

import base64
import re
import socket
import time
from collections.abc import Callable

from edgegpu_sync.link.errors import LinkError
from edgegpu_sync.link.routes import HttpProxy, host_port
from edgegpu_sync.link.rules import ConnectionEnd

ANSWER_S = 15.0
"""How long a proxy may take for its whole answer: it has to reach the broker first."""

_MOST_BYTES = 16_384
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r?\n")
_BASIC = re.compile(rb"(?im)^proxy-authenticate:[^\r\n]*\bbasic\b")
_OK, _MULTIPLE, _FAULT, _BUSY = 200, 300, 500, 429
_SIGN_IN = 407
_REFUSALS = frozenset({401, 403, 404, 405, 451, 501})


def connect_by(proxy: HttpProxy, host: str, port: int, *, tcp_s: float, answer_s: float = ANSWER_S) -> socket.socket:
    """Return a connection to host and port through a proxy.

    Args:
        proxy: the site's proxy.
        host: the broker, a name or an address; the proxy looks the name up.
        port: the broker's port.
        tcp_s: the timeout of TCP, for each address of the proxy.
        answer_s: how long the proxy's answer may take, slow pieces together.

    Raises:
        LinkError: REFUSED where a person has to change something; BUSY where the proxy is too slow; else ABSENT. The
            text has no word of the proxy's, and never user or password.
    """
    head = f"cannot reach {host_port(host, port)} by the proxy {proxy}"
    if proxy.tls:
        words = "it is an https:// one, and MQTT goes by http:// proxies alone; name one in cloud.proxy"
        raise LinkError(ConnectionEnd.REFUSED, f"{head}: {words}")
    try:
        link = socket.create_connection((proxy.host, proxy.port), timeout=tcp_s)
    except (OSError, ValueError) as error:  # ValueError: no name that can be looked up
        words = f"it does not answer: {error}; is cloud.proxy right?"
        raise LinkError(ConnectionEnd.ABSENT, f"{head}: {words}") from error
    try:
        link.sendall(_request(proxy, host, port))
        _judge(_answer(link, time.monotonic, answer_s), proxy, port, head)
    except TimeoutError as error:
        link.close()
        raise LinkError(ConnectionEnd.BUSY, f"{head}: no whole answer to CONNECT in {answer_s:g} s") from error
    except OSError as error:
        link.close()
        raise LinkError(ConnectionEnd.ABSENT, f"{head}: {error}") from error
    except LinkError:
        link.close()
        raise
    return link


def _request(proxy: HttpProxy, host: str, port: int) -> bytes:
    target = host_port(host, port)
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", "User-Agent: edgegpu-agent"]
    if proxy.user:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(proxy.user.encode()).decode()}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _answer(link: socket.socket, clock: Callable[[], float], answer_s: float) -> bytes:
    """Return the head of the answer, with the empty line; what was read where there is no such head.

    It is read byte by byte: what follows it belongs to the broker.

    Raises:
        TimeoutError: it is not whole in time.
        OSError: the connection broke.
    """
    head, end = bytearray(), clock() + answer_s
    while len(head) < _MOST_BYTES and not head.endswith((b"\r\n\r\n", b"\n\n")):
        left = end - clock()
        if left <= 0:
            raise TimeoutError
        link.settimeout(left)
        if not (byte := link.recv(1)):
            break
        head += byte
        if len(head) >= len(b"HTTP/") and not head.startswith(b"HTTP/"):
            break
    return bytes(head)


def _judge(head: bytes, proxy: HttpProxy, port: int, where: str) -> None:
    """Accept an answer of 2xx; raise LinkError for all others, with what a person does about it."""
    found = _STATUS.match(head)
    if not head:
        raise LinkError(ConnectionEnd.ABSENT, f"{where}: it closes the connection without an answer to CONNECT")
    if found is None or not head.endswith((b"\r\n\r\n", b"\n\n")):
        words = "what answers there speaks no HTTP, or too much: is it a proxy for HTTP? cloud.proxy names it"
        raise LinkError(ConnectionEnd.REFUSED, f"{where}: {words}")
    status = int(found[1])
    if _OK <= status < _MULTIPLE:
        return
    raise LinkError(_ending(status), f"{where}: {_words(status, head, proxy, port)}")


def _ending(status: int) -> ConnectionEnd:
    if status == _BUSY:
        return ConnectionEnd.BUSY
    return ConnectionEnd.ABSENT if status >= _FAULT and status not in _REFUSALS else ConnectionEnd.REFUSED


def _words(status: int, head: bytes, proxy: HttpProxy, port: int) -> str:
    if status == _SIGN_IN and not _BASIC.search(head):
        return f"it wants a sign-in other than Basic ({status}): let it pass this box without one"
    if status == _SIGN_IN and proxy.user:
        return f"it does not take this user and password ({status}): put cloud.proxy right"
    if status == _SIGN_IN:
        return f"it asks for user and password ({status}): cloud.proxy is http://USER:PASSWORD@HOST:PORT"
    if status in _REFUSALS:
        return f"it refuses CONNECT to port {port} ({status}): allow that there, or let the broker be at port 443"
    if status >= _FAULT:
        return f"it does not reach the broker ({status})"
    return f"it answers CONNECT with {status}: is it a proxy for HTTP? cloud.proxy names it"
