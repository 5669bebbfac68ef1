"""The list of pages that are read, measured and put under axe has every route, and something to show at each."""

from dataclasses import astuple

import pytest
from fastapi.routing import APIRoute
from kits.console import ConsoleSite
from kits.consolepages import EVERY_PAGE, NO_PAGES, PAGES, POSTED, Places, PostedPage
from kits.consoleworld import ConsoleWorld
from kits.details import box
from kits.people import LOCAL, PASSWORD
from starlette.routing import compile_path

from edgegpu_cloud.console.web import ROUTERS
from edgegpu_cloud.store.people.records import Role

REFUSED = {
    "/no/such/page": 404,
    "/boxes/DEVICE/limits/default/asr/main?memory=ten": 400,
    "/rollouts/new?what=sharing&waves=x&retries=99&first=nobody": 400,
    "/operations/new?kind=limits&which=selected": 400,
    "/operations/OPERATION/undo": 400,
    "/link?code=guessed": 400,
}
"""Pages of the list that say what is wrong, on purpose."""


@pytest.fixture
def places(site: ConsoleSite) -> Places:
    site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
    device = site.add(1, "hall-1", site="hall")
    site.report(device, box("hall-1"))
    return Places(site, device)


def routes(method: str) -> list[str]:
    """Return the paths of the routes of a method, in their order."""
    found = [one for router in ROUTERS for one in router.routes if isinstance(one, APIRoute)]
    return [route.path for route in found if method in (route.methods or ())]


def route_of(path: str) -> str:
    """Return the route that answers a path; empty: none."""
    return next((route for route in routes("GET") if compile_path(route)[0].match(path)), "")


def missing(pages: tuple[str, ...]) -> set[str]:
    """Return the routes that no page of a list is at."""
    return set(routes("GET")) - set(NO_PAGES) - {route_of(page.partition("?")[0]) for page in pages}


def test_every_page_is_on_the_list() -> None:
    assert missing(PAGES) == set()
    assert set(NO_PAGES) <= set(routes("GET"))
    assert {one.route for one in POSTED} <= set(routes("POST"))


def test_a_page_that_is_not_on_the_list_is_found() -> None:
    for left_out, route in (("/rollouts/ROLLOUT", "/rollouts/{number}"), ("/link", "/link"), ("/account", "/account")):
        assert missing(tuple(page for page in PAGES if not page.startswith(left_out))) == {route}


@pytest.mark.parametrize("page", EVERY_PAGE, ids=str)
def test_each_shows_what_it_is_for(site: ConsoleSite, places: Places, page: str | PostedPage) -> None:
    with site.client() as client:
        client.headers["sec-fetch-site"] = "same-origin"  # a browser says so of the console's own forms
        if isinstance(page, str):
            answer, status = client.get(places.at(page)), REFUSED.get(page, 200)
        else:
            answer, status = client.post(places.at(page.address), data=places.form(page)), 200
    assert answer.status_code == status, answer.text
    assert answer.text.count("<h1") == 1


def test_one_of_everything_is_what_the_pages_and_the_api_name(site: ConsoleSite) -> None:
    world = ConsoleWorld(site)
    assert world.hall != world.yard
    both = zip(astuple(world.hall), astuple(world.yard), strict=True)
    assert all(one and one != other for one, other in both)
