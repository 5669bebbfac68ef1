"""The watcher of the store tells what changes: from its making on, and from the moment when a page was drawn."""

import asyncio
import re
import threading

import pytest
from kits.browser import browser
from kits.console import ConsoleSite
from kits.details import box, card
from playwright.sync_api import Route, expect


def test_a_change_between_a_page_and_the_watchers_first_look_is_told(site: ConsoleSite) -> None:
    async def told() -> list[str]:
        with site.watcher.subscription() as queue:
            device = site.add(1, "hall-1")
            thread = threading.Thread(target=site.watcher.run)
            thread.start()
            try:
                found = await asyncio.wait_for(queue.get(), 30)
            finally:
                site.watcher.stop()
                thread.join()
        assert device in found
        return list(found)

    assert asyncio.run(told())


def test_what_changes_between_a_page_and_its_stream_is_told(site: ConsoleSite) -> None:
    other, hall = site.add(1, "hall-1"), site.add(2, "hall-2")
    drawn = str(site.watcher.position)
    site.report(hall, box("hall-2", (card("0"),)))
    missed = site.watcher.missed(drawn)
    assert missed is not None
    assert hall in missed
    after = re.sub("^[0-9]+", str(site.store.changed_boxes(-1)[0]), drawn)
    assert site.watcher.missed(after) == []
    site.report(other, box("hall-1", (card("0"),)))
    assert site.watcher.missed(after) == [other]


@pytest.mark.parametrize("kept", ["", "x", "1", "-1-aaaaaaaaaaaa-aaaaaaaaaaaa", "9" * 40])
def test_a_position_that_is_none_and_one_of_a_later_store_mean_everything(site: ConsoleSite, kept: str) -> None:
    site.add(1, "hall-1")
    assert site.watcher.missed(kept) is None
    later = re.sub("^[0-9]+", "999999", str(site.watcher.position))
    assert site.watcher.missed(later) is None


def test_a_page_whose_stream_comes_late_shows_what_changed_before(site: ConsoleSite, url: str) -> None:
    hall = site.add(1, "hall-1")
    site.report(hall, box("hall-1", (card("0"),)))

    def late(route: Route) -> None:
        site.now_s += 5
        site.report(hall, box("hall-1", (card("0"), card("1"))))
        route.continue_()

    with browser(url) as context:
        page = context.new_page()
        page.route("**/live?*", late, times=1)
        page.goto(url)
        expect(page.get_by_text("58 of 58 units free")).to_be_visible()
