"""A rollout over 20 simulated boxes in a real Chromium: one fails, the gate stops it, all get back what they had."""

from pathlib import Path

from kits.browser import browser
from kits.cert import Authority
from kits.console import ConsoleSite
from kits.rolloutbed import RolloutBed
from playwright.sync_api import Page, expect

from edgegpu_cloud.store.rollouts.records import RolloutState


def started(page: Page, url: str) -> None:
    """Start a rollout of another placement policy as a person does: typed, previewed, confirmed."""
    page.goto(f"{url}/rollouts")
    page.get_by_role("link", name="New rollout").click()
    page.get_by_label("Policy").select_option("spread")
    page.get_by_label("Boxes in the canary").fill("1")
    page.get_by_label("Sizes of the waves").fill("5")
    page.get_by_role("button", name="Preview the waves").click()
    expect(page.locator("#plan + ul li")).to_have_count(5)
    page.get_by_label("Type 20, the number of boxes, to confirm").fill("20")
    page.get_by_role("button", name="Start on 20 boxes").click()
    expect(page).to_have_url(f"{url}/rollouts/1")


def test_one_of_twenty_fails_and_the_pages_show_the_stop_and_the_return(tmp_path: Path) -> None:
    bed = RolloutBed(tmp_path / "bed")
    bed.connect_all()
    had = bed.settings()
    bed.book(11).fails = True  # in the wave after the canary, by the order of names
    site = ConsoleSite(bed.store, now_s=bed.world.clock())
    with site.served(tmp_path, Authority("console")) as url, browser(url) as context:
        page = context.new_page()
        started(page, url)
        expect(page.get_by_role("link", name="5 queued").first).to_be_visible()
        with page.expect_response("**/live?*"):
            page.reload()
        bed.until(lambda: bed.rollouts.show(1).wave == 1)
        site.now_s = bed.world.clock()
        expect(page.locator("tr[aria-current=step]")).to_contain_text("wave 1", timeout=5_000)
        bed.to_the_end(1)
        site.now_s = bed.world.clock()
        expect(page.get_by_text("Stopped and returned")).to_be_visible(timeout=5_000)
        expect(page.get_by_text("wave 1: 1 of 5 boxes failed, and 100 % have to succeed")).to_be_visible()
        expect(page.get_by_role("link", name="5 cancelled").first).to_be_visible()
        expect(page.get_by_role("row", name="box-11").locator(".failed")).to_contain_text(
            "the plugin does not come up with it"
        )
        page.get_by_role("link", name="1 returned").click()
        expect(page.get_by_role("row", name="box-10")).to_contain_text("returned")
        expect(page.get_by_role("row", name="box-20")).to_have_count(0)
        page.goto(f"{url}/rollouts")
        expect(page.get_by_role("row", name="sharing policy spread")).to_contain_text("Stopped and returned")
    assert bed.rollouts.show(1).state is RolloutState.RETURNED
    assert bed.settings() == had
    touched = [book for book in bed.books.values() if ("policy", "spread") in book.log]
    assert len(touched) == 5, "the canary and four of the wave: none beyond the gate"
    bed.store.close()
