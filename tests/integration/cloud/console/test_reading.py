"""Every page without scripts, in one language a day; its first load; and the way to an app's limits by keys alone."""

import re
from collections.abc import Callable

import pytest
from kits.browser import browser
from kits.console import ConsoleSite
from kits.consolepages import EVERY_PAGE, PAGES, Places, visit
from kits.daily import of_the_day
from kits.details import box, card, pod, reported
from kits.people import LOCAL, PASSWORD
from playwright.sync_api import Page, Request, expect

from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.store.people.records import Role
from edgegpu_sync.ids import DeviceId

MOST_BYTES = 300 * 1024
MOST_TABS = 60
CHINESE = re.compile("[\N{CJK UNIFIED IDEOGRAPH-4E00}-\N{CJK UNIFIED IDEOGRAPH-9FFF}]")


@pytest.fixture
def hall(site: ConsoleSite) -> DeviceId:
    """Return a connected box with two cards and an app; `anna` is a person of the store."""
    site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
    device = site.add(1, "hall-1", site="hall")
    pods = {"u1": pod("asr-0", ("main", "0", 4, 1))}
    site.report(device, reported(box("hall-1", (card("0"), card("1")), pods)))
    site.connect(device)
    return device


@pytest.fixture
def places(site: ConsoleSite, hall: DeviceId) -> Places:
    return Places(site, hall)


@pytest.mark.parametrize(("language", "dark"), of_the_day([("en-GB", True), ("zh-CN", False)], parts=2))
def test_every_page_reads_without_scripts(
    places: Places,
    url: str,
    language: str,
    dark: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    bad: list[str] = []
    with browser(url, language=language, dark=dark, scripts=False) as context:
        page = context.new_page()
        for path in EVERY_PAGE:
            visit(page, url, places, path)
            said = page.locator("main").inner_text().replace("中文", "")
            if page.locator("h1").count() != 1 or len(said.split()) < 2:
                bad.append(f"{path}: {said[:80]!r}")
            if (CHINESE.search(said) is not None) != (language == "zh-CN"):
                bad.append(f"{path}: another language: {said[:80]!r}")
    assert bad == []


def test_the_first_load_of_each_page_is_small(places: Places, url: str) -> None:
    large: list[str] = []
    loaded: list[Request] = []
    with browser(url) as context:
        page = context.new_page()
        page.route("**/*", lambda route: route.continue_())  # a browser that is asked keeps no file
        page.on("requestfinished", lambda one: loaded.append(one))  # noqa: PLW0108  (playwright keeps a mark on it)
        for path in PAGES:
            loaded.clear()
            visit(page, url, places, path)
            whole = sum(one.sizes()["responseBodySize"] for one in loaded)
            if not 20_000 < whole <= MOST_BYTES:
                large.append(f"{path}: {whole}")
    assert large == []


def tab_to(page: Page, there: Callable[[], bool]) -> None:
    """Press Tab until the focus is where it shall be; it is to be seen on the way."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if there():
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert page.evaluate(outline) != "none" or page.evaluate("document.activeElement.matches('.piece')")
            return
    pytest.fail(f"{MOST_TABS} presses of Tab do not lead there")


def focused(page: Page, text: str) -> Callable[[], bool]:
    """Return whether the focus is on something of that name."""
    name = "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()"
    return lambda: str(page.evaluate(name)).startswith(text)


def test_limits_are_set_by_keys_alone(site: ConsoleSite, hall: DeviceId, url: str) -> None:
    with browser(url) as context:
        page = context.new_page()
        page.goto(url)
        tab_to(page, focused(page, "Skip to content"))
        page.keyboard.press("Enter")
        tab_to(page, focused(page, "hall-1"))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="hall-1")).to_be_visible()
        tab_to(page, focused(page, "default/asr-0/main: 4 units"))
        expect(page.locator("#piece-words")).to_contain_text("default/asr-0/main: 4 units (1 GiB)")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="default/asr")).to_be_visible()
        tab_to(page, lambda: bool(page.evaluate("document.activeElement.id === 'memory'")))
        page.keyboard.press("Control+a")
        page.keyboard.type("6")
        expect(page.locator("[data-sets]")).to_have_text("Set 6 units (1.5 GiB), core 1 on 1 box")
        tab_to(page, lambda: bool(page.evaluate("document.activeElement.id === 'edge'")))
        page.keyboard.press("ArrowRight")
        expect(page.locator("[data-sets]")).to_have_text("Set 7 units (1.75 GiB), core 1 on 1 box")
        tab_to(page, focused(page, "Set 7 units"))
        page.keyboard.press("Enter")
        expect(page.locator("#outcome").get_by_text("Waiting for the box")).to_be_visible()
    [item] = Fleet(site.store, clock=site.clock, by="anna").spec(hall).app_limits
    assert item.memory_units == 7


def test_what_is_drawn_anew_keeps_the_focus(site: ConsoleSite, hall: DeviceId, url: str) -> None:
    def report(units: int) -> None:
        pods = {"u1": pod("asr-0", ("main", "0", 4, 1)), "u2": pod("new-0", ("main", "1", units, 1))}
        site.report(hall, reported(box("hall-1", (card("0"), card("1")), pods)))

    with browser(url) as context:
        page = context.new_page()
        page.goto(url)
        tab_to(page, focused(page, "hall-1"))
        row = page.locator("tr", has=page.get_by_role("link", name="hall-1"))
        before = row.inner_text()
        report(2)
        expect(row).not_to_have_text(before, use_inner_text=True)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="hall-1")).to_be_visible()
        page.goto(f"{url}/boxes/{hall}/limits/default/asr/main")
        page.get_by_label("Memory", exact=True).fill("6")
        expect(page.locator("[data-sets]")).to_have_text(re.compile("Set 6 units"))
        tab_to(page, focused(page, "Set 6 units"))
        report(3)
        expect(page.locator("#preview").get_by_role("img", name="default/new-0/main: 3 units")).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.locator("#outcome").get_by_text("Waiting for the box")).to_be_visible()
    [item] = Fleet(site.store, clock=site.clock, by="anna").spec(hall).app_limits
    assert item.memory_units == 6
