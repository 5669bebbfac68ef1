"""Lists of pages end: a list of exactly one page has no link to a next one, and one more item brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.console import ANNA, ConsoleSite
from kits.people import LOCAL

from edgegpu_cloud.enrolment.manager import TokenRequest
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 50
NEXT = 'rel="next"'


def boxes(site: ConsoleSite, number: int, *, first: int = 0) -> None:
    for each in range(first + 1, first + number + 1):
        site.add(each, f"box-{each:03d}")


def command_all(site: ConsoleSite) -> str:
    args = {"op": "inventory.refresh"}
    return site.operations().start(OperationKind.COMMAND, args, where=BoxFilter()).operation.id


def fleet_list(site: ConsoleSite) -> tuple[str, Callable[[], str]]:
    boxes(site, PAGE)

    def more() -> str:
        boxes(site, 1, first=PAGE)
        return "/"

    return "/", more


def boxes_of_an_operation(site: ConsoleSite) -> tuple[str, Callable[[], str]]:
    boxes(site, PAGE)

    def more() -> str:
        boxes(site, 1, first=PAGE)
        return f"/operations/{command_all(site)}"

    return f"/operations/{command_all(site)}", more


def operations_list(site: ConsoleSite) -> tuple[str, Callable[[], str]]:
    boxes(site, 1)
    for _ in range(PAGE):
        command_all(site)
    return "/operations", lambda: command_all(site) and "/operations"


def people_list(site: ConsoleSite) -> tuple[str, Callable[[], str]]:
    for each in range(PAGE):
        site.people.create(f"vera-{each:02d}", role=Role.VIEWER, by=LOCAL)
    return "/people?q=vera", lambda: site.people.create("vera-51", role=Role.VIEWER, by=LOCAL) and "/people?q=vera"


def token_list(site: ConsoleSite) -> tuple[str, Callable[[], str]]:
    enrolment = site.enrolment(ANNA)
    for _ in range(PAGE):
        enrolment.make(TokenRequest(name="hall"))

    def more() -> str:
        enrolment.make(TokenRequest(name="hall"))
        return "/enrol"

    return "/enrol", more


def audit_list(site: ConsoleSite) -> tuple[str, Callable[[], str]]:
    boxes(site, 1)
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    (listed,) = fleet.boxes()
    address = "/audit?what=box.labels"
    for each in range(PAGE):
        fleet.label(listed.device, {"turn": str(each)})

    def more() -> str:
        fleet.label(listed.device, {"turn": "last"})
        return address

    return address, more


@pytest.mark.parametrize(
    "full", [fleet_list, boxes_of_an_operation, operations_list, people_list, token_list, audit_list]
)
def test_a_list_of_exactly_one_page_has_no_next(
    site: ConsoleSite, full: Callable[[ConsoleSite], tuple[str, Callable[[], str]]]
) -> None:
    address, more = full(site)
    client = site.client("anna")
    assert NEXT not in client.get(address).text
    assert NEXT in client.get(more()).text


def test_the_api_says_the_end_of_the_boxes_of_an_operation(site: ConsoleSite) -> None:
    boxes(site, 4)
    id_ = command_all(site)
    first = site.operations().boxes(id_, limit=2)
    last = site.operations().boxes(id_, limit=2, after=first.next)
    assert (len(first.boxes), len(last.boxes), last.next) == (2, 2, "")
    assert site.operations().boxes(id_, limit=2, after="9" * 16).next == ""


def test_a_preview_says_how_many_boxes_are_not_judged(site: ConsoleSite) -> None:
    boxes(site, 23)
    query = "kind=limits&which=all&app=default/asr&container=main&memory=4&filled=yes"
    page = site.client("anna").get(f"/operations/new?{query}").text
    assert "the first 20 boxes by name, by their last reports. 3 are not judged." in page


def test_no_alert_does_not_mean_that_all_boxes_are_well(site: ConsoleSite) -> None:
    boxes(site, 1)
    page = site.client("anna").get("/alerts").text
    assert "Nothing fires." in page
    assert "all boxes are well" not in page
