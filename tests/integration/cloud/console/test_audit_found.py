"""The audit is found by date, app, box and person; a change of many boxes is one row that opens."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.console import ANNA, OTTO
from kits.details import box, card, pod, reported

from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.store.operations.records import OperationKind

if TYPE_CHECKING:
    from kits.console import ConsoleSite

DAY_S = 86_400.0
ASR = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 4, "core": 1}


@pytest.fixture(autouse=True)
def changes(site: ConsoleSite) -> str:
    """Anna sets limits of an app on a box, a day later otto others on all five; return his operation's id."""
    devices = []
    for number in range(1, 6):
        devices.append(site.add(number, f"hall-{number}", site="hall"))
        pods = {"u1": pod("asr-5d98c8c9f7-x2x4z", ("main", "0", 2, 1))}
        site.report(devices[-1], reported(box(f"hall-{number}", (card("0"),), pods), cluster=f"{number:08d}"))
    tts = ContainerLimits(namespace="other", app="tts", container="main", memory_units=2, core=1)
    fleet_of(site.store, ANNA, clock=site.clock).set_limits(devices[0], tts)
    site.now_s += DAY_S
    started = site.operations(OTTO).start(OperationKind.LIMITS, ASR, where=BoxFilter())
    while OperationRunner(site.store, clock=site.clock).step():
        pass
    return started.operation.id


def rows(site: ConsoleSite, query: str = "", person: str = "anna") -> list[str]:
    """Return the kinds of the entries on the page."""
    page = site.client(person).get(f"/audit{query}").text
    return re.findall(r"<code>(box\.[a-z]+|operation|command)</code>", page)


def test_a_change_of_many_boxes_is_one_row_that_opens(site: ConsoleSite, changes: str) -> None:
    found = rows(site)
    assert (found.count("operation"), found.count("box.spec")) == (1, 1), "and anna's own"
    page = html.unescape(site.client().get("/audit").text)
    assert f'href="/audit?part_of={changes}"' in page
    opened = rows(site, f"?part_of={changes}")
    assert opened == ["box.spec"] * 5
    assert rows(site, "?box=hall-3").count("box.spec") == 1, "a box has its own part of it"
    assert rows(site, "?what=box.spec").count("box.spec") == 6


def test_it_is_found_by_app_day_and_person(site: ConsoleSite) -> None:
    assert rows(site, "?app=tts") == rows(site, "?app=other/tts") == ["box.spec"]
    assert rows(site, "?app=asr") == rows(site, "?app=default/asr") == ["operation"]
    assert rows(site, "?app=default/tts") == rows(site, "?app=as%25") == []
    links = re.findall(r'href="(/audit\?since=[^"]+)">(\w+)<', site.client().get("/audit").text)
    assert [name for _, name in links] == ["Today", "Yesterday"]
    today, yesterday = (rows(site, html.unescape(path).removeprefix("/audit")) for path, _ in links)
    assert (today, "box.spec" in yesterday, "operation" in yesterday) == (["operation"], True, False)
    assert rows(site, "?by=otto") == ["operation"]
    assert site.client().get("/audit?since=yesterday").status_code == 400


def test_the_api_has_the_same(site: ConsoleSite, changes: str) -> None:
    def whats(query: str) -> list[str]:
        return [one["what"] for one in site.api().get(f"/audit?{query}").json()["items"]]

    assert whats("app=asr").count("box.spec") == 5
    assert whats("app=asr&whole=true") == ["operation"]
    assert whats(f"part_of={changes}") == ["box.spec"] * 5
    assert whats(f"since_s={site.now_s}&whole=true") == ["operation"]
    assert "operation" not in whats(f"until_s={site.now_s}")


def test_a_day_has_what_a_change_begun_before_has_done_on_it(site: ConsoleSite) -> None:
    again = site.operations(OTTO).start(OperationKind.LIMITS, ASR | {"core": 2}, where=BoxFilter()).operation.id
    site.now_s += DAY_S
    while OperationRunner(site.store, clock=site.clock).step():
        pass
    path = html.unescape(re.findall(r'href="/audit(\?since=[^"]+)">Today<', site.client().get("/audit").text)[0])
    assert rows(site, path) == ["box.spec"]
    assert f'href="/audit?part_of={again}"' in site.client().get(f"/audit{path}").text


def test_who_has_a_scope_sees_what_a_change_of_many_boxes_has_changed_there(site: ConsoleSite, changes: str) -> None:
    site.add(9, "yard-9", site="yard")
    bea = site.signed_in.table["bea"] = replace(ANNA, name="bea", scope="site=hall")
    site.api_tokens["egt_bea"] = replace(bea, csrf="")
    assert rows(site, person="bea").count("box.spec") == 6, "anna's own, and the five of the operation"
    assert f"/audit?part_of={changes}" in site.client("bea").get("/audit").text
    asked = site.api("bea").get("/audit?app=asr&whole=true").json()["items"]
    assert [one["what"] for one in asked] == ["box.spec"] * 5
    site.signed_in.table["yan"] = replace(ANNA, name="yan", scope="site=yard")
    assert "box.spec" not in rows(site, person="yan")
