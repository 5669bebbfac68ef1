"""The console with the 300 boxes of `make demo BOXES=300` in a real Chromium: each number on it is that of all boxes.

With `TEST_PICTURES=FOLDER` each page that is looked at is kept there as a picture, as on a desk and on a phone.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.browser import browser, layout_faults
from kits.cert import Authority
from kits.console import ConsoleSite
from kits.manyboxes import ManyBoxes
from playwright.sync_api import Locator, Page, ViewportSize, expect

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.rollouts.strategy import wave_sizes
from edgegpu_cloud.store.rollouts.records import RolloutState
from edgegpu_sim.manyboxes.enrolled import devices_of
from edgegpu_sync.topics import TopicKind, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kits.todaysstores import TodaysStores

    from edgegpu_sim.manyboxes.profiles import Profile

MANY = 300
ON_PAGE = 50
"""Rows on a page of a list."""
JUDGED = 20
"""Boxes that the preview of an operation judges."""
CANARY = 5
DAY_S = 86_400
NAMESPACE = "baetyl-edge"
DESK, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
ILL = devices_of(47)[-1]
"""A box with a broken card. The tests let it be offline besides."""
_BROKEN_NAMES = """[...document.querySelectorAll('table.stacked > tbody > tr > th > a')].filter(
    link => new Set([...link.getClientRects()].map(line => line.bottom)).size > 1).map(link => link.innerText)"""


@pytest.fixture(scope="module")
def floor(todays_stores: TodaysStores) -> Iterator[ManyBoxes]:
    """Yield boxes for the tests that change none of them."""
    with todays_stores.opened() as store:
        yield ManyBoxes(ConsoleSite(store), MANY, offline={ILL})


@pytest.fixture
def floor_url(floor: ManyBoxes, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a console over them."""
    with ConsoleSite(floor.site.store, now_s=floor.site.now_s).served(tmp_path, Authority("console")) as url:
        yield url


@pytest.fixture
def many(site: ConsoleSite) -> ManyBoxes:
    """Return boxes for one test alone."""
    return ManyBoxes(site, MANY, offline={ILL})


def look(page: Page, name: str) -> None:
    """Assert that a page fits on a phone's screen and on a desk's, where no box's name is broken."""
    folder = os.environ.get("TEST_PICTURES")
    for size in (PHONE, DESK):
        page.set_viewport_size(size)
        if folder:
            page.screenshot(path=Path(folder) / f"{name}-{size['width']}.png", full_page=True)
        assert layout_faults(page) == [], (name, size)
    assert page.evaluate(_BROKEN_NAMES) == [], name


def rows(page: Page) -> list[str]:
    """Return the first cells of the rows of a list, from the page that is open to the last one."""
    found: list[str] = []
    while True:
        found += page.locator("tbody tr > :first-child").all_inner_texts()
        following = page.locator("a[rel=next]")
        if not following.count():
            return found
        address = following.get_attribute("href") or ""
        following.click()
        page.wait_for_url(re.compile(re.escape(address) + "$"))


def amounts(profiles: Iterable[Profile], app: str) -> Counter[tuple[int, int]]:
    """Return the units and core that an app has, with the number of boxes that have them so."""
    return Counter((one.units, one.core) for profile in profiles for one in profile.apps if one.name == app)


def units_of(profiles: Iterable[Profile]) -> tuple[int, int]:
    """Return the free units of the cards that are in order, and all of them."""
    free = total = 0
    for profile in profiles:
        for card in range(profile.cards - bool(profile.trouble)):
            total += profile.units
            free += profile.units - sum(app.units for app in profile.apps if app.card == card)
    return free, total


def boxes(number: int) -> str:
    return f"{number} box" if number == 1 else f"{number} boxes"


def size(units: int) -> str:
    return f"{units / 4:g} GiB" if units >= 4 else f"{units * 256} MiB"


def texts(items: Locator, number: int) -> list[str]:
    """Return the texts of so many items, in alphabetical order: figures are compared, not their order."""
    expect(items).to_have_count(number)
    return sorted(items.all_inner_texts())


def confirm(page: Page, number: int, button: str) -> None:
    """Type the number of boxes, and press the button."""
    page.get_by_label(f"Type {number}, the number of boxes, to confirm").fill(str(number))
    page.get_by_role("button", name=button).click()


def applied(site: ConsoleSite, many: ManyBoxes) -> None:
    """Let the controller store what operations ask, and the connected boxes apply it."""
    runner = OperationRunner(site.store, clock=site.clock)
    while runner.step():
        pass
    site.now_s += 1
    many.apply()


def test_the_boxes_that_match_are_one_number(floor: ManyBoxes, floor_url: str) -> None:
    profiles, connected = floor.profiles(), floor.profiles(connected=True)
    (free, total), offline = units_of(connected), len(floor.offline)
    ill = sum(bool(one.trouble) for one in profiles)
    hall = sum(one.labels["site"] == "hall" for one in profiles)
    with browser(floor_url, "otto") as context:
        page = context.new_page()
        page.goto(f"{floor_url}/")
        expect(page.locator("#units")).to_have_text(
            f"{MANY} boxes match. Of those that are connected {free} of {total} units are free. "
            f"{units_of(profiles)[1] - total} units of boxes that are offline are not counted."
        )
        filters = [f"All {MANY}", f"Connected {len(connected)}", f"Offline {offline}", f"Unhealthy {ill}"]
        assert page.get_by_label("Filters").get_by_role("link").all_inner_texts()[:4] == filters
        look(page, "boxes")
        assert [one.split()[0] for one in rows(page)] == [one.name for one in profiles]
        page.get_by_label("Labels").fill("site=hall")
        expect(page.locator("#units")).to_contain_text(f"{hall} boxes match.")
        look(page, "boxes-searched")
        page.get_by_role("button", name=f"Change all {hall} boxes that match").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Limits of an app: {hall} boxes")
        page.goto(f"{floor_url}/?labels=site%3Dhall")
        assert len(rows(page)) == hall
        page.goto(f"{floor_url}/?show=unhealthy")
        expect(page.locator("tbody tr")).to_have_count(ill)
        of_ill = page.get_by_role("row", name=floor.boxes[ILL].profile.name)
        expect(of_ill).to_contain_text(re.compile(r"Offline\s*Problems"))
        expect(of_ill).to_contain_text("offline: 16 units, not counted as free")
        look(page, "boxes-unhealthy")


def test_an_offline_box_keeps_its_problems_and_each_figure_has_its_age(
    site: ConsoleSite, many: ManyBoxes, url: str
) -> None:
    site.now_s += 540
    device = devices_of(1)[0]
    many.report({device: [one for one in many.boxes[device].measurements() if parse(one[0]).kind is TopicKind.ALLOC]})
    site.now_s += 10
    with browser(url, "otto") as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}")
        ages = "The cards as the box reported 9 minutes ago, the pods as it reported 10 seconds ago."
        expect(page.locator("#cards")).to_contain_text(ages)
        look(page, "box")
        page.goto(f"{url}/boxes/{ILL}")
        for text in ("Offline", "Problems", many.boxes[ILL].profile.trouble, "As the box reported 9 minutes ago"):
            expect(page.locator("main")).to_contain_text(text)
        look(page, "box-offline")


def test_apps_have_each_value_with_the_number_of_its_boxes(floor: ManyBoxes, floor_url: str) -> None:
    with browser(floor_url, "otto") as context:
        page = context.new_page()
        page.goto(f"{floor_url}/apps")
        for app in ("counter", "detector", "tracker"):
            values = amounts(floor.profiles(), app)
            listed = page.get_by_role("row", name=f"{NAMESPACE}/{app}").locator(".amount")
            assert texts(listed, len(values)) == sorted(
                f"{units} units ({size(units)}), core {core} on {boxes(number)}"
                for (units, core), number in values.items()
            )
        look(page, "apps")
        (most,) = amounts(floor.profiles(), "counter").most_common(1)
        page.get_by_role("link", name=f"core 1 on {boxes(most[1])}").click()
        look(page, "app")
        assert len(rows(page)) == most[1]


def test_alerts_of_one_cause_are_silenced_by_one_press(floor: ManyBoxes, floor_url: str) -> None:
    site = floor.site
    with site.store.write() as tx:
        for device in floor.boxes:
            tx.notes.alarm("card.lost", device=device, text="card 1 fell off the bus", now_s=site.now_s)
    AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()
    with browser(floor_url, "otto") as context:
        page = context.new_page()
        page.goto(f"{floor_url}/alerts")
        causes = page.locator("#causes")
        expect(causes).to_contain_text(f"card.lost: {MANY} alerts")
        expect(page.locator("#alert-count .count")).to_contain_text(str(MANY))
        look(page, "alerts")
        page.get_by_role("button", name=f"Silence all {MANY} for 2 hours").click()
        expect(causes.get_by_text("silenced", exact=True)).to_be_visible()
        expect(page.locator("#alert-count .count")).to_have_count(0)
        expect(page.locator("tbody").get_by_text("silenced until")).to_have_count(ON_PAGE)
        look(page, "alerts-silenced")
        assert len(rows(page)) == MANY


def test_memory_alone_keeps_the_core_of_each_box_and_is_undone(site: ConsoleSite, many: ManyBoxes, url: str) -> None:
    had, profiles = amounts(many.profiles(), "detector"), many.profiles()
    having, done = sum(had.values()), sum(amounts(many.profiles(connected=True), "detector").values())
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/")
        page.get_by_role("button", name=f"Change all {MANY} boxes that match").click()
        page.get_by_label("Namespace/app").fill(f"{NAMESPACE}/detector")
        page.get_by_label("Units of memory").fill("10")
        page.get_by_role("button", name="Preview").click()
        lacking = f"memory not known, core not known → refused: what it has is not known: {boxes(MANY - having)}"
        steps = [f"{units} units, core {core} → 10 units, core {core}: {boxes(n)}" for (units, core), n in had.items()]
        assert texts(page.locator("#steps li"), len(had) + 1) == sorted([*steps, lacking])
        expect(page.locator("main")).to_contain_text(f"{MANY - JUDGED} are not judged")
        pods = sum(len(one.apps) for one in profiles)
        expect(page.get_by_text("Pods that hold shares there").locator("xpath=following-sibling::dd")).to_have_text(
            str(pods)
        )
        look(page, "limits-preview")
        page.get_by_label(f"Type {MANY}, the number of boxes, to confirm").fill(str(ON_PAGE))
        page.get_by_role("button", name=f"Start on {MANY} boxes").click()
        expect(page.get_by_role("alert")).to_contain_text(f"the number of boxes is {MANY}, and '{ON_PAGE}' was typed")
        assert site.operations().list() == [], "a wrong number starts nothing"
        confirm(page, MANY, f"Start on {MANY} boxes")
        ended(page, site, many, {"All": MANY, "applied": done, "waiting for the box": having - done})
        expect(outcome(page, "cannot be requested", MANY - having)).to_be_visible()
        look(page, "operation")
        page.get_by_role("link", name="Undo…").click()
        expect(page.get_by_role("heading", level=2)).to_have_text(f"{having} boxes get back what they had")
        back = [f"10 units, core {core} → {units} units, core {core}: {boxes(n)}" for (units, core), n in had.items()]
        assert texts(page.locator("#steps li"), len(had)) == sorted(back)
        look(page, "undo-preview")
        confirm(page, having, f"Undo on {having} boxes")
        ended(page, site, many, {"All": having, "applied": done, "waiting for the box": having - done})
        look(page, "undone")
        page.goto(f"{url}/apps?q=detector")
        assert texts(page.locator(".amount"), len(had)) == sorted(
            f"{units} units ({size(units)}), core {core}, as requested on {boxes(n)}"
            for (units, core), n in had.items()
        )
        in_the_audit(page, url, {MANY: done, having: done})
        page.get_by_role("link", name="box by box").last.click()
        look(page, "audit-opened")
        assert len(rows(page)) == having, "a box that was refused was not changed"
        changed = next(one.name for one in profiles if amounts([one], "detector"))
        page.goto(f"{url}/audit?by=anna&box={changed}")
        expect(page.locator("tbody tr")).to_have_count(2)
        site.now_s += DAY_S
        of_yesterday(page, url, 2)


def outcome(page: Page, words: str, number: int) -> Locator:
    """Return the link to the boxes of an operation with an outcome."""
    return page.get_by_label("Filters").get_by_role("link", name=f"{words} {number}", exact=True)


def ended(page: Page, site: ConsoleSite, many: ManyBoxes, outcomes: dict[str, int]) -> None:
    """Let the operation that was started come to its end; its page has so many boxes of each outcome."""
    page.wait_for_url(re.compile("/operations/[^/?]+$"))
    applied(site, many)
    page.reload()
    for words, number in outcomes.items():
        expect(outcome(page, words, number)).to_be_visible()


def in_the_audit(page: Page, url: str, operations: dict[int, int]) -> None:
    """Assert that each operation is one row: its boxes, and on how many of them it was applied."""
    page.goto(f"{url}/audit?by=anna")
    expect(page.locator("tbody tr")).to_have_count(len(operations))
    for number, done in operations.items():
        expect(page.locator("tbody")).to_contain_text(f"applied on {done} of {number} boxes")
    look(page, "audit")


def of_yesterday(page: Page, url: str, operations: int) -> None:
    """Assert that all operations are of yesterday, and none of today."""
    page.goto(f"{url}/audit")
    page.get_by_role("link", name="Yesterday").click()
    expect(page.locator("tbody").get_by_role("link", name="box by box")).to_have_count(operations)
    page.get_by_role("link", name="Today").click()
    expect(page.get_by_text("Nothing was changed")).to_be_visible()


def test_a_rollout_is_paused_and_aborted_at_the_top_on_a_phone_too(
    site: ConsoleSite, many: ManyBoxes, url: str
) -> None:
    had, runner = amounts(many.profiles(), "tracker"), RolloutRunner(site.store, clock=site.clock)
    with browser(url, "otto") as context:
        page = context.new_page()
        page.goto(f"{url}/rollouts/new?what=limits")
        page.get_by_label("Namespace/app").fill(f"{NAMESPACE}/tracker")
        page.get_by_label("Units of memory").fill("10")
        page.get_by_label("Boxes in the canary").fill(str(CANARY))
        page.get_by_label("Changed at one time, at most").fill("0")
        page.get_by_label("Watched for so many minutes").fill("0")
        page.get_by_role("button", name="Preview the waves").click()
        steps = [f"{units} units, core {core} → 10 units, core {core}: {boxes(n)}" for (units, core), n in had.items()]
        assert texts(page.locator("#steps li"), len(had)) == sorted(steps)
        look(page, "rollout-preview")
        with site.client("otto") as client:  # without scripts the first hundred are judged, and the rest by a press
            first = client.get(page.url).text
        assert f'<span class="muted">· 100 of {MANY} boxes are judged so far.' in first, "no number runs into another"
        confirm(page, MANY, f"Start: {MANY} boxes")
        expect(page).to_have_url(f"{url}/rollouts/1")
        begun = CANARY + wave_sizes(MANY, site.rollouts().show(1).strategy)[1]
        for _ in range(2):  # the canary, and the wave after it
            runner.step()
            site.now_s += 1
            many.apply()
        page.reload()
        look(page, "rollout")
        for button, state in (
            ("Pause: begin no box", RolloutState.PAUSED),
            ("Abort: boxes keep what they have", RolloutState.ABORTING),
        ):
            page.set_viewport_size(PHONE)
            page.evaluate("window.scrollTo(0, 0)")
            expect(page.get_by_role("button", name=button)).to_be_in_viewport(ratio=1)
            page.get_by_role("button", name=button).click()
            expect(page.get_by_role("button", name=button)).to_have_count(0)
            assert site.rollouts().show(1).state is state
            look(page, f"rollout-{state.value.lower()}")
        for _ in range(3):
            runner.step()
            site.now_s += 1
            many.apply()
        assert site.rollouts().show(1).state is RolloutState.ABORTED
        page.reload()
        expect(page.get_by_role("link", name=f"{CANARY} applied", exact=True)).to_be_visible()
        changed = [box.profile for box in many.boxes.values() if box.rev]
        assert len(changed) == begun, "no box was begun after the pause"
        come_back(page, amounts(changed, "tracker"))
        look(page, "rollout-aborted")


def come_back(page: Page, had: Counter[tuple[int, int]]) -> None:
    """Assert that the page says what the changed boxes would get back."""
    back = [f"10 units, core {core} → {units} units, core {core}: {boxes(n)}" for (units, core), n in had.items()]
    assert texts(page.locator("#steps li"), len(back)) == sorted(back)
