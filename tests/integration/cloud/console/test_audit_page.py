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
RAW = "{&#34;after&#34;: {&#34;policy&#34;: {&#34;policy&#34;: &#34;spread&#34;, &#34;rev&#34;: 2}}"
"""The beginning of an entry as the API has it."""


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
    assert "<li>Placement policy: best-fit → spread</li>" in row
    assert "Waiting for the box" in row
    assert "<details><summary>As the API has it</summary>" in row
    assert RAW in row
    report(site, hall, state="Rejected", code="NO_ROOM", text="pods hold more")
    row = row_of(site, "what=box.spec")
    assert "Rejected" in row
    assert "no room: pods hold more" in row
    assert "pods hold more" in row
    row = row_of(site, "what=box.spec", "zh")
    assert "已拒绝" in row
    assert "<li>放置策略\N{FULLWIDTH COLON}best-fit → spread</li>" in row


def test_the_same_once_more_is_told_so(site: ConsoleSite, hall: DeviceId) -> None:
    fleet_of(site.store, ANNA, clock=site.clock).set_settings(hall, SharingSettings(policy="spread"))
    row = row_of(site, "what=box.spec")
    assert "<li>Placement policy: spread</li></ul>once more" in row
    assert "best-fit" not in row
    assert "spread →" not in row


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
    assert "<li>Name: old → hall-1</li>" in row
    assert "abcdef" in row_of(site, "what=token.made")
    assert "made.up" in row_of(site, "what=made")


LIMITS = {"memory_units": 4, "core": 30, "live": True, "force": False, "on_drift": "enforce"}


@pytest.mark.parametrize(
    ("what", "before", "after", "said"),
    [
        (
            "box.spec",
            {},
            {
                "app_limits/default/asr/main": {
                    "namespace": "default",
                    "app": "asr",
                    "container": "main",
                    "rev": 1,
                    **LIMITS,
                }
            },
            (
                "<code>default/asr</code> <code>main</code>: Memory: 4 units, Core: 30, at once where possible, "
                "When somebody else writes them back: set them again, three times"
            ),
        ),
        ("box.spec", {"unit_size": {"rev": 1, "mib": 256}}, {}, "Unit size: 256 MiB → \N{EN DASH}"),
        ("box.spec", {}, {"sharing": {"rev": 1, "installed": False}}, "GPU sharing: not installed</li>"),
        (
            "box.spec",
            {"sharing": {"rev": 1, "installed": False}},
            {"sharing": {"rev": 2, "installed": True}},
            "GPU sharing: not installed → installed</li>",
        ),
        ("box.labels", {"role": "<edge>"}, {"role": "lab", "policy": "x"}, "<code>role</code>: &lt;edge&gt; → lab"),
        (
            "command",
            {},
            {"op": "doctor.run", "args": {"new": ["a", {"b": 1}]}, "wait_s": 3600},
            "Command: Run the doctor</li><li>Arguments: new: a, …</li><li>To be begun within: 1 hour",
        ),
        (
            "command",
            {},
            {"op": "sharing.install", "args": {"min_rev": 2}},
            "Command: Install GPU sharing</li><li>Arguments: Revision, or a later one: 2</li>",
        ),
        ("person.role", {"role": "viewer"}, {"role": "admin"}, "Role: viewer → admin"),
        ("person.scope", {"scope": "site=hall"}, {"scope": ""}, "Boxes with labels: site=hall → all"),
        (
            "person.password",
            {"password_at_s": 0.5},
            {"password_at_s": 1e300},
            "Password set: 1970-01-01 00:00:00 UTC → \N{EN DASH}",
        ),
        ("store.restored", {}, {"file": "a.backup", "version": 18}, "Backup: a.backup</li><li>Version: 18</li>"),
        ("store.migrated", {"version": 17}, {"version": 18}, "Version: 17 → 18</li>"),
        ("rollout.paused", {"state": "RUNNING"}, {"state": "PAUSED"}, "State: Running → Paused"),
        ("operation", {}, {"kind": "sharing", "boxes": 3}, "Kind: Settings of sharing</li><li>Boxes: 3"),
        (
            "made.up",
            {"<b>": None},
            {"<b>": [{}], "memory_units": "%(x)s"},
            "&lt;b&gt;: \N{EN DASH} → …</li><li>Memory: %(x)s",
        ),
        ("made.up", {}, {"a": {"b": {"c": {"d": {"e": 1}}}}}, "a: b: c: d: …"),
    ],
)
def test_values_are_shown_in_the_users_words(
    site: ConsoleSite, hall: DeviceId, what: str, before: dict[str, object], after: dict[str, object], said: str
) -> None:
    with site.store.write() as tx:
        detail = {"before": before, "after": after, "result": "done"}
        tx.notes.audit(AuditEntry(at_s=site.now_s, by="anna", what=what, device=hall, detail=detail))
    row = row_of(site, f"what={what}")
    assert f"<li>{said}" in row
    assert row_of(site, f"what={what}", "zh").count("<li>") == row.count("<li>")
