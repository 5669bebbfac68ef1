"""The stream of events: boxes that change, and its end with the token, in a fleet that changes all the time."""

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3
from kits.cert import Authority
from kits.console import ANNA, ConsoleSite

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.console.context import fleet_of

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
def stream(site: ConsoleSite, folder: Path) -> Iterator[Iterator[tuple[str, str]]]:
    """Yield the events that vera's token gets, after the first one."""
    authority = Authority("authority")
    context = ssl.create_default_context(cadata=authority.pem)
    with site.served(folder, authority) as url, urllib3.PoolManager(ssl_context=context) as pool:
        headers = {"authorization": "Bearer egt_vera", "connection": "close"}
        answer = pool.request(
            "GET", f"{url}/api/v1/events", headers=headers, preload_content=False, timeout=_DEADLINE_S, retries=False
        )
        found = events(answer)
        assert answer.status == 200
        assert next(found) == ("hello", "")
        yield found
        site.api_tokens.pop("egt_vera", None)
        assert all(found), "the stream ends with its token, before its server does"


def test_a_stream_names_boxes_and_ends_soon_after_its_token_also_while_boxes_change(
    site: ConsoleSite, tmp_path: Path
) -> None:
    device = site.add(1, "hall-1", site="hall")
    fleet = fleet_of(site.store, ANNA, clock=site.clock)
    with stream(site, tmp_path) as found:
        fleet.label(device, {"rack": "0"})
        assert ("boxes", json.dumps([device])) in found
        del site.api_tokens["egt_vera"]
        revoked_s, after = time.monotonic(), 0
        for number in range(1, 1_000):
            fleet.label(device, {"rack": str(number)})
            if next(found, None) is None:
                break
            after += 1
        assert time.monotonic() - revoked_s < _DEADLINE_S / 2
        assert after, "the stream has to end between events, not for want of them"


def test_an_alert_is_no_box(site: ConsoleSite, tmp_path: Path) -> None:
    device = site.add(1, "hall-1", site="hall")
    with stream(site, tmp_path) as found:
        with site.store.write() as tx:
            tx.notes.alarm("broker.DROPS", device="", text="the broker has dropped 7 messages", now_s=site.now_s)
        AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()
        for rack in ("0", "1"):
            fleet_of(site.store, ANNA, clock=site.clock).label(device, {"rack": rack})
            assert next(found) == ("boxes", json.dumps([device]))
