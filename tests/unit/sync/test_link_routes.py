"""Which route to the broker is tried next, and when."""

from __future__ import annotations

import pytest

from edgegpu_sync.link.routes import HOLD_BACK_S, SPARE_S, BrokerRoute, HttpProxy, RouteTable, proxy_of
from edgegpu_sync.link.rules import ConnectionEnd

STRAIGHT = BrokerRoute(host="broker", port=8883)
BY_PROXY = BrokerRoute(host="broker", port=8883, proxy=HttpProxy(host="proxy", port=3128))
BOTH = (STRAIGHT, BY_PROXY)
ABSENT, REFUSED = ConnectionEnd.ABSENT, ConnectionEnd.REFUSED


def fail(table: RouteTable, route: BrokerRoute, ending: ConnectionEnd, now: float, *, up_s: float = 0.0) -> None:
    table.ended(route, ending, f"{route} has failed", up_s=up_s, now=now, roll=1.0)


def test_a_new_box_tries_all_in_order_and_names_each_cause() -> None:
    table = RouteTable()
    assert table.choose(BOTH) == STRAIGHT
    fail(table, STRAIGHT, ABSENT, 0.0)
    assert (table.choose(BOTH), table.wait_s(0.0)) == (BY_PROXY, 0.0)
    fail(table, BY_PROXY, REFUSED, 0.0)
    assert (table.choose(BOTH), table.wait_s(0.0)) == (STRAIGHT, 1.0)
    assert table.why == "broker:8883 has failed; broker:8883 by the proxy http://proxy:3128 has failed"


def test_a_proxy_that_refuses_is_asked_ever_less_and_holds_the_other_route_not_back() -> None:
    table, now, asked = RouteTable(), 0.0, {STRAIGHT: 0, BY_PROXY: 0}
    while now < 3_600:
        route = table.choose(BOTH)
        asked[route] += 1
        fail(table, route, REFUSED if route is BY_PROXY else ABSENT, now)
        now += table.wait_s(now)
    assert asked[BY_PROXY] < 25
    assert asked[STRAIGHT] > 800


def test_after_a_connection_its_own_route_is_tried_alone_for_a_while_and_others_seldom() -> None:
    table, now = RouteTable(), 1_000.0
    table.choose(BOTH)
    fail(table, STRAIGHT, ABSENT, 0.0)
    assert table.choose(BOTH) == BY_PROXY
    assert table.connected(BY_PROXY) == "broker:8883 has failed"
    fail(table, BY_PROXY, ConnectionEnd.LOST, now, up_s=900)
    assert table.why == "broker:8883 by the proxy http://proxy:3128 has failed"
    began, tried, order = now, {STRAIGHT: 0, BY_PROXY: 0}, []
    while now < began + 600:
        now += table.wait_s(now)
        route = table.choose((BY_PROXY, STRAIGHT))
        order.append((route, now))
        tried[route] += 1
        fail(table, route, ABSENT, now)
    assert order[:3] == [(BY_PROXY, began + 1), (BY_PROXY, began + HOLD_BACK_S), (STRAIGHT, began + HOLD_BACK_S)]
    assert 600 / SPARE_S <= tried[STRAIGHT] <= 15
    assert tried[BY_PROXY] > 130


def test_waking_makes_all_due_and_routes_that_are_gone_are_forgotten() -> None:
    table = RouteTable()
    for route in BOTH:
        table.choose(BOTH)
        fail(table, route, REFUSED, 0.0)
    table.wake()
    assert table.wait_s(0.0) == 0.0
    assert table.choose((BY_PROXY,)) == BY_PROXY
    assert table.why == "broker:8883 by the proxy http://proxy:3128 has failed"


@pytest.mark.parametrize(
    ("url", "text", "user"),
    [
        ("http://p:3128", "http://p:3128", ""),
        ("http://p", "http://p:80", ""),
        ("https://p/", "https://p:443", ""),
        ("http://[fd00::1]:8080", "http://[fd00::1]:8080", ""),
        ("http://ann:s%40%3Ax%20y@p:1", "http://p:1", "ann:s@:x y"),
        ("http://D%5Cann:p@ss@p:1", "http://p:1", "D\\ann:p@ss"),
        ("http://@p:1", "http://p:1", ""),
        ("http://:s@p:1", "http://p:1", ":s"),
        ("http://ann@p:1", "http://p:1", "ann:"),
    ],
)
def test_a_proxys_url_is_read_and_written_and_its_text_has_no_user(url: str, text: str, user: str) -> None:
    proxy = proxy_of(url)
    assert proxy is not None
    assert (str(proxy), proxy.user) == (text, user)
    assert "ann" not in f"{proxy!r} {BrokerRoute(host='b', port=1, proxy=proxy)!r}"
    assert proxy_of(proxy.url) == proxy  # a remembered route is the one of the settings


@pytest.mark.parametrize(
    "url",
    [
        "p:3128",
        "ftp://p:1",
        "http://:1",
        "http://p:x",
        "http://p:70000",
        *(f"http://ann:2026{sign}pass@p:3128" for sign in "/?#"),  # else ann would be the host, 2026 its port
    ],
)
def test_what_is_no_proxys_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"proxy|[Pp]ort"):
        proxy_of(url)
