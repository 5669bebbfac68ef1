"""The lists of a box's page have further pages, without a script too: events, changes of the machine, requests."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from kits.console import all_items
from kits.details import box, reported

from edgegpu_cloud.console.pages.box import EVENTS, REQUESTS
from edgegpu_cloud.console.phrasing import clock_time
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.history.box_history import CHANGES
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.store.records import BoxEvent
from edgegpu_cloud.store.settlements.records import RequestKey, StoredSettlement
from edgegpu_sync.messages.telemetry import TRANSACTION, TransactionReport
from edgegpu_sync.messages.uplink import ItemState

if TYPE_CHECKING:
    from kits.console import ConsoleSite
    from starlette.testclient import TestClient

    from edgegpu_sync.ids import DeviceId


def hall(site: ConsoleSite) -> DeviceId:
    device = site.add(1, "hall-1")
    site.report(device, reported(box("hall-1"), cluster="c" * 8))
    site.connect(device)
    return device


def add_events(site: ConsoleSite, device: DeviceId, count: int) -> None:
    """Add plain events, and beside each a report of a change, which is none of the page's events."""
    events: list[BoxEvent] = []
    for number in range(count):
        plain = {"device": device, "level": "info", "box_at": number, "at_s": site.now_s + number}
        told = TransactionReport(id=f"t{number:03d}", op="upgrade", author="person", result="COMMITTED")
        events.append(BoxEvent(kind="card.lost", text=f"event-{number:03d}.", about="", **plain))  # type: ignore[arg-type]
        report = told.model_copy(update={"version": f"v{number:03d}"}).model_dump(mode="json")
        events.append(
            BoxEvent(kind=TRANSACTION, text="t", about=told.id, transaction=report, **plain)  # type: ignore[arg-type]
        )
    with site.store.write() as tx:
        tx.notes.add_events(events)


def walked(client: TestClient, page: str, section: str, pattern: str) -> list[list[str]]:
    """Return what each page of a list has, following its link to the next."""
    found = []
    while page:
        whole = client.get(page).text
        text = whole[whole.index(f'id="{section}"') :].partition("</section>")[0]
        found.append(re.findall(pattern, text))
        link = re.search(r'rel="next" href="([^"#]+)#' + section, text)
        page = html.unescape(link[1]) if link else ""
        if len(found) > 1:
            assert re.search(rf'href="/boxes/[^"]*#{section}">(Newest|First page)', text), "there is a way back"
    return found


def test_all_events_are_reached_and_none_twice(site: ConsoleSite) -> None:
    device = hall(site)
    add_events(site, device, 2 * EVENTS + 5)
    pages = walked(site.client(), f"/boxes/{device}", "events", r"event-(\d+)\.")
    assert [len(one) for one in pages] == [EVENTS, EVENTS, 5]
    assert [int(one) for page in pages for one in page] == list(reversed(range(2 * EVENTS + 5)))
    found = all_items(site.api("vera"), f"/boxes/{device}/events?limit=50")
    assert len(found) == 2 * (2 * EVENTS + 5), "the API has the reports of changes too"


def test_all_changes_of_the_machine_are_reached_whether_requested_or_reported(site: ConsoleSite) -> None:
    device = hall(site)
    add_events(site, device, CHANGES + 3)
    rev = Fleet(site.store, clock=site.clock, by="anna").set_settings(device, SharingSettings(policy="spread"))
    settled = [
        (
            device,
            StoredSettlement(
                key=RequestKey("policy", rev + one, 0),
                enrolment=1,
                state=ItemState.APPLIED,
                code="",
                text="",
                at_s=site.now_s + 2 * one + 0.5,
            ),
        )
        for one in range(CHANGES)
    ]
    with site.store.write() as tx:
        tx.settlements.add(settled)
    pages = walked(site.client(), f"/boxes/{device}", "changes", r'<th scope="row">(Upgrade|Placement policy)')
    assert [len(one) for one in pages] == [CHANGES, CHANGES, 3]
    kinds = [one for page in pages for one in page]
    assert (kinds.count("Upgrade"), kinds.count("Placement policy")) == (CHANGES + 3, CHANGES)
    found = all_items(site.api("vera"), f"/boxes/{device}/changes?limit=4")
    assert [one["at_s"] for one in found] == sorted((one["at_s"] for one in found), reverse=True)
    assert len({one["transaction"]["id"] for one in found if one["transaction"]}) == CHANGES + 3
    assert len({one["rev"] for one in found if not one["transaction"]}) == CHANGES
    assert site.api("vera").get(f"/boxes/{device}/changes?cursor=x").status_code == 422
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    assert len(fleet.changes(device)) == CHANGES
    assert len(fleet.changes(device, 1_000)) == 2 * CHANGES + 3


def test_an_event_that_calls_itself_a_report_and_is_none_breaks_no_list(site: ConsoleSite) -> None:
    device = hall(site)
    add_events(site, device, 2)
    empty = BoxEvent(device=device, kind=TRANSACTION, level="info", text="t", about="", box_at=0, at_s=site.now_s)
    with site.store.write() as tx:
        tx.notes.add_events([empty])
    assert site.client().get(f"/boxes/{device}").status_code == 200
    assert len(all_items(site.api("vera"), f"/boxes/{device}/changes?limit=4")) == 2


def test_a_box_that_reports_one_change_without_end_keeps_its_page_short_and_whole(site: ConsoleSite) -> None:
    device = hall(site)
    add_events(site, device, 1)
    rev = Fleet(site.store, clock=site.clock, by="anna").set_settings(device, SharingSettings(policy="spread"))
    key = RequestKey("policy", rev, 0)
    settled = StoredSettlement(key=key, enrolment=1, state=ItemState.APPLIED, code="", text="", at_s=site.now_s)
    again = TransactionReport(id="x", op="change", author="person", result="COMMITTED", item="policy", rev=rev)
    events = [
        BoxEvent(
            device=device,
            kind=TRANSACTION,
            level="info",
            text="t",
            about=f"x{number}",
            box_at=number,
            at_s=site.now_s + 1 + number,
            transaction=again.model_copy(update={"id": f"x{number}"}).model_dump(mode="json"),
        )
        for number in range(1_500)
    ]
    with site.store.write() as tx:
        tx.settlements.add([(device, settled)])
        tx.notes.add_events(events)
    pages = walked(site.client(), f"/boxes/{device}", "changes", r'<th scope="row">(Upgrade|Placement policy)')
    assert [one for page in pages for one in page] == ["Placement policy", "Upgrade"]
    assert len(pages) == 2


def test_all_requests_are_reached(site: ConsoleSite) -> None:
    device = hall(site)
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    for number in range(REQUESTS + 2):
        limits = ContainerLimits(namespace="default", app=f"app-{number:02d}", container="c", memory_units=1, core=1)
        fleet.set_limits(device, limits)
    pages = walked(site.client(), f"/boxes/{device}", "requests", r"default/(app-\d\d)</a>")
    assert [len(one) for one in pages] == [REQUESTS, 2]
    assert len({one for page in pages for one in page}) == REQUESTS + 2
    found = all_items(site.api("vera"), f"/boxes/{device}/requests?limit=9")
    assert [one["name"] for one in found] == [one.name for one in fleet.requests(device)]


def test_an_update_keeps_the_pages_that_are_looked_at(site: ConsoleSite) -> None:
    device = hall(site)
    add_events(site, device, EVENTS + 5)
    page = site.client().get(f"/boxes/{device}?events=13&use=7d").text
    live = re.search(r'id="box" data-live="[^"]+" hx-get="([^"]+)"', page)
    assert live is not None
    assert html.unescape(live[1]) == f"/boxes/{device}?use=7d&events=13"
    part = site.client().get(html.unescape(live[1]), headers={"hx-request": "true"}).text
    shown = re.findall(r"event-(\d+)\.", part)
    assert shown
    assert "034" not in shown
    odd = site.client().get(f"/boxes/{device}?changes=nonsense")
    assert odd.status_code == 400, "the list says that this is no place of it"


def shown_words(text: str) -> str:
    """Return what the section of the machine's changes, and what is below it, says."""
    return " ".join(re.sub(r"<[^>]*>", " ", text.partition('id="changes"')[2]).split())


def test_sharing_taken_off_and_put_back_are_two_changes_that_say_which_is_which(site: ConsoleSite) -> None:
    device = hall(site)
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    for change in (fleet.uninstall, fleet.install):
        change(device)
        rev = fleet.details(device).box.rev
        site.report(device, reported(box("hall-1"), rev=rev, sharing={"state": "Applied", "rev": rev}))
        site.now_s += 60
    page = site.client().get(f"/boxes/{device}").text
    on, off = clock_time(site.now_s - 60), clock_time(site.now_s - 120)
    told = shown_words(page)
    assert f"GPU sharing installed anna Applied {on} GPU sharing not installed anna Applied {off}" in told
    assert "Install GPU sharing sharing.install" in told
    assert "Take GPU sharing off sharing.uninstall" in told
    assert [one.setting for one in fleet.changes(device)] == [{"installed": True}, {"installed": False}]
    chinese = shown_words(site.client(language="zh").get(f"/boxes/{device}").text)
    assert f"GPU 共享 已安装 anna 已落实 {on} GPU 共享 未安装 anna 已落实 {off}" in chinese
