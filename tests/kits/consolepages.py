"""The pages of the console that are looked at one by one: read, measured, and put under axe.

`tests/integration/cloud/console/test_page_list.py` holds both lists to the routes: a page that is missing turns it red.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from kits.consoleworld import add_objects
from kits.people import LOCAL, PASSWORD

from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kits.console import ConsoleSite
    from kits.consoleworld import SiteObjects
    from playwright.sync_api import Page, Route

    from edgegpu_sync.ids import DeviceId

PAGES = (
    "/",
    "/?q=nothing+like+it",
    "/?labels=((",
    "/no/such/page",
    "/boxes/DEVICE",
    "/boxes/DEVICE?use=7d",
    "/boxes/DEVICE?events=999999&changes=999-999999&requests=1",
    "/boxes/DEVICE/confirm?op=k3s.restart",
    "/boxes/DEVICE/confirm?op=sharing.uninstall",
    "/boxes/DEVICE/sharing?typed=yes&policy=spread&unit_mib=512",
    "/boxes/DEVICE/remove",
    "/boxes/DEVICE/limits",
    "/boxes/DEVICE/limits/default/asr/main?memory=4",
    "/boxes/DEVICE/limits/default/asr/main?memory=90&core=200",
    "/boxes/DEVICE/limits/default/asr/main?memory=ten",
    "/boxes/DEVICE/limits/default/asr/main?memory=2&live=yes",
    "/apps",
    "/apps/default/asr/main",
    "/apps/default/asr/main?value=4.1_none_256",
    "/alerts",
    "/alerts?show=all&q=nothing+like+it",
    "/alerts/webhooks",
    "/alerts/webhooks/WEBHOOK/delete",
    "/enrol",
    "/enrol/tokens/TOKEN",
    "/rollouts",
    "/rollouts/ROLLOUT",
    "/rollouts/ROLLOUT?show=QUEUED",
    "/rollouts/new",
    "/rollouts/new?what=sharing&policy=spread",
    "/rollouts/new?what=sharing&waves=x&retries=99&first=nobody",
    "/rollouts/new?what=limits&app=asr&container=main&memory=4&core=1",
    "/rollouts/new?what=limits&app=asr&container=main&memory=90&core=1&each=all",
    f"/rollouts/new?what=upgrade&version=1.2.3&url=https://example.com/x&sha256={'ab' * 32}&signature={'A' * 86}",
    "/operations",
    "/operations?q=nothing+like+it",
    "/operations/OPERATION",
    "/operations/OPERATION/undo",
    "/operations/new?kind=limits&which=all&app=asr&memory=4&core=1&filled=yes",
    "/operations/new?kind=sharing&which=all&policy=spread&filled=yes",
    "/operations/new?kind=uninstall&which=all&q=hall",
    "/operations/new?kind=command&which=all&show=connected",
    "/operations/new?kind=limits&which=selected",
    "/account",
    "/people",
    "/people/anna",
    "/audit",
    "/sign-in",
    "/link?code=CODE",
    "/link?code=guessed",
)
"""The pages that are opened, by anna. Words in capitals stand for what `Places` has."""

NO_PAGES = {
    "/live": "a stream of events",
    "/alerts/count": "a part of the pages that are open",
}
"""Paths that are got and are no pages, with the reason."""


@dataclass(frozen=True)
class PostedPage:
    """A page that answers a form of anna's: where it is sent, and its fields."""

    route: str
    form: Mapping[str, str]
    path: str = ""

    @property
    def address(self) -> str:
        """Return the path with words in capitals for what `Places` has."""
        return self.path or self.route


POSTED = (
    PostedPage("/enrol/tokens", {"name": "press", "boxes": "2"}),
    PostedPage("/boxes/{device}/replace", {}, "/boxes/DEVICE/replace"),
    PostedPage("/alerts/webhooks", {"url": "https://hooks.example.com/alerts"}),
    PostedPage("/people", {"name": "bea", "role": "viewer"}),
    PostedPage("/people/{name}/link", {}, "/people/PERSON/link"),
    PostedPage("/account/tokens", {"name": "program"}),
    PostedPage("/sign-in", {"name": "anna", "password": PASSWORD, "next": "/alerts/ALERT", "kept.do": "7200"}),
)
"""The pages that are seen after a form alone. The last one begins another session: it comes last."""

EVERY_PAGE: tuple[str | PostedPage, ...] = (*PAGES, *POSTED)
"""All of them, in the order in which one browser can open them."""


class Places:
    """What the words in capitals stand for: a box, and one of each kind of what there is of its site."""

    def __init__(self, site: ConsoleSite, device: DeviceId, *, where: str = "site=hall") -> None:
        """Add what is not there yet; anna is a person of the store already."""
        objects = add_objects(site, device, where)
        code = site.people.create("mia", role=Role.VIEWER, by=LOCAL)
        self.words = _words(objects) | {"CODE": code, "PERSON": "mia"}

    def at(self, address: str) -> str:
        """Return an address with what there is in the place of the words."""
        for word, text in self.words.items():
            address = address.replace(word, text)
        return address

    def form(self, page: PostedPage) -> dict[str, str]:
        """Return the fields of a form, as anna's browser sends them."""
        return {"csrf": "csrf-of-anna"} | {name: self.at(text) for name, text in page.form.items()}


def _words(objects: SiteObjects) -> dict[str, str]:
    return {
        "DEVICE": objects.device,
        "TOKEN": objects.token,
        "ROLLOUT": objects.rollout,
        "OPERATION": objects.operation,
        "WEBHOOK": objects.webhook,
        "ALERT": objects.alert,
    }


def visit(page: Page, url: str, places: Places, one: str | PostedPage) -> None:
    """Open a page in a browser: at its address, or as the answer to its form, which needs no script."""
    if isinstance(one, str):
        page.goto(url + places.at(one), wait_until="load")
        return
    there, data = url + places.at(one.address), urlencode(places.form(one))
    headers = {"content-type": "application/x-www-form-urlencoded", "origin": url}

    def send(route: Route) -> None:
        asked = {**route.request.headers, **headers}
        route.fulfill(response=route.fetch(method="POST", headers=asked, post_data=data))

    page.route(there, send)
    page.goto(there, wait_until="load")
    page.unroute(there, send)


def fields(page: str, action: str) -> dict[str, str]:
    """Return what a form of a page would send."""
    form = re.search(rf'<form method="post" action="{re.escape(action)}".*?</form>', page, re.DOTALL)
    assert form is not None, page
    found = re.findall(r'name="([^"]+)"[^>]*? value="([^"]*)"', form[0])
    found += re.findall(r'<textarea name="([^"]+)"[^>]*>([^<]*)<', form[0])
    return {name: html.unescape(value) for name, value in found}
