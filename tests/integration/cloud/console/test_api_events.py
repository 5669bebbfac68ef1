"""The stream of events: boxes that change, and its end with the token, in a fleet that changes all the time."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import urllib3
from kits.cert import Authority
from kits.console import ANNA, VERA, ConsoleSite

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.console.visitor import SESSION_COOKIE

_DEADLINE_S = 20.0


def events(answer: urllib3.BaseHTTPResponse) -> Iterator[tuple[str, str]]:
    """Yield the events of a stream: name and data."""
    name, rest = "", b""
    for part in answer.stream(1):
        rest += part
        if not rest.endswith(b"\n"):
            continue
        key, _, value = rest.decode().rstrip("\r\n").partition(":")
        rest = b""
        if key == "event":
            name = value.strip()
        elif key == "data":
            yield name, value.strip()


@contextmanager
def stream(site: ConsoleSite, folder: Path, path: str = "/api/v1/events") -> Iterator[Iterator[tuple[str, str]]]:
    """Yield the events that vera's token gets, or for `/live` her session, after the first one."""
    authority = Authority("authority")
    context = ssl.create_default_context(cadata=authority.pem)
    with site.served(folder, authority) as url, urllib3.PoolManager(ssl_context=context) as pool:
        who = {"cookie": f"{SESSION_COOKIE}=vera"} if path == "/live" else {"authorization": "Bearer egt_vera"}
        headers = {**who, "connection": "close"}
        answer = pool.request(
            "GET", f"{url}{path}", headers=headers, preload_content=False, timeout=_DEADLINE_S, retries=False
        )
        found = events(answer)
        assert answer.status == 200
        assert next(found) == ("hello", "")
        assert path != "/live" or next(found) == ("boxes", '["all"]')  # it has no page whose state would be known
        yield found
        site.api_tokens.pop("egt_vera", None)
        site.signed_in.table.pop("vera", None)
        assert all(found), "the stream ends with its token, before its server does"


@pytest.mark.parametrize("path", ["/api/v1/events", "/live"])
def test_a_stream_names_nothing_after_the_end_of_its_token_or_session(
    site: ConsoleSite, tmp_path: Path, path: str
) -> None:
    device = site.add(1, "hall-1", site="hall")
    fleet = fleet_of(site.store, ANNA, clock=site.clock)
    with stream(site, tmp_path, path) as found:
        fleet.label(device, {"rack": "0"})
        assert ("boxes", json.dumps([device])) in found
        del site.api_tokens["egt_vera"], site.signed_in.table["vera"]
        fleet.label(device, {"rack": "1"})
        assert next(found, None) == (("signed-out", "") if path == "/live" else None)
        assert next(found, None) is None


@pytest.mark.parametrize("path", ["/api/v1/events", "/live"])
def test_an_open_stream_follows_the_persons_scope(site: ConsoleSite, tmp_path: Path, path: str) -> None:
    """It becomes narrower, another one, and all boxes."""
    hall, yard = site.add(1, "hall-1", site="hall"), site.add(2, "yard-1", site="yard")
    fleet = fleet_of(site.store, ANNA, clock=site.clock)
    with stream(site, tmp_path, path) as found:
        for number, (scope, seen) in enumerate((("site=hall", hall), ("site=yard", yard))):
            site.signed_in.table["vera"] = replace(VERA, scope=scope)
            site.api_tokens["egt_vera"] = replace(VERA, scope=scope, csrf="")
            for device in (hall, yard) if seen == yard else (yard, hall):
                fleet.label(device, {"rack": str(number)})
            assert next(found) == ("boxes", json.dumps([seen]))
        site.signed_in.table["vera"] = VERA
        site.api_tokens["egt_vera"] = replace(VERA, csrf="")
        fleet.label(hall, {"rack": "9"})
        assert next(found) == ("boxes", json.dumps([hall]))


def test_an_alert_is_no_box(site: ConsoleSite, tmp_path: Path) -> None:
    device = site.add(1, "hall-1", site="hall")
    with stream(site, tmp_path) as found:
        with site.store.write() as tx:
            tx.notes.alarm("broker.DROPS", device="", text="the broker has dropped 7 messages", now_s=site.now_s)
        AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()
        for rack in ("0", "1"):
            fleet_of(site.store, ANNA, clock=site.clock).label(device, {"rack": rack})
            assert next(found) == ("boxes", json.dumps([device]))
