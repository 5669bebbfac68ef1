"""The console as an operator uses it: a real Chromium, mosquitto, the real agent, and a real k3s with simulated cards.

The installer alone has a stand-in, which starts and stops the plugin: a node without systemd has nothing to install on.
`tests/box/test_cloud_page.py` pastes the console's line on a box that boots.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.consolenode import ConsoleNode, chromium_in, console_node, limits_of, paste
from e2e.limitsaccount import grant_limits, revoke_limits
from e2e.manifests import CORE, MEMORY, container, deployment, pod_spec
from e2e.plugin_node import cards
from kits.browser import browser
from kits.enrolpage import become_admin, copy_line
from lab.labkit import wait_until
from playwright.sync_api import Locator, Page, expect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.k3s import K3s

    from edgegpu_sim.demo.box import DemoBox

APPS = "apps"
SOON_MS = 20_000


@pytest.fixture
def apps(k3s: K3s) -> Iterator[None]:
    """Put a card of 94 units into the node, and let the agent set limits in one namespace."""
    insert_cards(k3s, {SERVER: cards(24_259)})
    grant_limits(k3s, [APPS])
    yield
    k3s.clear(APPS)
    revoke_limits(k3s, [APPS])


def run_apps(k3s: K3s, **units: int) -> None:
    """Let apps run with so many units each, one after the other."""
    for name, memory in units.items():
        spec = pod_spec(container(memory=memory, core=1), nodeSelector={"kubernetes.io/hostname": SERVER})
        k3s.apply(deployment(name, spec, namespace=APPS))
        k3s.wait_phase(APPS, name, "Running")


def memory(page: Page) -> Locator:
    return page.get_by_label("Memory", exact=True)


def bars(page: Page) -> list[list[int]]:
    """Return the units of the pieces on each card, as drawn (ten to a unit), least first; less cards that are gone."""
    drawn = page.locator(".card .bar:not(.core)")
    found = [bar.locator(".piece rect").all() for bar in drawn.all()]
    return [sorted(int(one.get_attribute("width") or 0) // 10 for one in bar) for bar in found if bar]


def enrol(page: Page, cloud: ConsoleNode, k3s: K3s, there: DemoBox) -> str:
    """Paste the line that the page shows, and see the box appear there; return the address of the box's page."""
    line = copy_line(page, "hall-1", "site=hall")
    assert "enrolled as hall-1" in paste(k3s.nodes[SERVER], there, line)
    arrived = page.get_by_role("link", name="hall-1")
    expect(arrived).to_be_visible(timeout=SOON_MS)
    expect(page.get_by_text("94 of 94 units")).to_be_visible(timeout=SOON_MS)
    address = arrived.get_attribute("href") or ""
    wait_until(lambda: bool(cloud.read("box", "hall-1")["box"]["cluster"]), what="the box has reported its cluster")
    return f"{cloud.url}{address}"


def refused_before_the_button(page: Page, k3s: K3s, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name=re.compile("^apps.one-.*: 1 unit ")).click(timeout=SOON_MS)
    memory(page).fill("10")
    expect(page.get_by_text("Does not fit: missing 6 units on card 0")).to_be_visible()
    expect(page.get_by_text("4 units and core 98 free, 6 units missing")).to_be_visible()
    expect(page.locator("[data-sets]")).to_have_text(
        "Ask 1 box for 10 units (2.5 GiB), core 1: it refuses what does not fit"
    )
    assert limits_of(k3s, APPS, "one") == {MEMORY: "1", CORE: "1"}


def set_by_typing_and_by_drag(page: Page, k3s: K3s) -> None:
    memory(page).fill("4")
    page.get_by_role("button", name="Set 4 units (1 GiB), core 1 on 1 box").click()
    expect(page.locator("#outcome").get_by_text("Applied")).to_be_visible(timeout=60_000)
    assert limits_of(k3s, APPS, "one") == {MEMORY: "4", CORE: "1"}
    expect(page.locator("#outcome")).to_contain_text(re.compile(r"one-\S+: 4 units"), timeout=SOON_MS)
    page.reload()
    whole, edge = page.locator("#preview .bar").first.bounding_box(), page.locator("#edge").bounding_box()
    assert whole is not None
    assert edge is not None
    x, y = edge["x"] + edge["width"] / 2, edge["y"] + edge["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 2 * whole["width"] / 94, y, steps=4)
    page.mouse.up()
    expect(memory(page)).to_have_value("2")
    page.get_by_role("button", name="Set 2 units (512 MiB), core 1 on 1 box").click()
    wait_until(lambda: limits_of(k3s, APPS, "one")[MEMORY] == "2", what="the dragged limits are set")
    expect(page.locator("#outcome").get_by_text("Applied")).to_be_visible(timeout=60_000)
    k3s.wait_phase(APPS, "one", "Running")


def sharing_off_and_on(page: Page, k3s: K3s, address: str) -> None:
    page.goto(f"{address}/sharing")
    page.get_by_role("button", name="Take GPU sharing off hall-1").click()
    expect(page.get_by_text("GPU sharing is not installed.")).to_be_visible(timeout=60_000)
    assert not k3s.nodes[SERVER].running
    page.goto(f"{address}/sharing")
    page.get_by_role("button", name="Install GPU sharing on hall-1").click()
    expect(page.get_by_text("GPU sharing is not installed.")).to_be_hidden(timeout=60_000)
    assert k3s.nodes[SERVER].running
    expect(page.locator(".card")).to_contain_text("2 of 94 units free", timeout=SOON_MS)


def four_and_twenty_and_twenty(page: Page, k3s: K3s, address: str) -> None:
    k3s.clear(APPS)
    insert_cards(k3s, {SERVER: cards(7_611, 7_611)})
    run_apps(k3s, first=4, second=20, third=4)
    page.goto(f"{address}/limits/{APPS}/third/main")
    expect(page.locator("#outcome")).to_contain_text(re.compile(r"third-\S+: 4 units"), timeout=SOON_MS)
    memory(page).fill("20")
    expect(page.get_by_text("Fits on card 1")).to_be_visible(timeout=SOON_MS)
    page.get_by_role("button", name="Set 20 units (5 GiB), core 1 on 1 box").click()
    expect(page.locator("#outcome").get_by_text("Applied")).to_be_visible(timeout=60_000)
    page.goto(address)
    expect(page.get_by_role("link", name=re.compile("^apps.third-.*: 20 units "))).to_be_visible(timeout=SOON_MS)
    assert bars(page) == [[4, 20], [20]]


@pytest.mark.usefixtures("apps")
def test_a_box_is_enrolled_and_its_apps_limited_from_the_console(k3s: K3s, tmp_path: Path) -> None:
    node = k3s.nodes[SERVER]
    with (
        console_node(k3s, node, tmp_path, units=94, core=100) as (cloud, there),
        browser(cloud.url, "", program=chromium_in(SERVER, tmp_path)) as context,
    ):
        page = context.new_page()
        become_admin(page, cloud.first_link())
        address = enrol(page, cloud, k3s, there)
        run_apps(k3s, fifty=50, forty=40, one=1)
        refused_before_the_button(page, k3s, address)
        set_by_typing_and_by_drag(page, k3s)
        sharing_off_and_on(page, k3s, address)
        four_and_twenty_and_twenty(page, k3s, address)
