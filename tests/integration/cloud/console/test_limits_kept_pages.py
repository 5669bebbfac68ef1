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
from edgegpu_cloud.fleet.specs import SharingSettings

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
        found.append(site.add(number, f"box-{number:02d}", site="hall"))
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
    assert "memory not known, core not known → refused: what it has is not known : 1 box" in told
    assert "Judged here: the first 20 boxes by name" in told
    assert "10 units, core as it is" in told
    started = client.post("/operations", data=fields(page, "/operations") | {"typed": str(MANY)})
    assert started.status_code == 303, words(started.text)
    run(site)
    assert cores(site, devices) == [*EXPECTED, None]
    shown = words(client.get(started.headers["location"]).text)
    assert "10 units, core as it is" in shown
    assert "no core is given, and what it has there is not known" in shown


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


def sent(page: str) -> dict[str, list[str]]:
    """Return what the editor's button sends."""
    form = page[page.index('id="set"') :]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form[: form.index("</form>")]):
        found.setdefault(name, []).append(value)
    return found


def test_the_editor_keeps_an_empty_core_on_each_of_the_boxes(site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
    client, path = site.client("otto"), f"/boxes/{devices[0]}/limits/default/asr/main"
    opened = client.get(path).text
    assert 'id="memory" value="12"' in opened
    assert 'id="core" value="10"' in opened, "one box: what it has"
    page = client.get(path, params={"memory": "10", "core": "", "also": "site=hall"}).text
    told = words(page)
    assert "12 units, core 10 → 10 units, core 10" in told
    assert "12 units, core 20 → 10 units, core 20" in told
    assert "on box-24: no core is given, and what it has there is not known" in told
    assert "Set 10 units (2.5 GiB), core as it is on each on 23 boxes" in told
    answer = client.post(path, data=sent(page) | {"number": str(MANY - 1)})
    assert answer.status_code == 303, words(answer.text)
    run(site)
    assert cores(site, devices) == [*EXPECTED, None]
    assert "10 units, each box its own core" in words(client.get(answer.headers["location"]).text)


def test_the_editor_fills_in_no_amount_that_nobody_knows(site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
    client, path = site.client("otto"), f"/boxes/{devices[-1]}/limits/default/asr/main"
    opened = client.get(path)
    assert 'id="memory" value=""' in opened.text
    assert 'id="core" value=""' in opened.text
    assert (opened.status_code, "nothing is named" in opened.text) == (200, False), "nobody has typed anything yet"
    half = client.get(path, params={"memory": "10", "core": ""}).text
    assert "on box-24: no core is given, and what it has there is not known" in words(half)
    assert 'id="set"' not in half
    assert "Set 10 units (2.5 GiB), core 5 on 1 box" in client.get(path, params={"memory": "10", "core": "5"}).text


def test_a_setting_of_sharing_that_the_preview_has_not_named_stays(
    site: ConsoleSite, devices: Sequence[DeviceId]
) -> None:
    client, path, cards = site.client("otto"), f"/boxes/{devices[0]}/sharing", (card("0"), card("1", excluded=True))

    def report(**more: str) -> None:
        site.report(devices[0], reported(box("box-01", cards, {}, **more), cluster="00000001"))

    report(mode="limiter", policy="first-fit")
    typed = {"typed": "yes", "policy": "spread", "exclude": "1", "unit_mib": "256", "isolation": "limiter"}
    page = client.get(path, params=typed).text
    sends = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page[page.index('id="preview"') :])
    assert ("items", "policy") in sends
    report(
        mode="none", policy="first-fit"
    )  # by `edgegpu install --isolation none` on the box, while the page stands open
    form: dict[str, list[str]] = {}
    for name, value in sends:
        form.setdefault(name, []).append(value)
    assert client.post(path, data=form).status_code == 303
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    asked = fleet.spec(devices[0])
    assert asked.policy is not None
    assert (asked.policy.policy, asked.isolation, asked.exclusions, asked.unit_size) == ("spread", None, None, None)


def test_settings_of_many_boxes_leave_those_that_are_not_named(site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    fleet.set_settings(devices[0], SharingSettings(unit_mib=512, exclude=("0",)))
    client = site.client("otto")
    params = {"kind": "sharing", "which": "all", "policy": "spread", "filled": "yes"}
    form = fields(client.get("/operations/new", params=params).text, "/operations")
    assert client.post("/operations", data=form | {"typed": str(MANY)}).status_code == 303
    run(site)
    specs = [fleet.spec(device) for device in devices]
    assert {one.policy.policy for one in specs if one.policy} == {"spread"}
    assert [one.unit_size.mib if one.unit_size else None for one in specs] == [512, *[None] * (MANY - 1)]
    assert [one.exclusions.cards if one.exclusions else None for one in specs] == [("0",), *[None] * (MANY - 1)]
    assert [one.isolation for one in specs] == [None] * MANY


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
