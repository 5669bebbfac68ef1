"""A rollout over 20 boxes that are real agents, on a real broker, in a real Chromium: one fails, all come back."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kits.agentfleet import FAILURE, AgentFleet
from kits.browser import browser
from kits.enrolpage import become_admin
from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [f"box-{number:02d}" for number in range(1, 21)]
FAILS = "box-04"
TOUCHED = NAMES[:6]
"""The canary and the wave after it, by the order of names."""

SOON_MS, LONG_MS = 20_000, 90_000


def start(page: Page, url: str) -> None:
    """Start a rollout of another placement policy: a canary of one box, then waves of five."""
    page.goto(f"{url}/rollouts/new")
    page.get_by_label("Policy").select_option("spread")
    page.get_by_label("Boxes in the canary").fill("1")
    page.get_by_label("Sizes of the waves").fill("5")
    page.get_by_role("button", name="Preview the waves").click()
    expect(page.locator("#plan + ul li")).to_have_count(5)
    page.get_by_label("Type 20, the number of boxes, to confirm").fill("20")
    page.get_by_role("button", name="Start on 20 boxes").click()
    expect(page).to_have_url(f"{url}/rollouts/1")


def test_one_of_twenty_agents_fails_and_the_others_come_back(short_tmp: Path) -> None:
    began = time.monotonic()
    with AgentFleet(short_tmp, NAMES) as fleet, browser(fleet.url, "") as context:
        fleet.boxes[FAILS].fail()
        there_s = time.monotonic() - began
        page = context.new_page()
        become_admin(page, fleet.first_link())
        start(page, fleet.url)
        expect(page.get_by_text("Stopped and returned")).to_be_visible(timeout=LONG_MS)
        expect(page.get_by_text("wave 1: 1 of 5 boxes failed, and 100 % have to succeed")).to_be_visible()
        expect(page.get_by_role("row", name=FAILS).locator(".failed")).to_contain_text(FAILURE)
        expect(page.get_by_role("row", name=TOUCHED[0])).to_contain_text("returned", timeout=SOON_MS)
        expect(page.get_by_role("row", name=NAMES[-1])).to_contain_text("cancelled")
        asked = {name: box.asked for name, box in fleet.boxes.items()}
        policies = {box.policy for box in fleet.boxes.values()}
        rss = fleet.agents.rss_mib()
        sys.stdout.write(
            f"{len(rss)} agents: {sum(rss):.0f} MiB resident, {max(rss):.0f} at most, "
            f"{fleet.agents.cpu_s():.1f} s of CPU; all there after {there_s:.1f} s, "
            f"stopped and returned after {time.monotonic() - began:.1f} s\n"
        )
    assert policies == {"first-fit"}, "each box has again what it had"
    assert asked[TOUCHED[0]] == ["spread", "first-fit"], "the canary was changed, and given back"
    assert asked[FAILS][0] == "spread"
    assert [name for name in NAMES if asked[name]] == TOUCHED, "no box beyond the gate was asked"
