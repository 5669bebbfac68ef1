"""The page Audit and the API's list: before, after and what came of it, in both languages, for old entries too."""

import pytest
from kits.console import ANNA, ConsoleSite
from kits.details import box, card, reported

from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import AuditEntry
from edgegpu_sync.ids import DeviceId

CLUSTER = "0" * 36
BEFORE, AFTER = (f"{{&#34;policy&#34;: {{&#34;policy&#34;: &#34;{name}&#34;}}}}" for name in ("best-fit", "spread"))


@pytest.fixture
def hall(site: ConsoleSite) -> DeviceId:
    """Return a box of which one policy, then another was requested."""
    device = site.add(1, "hall-1", site="hall")
    fleet = fleet_of(site.store, ANNA, clock=site.clock)
    for policy in ("best-fit", "spread"):
        fleet.set_settings(device, SharingSettings(policy=policy))
    return device


def report(site: ConsoleSite, device: DeviceId, **item: object) -> None:
    details = box("hall-1", (card("0"),), {}, cluster=CLUSTER)
    site.now_s += 60
    site.report(device, reported(details, cluster=CLUSTER, rev=2, policy={"rev": 2, **item}))


def row_of(site: ConsoleSite, query: str, language: str = "en") -> str:
    """Return the newest row of the table on the page."""
    page = site.client(language=language).get(f"/audit?{query}").text
    return page.partition("<tbody>")[2].partition("</tr>")[0]


def test_a_request_has_what_was_before_and_after_and_what_came_of_it(site: ConsoleSite, hall: DeviceId) -> None:
    row = row_of(site, "what=box.spec")
    assert f"<code>{BEFORE}</code> → <code>{AFTER}</code>" in row
    assert "Waiting for the box" in row
    report(site, hall, state="Rejected", code="NO_ROOM", text="pods hold more")
    row = row_of(site, "what=box.spec")
    assert "Rejected" in row
    assert "NO_ROOM" in row
    assert "pods hold more" in row
    row = row_of(site, "what=box.spec", "zh")
    assert "已拒绝" in row
    assert "设置" in row


def test_the_same_once_more_is_told_so(site: ConsoleSite, hall: DeviceId) -> None:
    fleet_of(site.store, ANNA, clock=site.clock).set_settings(hall, SharingSettings(policy="spread"))
    row = row_of(site, "what=box.spec")
    assert f"<code>{AFTER}</code> once more" in row
    assert "</code> → <code>" not in row


def test_the_api_has_the_same(site: ConsoleSite, hall: DeviceId) -> None:
    report(site, hall, state="Applied")
    found = site.api().get("/audit?box=hall-1&what=box.spec&limit=1").json()["items"][0]
    assert (found["device"], found["box"], found["detail"]) == (hall, "hall-1", {"rev": 2})
    assert found["before"] == {"policy": {"rev": 1, "policy": "best-fit"}}
    assert found["after"] == {"policy": {"rev": 2, "policy": "spread"}}
    assert found["result"] == {"state": "applied", "text": "", "at_s": site.now_s}
    assert site.api().get("/audit?box=nobody").status_code == 404


def test_an_operation_says_on_how_many_boxes_it_was_applied(site: ConsoleSite, hall: DeviceId) -> None:
    view = site.operations().start(OperationKind.COMMAND, {"op": "doctor.run"}, devices=[hall])
    row = row_of(site, "what=operation")
    assert f'href="/operations/{view.operation.id}"' in row
    assert "Under way" in row
    assert "applied on 0 of 1 box" in row
    assert "已在 1 台设备中的 0 台上应用" in row_of(site, "what=operation", "zh")


def test_entries_of_earlier_versions_are_shown_as_far_as_they_go(site: ConsoleSite, hall: DeviceId) -> None:
    with site.store.write() as tx:
        for what, detail in (
            ("box.renamed", {"from": "old", "to": "hall-1"}),
            ("token.made", {"token": "abcdef"}),
            ("made.up", {}),
        ):
            tx.notes.audit(AuditEntry(at_s=site.now_s, by="anna", what=what, device=hall, detail=detail))
    row = row_of(site, "what=box.renamed")
    assert "{&#34;name&#34;: &#34;old&#34;}</code> → <code>{&#34;name&#34;: &#34;hall-1&#34;}" in row
    assert "abcdef" in row_of(site, "what=token.made")
    assert "made.up" in row_of(site, "what=made")
