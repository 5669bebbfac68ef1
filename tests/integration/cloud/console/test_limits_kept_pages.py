"""The console's forms for many boxes: an amount that is left empty stays as it is on each, and the page shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from kits.browser import browser
from kits.console import ConsoleSite
from kits.consolepages import fields
from kits.details import box, card, pod, reported
from playwright.sync_api import expect

from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.operations.runner import OperationRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgegpu_sync.ids import DeviceId

MANY = 24
"""Boxes: more than the page judges."""

OPERATION = {"kind": "limits", "which": "all", "app": "asr", "memory": "10", "core": "", "filled": "yes"}
ROLLOUT = {"what": "limits", "app": "asr", "memory": "10", "core": "", "waves": "100%"}


@pytest.fixture
def devices(site: ConsoleSite) -> Sequence[DeviceId]:
    """Return boxes of which each third has another core, and the last no such app."""
    found = []
    for number in range(1, MANY + 1):
        found.append(site.add(number, f"box-{number:02d}"))
        pods = {"u1": pod("asr-0", ("main", "0", 12, 20 if number % 3 == 0 else 10))} if number < MANY else {}
        site.report(found[-1], reported(box(f"box-{number:02d}", (card("0"),), pods), cluster=f"{number:08d}"))
        site.connect(found[-1])
    return found


def words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text)).strip()


def run(site: ConsoleSite) -> None:
    runner = OperationRunner(site.store, clock=site.clock)
    while runner.step():
        pass


def cores(site: ConsoleSite, devices: Sequence[DeviceId]) -> list[tuple[int, int] | None]:
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    limits = [fleet.spec(device).app_limits for device in devices]
    return [(one[0].memory_units, one[0].core) if one else None for one in limits]


EXPECTED = [(10, 20 if number % 3 == 0 else 10) for number in range(1, MANY)]


def test_an_empty_core_stays_as_it_is_on_each_box(site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
    client = site.client("otto")
    fresh = client.get("/operations/new", params={"kind": "limits", "which": "all"}).text
    assert re.search(r'name="core" value=""', fresh), "nothing stands in the form that nobody has typed"
    page = client.get("/operations/new", params=OPERATION).text
    told = words(page)
    assert "12 units, core 10 → 10 units, core 10 : 16 boxes" in told
    assert "12 units, core 20 → 10 units, core 20 : 7 boxes" in told
    assert "? units, core ? → refused: what it has is not known : 1 box" in told
    assert "Judged here: the first 20 boxes by name" in told
    assert "10 units, core as it is" in told
    started = client.post("/operations", data=fields(page, "/operations") | {"typed": str(MANY)})
    assert started.status_code == 303, words(started.text)
    run(site)
    assert cores(site, devices) == [*EXPECTED, None]
    shown = words(client.get(started.headers["location"]).text)
    assert "10 units, core as it is" in shown
    assert "what it has there of core is not known" in shown


def test_a_form_that_names_nothing_is_refused(site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
    client = site.client("otto")
    page = client.get("/operations/new", params={**OPERATION, "container": "main", "memory": ""})
    assert (page.status_code, "nothing is named" in page.text) == (400, True)
    page = client.get("/rollouts/new", params={**ROLLOUT, "memory": ""})
    assert (page.status_code, "neither memory nor core is given" in page.text) == (400, True)
    assert cores(site, devices) == [None] * MANY


def test_a_rollout_says_from_what_to_what_it_leads_on_all_boxes(site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
    client = site.client("otto")
    page = client.get("/rollouts/new", params=ROLLOUT).text
    told = words(page)
    assert "12 units, core 10 → 10 units, core 10 : 16 boxes" in told
    assert "12 units, core 20 → 10 units, core 20 : 7 boxes" in told
    assert "1 not known" in told
    assert "limits default/asr main: 10 units, core as it is" in told
    chinese = words(site.client(language="zh-CN").get("/rollouts/new", params=ROLLOUT).text)
    assert "12 个单位" in chinese
    assert "算力不变" in chinese
    started = client.post("/rollouts", data=fields(page, "/rollouts") | {"typed": str(MANY)})
    assert started.headers["location"] == "/rollouts/1"
    assert cores(site, devices) == [None] * MANY, "no box is changed before its turn"


def test_in_a_browser_an_empty_core_is_kept(site: ConsoleSite, devices: Sequence[DeviceId], url: str) -> None:
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/operations/new?kind=limits&which=all")
        page.get_by_label("Namespace/app").fill("asr")
        page.get_by_label("Units of memory").fill("10")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#steps li")).to_have_count(3)
        expect(page.locator("#steps li").first).to_have_text(
            re.compile(r"12 units, core 10 → 10 units, core 10: 16 boxes")
        )
        page.get_by_label(f"Type {MANY}, the number of boxes, to confirm").fill(str(MANY))
        page.get_by_role("button", name=f"Start on {MANY} boxes").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("10 units, core as it is")
    run(site)
    assert cores(site, devices) == [*EXPECTED, None]
