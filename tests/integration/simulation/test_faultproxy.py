"""The fault proxy itself: whatever is under way when it is closed, it ends without a word and leaves nothing open."""

from __future__ import annotations

import gc
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from kits.faultproxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = 60.0
CALLERS = 5


@pytest.fixture
def behind() -> Iterator[int]:
    """Yield the port of a server that echoes."""
    with ExitStack() as ends, socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        thread = threading.Thread(target=_echo, args=(listener, ends))
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT_S)


def _echo(listener: socket.socket, ends: ExitStack) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        ends.enter_context(sock)
        threading.Thread(target=_answer, args=(sock,), daemon=True).start()


def _answer(sock: socket.socket) -> None:
    try:
        while data := sock.recv(65_536):
            sock.sendall(data)
    except OSError:
        return


def caller(proxy: FaultProxy) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S)
    sock.sendall(b"x")
    return sock


@pytest.mark.parametrize(
    "fault", [lambda _: None, FaultProxy.stall, lambda proxy: proxy.delay(60)], ids=["none", "stall", "delay"]
)
@pytest.mark.parametrize("answered", [False, True])
def test_closed_with_connections_it_says_nothing(
    behind: int, fault: Callable[[FaultProxy], object], caplog: pytest.LogCaptureFixture, *, answered: bool
) -> None:
    with ExitStack() as ends:
        with FaultProxy(behind) as proxy:
            if answered:
                assert ends.enter_context(caller(proxy)).recv(1) == b"x"
            fault(proxy)
            for _ in range(CALLERS):  # those that nobody has taken yet are among them
                ends.enter_context(caller(proxy))
        gc.collect()  # a socket that was left open warns now, and warnings are errors
    assert caplog.text == ""


def test_refused_is_refused_until_it_accepts_again(behind: int) -> None:
    with FaultProxy(behind) as proxy:
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            caller(proxy)
        proxy.accept()
        with caller(proxy) as sock:
            assert sock.recv(1) == b"x"
