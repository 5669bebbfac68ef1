"""The link by a site's proxy: tinyproxy as it is, and one that refuses, cuts, lies and dawdles."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from kits.connectproxy import PASSWORD, USER, ConnectProxy, says, signed_in, tinyproxy
from kits.linkrun import LinkRun
from kits.mqtt import Mosquitto, wait_for

from edgegpu_sim.ports import free_port
from edgegpu_sync.link import tunnel
from edgegpu_sync.link.errors import LinkError
from edgegpu_sync.link.events import Address, LinkDown, LinkUp, MessageArrived
from edgegpu_sync.link.routes import HOLD_BACK_S, BrokerRoute, proxy_of
from edgegpu_sync.link.rules import ConnectionEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    SiteProxy = Callable[..., AbstractContextManager[str]]

BOX = "k3f9x2m7q1w8e5r4"
DOWN, UP = f"edgegpu/v1/{BOX}/down", f"edgegpu/v1/{BOX}/up"
CONTROLLER = ["edgegpu/v1/+/up/#"]
SIGN_IN = f"{USER}:{quote(PASSWORD)}@"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path / "mqtt")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def cloud(broker: Mosquitto) -> Iterator[LinkRun]:
    with LinkRun(broker.controller(), CONTROLLER) as link:
        link.next(LinkUp)
        yield link


def by(address: Address, url: str) -> Address:
    """Return the address with the proxy as its only route."""
    return replace(address, routes=(BrokerRoute(host=address.host, port=address.port, proxy=proxy_of(url)),))


@contextmanager
def a_tinyproxy(folder: Path, *lines: str) -> Iterator[str]:
    with tinyproxy(folder, *lines) as proxy:
        yield f"127.0.0.1:{proxy.port}"


@contextmanager
def a_fake(_: Path, *lines: str) -> Iterator[str]:
    with ConnectProxy(answer=signed_in if lines else lambda _: None) as proxy:
        yield f"127.0.0.1:{proxy.port}"


# tinyproxy takes no password with a space or a colon.
BOTH = pytest.mark.parametrize(
    ("proxy", "user"), [(a_tinyproxy, "edge:hunter22"), (a_fake, SIGN_IN.removesuffix("@"))], ids=["tinyproxy", "ours"]
)


@BOTH
@pytest.mark.parametrize("sign_in", [False, True], ids=["open", "basic"])
def test_messages_pass_both_ways(
    broker: Mosquitto, cloud: LinkRun, tmp_path: Path, proxy: SiteProxy, user: str, *, sign_in: bool
) -> None:
    with proxy(tmp_path, *([f"BasicAuth {user.replace(':', ' ')}"] if sign_in else [])) as place:
        url = f"http://{user}@{place}" if sign_in else f"http://{place}"
        with LinkRun(by(broker.box(BOX), url)) as box:
            up = box.next(LinkUp)
            assert str(up.route) == f"127.0.0.1:{broker.port} by the proxy http://{place}"
            cloud.send(f"{DOWN}/receipt", b"hello")
            arrived = box.next(MessageArrived)
            assert arrived.payload == b"hello"
            box.link.ack(arrived)
            box.send(f"{UP}/health", b"fine", connection=up.connection)
            assert cloud.next(MessageArrived).payload == b"fine"


def test_a_real_proxy_that_refuses_is_named_with_what_to_do(broker: Mosquitto, tmp_path: Path) -> None:
    with (
        a_tinyproxy(tmp_path, "BasicAuth edge hunter22") as place,
        LinkRun(by(broker.box(BOX), f"http://{place}")) as box,
    ):
        why = box.next(LinkDown).why
        assert "it asks for user and password (407): cloud.proxy is http://USER:PASSWORD@HOST:PORT" in why
    with a_tinyproxy(tmp_path, "ConnectPort 443") as place, LinkRun(by(broker.box(BOX), f"http://{place}")) as box:
        why = box.next(LinkDown).why
        assert f"by the proxy http://{place}: it refuses CONNECT to port {broker.port} (403): allow that there" in why


REFUSALS = {
    "407 Proxy Authentication Required": (
        ConnectionEnd.REFUSED,
        "it wants a sign-in other than Basic (407)",
        ["Proxy-Authenticate: Negotiate"],
    ),
    "403 Forbidden": (ConnectionEnd.REFUSED, "(403): allow that there, or let the broker be at port 443", []),
    "405 Method Not Allowed": (ConnectionEnd.REFUSED, "it refuses CONNECT to port", []),
    "302 Found": (ConnectionEnd.REFUSED, "it answers CONNECT with 302: is it a proxy for HTTP?", []),
    "400 Bad Request": (ConnectionEnd.REFUSED, "it answers CONNECT with 400: is it a proxy for HTTP?", []),
    "429 Too Many": (ConnectionEnd.BUSY, "it answers CONNECT with 429", []),
    "502 Bad Gateway": (ConnectionEnd.ABSENT, "it does not reach the broker (502)", []),
    "504 Gateway Timeout": (ConnectionEnd.ABSENT, "it does not reach the broker (504)", []),
}


def refused(url: str, *, answer_s: float = 10.0) -> LinkError:
    proxy = proxy_of(url)
    assert proxy is not None
    with pytest.raises(LinkError) as caught:
        tunnel.connect_by(proxy, "broker.example", 8883, tcp_s=5, answer_s=answer_s)
    text = str(caught.value)
    assert text.startswith(f"cannot reach broker.example:8883 by the proxy http://127.0.0.1:{proxy.port}: "), text
    assert PASSWORD not in text
    assert quote(PASSWORD) not in text
    return caught.value


@pytest.mark.parametrize("status", REFUSALS)
def test_each_refusal_says_what_to_do(status: str) -> None:
    ending, words, headers = REFUSALS[status]
    with ConnectProxy(answer=says(status, *headers)) as proxy:
        error = refused(f"http://{SIGN_IN}127.0.0.1:{proxy.port}")
    assert (error.ending, words in str(error)) == (ending, True), error


def test_a_password_that_is_not_taken(broker: Mosquitto) -> None:
    with ConnectProxy(answer=signed_in) as proxy:
        error = refused(f"http://edge:wrong@127.0.0.1:{proxy.port}")
        assert "it does not take this user and password (407)" in str(error)
        with LinkRun(by(broker.box(BOX), f"http://{SIGN_IN}127.0.0.1:{proxy.port}")) as box:
            box.next(LinkUp)
    request = proxy.requests[-1].decode()
    assert request.startswith(f"CONNECT 127.0.0.1:{broker.port} HTTP/1.1\r\nHost: 127.0.0.1:{broker.port}\r\n")


LIES = {
    "another protocol": (b"220 mail.example ESMTP\r\n", "speaks no HTTP"),
    "zeroes": (bytes(40), "speaks no HTTP"),
    "no status": (b"HTTP/1.1 yes\r\n\r\n", "speaks no HTTP"),
    "no end of the head": (b"HTTP/1.1 200 OK\r\nVia: x", "speaks no HTTP"),
    "a head without end": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000, "or too much"),
    "nothing": (b"", "it closes the connection without an answer"),
}


@pytest.mark.parametrize("name", LIES)
def test_garbage_is_called_garbage(name: str) -> None:
    answer, words = LIES[name]
    with ConnectProxy(answer=lambda _: answer) as proxy:
        assert words in str(refused(proxy.url))


def test_an_answer_in_drops_ends_at_the_deadline() -> None:
    with ConnectProxy(answer=says("200 OK"), slow_s=0.2) as proxy:
        began = time.monotonic()
        error = refused(proxy.url, answer_s=1.0)
        assert (error.ending, "no whole answer to CONNECT in 1 s" in str(error)) == (ConnectionEnd.BUSY, True)
        assert time.monotonic() - began < 20


def test_no_proxy_there_and_one_of_another_kind() -> None:
    error = refused(f"http://127.0.0.1:{free_port()}")
    assert (error.ending, "is cloud.proxy right?" in str(error)) == (ConnectionEnd.ABSENT, True)
    proxy = proxy_of("https://127.0.0.1:1")
    assert proxy is not None
    with pytest.raises(LinkError, match="MQTT goes by http:// proxies alone"):
        tunnel.connect_by(proxy, "broker.example", 8883, tcp_s=5)


def test_an_idle_link_outlives_the_proxys_limit(broker: Mosquitto, cloud: LinkRun) -> None:
    with ConnectProxy(idle_s=8.0) as proxy, LinkRun(by(broker.box(BOX), proxy.url), keepalive_s=4) as box:
        box.next(LinkUp)
        began = time.monotonic()
        wait_for(lambda: time.monotonic() - began > 2 * proxy.idle_s, what="twice the limit is over")
        assert (proxy.idle_cuts, box.so_far(LinkDown)) == (0, [])
        cloud.send(f"{DOWN}/receipt", b"still there")
        assert box.next(MessageArrived).payload == b"still there"


def test_a_link_that_the_proxy_cuts_comes_back_and_nothing_is_lost(broker: Mosquitto, cloud: LinkRun) -> None:
    with ConnectProxy(idle_s=0.5) as proxy, LinkRun(by(broker.box(BOX), proxy.url), keepalive_s=60) as box:
        box.next(LinkUp)
        times = list[float]()
        for number in range(3):
            box.next(LinkDown)
            cut = time.monotonic()
            cloud.send(f"{DOWN}/receipt", b"%d" % number)  # while the box may be away
            assert box.next(LinkUp).session_present
            times.append(time.monotonic() - cut)
            arrived = box.next(MessageArrived, where=lambda event, want=b"%d" % number: event.payload == want)  # type: ignore[misc]
            box.link.ack(arrived)
        assert proxy.idle_cuts >= 3
    print(f"back by the proxy after {', '.join(f'{s:.2f}' for s in times)} s")  # noqa: T201  (a figure)


def test_a_proxy_that_starts_again_has_the_link_back(broker: Mosquitto, tmp_path: Path) -> None:
    with tinyproxy(tmp_path) as first:
        port = first.port
        with LinkRun(by(broker.box(BOX), f"http://127.0.0.1:{port}")) as box:
            box.next(LinkUp)
            first.kill()
            box.next(LinkDown)
            with tinyproxy(tmp_path, port=port):
                again = time.monotonic()
                assert box.next(LinkUp).session_present
                print(f"back {time.monotonic() - again:.2f} s after tinyproxy")  # noqa: T201  (a figure)


def test_a_wrong_route_does_not_hold_the_right_one_back(broker: Mosquitto) -> None:
    address = broker.box(BOX)
    with ConnectProxy(answer=says("403 Forbidden")) as proxy:
        wrong, right = by(address, proxy.url).ways[0], address.ways[0]
        with LinkRun(replace(address, routes=(wrong, right))) as box:
            up = box.next(LinkUp)
            assert up.route == right
            assert "it refuses CONNECT" in up.failed
            broker.kill()
            box.next(LinkDown)
            gone = time.monotonic()
            broker.start()
            began = time.monotonic()
            assert box.next(LinkUp).route == right
            back = time.monotonic()
            assert back - began < 20
        # Not each time: at the beginning, HOLD_BACK_S after the end, and then 1.6 s later at the earliest.
        assert len(proxy.requests) <= 2 + max(0.0, back - gone - HOLD_BACK_S) / 1.6


def test_the_brokers_name_is_checked_behind_a_proxy_too(broker: Mosquitto) -> None:
    """A proxy may lead anywhere: to a server of the cloud's own authority that has another name."""
    with ConnectProxy(server_port=broker.port) as proxy:
        route = BrokerRoute(host="mqtt.example", port=443, proxy=proxy_of(proxy.url))
        with LinkRun(replace(broker.box(BOX), routes=(route,))) as box:
            why = box.next(LinkDown).why
            assert box.so_far(LinkUp) == []
    assert f"cannot do TLS with mqtt.example:443 by the proxy {proxy.url}: " in why
    assert "mismatch" in why
    assert proxy.requests[0].startswith(b"CONNECT mqtt.example:443 ")


def test_who_opens_tls_on_the_way_is_refused_and_named(broker: Mosquitto) -> None:
    """A proxy that opens TLS shows a certificate of its own: the link refuses it, and says what is between."""
    other = Mosquitto(broker.folder.parent / "other")
    other.start()
    try:
        address = broker.box(BOX)
        with LinkRun(replace(address, port=other.port)) as box:
            why = box.next(LinkDown).why
        assert "if a proxy or a firewall opens TLS on the way, it has to pass this name on unopened" in why
    finally:
        other.stop()
