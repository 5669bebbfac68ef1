"""How soon a change that is stored reaches an open page: the stream of events of a real console process."""

from __future__ import annotations

import json
import ssl
import time
from typing import TYPE_CHECKING

import urllib3

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.people.people import People
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cloud.site import FleetSite

CHANGES = 40
_DEADLINE_S = 60.0
_LOCAL, _NAME = Access("operator bench"), "bench"


def live_updates(site: FleetSite) -> list[float]:
    """Change boxes one after the other; return the seconds from the end of each transaction to the event with it."""
    context = ssl.create_default_context(cafile=str(site.cloud.ca))
    headers = {"authorization": f"Bearer {_token(site)}"}
    took = []
    with urllib3.PoolManager(ssl_context=context) as pool:
        url = f"https://127.0.0.1:{site.console_port}/api/v1/events"
        answer = pool.request("GET", url, headers=headers, preload_content=False, timeout=_DEADLINE_S, retries=False)
        if answer.status != 200:
            raise RuntimeError(f"the console answers {answer.status}: {answer.read(1_000)!r}")
        named = _boxes(answer)
        if next(named) != []:
            raise RuntimeError("the stream begins with no hello")
        for number in range(CHANGES):
            device = site.devices[number % len(site.devices)]
            site.fleet.label(device, {"bench": str(number)})
            stored_s = time.monotonic()
            while not {device, "all"} & {*next(named)}:
                pass
            took.append(time.monotonic() - stored_s)
        answer.close()
    return took


def _token(site: FleetSite) -> str:
    people = People(site.store, clock=time.time)
    people.create(_NAME, role=Role.OPERATOR, by=_LOCAL)
    text, _ = people.create_token(_NAME, _NAME, role=Role.OPERATOR, by=_LOCAL)
    return text


def _boxes(answer: urllib3.BaseHTTPResponse) -> Iterator[list[str]]:
    """Yield what each event names; nothing for the first, which greets."""
    line = b""
    for part in answer.stream(1):
        line += part
        if line.endswith(b"\n"):
            if line.startswith(b"data:"):
                yield json.loads(line[5:].strip() or b"[]")
            line = b""
