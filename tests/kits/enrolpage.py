"""What a person does in the console to take a box in: the first administrator's account, and the line to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kits.people import PASSWORD
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page


def become_admin(page: Page, link: str, name: str = "anna") -> None:
    """Open the first administrator's link, and choose name and password."""
    page.goto(link)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password, at least 12 characters").fill(PASSWORD)
    page.get_by_label("The same password again").fill(PASSWORD)
    page.get_by_role("button", name="Save and sign in").click()
    expect(page.get_by_role("heading", name="Boxes")).to_be_visible()


def copy_line(page: Page, name: str, labels: str) -> str:
    """Make a token on the page Enrol, press Copy beside the line for root, and return what the clipboard has then."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("link", name="Enrol", exact=True).click()
    page.get_by_label("Name of the box").fill(name)
    page.get_by_label("Labels").fill(labels)
    page.get_by_role("button", name="Make the token").click()
    page.locator("[data-copy=line-root]").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    line: str = page.evaluate("navigator.clipboard.readText()")
    expect(page.locator("#line-root")).to_have_text(line)
    return line
