"""A real Chromium. A page that logs an error, or breaks the content security policy, fails the test that opened it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from edgegpu_cloud.console.visitor import SESSION_COOKIE

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

expect.set_options(timeout=20_000)  # a page beside other tests takes longer than the 5 s that are usual

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

_KNOWN = ("the server responded with a status of 4", "htmx:sendAbort", "htmx:afterRequest")

_CUT_LABELS = """[...document.querySelectorAll('td[data-label]')].filter(cell => {
    const label = getComputedStyle(cell, '::before');
    return label.content !== 'none' && parseFloat(label.height) > cell.clientHeight;
}).map(cell => cell.dataset.label)"""
"""On a phone a cell's column stands before its value: the labels that are higher than their cells."""


def layout_faults(page: Page) -> list[str]:
    """Return what does not fit on a page: the page on the screen, a column's label in its cell."""
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    faults = [f"the page is {wide} pixels wider than the screen"] if wide > 0 else []
    return [*faults, *(f"the label {label!r} leaves its cell" for label in page.evaluate(_CUT_LABELS))]


def need_chromium() -> str:
    """Return the program; a test that needs it is skipped where there is none. CI installs it: there it fails."""
    found = shutil.which("chromium")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no chromium: apt-get install chromium fonts-noto-cjk")
    return found


@contextmanager
def browser(  # noqa: PLR0913  (each with a default)
    url: str,
    person: str = "anna",
    *,
    width: int = 1280,
    height: int = 800,
    language: str = "en-GB",
    dark: bool = False,
    scripts: bool = True,
    program: str = "",
    expected: tuple[str, ...] = (),
) -> Iterator[BrowserContext]:
    """Yield a browser with a session for a console; what went wrong on its pages is asserted at the end.

    `person`: the cookie's value; empty: nobody is signed in. `program`: Chromium's path; empty: that of this machine.
    `expected`: parts of messages that the test brings about. The browser's own lines about answers of 4xx are no fault
    of a page, nor htmx's about a request that a newer one replaces; what fails on the way is `htmx:sendError` besides.
    """
    faults: list[str] = []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program or need_chromium(), args=list(_ARGUMENTS))
        context = started.new_context(
            ignore_https_errors=True,
            viewport={"width": width, "height": height},
            locale=language,
            java_script_enabled=scripts,
            color_scheme="dark" if dark else "light",
        )
        if person:
            host = urlsplit(url).netloc
            context.add_cookies([{"name": SESSION_COOKIE, "value": person, "url": f"https://{host}/", "secure": True}])
        context.on("weberror", lambda one: faults.append(str(one.error)))
        context.on("console", lambda one: _note(one.type, one.text, expected, faults))
        context.on("request", lambda one: _own_host(one.url, url, faults))
        try:
            yield context
        finally:
            started.close()
    assert faults == [], faults


def _note(kind: str, text: str, expected: tuple[str, ...], faults: list[str]) -> None:
    if kind in {"error", "warning"} and not any(one in text for one in (*_KNOWN, *expected)):
        faults.append(text)


def _own_host(asked: str, url: str, faults: list[str]) -> None:
    if not asked.startswith((url, "data:", "about:", "blob:")):
        faults.append(f"asked another host: {asked}")
