"""Who has no certificate of the scheduler's opens connections without end; no call of the scheduler is lost to that."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.extender_run import DEADLINE_S, Running, running
from integration.extender_world import node, pod
from integration.plugin.test_extender_http import SlowRoutes, client_context
from kits.cert import Certs, make_certs

from edgegpu_plugin.config.schema import Tls
from edgegpu_plugin.extender.acceptor import ConnectionLimits
from edgegpu_plugin.extender.server import ExtenderServer

CROWD = 600  # more than may wait
CALLS = 6


@pytest.fixture(scope="module")
def certs() -> Certs:
    return make_certs()


@pytest.fixture
def tls(certs: Certs, tmp_path: Path) -> Tls:
    files = {"ca.crt": certs.ca, "server.crt": certs.server.cert, "server.key": certs.server.key}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return Tls(cert=tmp_path / "server.crt", key=tmp_path / "server.key", client_ca=tmp_path / "ca.crt")


@pytest.fixture
def run(tls: Tls) -> Iterator[Running]:
    with running(tls=tls) as made:
        made.add(node("a", [29]))
        yield made


def hello(certs: Certs) -> bytes:
    """Return the first words of a TLS client."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=certs.ca).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="x")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


WORDS = {"bare connections": 0, "one byte each": 1, "handshakes by the byte": 7, "handshakes that stop": None}


@pytest.mark.parametrize("kind", WORDS)
def test_no_call_of_the_scheduler_is_lost(run: Running, certs: Certs, tmp_path: Path, kind: str) -> None:
    words = hello(certs)[: WORDS[kind]]
    port, context = run.extender.server.port, client_context(certs, tmp_path)
    asking = pod("p", (4, 1))
    crowd: list[socket.socket] = []
    done = threading.Event()

    def connect() -> None:
        raw = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        raw.sendall(words)
        crowd.append(raw)

    def keep_coming() -> None:
        while not done.is_set():
            with contextlib.suppress(OSError):
                connect()
            if len(crowd) > CROWD:
                crowd.pop(0).close()

    with run.caller(context) as kept:
        assert kept.filter(asking, ["a"])["NodeNames"] == ["a"]
        for _ in range(CROWD):
            connect()
        more = threading.Thread(target=keep_coming)
        more.start()
        try:
            for _ in range(CALLS):
                with run.caller(context) as anew:
                    assert anew.filter(asking, ["a"])["NodeNames"] == ["a"]
                assert kept.filter(asking, ["a"])["NodeNames"] == ["a"]
        finally:
            done.set()
            more.join(DEADLINE_S)
            for raw in crowd:
                raw.close()


def test_a_crowd_is_logged_in_one_line(
    run: Running, certs: Certs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    crowd = [socket.create_connection(("127.0.0.1", run.extender.server.port)) for _ in range(CROWD)]
    for raw in crowd:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
    for raw in crowd:
        with contextlib.suppress(OSError):
            raw.recv(1)
        raw.close()
    with run.caller(client_context(certs, tmp_path)) as caller:
        assert caller.call("/healthz", b"", "GET")[0] == 200
    told = [record.message for record in caplog.records if "connection" in record.message]
    assert len(told) == 1
    assert "without the scheduler's certificate" in told[0]


def test_who_comes_last_has_time_to_speak_in_a_crowd_that_has_spoken(certs: Certs, tls: Tls, tmp_path: Path) -> None:
    server = ExtenderServer(
        "127.0.0.1:0", routes=SlowRoutes(), tls=tls, limits=ConnectionLimits(waiting=8, handshake_s=60)
    )
    server.start()
    with contextlib.ExitStack() as open_ones:

        def connect() -> socket.socket:
            raw = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S)
            return open_ones.enter_context(raw)

        crowd = [connect() for _ in range(9)]
        for raw in crowd[1:]:
            raw.sendall(hello(certs)[:1])
        assert crowd[0].recv(1) == b""
        late = connect()
        assert crowd[1].recv(1) == b""  # somebody had to go for it: the oldest
        context = client_context(certs, tmp_path)
        open_ones.enter_context(context.wrap_socket(late, server_hostname="edgegpu-extender"))
    server.close()


def test_a_client_that_is_slow_after_its_hello_is_not_pushed_out(certs: Certs, tls: Tls, tmp_path: Path) -> None:
    server = ExtenderServer(
        "127.0.0.1:0", routes=SlowRoutes(), tls=tls, limits=ConnectionLimits(waiting=8, handshake_s=60)
    )
    server.start()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = client_context(certs, tmp_path)
    client = context.wrap_bio(incoming, outgoing, server_hostname="edgegpu-extender")
    with contextlib.ExitStack() as open_ones:

        def connect(words: bytes = b"") -> socket.socket:
            raw = open_ones.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S))
            raw.sendall(words)
            return raw

        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        slow = connect(outgoing.read())
        incoming.write(slow.recv(65536))  # the server's half of the handshake: the hello has been read
        crowd = [connect(hello(certs)[:count]) for _ in range(20) for count in (0, 1, 7)]
        assert crowd[0].recv(1) == b""  # the crowd has lost its oldest
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(slow.recv(65536))
        slow.sendall(outgoing.read())
        client.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.sendall(outgoing.read())
        assert slow.recv(1)  # a closed connection ends here
        # Those who have sent their hello compete among themselves.
        greeted = [connect(hello(certs)) for _ in range(9)]
        while greeted[0].recv(65536):
            pass
    server.close()


def ended(raw: socket.socket) -> bool:
    """Wait until the other side ends a connection: with a reset where it has not read what was sent."""
    try:
        return raw.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_handshake_has_a_time_and_the_oldest_goes_first(certs: Certs, tls: Tls) -> None:
    server = ExtenderServer(
        "127.0.0.1:0", routes=SlowRoutes(), tls=tls, limits=ConnectionLimits(waiting=2, handshake_s=60)
    )
    server.start()
    first, speaking, third = (socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) for _ in "123")
    speaking.sendall(hello(certs)[:7])
    assert first.recv(1) == b""
    fourth = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S)
    assert ended(speaking)  # words save nobody, or a crowd that spoke would outlive whoever is new
    server.close()
    for raw in (third, fourth):
        assert raw.recv(1) == b""
    server = ExtenderServer("127.0.0.1:0", routes=SlowRoutes(), tls=tls, limits=ConnectionLimits(handshake_s=0.1))
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as slow:
        slow.sendall(hello(certs)[:7])
        assert ended(slow)
    server.close()
    for raw in (first, speaking, third, fourth):
        raw.close()
