"""How the tests on a real k3s use the console: by keys alone, on a phone, and with an eye on the clock."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

from lab.labkit import LabError
from playwright.sync_api import Locator, Page, ViewportSize, expect

from edgegpu_base.http_unix import get

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgegpu_sim.demo.box import DemoBox

PHONE: ViewportSize = {"width": 360, "height": 740}
CHINESE = re.compile("[\N{CJK UNIFIED IDEOGRAPH-4E00}-\N{CJK UNIFIED IDEOGRAPH-9FFF}]")

_MOST_TABS = 200
_SHOWN_S, _LOOK_S = 60.0, 0.02
_OUTSIDE = """() => [...document.querySelectorAll('main :is(button, a.button, input, select)')]
    .filter((one) => one.checkVisibility() && !one.closest('.table'))
    .filter((one) => one.getBoundingClientRect().left < 0 || one.getBoundingClientRect().right > innerWidth)
    .map((one) => one.outerHTML.slice(0, 80))"""


def tab_to(page: Page, there: Locator) -> None:
    """Press Tab until the focus is there, and is seen; the part around it may be drawn anew meanwhile."""
    expect(there.first).to_be_visible(timeout=20_000)
    for _ in range(_MOST_TABS):
        page.keyboard.press("Tab")
        if there.first.evaluate("one => one === document.activeElement && one.matches(':focus-visible')"):
            return
    raise AssertionError(f"{_MOST_TABS} presses of Tab do not lead to {there}")


def press(page: Page, there: Locator) -> None:
    """Go to a link or a button by Tab, and press Enter."""
    tab_to(page, there)
    page.keyboard.press("Enter")


def type_into(page: Page, there: Locator, text: str) -> None:
    """Go to a field by Tab, and type over what it has."""
    tab_to(page, there)
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


def fits_the_phone(page: Page) -> None:
    """See that the page is in Chinese, and neither it nor a button or a field is wider than the phone."""
    assert CHINESE.search(page.locator("main").inner_text()), page.url
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, f"{page.url} is {wide} px wider than the phone"
    assert page.evaluate(_OUTSIDE) == [], page.url


def agent_items(there: DemoBox) -> dict[str, Any]:
    """Return what the agent says on its box about the items that were asked of it."""
    _, body = get(there.root / "run/edgegpu/agent.sock", "/v1/status", timeout_s=5)
    found: dict[str, Any] = json.loads(body)["items"]
    return found


def shown_after_s(happened: Callable[[], bool], shown: Locator, *, what: str) -> float:
    """Wait for a change on the box and for the page to show it; return the seconds between the two."""
    ends = time.monotonic() + _SHOWN_S
    at_s = 0.0
    while time.monotonic() < ends:
        if not at_s and happened():
            at_s = time.monotonic()
        if shown.first.is_visible():
            now_s = time.monotonic()
            return now_s - at_s if at_s else 0.0
        time.sleep(_LOOK_S)
    raise LabError(f"not so after {_SHOWN_S:g} s: {what}")
