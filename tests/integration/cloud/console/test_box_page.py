"""The page of a box: cards as bars, requests and outcomes, commands, findings, events; hostile texts stay text."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from kits.console import ConsoleSite
from kits.details import box, card, pod, reported, saying

from edgegpu_cloud.console.phrasing import clock_time
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.store.records import BoxEvent, CommandHistoryLine, StoredCommand
from edgegpu_cloud.store.telemetry.records import QUARTER_S
from edgegpu_sync.ids import DeviceId, command_id, op_name
from edgegpu_sync.messages.evidence import ContainerEvidence
from edgegpu_sync.messages.telemetry import TRANSACTION, TransactionReport
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

HOSTILE = "<script>alert(1)</script>\"'&"
FIELD = {
    "u1": pod("asr-0", ("main", "0", 4, 1)),
    "u2": pod("plate-0", ("main", "0", 20, 30)),
    "u3": pod("gone-0", ("main", "9", 3, 1)),
}


def hall(site: ConsoleSite, **more: Any) -> DeviceId:  # noqa: ANN401  (the report's fields)
    device = site.add(1, "hall-1", site="hall")
    site.report(device, reported(box("hall-1", (card("0"), card("1", healthy=False, text="XID 79")), FIELD, **more)))
    site.connect(device)
    return device


def words(text: str) -> str:
    """Return what a page says, without its tags."""
    plain = re.sub(r"<[^>]+>", " ", text[text.index("<main") :])
    return re.sub(r"\s+", " ", plain)


def ended(device: DeviceId, op: str, data: dict[str, Any]) -> StoredCommand:
    """Return a command that has ended well with this data."""
    id_ = command_id(f"command-of-{op.replace('.', '-')}")
    tracked = TrackedCommand(id=id_, op=op_name(op), args={}, due_at_s=9.0, seq=1, state=CommandState.SUCCEEDED)
    return StoredCommand(device=device, tracked=tracked, by="anna", at_s=5.0, data=data, attempts=1, ended_at_s=7.0)


def test_each_card_is_a_bar_with_each_pods_piece_in_its_place(site: ConsoleSite) -> None:
    device = hall(site)
    page = site.client().get(f"/boxes/{device}").text
    assert 'aria-label="Card 0: 24 of 29 units held, 5 free"' in page
    pieces = re.findall(
        r'aria-label="(default/[^"]+)"[^>]*><title>[^<]*</title><rect x="(\d+)" y="2" width="(\d+)"', page
    )
    assert pieces == [
        ("default/asr-0/main: 4 units (1 GiB), core 1, Running", "0", "40"),
        ("default/plate-0/main: 20 units (5 GiB), core 30, Running", "40", "200"),
        ("default/gone-0/main: 3 units (768 MiB), core 1, Running", "0", "30"),
    ]
    told = words(page)
    assert "Out of order XID 79" in told
    assert "Gone" in told
    assert "style=" not in page


def test_a_piece_says_since_when_where_the_box_reports_it(site: ConsoleSite) -> None:
    device = hall(site)
    page = site.client().get(f"/boxes/{device}").text
    assert "since" not in page[page.index('id="cards-head"') : page.index('id="requests"')]
    pods = {
        "u1": {**FIELD["u1"], "started_at": int(site.now_s) - 60},
        "u2": {**FIELD["u2"], "started_at": int(site.now_s) - 2 * 86_400},
        "u3": {**FIELD["u3"], "started_at": 2**53 - 1},
    }
    site.report(device, box("hall-1", pods=pods))
    page = site.client().get(f"/boxes/{device}").text
    first = f"default/asr-0/main: 4 units (1 GiB), core 1, Running, since {clock_time(site.now_s - 60)}"
    assert f'data-words="{first}"' in page
    assert f"Running, since {day(site.now_s - 2 * 86_400)}" in page, "with its day"


def test_a_piece_says_what_holds_it_to_its_memory(site: ConsoleSite) -> None:
    device = hall(site)
    pods: dict[str, Any] = {
        "u1": {**FIELD["u1"], "enforced": "enforced"},
        "u2": {**FIELD["u2"], "enforced": "degraded", "enforced_reason": f"its files are gone {HOSTILE}"},
        "u3": {**FIELD["u3"], "enforced": "enforced"},
    }
    pods["u3"]["pieces"] = [{**pods["u3"]["pieces"][0], "live_units": 2, "refusals": 20, "limiter": "0.1.0"}]
    site.report(device, box("hall-1", pods=pods))
    page = site.client().get(f"/boxes/{device}").text
    assert 'data-words="default/asr-0/main: 4 units (1 GiB), core 1, Running, held to its memory"' in page
    assert "Running, not surely held to its memory: its files are gone &lt;script&gt;" in page
    assert 'core 1, Running, held to 2 of its 3 units, memory refused 20 times or more"' in page
    assert "<script>alert" not in page
    assert words(page).count("Not held") == 1
    found = site.client().get(f"/api/v1/boxes/{device}/cards").json()
    pieces = [piece for card in found["cards"] for piece in card["pieces"]]
    assert [(one["enforced"], one["live_units"], one["refusals"], one["limiter"]) for one in pieces] == [
        ("enforced", None, 0, ""),
        ("degraded", None, 0, ""),
        ("enforced", 2, 20, "0.1.0"),
    ]
    reason = "mps: process 7 is no client of MPS: its compute is held by time"
    site.report(device, box("hall-1", pods={"u1": {**FIELD["u1"], "enforced": "degraded", "enforced_reason": reason}}))
    page = site.client().get(f"/boxes/{device}").text
    assert f"Running, held to its memory; {reason}" in page
    assert (words(page).count("Held by time"), words(page).count("Not held")) == (1, 0)


def test_a_name_leads_to_the_device_and_an_unknown_box_to_nothing(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        assert client.get("/boxes/hall-1").headers["location"] == f"/boxes/{device}"
        assert client.get("/boxes/no-such-box").status_code == 404
        assert client.get("/boxes/no-such-box/limits/default/asr/main").status_code == 404
        assert client.get("/boxes/no-such-box/sharing").status_code == 404


def test_old_data_shows_its_age(site: ConsoleSite) -> None:
    device = hall(site)
    site.now_s += 3 * 3_600
    told = words(site.client().get(f"/boxes/{device}").text)
    assert "As the box reported 3 hours ago" in told
    assert "It is not connected: this may have changed." in told


def test_what_was_asked_and_what_came_of_it_are_two_columns(site: ConsoleSite) -> None:
    device = hall(site)
    limits = ContainerLimits(namespace="default", app="asr", container="main", memory_units=10, core=1)
    rev = Fleet(site.store, clock=site.clock, by="anna").set_limits(device, limits).rev
    with site.client() as client:
        told = words(client.get(f"/boxes/{device}").text)
        assert re.search(r"default/asr main 10 units, core 1 requested \d\d:\d\d:\d\d anna Waiting for the box", told)
        refusal = {"state": "Rejected", "rev": rev, "code": "NO_ROOM", "text": HOSTILE}
        report = reported(box("hall-1", pods=FIELD), rev=rev, app_limits__default__asr__main=refusal)
        site.report(device, report)
        page = client.get(f"/boxes/{device}").text
        assert re.search(r"anna Rejected \d\d:\d\d:\d\d no room", words(page))
        assert "<script>alert" not in page


def test_a_setting_of_sharing_has_the_time_at_which_it_was_applied_on_both_pages(site: ConsoleSite) -> None:
    device = hall(site)
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    rev = fleet.set_settings(device, SharingSettings(policy="spread"))
    asked_at = clock_time(site.now_s)
    site.now_s += 4
    site.report(device, reported(box("hall-1"), rev=rev, policy={"state": "Applied", "rev": rev}))
    site.now_s += 60
    site.report(device, reported(box("hall-1"), rev=rev, policy={"state": "Applied", "rev": rev}))
    outcome = f"spread requested {asked_at} anna Applied {clock_time(site.now_s - 60)}"
    with site.client() as client:
        assert outcome in words(client.get(f"/boxes/{device}").text)
        assert outcome in words(client.get(f"/boxes/{device}/sharing").text)
        part = client.get(f"/boxes/{device}/sharing", headers={"hx-request": "true", "hx-target": "outcome"}).text
        assert part.lstrip().startswith('<div id="outcome" data-live=')
        site.now_s += 3 * 86_400
        assert f"Applied {day(site.now_s - 3 * 86_400 - 60)}" in words(client.get(f"/boxes/{device}").text), (
            "with its day"
        )


def day(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")


def test_findings_evidence_health_and_events_are_shown_as_text(site: ConsoleSite) -> None:
    device = hall(site)
    health = {"state": "bad", "parts": [{"name": "kubelet", "state": "warn", "text": HOSTILE}]}
    site.report(device, saying(box("hall-1", pods=FIELD), TopicKind.HEALTH, **health))
    finding = {"name": "extender", "level": "broken", "text": HOSTILE, "remedy": "sudo edgegpu install"}
    container = {"uid": "u1", "namespace": "default", "pod": "asr-0", "container": "main", "verdict": "own"}
    with site.store.write() as tx:
        tx.commands.add(ended(device, "doctor.run", {"level": "broken", "troubled": [finding, 7, None]}))
        seen = ContainerEvidence.model_validate(
            {**container, "held": ["GPU-0"], "seen": ["GPU-0"], "lines": f"GPU 0: {HOSTILE}"}, strict=False
        )
        tx.telemetry.put_evidence(device, [seen], now_s=site.now_s)
        event = BoxEvent(
            device=device, kind="drift", level="warning", text=HOSTILE, about=HOSTILE, box_at=1, at_s=site.now_s
        )
        tx.notes.add_events([event])
    page = site.client().get(f"/boxes/{device}").text
    told = words(page)
    for part in ("sudo edgegpu install", "kubelet", "its own cards", "GPU 0:", "drift"):
        assert part in told
    assert "<script>alert" not in page


@pytest.mark.parametrize("data", [{"troubled": 7}, {"troubled": [[]]}, {"containers": [{"verdict": []}]}, {}])
def test_results_of_another_shape_harm_nothing(site: ConsoleSite, data: dict[str, Any]) -> None:
    device = hall(site)
    with site.store.write() as tx:
        tx.commands.add(ended(device, "doctor.run", data))
        tx.commands.add(ended(device, "evidence.check", data))
    assert site.client().get(f"/boxes/{device}").status_code == 200


def test_measurements_are_two_lines_and_say_whose_they_are(site: ConsoleSite) -> None:
    device = hall(site)
    samples = [
        {"at": at, "cards": [{"uuid": "GPU-0", "core_used": used, "memory_used_mib": 1024, "temperature_c": 61}]}
        for at, used in ((60, 10.0), (120, 90.0))
    ]
    site.report(device, saying(box("hall-1"), TopicKind.METRICS, period_s=60, samples=samples))
    page = site.client().get(f"/boxes/{device}").text
    assert 'class="line-core" points="0.0,36.0 300.0,4.0"' in page
    assert "the last message of the box, 2 measurements, of the whole card" in page


def test_the_use_of_each_card_is_drawn_with_gaps_and_stands_in_a_table(site: ConsoleSite) -> None:
    site.now_s = site.now_s // QUARTER_S * QUARTER_S + 60
    device = hall(site)
    site.measure(device, (0, 50.0, 1_856), (1, 100.0, 3_712), (3, 25.0, 0), (90, 75.0, 928), (600, 10.0, 928))
    site.measure(device, (0, 5.0, 64), card="GPU-9")
    with site.client() as client:
        hour = client.get(f"/boxes/{device}?use=1h").text
        assert 'd="M0 75.0H10M20 0.0H30L30 50.0H40"' in hour, "a quarter without a measurement is a gap"
        assert 'd="M0 100.0H10M20 50.0H30L30 75.0H40"' in hour, "of 7424 MiB"
        assert hour.count('viewBox="0 0 40 100"') == 4
        assert '<td class="number">100.0</td>' in hour
        assert 'href="/boxes/0000000000000001#use"' in hour, "the default has no query"
        assert 'aria-current="true">1 hour' in hour
        day = client.get(f"/boxes/{device}").text
        assert day.count('viewBox="0 0 960 100"') == 4
        assert "75.0H" not in hour[hour.index("<table><caption>Card 0") :]
        week = client.get(f"/boxes/{device}?use=7d").text
        assert week.count('viewBox="0 0 840 100"') == 4
        for page in (hour, day, week):
            assert "<script>alert" not in page
            assert "style=" not in page
        assert client.get(f"/boxes/{device}?use=9y").status_code == 422
        part = client.get(f"/boxes/{device}?use=1h", headers={"hx-request": "true", "hx-target": "use"}).text
        assert part.lstrip().startswith('<section class="panel" id="use"')
        assert 'hx-get="/boxes/0000000000000001?use=1h"' in part, "and it stays with this range"


def test_a_box_that_was_not_measured_says_so_and_old_measurements_their_age(site: ConsoleSite) -> None:
    device = hall(site)
    assert "No measurements of this time." in words(site.client().get(f"/boxes/{device}").text)
    site.report(device, saying(box("hall-1"), TopicKind.METRICS, period_s=60, samples=[]))
    site.measure(device, (0, 50.0, 1_856))
    site.now_s += 3 * 3_600
    assert "Last measured 3 hours ago" in words(site.client().get(f"/boxes/{device}").text)
    assert "Card 0" in words(site.client().get(f"/boxes/{device}").text)


def test_commands_are_asked_for_shown_with_their_next_try_and_cancelled(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        form = {"csrf": "csrf-of-anna", "op": "doctor.run"}
        assert client.post(f"/boxes/{device}/commands", data=form).status_code == 303
        told = words(client.get(f"/boxes/{device}").text)
        assert "Run the doctor doctor.run Waiting for the box" in told
        assert "next try now" in told
        [command] = Fleet(site.store, clock=site.clock, by="anna").commands(device)
        cancel = f"/boxes/{device}/commands/{command.id}/cancel"
        assert client.post(cancel, data={"csrf": "csrf-of-anna"}).status_code == 303
        assert client.post(f"/boxes/{device}/commands/nothing/cancel", data={"csrf": "csrf-of-anna"}).status_code == 404


def test_a_commands_steps_have_their_times_from_the_request_to_the_end(site: ConsoleSite) -> None:
    device = hall(site)
    id_ = command_id("command-of-a-restart")
    tracked = TrackedCommand(
        id=id_, op=op_name("k3s.restart"), args={}, due_at_s=9.0, seq=1, state=CommandState.RUNNING, text="k3s stops"
    )
    began_s = site.now_s - 60
    command = StoredCommand(
        device=device, tracked=tracked, by=HOSTILE, at_s=began_s, sent_at_s=began_s + 1, attempts=2, next_at_s=None
    )
    states = (CommandState.RECEIVED, CommandState.RUNNING)
    lines = [
        CommandHistoryLine(command=id_, at_s=began_s + 2 + n, state=state, text=HOSTILE)
        for n, state in enumerate(states)
    ]
    with site.store.write() as tx:
        tx.commands.add(command)
        tx.commands.heard(lines)
    page = site.client().get(f"/boxes/{device}").text
    at = [clock_time(began_s + n) for n in range(4)]
    told = words(page)
    assert "<script>alert" not in page
    assert f"{at[0]} requested by &lt;script" in told
    assert f"{at[1]} sent {at[2]} received &lt;script" in told
    assert f"{at[3]} running &lt;script" in told
    assert "2 attempts on the box" in told
    assert "执行中" in site.client(language="zh").get(f"/boxes/{device}").text


def test_commands_come_a_page_at_a_time_and_findings_stay(site: ConsoleSite) -> None:
    device = hall(site)
    finding = {"name": "extender", "level": "broken", "text": "does not serve", "remedy": "sudo edgegpu install"}
    with site.store.write() as tx:
        tx.commands.add(ended(device, "doctor.run", {"level": "broken", "troubled": [finding]}))
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    ids = [fleet.command(device, "inventory.refresh", {}) for _ in range(25)]
    with site.client() as client:
        first = client.get(f"/boxes/{device}?use=1h").text
        assert first.count('/cancel"') == 20
        assert "sudo edgegpu install" in first, "it is older than the commands on the page"
        older = re.search(r'rel="next" href="([^"]+)#commands"', first)
        assert older is not None
        assert older[1] == f"/boxes/{device}?use=1h&amp;before={ids[5]}"
        second = client.get(older[1].replace("&amp;", "&")).text
        assert second.count('/cancel"') == 5
        assert f'hx-get="/boxes/{device}?use=1h&amp;before={ids[5]}"' in second, "it stays on this page when it is live"
        assert f'href="/boxes/{device}?use=1h#commands">Newest' in second
        assert client.get(f"/boxes/{device}?before=%00nothing").status_code == 200


def test_more_findings_than_an_answer_has_room_for_are_counted(site: ConsoleSite) -> None:
    device = hall(site)
    with site.store.write() as tx:
        tx.commands.add(ended(device, "doctor.run", {"level": "broken", "troubled": 31}))
    assert "31 checks found something" in words(site.client().get(f"/boxes/{device}").text)


def test_the_last_changes_of_the_machine_are_its_settings_and_how_they_ended(site: ConsoleSite) -> None:
    device = hall(site)
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    assert "Nobody has changed the machine yet." in words(site.client().get(f"/boxes/{device}").text)
    rev = fleet.set_settings(device, SharingSettings(policy="spread"))
    failed = {"state": "Failed", "rev": rev, "code": "VERIFY", "text": HOSTILE, "restored": True}
    site.report(device, reported(box("hall-1"), rev=rev, policy=failed))
    rev = fleet.set_settings(device, SharingSettings(policy="best-fit"))
    site.now_s += 60
    site.report(device, reported(box("hall-1"), rev=rev, policy={"state": "Applied", "rev": rev}))
    page = site.client().get(f"/boxes/{device}").text
    told = words(page)
    first, second = clock_time(site.now_s), clock_time(site.now_s - 60)
    assert f"Placement policy best-fit anna Applied {first} Placement policy spread anna Failed {second} VERIFY" in told
    assert ("VERIFY: &lt;script" in told, "<script>alert" in page) == (True, False)


def tell(site: ConsoleSite, device: DeviceId, **more: Any) -> None:  # noqa: ANN401  (the report's fields)
    """Store the report of a transaction, as the controller does."""
    fields = {"id": "5f2e9c1b7a30", "op": "change", "author": "person", "user": "root", "result": "COMMITTED"}
    told = TransactionReport(**{**fields, **more})
    event = BoxEvent(
        device=device,
        kind=TRANSACTION,
        level="info",
        text="its text",
        about=told.id,
        box_at=0,
        at_s=site.now_s,
        transaction=told.model_dump(mode="json"),
    )
    with site.store.write() as tx:
        tx.notes.add_events([event])


def test_changes_that_people_made_on_the_box_stand_among_those_requested_here_each_once(site: ConsoleSite) -> None:
    device = hall(site)
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    rev = fleet.set_settings(device, SharingSettings(policy="spread"))
    site.report(device, reported(box("hall-1"), rev=rev, policy={"state": "Applied", "rev": rev}))
    tell(site, device, id=f"policy-{rev}-0a1b2c3d", author="cloud", user="", item="policy", rev=rev)
    with site.store.write() as tx:
        tx.commands.add(ended(device, "agent.upgrade", {}))
    site.now_s += 60
    upgrade = {"op": "upgrade", "version": "0.3.0", "before": "0.2.0"}
    tell(site, device, id="command-of-agent-upgrade", author="cloud", user="", **upgrade)
    site.now_s += 60
    undone = {"result": "ROLLED_BACK", "why": HOSTILE, "recovered": True, "skipped": 3}
    tell(site, device, id="b", op="install", user=HOSTILE, began=1_790_000_000, ended=1_790_000_039, **undone)
    site.now_s += 60
    tell(site, device, id="guard-1790000000", op="guard", author="recovery", user="", result="ROLLED_BACK")
    page = site.client().get(f"/boxes/{device}").text
    told = words(page)
    told = told[told.index("Last changes of the machine") :]
    times = [clock_time(site.now_s - ago) for ago in (0, 60, 120, 180)]
    assert f"edgegpu taken out of k3s on the box, by itself Put back {times[0]}" in told
    hostile = "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;"
    assert f"Installation on the box, by {hostile} Put back {times[1]}" in told
    assert "The installer was cut off; the box brought it to its end by itself." in told
    assert "by the box's clock 2026-09-21 14:13:20 UTC to 2026-09-21 14:13:59 UTC" in told
    assert "3 changes before this one were not reported" in told
    assert f"Upgrade 0.2.0 → 0.3.0 anna Applied {times[2]}" in told
    assert f"Placement policy spread anna Applied {times[3]}" in told
    assert told.count(" Applied ") == 2
    assert "<script>alert" not in page
    assert "its text" not in page, "the events do not show them again"
    changes = site.api().get(f"/boxes/{device}/changes").json()["items"]
    assert [(one["item"], one["by"], (one["transaction"] or {}).get("op")) for one in changes] == [
        ("", "", "guard"),
        ("", "", "install"),
        ("", "anna", "upgrade"),
        ("policy", "anna", None),
    ]
    assert "由设备自行" in site.client(language="zh").get(f"/boxes/{device}").text


def test_a_requested_change_whose_settlement_nobody_has_is_shown_by_its_transaction(site: ConsoleSite) -> None:
    device = hall(site)
    rev = Fleet(site.store, clock=site.clock, by="anna").set_settings(device, SharingSettings(policy="spread"))
    tell(site, device, id=f"policy-{rev}-0a1b2c3d", author="cloud", user="", item="policy", rev=rev)
    site.now_s += 60
    tell(site, device, id="an-old-one-of-another-store", author="cloud", user="", op="later.kind", result="LATER")
    told = words(site.client().get(f"/boxes/{device}").text)
    assert f"Change of settings anna Applied {clock_time(site.now_s - 60)}" in told
    assert f"later.kind from here LATER {clock_time(site.now_s)}" in told


@pytest.mark.parametrize("op", ["", "agent.upgrade", "rm -rf", HOSTILE])
def test_a_command_without_a_button_is_refused(site: ConsoleSite, op: str) -> None:
    device = hall(site)
    answer = site.client().post(f"/boxes/{device}/commands", data={"csrf": "csrf-of-anna", "op": op})
    assert answer.status_code == 400
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    "path", ["commands", "commands/x/cancel", "sharing", "sharing/install", "sharing/uninstall", "limits/a/b/c"]
)
def test_a_viewer_changes_nothing_and_a_form_without_its_token_neither(site: ConsoleSite, path: str) -> None:
    device = hall(site)
    form = {"op": "doctor.run", "rev": "0", "box": f"{device}:0:1"}
    assert site.client("vera").post(f"/boxes/{device}/{path}", data={**form, "csrf": "csrf-of-vera"}).status_code == 403
    assert site.client().post(f"/boxes/{device}/{path}", data=form).status_code == 403
    page = site.client("vera").get(f"/boxes/{device}").text
    assert '<form method="post" action="/boxes/' not in page
    with site.store.read() as tx:
        assert not tx.commands.of(device, limit=5)


def test_a_box_that_has_said_nothing_has_a_page(site: ConsoleSite) -> None:
    device = site.add(2, "new-1")
    told = words(site.client().get(f"/boxes/{device}").text)
    assert "The box has not reported its cards yet." in told
    assert site.client().get(f"/boxes/{device}/sharing").status_code == 200


def test_a_hostile_pod_name_is_text_everywhere(site: ConsoleSite) -> None:
    device = site.add(1, HOSTILE[:5].replace("<", "a"), note=HOSTILE)
    details = box("hall-1", (card("0", name=HOSTILE),), {"u": {**pod("x-0", ("main", "0", 1, 1)), "phase": "Running"}})
    site.report(device, details)
    for path in ("", "/sharing", "/limits", "/limits/default/x/main"):
        page = site.client().get(f"/boxes/{device}{path}").text
        assert "<script>alert" not in page


def test_sharing_is_taken_off_and_on_by_buttons_that_say_so(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        page = client.get(f"/boxes/{device}/sharing").text
        assert "Take GPU sharing off hall-1" in page
        assert "3 pods hold shares" in page
        assert client.post(f"/boxes/{device}/sharing/uninstall", data={"csrf": "csrf-of-anna"}).status_code == 303
        site.report(device, box("hall-1", sharing=False))
        assert "Install GPU sharing on hall-1" in client.get(f"/boxes/{device}/sharing").text
        assert client.post(f"/boxes/{device}/sharing/install", data={"csrf": "csrf-of-anna"}).status_code == 303
        told = words(client.get(f"/boxes/{device}").text)
        assert "sharing.install" in told
        assert "GPU sharing installed" in told


def test_settings_are_previewed_before_they_are_set(site: ConsoleSite) -> None:
    device = hall(site)
    changes = {"typed": "yes", "policy": "spread", "unit_mib": "512", "exclude": "1"}
    with site.client() as client:
        told = words(client.get(f"/boxes/{device}/sharing", params=changes).text)
        assert "Placement policy : will be changed" in told
        assert "Unit size : will be refused: pods hold shares in units of 256 MiB" in told
        assert "Request 3 changes on hall-1" in told
        form = {"csrf": "csrf-of-anna", "rev": "0", "policy": "spread", "unit_mib": "256"}
        assert client.post(f"/boxes/{device}/sharing", data=form).status_code == 303
        assert client.post(f"/boxes/{device}/sharing", data={**form, "policy": "best-fit"}).status_code == 409
        assert client.post(f"/boxes/{device}/sharing", data={**form, "rev": "1"}).status_code == 400  # nothing changes
    spec = Fleet(site.store, clock=site.clock, by="anna").spec(device)
    assert spec.policy is not None
    assert (spec.policy.policy, spec.unit_size) == ("spread", None)


@pytest.mark.parametrize(
    "bad", [{"policy": HOSTILE}, {"unit_mib": "one"}, {"unit_mib": "-1"}, {"exclude": HOSTILE}, {"exclude": "7"}]
)
def test_settings_that_no_box_takes_are_refused(site: ConsoleSite, bad: dict[str, str]) -> None:
    device = hall(site)
    with site.client() as client:
        page = client.get(f"/boxes/{device}/sharing", params={"typed": "yes", **bad})
        assert page.status_code == 400
        assert 'class="problem"' in page.text
        assert "<script>alert" not in page.text
        form = {"csrf": "csrf-of-anna", "rev": "0", **bad}
        assert client.post(f"/boxes/{device}/sharing", data=form).status_code == 400
    assert Fleet(site.store, clock=site.clock, by="anna").box(device).rev == 0


def test_a_box_that_edgegpu_was_taken_off_is_not_offline(site: ConsoleSite) -> None:
    device = site.add(1, "hall-1")
    site.report(device, saying(box("hall-1", (card("0"),)), TopicKind.STATUS, state="bye", why="uninstall"))
    for path in ("/", f"/boxes/{device}"):
        shown = re.findall(r'class="badge[^>]*>([^<]+)<', site.client().get(path).text)
        assert [word for word in shown if word in {"Offline", "Uninstalled"}] == ["Uninstalled"], path
