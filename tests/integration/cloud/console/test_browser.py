"""The console in a real Chromium: it lives without reload, searches while one types, keeps its policy."""

from urllib.parse import urlsplit

from kits.browser import browser
from kits.console import ConsoleSite
from kits.details import box, card, pod
from playwright.sync_api import Page, Request, expect


def test_the_fleet_changes_without_reload(site: ConsoleSite, url: str) -> None:
    hall = site.add(1, "hall-1")
    site.connect(hall)
    site.report(hall, box("hall-1", (card("0"),)))
    with browser(url) as context:
        page = context.new_page()
        with page.expect_response("**/live?*"):
            page.goto(url)
        expect(page.get_by_text("29 of 29 units free")).to_be_visible()
        site.now_s += 5
        site.report(hall, box("hall-1", (card("0"),), {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}))
        expect(page.get_by_text("19 of 29 units free")).to_be_visible(timeout=5_000)


def test_the_list_is_searched_while_one_types_and_the_address_says_so(site: ConsoleSite, url: str) -> None:
    for number, name in enumerate(("hall-1", "hall-2", "yard-1")):
        site.add(number, name)
    with browser(url) as context:
        page = context.new_page()
        page.goto(url)
        page.get_by_label("Name, host, label or app").fill("yard")
        expect(page.get_by_role("row", name="hall-1")).to_have_count(0)
        expect(page.get_by_role("row", name="yard-1")).to_be_visible()
        expect(page).to_have_url(f"{url}/?q=yard&labels=&free=")


def test_a_page_reads_without_javascript_in_chinese_on_a_phone(site: ConsoleSite, url: str) -> None:
    site.add(1, "hall-1")
    with browser(url, width=360, language="zh-CN", dark=True, scripts=False) as context:
        page = context.new_page()
        page.goto(url)
        expect(page.get_by_role("heading", name="边缘设备")).to_be_visible()
        expect(page.get_by_role("link", name="hall-1")).to_be_visible()
        width = page.locator("body").bounding_box()
        assert width is not None
        assert width["width"] <= 360


def test_the_first_load_is_small(site: ConsoleSite, url: str) -> None:
    for number in range(60):
        site.add(number, f"hall-{number:02d}")
    with browser(url) as context:
        page = context.new_page()
        loaded: list[Request] = []
        page.on("requestfinished", lambda one: loaded.append(one))  # noqa: PLW0108  (playwright keeps a mark on it)
        page.goto(url, wait_until="load")
        sizes = {urlsplit(one.url).path: one.sizes()["responseBodySize"] for one in loaded}
    assert any(path.endswith("/htmx.min.js") for path in sizes)
    assert sum(sizes.values()) <= 300 * 1024, sizes


def test_ten_tabs_of_one_browser_work(site: ConsoleSite, url: str) -> None:
    site.add(1, "hall-1")
    with browser(url) as context:
        # A headless browser takes each of its tabs for visible: this one says which is, as a window does.
        context.add_init_script(
            "window.front = true; Object.defineProperty(document, 'hidden', {get: () => !window.front});"
        )
        tabs: list[Page] = []
        for _ in range(10):
            for tab in tabs:
                tab.evaluate("window.front = false; document.dispatchEvent(new Event('visibilitychange'))")
            page = context.new_page()
            page.goto(url)
            expect(page.get_by_role("link", name="hall-1")).to_be_visible()
            tabs.append(page)
        first = tabs[0]
        site.add(2, "hall-2")
        tabs[-1].evaluate("window.front = false; document.dispatchEvent(new Event('visibilitychange'))")
        first.evaluate("window.front = true; document.dispatchEvent(new Event('visibilitychange'))")
        expect(first.get_by_role("link", name="hall-2")).to_be_visible()
