"""The watcher of the store tells what changes: from its making on, and from the moment when a page was drawn."""

import asyncio
import re
import threading

import pytest
from kits.browser import browser
from kits.console import ConsoleSite
from kits.details import box, card
from playwright.sync_api import Route, expect

from edgegpu_cloud.console.live import ChangeWatcher, Position
from edgegpu_cloud.store.records import PARTITIONS, partition_of
from edgegpu_sync.ids import DeviceId


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
    then = Position.of(drawn)
    assert then is not None
    after = str(then._replace(numbers=site.store.changed_boxes(None).numbers))
    assert site.watcher.missed(after) == []
    site.report(other, box("hall-1", (card("0"),)))
    assert site.watcher.missed(after) == [other]


def test_of_more_changes_than_one_answer_has_all_is_told(site: ConsoleSite) -> None:
    then = site.watcher.position._replace(numbers=(0,) * PARTITIONS)
    two = then._replace(numbers=(2, *then.numbers[1:]))

    def changed(since: Position | None) -> tuple[Position, list[DeviceId]]:
        """Answer as a store with two changes that names one at a time."""
        if since is None:
            return two, []
        return then._replace(numbers=(min(since.numbers[0] + 1, 2), *then.numbers[1:])), [DeviceId("a" * 16)]

    watcher = ChangeWatcher(changed)
    assert watcher.missed(str(then)) is None
    assert watcher.missed(str(then._replace(numbers=(1, *then.numbers[1:])))) == ["a" * 16]


@pytest.mark.parametrize("number", [0, 1, 10, 0x9FFF, 2**60 - 1])
def test_a_page_keeps_a_position_as_a_short_text(number: int) -> None:
    numbers = (number, *range(1, PARTITIONS))
    position = Position(numbers, "a" * 12, "0" * 12, "b" * 12)
    assert Position.of(str(position)) == position
    assert len(str(Position((0,) * PARTITIONS, "a" * 12, "0" * 12, "b" * 12))) == PARTITIONS - 1 + 39
    assert re.fullmatch("[0-9a-f.-]+", str(position))  # as it stands in an address


MARKS = f"-{'a' * 12}-{'0' * 12}-{'b' * 12}"
DOTS = "." * (PARTITIONS - 1)


@pytest.mark.parametrize(
    "kept",
    [
        "",
        "x",
        "1",
        f"17{MARKS}",  # as it was while one number was for all boxes
        f"-1{DOTS}{MARKS}",
        f"{DOTS}.{MARKS}",
        f"{DOTS[1:]}{MARKS}",
        f"01{DOTS}{MARKS}",
        f"A{DOTS}{MARKS}",
        f"0x1{DOTS}{MARKS}",
        f" 1{DOTS}{MARKS}",
        f"\u0663{DOTS}{MARKS}",
        f"{'f' * 16}{DOTS}{MARKS}",
        f"1{DOTS}{MARKS}\n",
        f"1{DOTS}{MARKS}0",
        f"1{DOTS}",
        "9" * 40,
    ],
)
def test_a_position_that_is_none_means_everything(site: ConsoleSite, kept: str) -> None:
    site.add(1, "hall-1")
    assert Position.of(f"1{DOTS}{MARKS}") is not None
    assert Position.of(kept) is None
    assert site.watcher.missed(kept) is None


def test_a_position_of_a_store_that_was_restored_since_means_everything(site: ConsoleSite) -> None:
    """One of the numbers is enough: others may have risen further meanwhile."""
    hall = site.add(1, "hall-1")
    drawn = Position(site.store.changed_boxes(None).numbers, "a" * 12, "0" * 12, "b" * 12)
    other = (partition_of(hall) + 1) % PARTITIONS
    later = list(drawn.numbers)
    later[other] += 1
    site.report(hall, box("hall-1", (card("0"),)))
    assert hall in (site.watcher.missed(str(drawn)) or ())
    assert site.watcher.missed(str(drawn._replace(numbers=tuple(later)))) is None


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
        expect(page.get_by_text("offline: 58 units, not counted as free")).to_be_visible()
