"""Whether the limits of a rollout fit, before it starts: per box and counted, on the page and by the API."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from kits.browser import browser
from kits.cert import Authority
from kits.console import ConsoleSite
from kits.consolepages import fields
from kits.details import box, card, pod, reported
from kits.todaysstores import TodaysStores
from playwright.sync_api import expect

from edgegpu_cloud.console.pages.rollouts.new import JUDGED

FORM = {"what": "limits", "app": "asr", "container": "main", "memory": "12", "core": "10", "waves": "100%"}
BODY = {"kind": "limits", "namespace": "default", "app": "asr", "container": "main", "memory_units": 12, "core": 10}
ROOM: dict[str, Any] = {"u1": pod("asr-0", ("main", "0", 4, 10))}
STOP: dict[str, Any] = {**ROOM, "u2": pod("big-0", ("main", "0", 14, 10)), "u3": pod("wide-0", ("main", "1", 29, 10))}
FULL: dict[str, Any] = {"u1": pod("asr-0", ("main", "0", 4, 10)), "u2": pod("big-0", ("main", "0", 20, 10))}


@pytest.fixture
def site(todays_stores: TodaysStores) -> Iterator[ConsoleSite]:
    with todays_stores.opened() as store:
        yield ConsoleSite(store)


def add(site: ConsoleSite, number: int, name: str, pods: dict[str, Any] | None, cards: int = 1) -> None:
    device = site.add(number, name)
    if pods is not None:
        said = box(name, tuple(card(str(one)) for one in range(cards)), pods)
        site.report(device, reported(said, cluster=f"{number:08d}"))
    site.connect(device)


def four(site: ConsoleSite) -> None:
    """Add a box of each answer."""
    add(site, 1, "box-1", ROOM)
    add(site, 2, "box-2", STOP, cards=2)
    add(site, 3, "box-3", FULL)
    add(site, 4, "box-4", None)


def words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text[text.index('id="fit"') :])).strip()


def test_the_page_says_of_each_box_whether_the_limits_fit_and_the_button_what_will_happen(site: ConsoleSite) -> None:
    four(site)
    with site.client() as client:
        page = client.get("/rollouts/new", params=FORM).text
        told = words(page)
        assert "fits 1 fits after a stop of the app 1 does not fit 1 not known 1" in told
        assert "box-3 does not fit missing 3 units on card 0" in told
        assert (
            "box-2 fits after a stop of the app Needs a stop of this app: fits on card 0 when its own pods have gone"
            in told
        )
        assert "box-4 not known" in told
        assert "box-1" not in told.partition("Type 4")[0], "where they fit is no news"
        button = "Start: 4 boxes, 1 will not fit, 1 only after a stop of the app, 1 not known"
        assert button in told
        every = words(client.get("/rollouts/new", params={**FORM, "each": "all"}).text)
        assert "box-1 fits Fits on card 0" in every
        started = client.post("/rollouts", data=fields(page, "/rollouts") | {"typed": "4"})
        assert started.headers["location"] == "/rollouts/1"


def test_where_all_fit_the_button_says_so(site: ConsoleSite) -> None:
    add(site, 1, "box-1", ROOM)
    told = words(site.client().get("/rollouts/new", params=FORM).text)
    assert "They fit on each of its boxes." in told
    assert "Start: 1 box, all fit" in told
    chinese = site.client(language="zh-CN").get("/rollouts/new", params=FORM).text
    assert "限额是否放得下" in chinese


def test_a_large_plan_is_judged_part_by_part_and_counted_as_a_whole(site: ConsoleSite) -> None:
    for number in range(1, JUDGED + 11):
        add(site, number, f"box-{number:03d}", FULL if number % 10 == 0 else ROOM)
    with site.client() as client:
        first = client.get("/rollouts/new", params=FORM).text
        assert f"{JUDGED} of {JUDGED + 10} boxes are judged so far" in words(first)
        assert "Start: 110 boxes, 10 will not fit, 10 not judged yet" in words(first)
        assert words(first).count("does not fit missing") == 10
        address = re.search(r'hx-get="([^"]+)" hx-trigger="load"', first)
        assert address is not None
        assert address[1] in first.partition('rel="next"')[2], "without script a link leads there"
        rest = client.get(address[1].replace("&amp;", "&")).text
        assert "Start: 110 boxes, 11 will not fit" in words(rest)
        assert "not judged" not in words(rest)
        assert "hx-trigger" not in rest[rest.index('id="fit-counts"') :].partition("</div>")[0]
        assert words(rest).count("does not fit missing") == 1
        assert "Boxes 101 to 110 of 110" in words(rest)
        part = client.get(address[1].replace("&amp;", "&"), headers={"hx-request": "true"}).text
        assert "<html" not in part
        assert 'id="fit-counts"' in part
        assert 'id="start-words"' in part
        odd = client.get("/rollouts/new", params={**FORM, "counted": "9.x.1.1"}).text
        assert f"{JUDGED} of" in words(odd)


def test_an_open_page_counts_to_the_end_by_itself_and_keeps_what_is_typed(site: ConsoleSite, tmp_path: Path) -> None:
    for number in range(1, JUDGED + 3):
        add(site, number, f"box-{number:03d}", FULL if number in {7, JUDGED + 1} else ROOM)
    with site.served(tmp_path, Authority("console")) as url, browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/rollouts/new?{urlencode(FORM)}")
        page.get_by_label(f"Type {JUDGED + 2}").fill(str(JUDGED + 2))
        expect(page.get_by_role("button", name="Start: 102 boxes, 2 will not fit", exact=True)).to_be_visible()
        expect(page.locator("#fit-counts")).to_contain_text("fits 100 does not fit 2")
        expect(page.locator("#fit tbody tr")).to_have_count(1)
        expect(page.get_by_label(f"Type {JUDGED + 2}")).to_have_value(str(JUDGED + 2))
        page.get_by_role("link", name="Next").click()
        expect(page.locator("#fit tbody tr")).to_contain_text("box-101")
        page.get_by_label(f"Type {JUDGED + 2}").fill(str(JUDGED + 2))
        page.get_by_role("button", name="Start: 102 boxes").click()
        expect(page).to_have_url(f"{url}/rollouts/1")


def test_the_api_has_the_preview_of_each_box_of_a_plan(site: ConsoleSite) -> None:
    four(site)
    plan = site.api("otto").post("/rollouts/preview", json={"change": BODY, "all": True}).json()
    fits = {one["name"]: one["fit"] for wave in plan["waves"] for one in wave["boxes"]}
    answers = {name: fit["preview"] and fit["preview"]["answer"] for name, fit in fits.items()}
    assert answers == {"box-1": "fits", "box-2": "fits_after_stop", "box-3": "never_fits", "box-4": None}
    assert fits["box-1"]["places"] == [{"node": "box-1", "card": "0"}]
    assert [(one["card"], one["missing_units"]) for one in fits["box-3"]["missing"]] == [("0", 3)]
    assert "has not told yet" in fits["box-4"]["text"]
    spread = {"change": {"kind": "sharing", "policy": "spread"}, "all": True}
    plan = site.api("otto").post("/rollouts/preview", json=spread).json()
    assert {one["fit"] for wave in plan["waves"] for one in wave["boxes"]} == {None}
