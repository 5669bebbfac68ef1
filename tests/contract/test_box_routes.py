"""The routes of a box over changes of its settings: a wrong one takes no box off its link."""

from __future__ import annotations

import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.connectproxy import PASSWORD, USER, ConnectProxy, says, signed_in
from kits.linkrun import LinkRun
from kits.mqtt import Mosquitto

from edgegpu_agent.actions.redact import Redactor
from edgegpu_agent.identity.identity_files import Broker
from edgegpu_agent.session.link_routes import BoxRoutes
from edgegpu_agent.session.machine import LinkMemory
from edgegpu_agent.settings import CloudSection
from edgegpu_sim.ports import free_port
from edgegpu_sync.link.events import LinkDown, LinkUp
from edgegpu_sync.link.routes import BrokerRoute
from edgegpu_sync.link.rules import SpokenVersion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOX = "k3f9x2m7q1w8e5r4"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path / "mqtt")
    broker.start()
    yield broker
    broker.stop()


class SiteBox:
    """A box whose broker is at a port to which nothing leads but the site's proxy."""

    def __init__(self, broker: Mosquitto, folder: Path) -> None:
        self.memory = LinkMemory(folder / "link.json", BOX)
        self.path = folder / "link.json"
        self._address, self._closed = broker.box(BOX), Broker(host="127.0.0.1", port=free_port())

    def with_settings(self, **cloud: str) -> tuple[LinkRun, BoxRoutes]:
        """Return the link of an agent that starts with these settings, and its routes."""
        routes = BoxRoutes(self._closed, CloudSection(url="https://cloud.example", **cloud), LinkMemory(self.path, BOX))
        return LinkRun(lambda: replace(self._address, routes=routes.routes())), routes


def up(link: LinkRun, routes: BoxRoutes) -> dict[str, str]:
    """Return the status of the agent once the link is up."""
    routes.connected(link.next(LinkUp))
    return routes.status()


def test_a_new_proxy_that_does_not_connect_leaves_the_box_on_the_old_one(broker: Mosquitto, tmp_path: Path) -> None:
    site = SiteBox(broker, tmp_path)
    with ConnectProxy(answer=signed_in, server_port=broker.port) as old, ConnectProxy(answer=says("403 No")) as wrong:
        old_url = f"http://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{old.port}"
        link, routes = site.with_settings(proxy=old_url)
        with link:
            status = up(link, routes)
        assert status == {"route": status["route"], "route_trouble": ""}
        assert status["route"].endswith(f" by the proxy {old.url}")
        for settings in ({"proxy": wrong.url}, {}, {"proxy": f"http://127.0.0.1:{free_port()}"}):
            link, routes = site.with_settings(**settings)
            with link:
                status = up(link, routes)
            assert status["route"].endswith(f" by the proxy {old.url}")
            assert "which the settings name no more: what they name does not connect: " in status["route_trouble"]
            assert PASSWORD not in str(status)
        assert wrong.requests
        with ConnectProxy(server_port=broker.port) as new:
            link, routes = site.with_settings(proxy=new.url)
            with link:
                assert up(link, routes)["route"].endswith(f" by the proxy {new.url}")
        link, routes = site.with_settings()
        assert old.url not in str(routes.routes())  # it is forgotten, with its password
        assert PASSWORD not in site.path.read_text()


def test_what_connected_last_is_tried_first(broker: Mosquitto, tmp_path: Path) -> None:
    site = SiteBox(broker, tmp_path)
    with ConnectProxy(server_port=broker.port) as proxy:
        for first in (False, True):
            link, routes = site.with_settings(proxy=proxy.url)
            with link:
                up(link, routes)
            assert (link.so_far(LinkDown)[:1] == [LinkDown("stopped")]) is first, link.events


def test_another_address_of_the_broker_goes_before_the_enrolled_one(broker: Mosquitto, tmp_path: Path) -> None:
    site = SiteBox(broker, tmp_path)
    link, routes = site.with_settings(broker=f"127.0.0.1:{broker.port}")
    with link:
        assert up(link, routes) == {"route": f"127.0.0.1:{broker.port}", "route_trouble": ""}
    link, routes = site.with_settings(broker=f"127.0.0.1:{broker.controller_port}")  # takes no box's certificate
    with link:
        status = up(link, routes)
    assert (status["route"], bool(status["route_trouble"])) == (f"127.0.0.1:{broker.port}", True)


@pytest.mark.parametrize(
    "wrong",
    [{"broker": "mqtt..example:443"}, {"broker": f"{'a' * 64}.example:443"}, {"proxy": "http://proxy..example:3128"}],
    ids=["broker", "long", "proxy"],
)
def test_a_name_that_is_none_leaves_the_box_on_its_route(
    broker: Mosquitto, tmp_path: Path, wrong: dict[str, str]
) -> None:
    """No lookup takes such a name; a resolver does not say so, Python's codec for names does."""
    site = SiteBox(broker, tmp_path)
    with ConnectProxy(server_port=broker.port) as proxy:
        link, routes = site.with_settings(proxy=proxy.url)
        with link:
            up(link, routes)
        link, routes = site.with_settings(**wrong)
        with link:
            status = up(link, routes)
        assert status["route"].endswith(f" by the proxy {proxy.url}")
        assert "example" in status["route_trouble"]


def test_the_memory_is_roots_alone_and_keeps_both_facts(tmp_path: Path, broker: Mosquitto) -> None:
    site = SiteBox(broker, tmp_path)
    with ConnectProxy(answer=signed_in, server_port=broker.port) as proxy:
        link, routes = site.with_settings(proxy=f"http://edge:wrong-password@127.0.0.1:{proxy.port}")
        site.memory.remember(SpokenVersion(since=7.0))
        route = routes.routes()[1]
        site.memory.remember_route(route)
        assert (site.memory.recall(), site.memory.recall_route()) == (SpokenVersion(since=7.0), route)
        site.memory.remember(None)
        assert (site.memory.recall(), site.memory.recall_route()) == (None, route)
        assert LinkMemory(site.path, "of-another-cloud").recall_route() is None
        assert stat.S_IMODE(site.path.stat().st_mode) == 0o600
        text = site.path.read_text()
        assert "wrong-password" in text
        assert "wrong-password" not in Redactor().line(text)
        with link:
            assert "it does not take this user and password" in link.next(LinkDown, where=lambda d: "407" in d.why).why
    place = f'{{"route": {{"device": "{BOX}", "host": "x", "port": %s, "proxy": ""}}}}'
    site.path.write_text(place % 443)
    assert site.memory.recall_route() == BrokerRoute(host="x", port=443)
    site.path.write_text('{"since": 5.5}')  # as an agent of the version before has it
    assert (site.memory.recall(), site.memory.recall_route()) == (SpokenVersion(since=5.5), None)
    for damaged in ("", "[]", '{"route": 1}', *(place % port for port in ('"y"', "0", "65536", "1e999"))):
        site.path.write_text(damaged)
        assert site.memory.recall_route() is None
