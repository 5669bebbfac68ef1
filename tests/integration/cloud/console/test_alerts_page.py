"""The page of alerts: what each person sees and may do, hostile texts, the webhook without its secrets, live counts."""

import json
import re

from kits.browser import browser
from kits.console import ConsoleSite

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.console.live import ALERTS, StoreChanges
from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.layout import AlertConfig, WebhookConfig
from edgegpu_cloud.store.people.records import Role

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e"
SECRET = "a secret of sixteen and more"  # noqa: S105  (a test's)
HOOKED = AlertConfig(
    webhook=WebhookConfig(urls=("https://user:word@hooks.example.com:8443/services/T0K3N?key=K3Y",), secret=SECRET)
)


def alarm(site: ConsoleSite, device: str, text: str, kind: str = "card.lost") -> None:
    """Let an alarm come, and the controller look: it is an alert at once."""
    with site.store.write() as tx:
        tx.notes.alarm(kind, device=device, text=text, now_s=site.now_s)
    look(site)


def look(site: ConsoleSite) -> None:
    AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()


def rows(text: str) -> list[str]:
    return re.findall(r'<tr id="alert-(\d+)">', text)


def counted(text: str) -> str:
    found = re.findall(r'<span aria-hidden="true">(\d+)</span>', text)
    return found[0] if found else ""


def test_what_fires_leads_to_its_box_and_says_what_to_do(site: ConsoleSite) -> None:
    device = site.add(1, "hall-1")
    assert "Nothing fires" in site.client("vera").get("/alerts").text
    alarm(site, device, "card 1 fell off the bus")
    alarm(site, "", "the broker has dropped 7 messages", kind="broker.DROPS")
    page = site.client().get("/alerts").text
    assert rows(page) == ["2", "1"]
    assert f'<a href="/boxes/{device}">hall-1</a>' in page
    assert "card 1 fell off the bus" in page
    assert page.count("mark it as seen") == 2
    assert counted(page) == counted(site.client().get("/").text) == "2"
    assert rows(site.client().get("/alerts?q=BROKER").text) == ["2"]
    assert rows(site.client().get("/alerts?q=hall").text) == ["1"]
    assert rows(site.client().get("/alerts?kind=offline").text) == []
    assert rows(site.client().get("/alerts?kind=alarm&show=all").text) == ["2", "1"]
    chinese = site.client(language="zh").get("/alerts").text
    assert "标记为已读" in chinese
    assert "2 条未静默的告警" in chinese


def test_an_alarm_that_is_marked_as_seen_ends_its_alert(site: ConsoleSite) -> None:
    alarm(site, site.add(1, "hall-1"), "card 1 fell off the bus")
    client = site.client("otto")
    assert client.post("/alerts/1", data={"csrf": "csrf-of-otto", "do": "seen"}).status_code == 303
    look(site)
    assert rows(client.get("/alerts").text) == []
    ended = client.get("/alerts?show=ended").text
    assert rows(ended) == ["1"]
    assert "Mark as seen" not in ended
    assert client.post("/alerts/1", data={"csrf": "csrf-of-otto", "do": "seen"}).status_code == 404


def test_an_alert_is_silenced_and_told_again(site: ConsoleSite) -> None:
    alarm(site, site.add(1, "hall-1"), "card 1 fell off the bus")
    client = site.client("otto")
    for do, words in (("7200", "silenced until"), ("0", "Silence for 2 hours")):
        assert client.post("/alerts/1", data={"csrf": "csrf-of-otto", "do": do}).status_code == 303
        assert words in client.get("/alerts").text
    for do, status in (("", 400), ("-1", 400), ("1e9", 400), ("9999999999", 400), ("x" * 11, 422)):
        assert client.post("/alerts/1", data={"csrf": "csrf-of-otto", "do": do}).status_code == status, do
    assert client.post("/alerts/9", data={"csrf": "csrf-of-otto", "do": "7200"}).status_code == 404
    assert client.post("/alerts/0", data={"csrf": "csrf-of-otto", "do": "7200"}).status_code == 422
    assert client.post("/alerts/1", data={"do": "7200"}).status_code == 403


def test_alerts_of_one_cause_are_counted_and_silenced_together(site: ConsoleSite) -> None:
    devices = [site.add(number, f"hall-{number}") for number in range(1, 4)]
    for device in devices:
        alarm(site, device, "card 1 fell off the bus")
    alarm(site, devices[0], "no disk", kind="disk.full")
    client = site.client("otto")

    def causes_shown() -> str:
        page = client.get("/alerts").text
        return page[page.index('id="causes"') : page.index("<table")]

    assert "3 alerts" in causes_shown()
    assert "disk.full" not in causes_shown(), "one alert is no group"
    assert " silenced" not in causes_shown()
    form = {"csrf": "csrf-of-otto", "kind": "alarm", "about": "card.lost"}
    assert client.post("/alerts/silence", data={**form, "do": "7200"}).status_code == 303
    page = client.get("/alerts").text
    assert page.count("silenced until") == 3
    assert '<span class="muted">silenced</span>' in causes_shown()
    assert counted(client.get("/alerts/count").text) == "1", "the badge counts what nobody has silenced"
    assert client.post("/alerts/1", data={"csrf": "csrf-of-otto", "do": "0"}).status_code == 303
    assert '<span class="muted">2 of 3 silenced</span>' in causes_shown()
    assert counted(client.get("/alerts/count").text) == "2"
    assert client.post("/alerts/silence", data={**form, "do": "0"}).status_code == 303
    assert "silenced until" not in client.get("/alerts").text
    for wrong, status in (
        ({"about": "nothing"}, 404),
        ({"kind": "x"}, 400),
        ({"do": "x"}, 400),
        ({"do": "9" * 10}, 400),
    ):
        assert client.post("/alerts/silence", data={**form, "do": "7200", **wrong}).status_code == status, wrong
    assert 'action="/alerts/silence"' not in site.client("vera").get("/alerts").text


def test_a_viewer_changes_nothing_and_sees_no_webhook(site: ConsoleSite) -> None:
    site.alert_config = HOOKED
    alarm(site, site.add(1, "hall-1"), "card 1 fell off the bus")
    for name in ("vera", "otto"):
        page = site.client(name).get("/alerts").text
        assert "hooks.example.com" not in page
        assert site.client(name).post("/alerts/test", data={"csrf": f"csrf-of-{name}"}).status_code == 403
    assert "Silence for" not in site.client("vera").get("/alerts").text
    for do in ("7200", "seen"):
        assert site.client("vera").post("/alerts/1", data={"csrf": "csrf-of-vera", "do": do}).status_code == 403


def test_the_page_is_there_whatever_the_receivers_address_is(site: ConsoleSite) -> None:
    site.alert_config = AlertConfig.model_construct(
        webhook=WebhookConfig.model_construct(urls=("https://[::1/T0K3N", "https://h:99999/T0K3N"), secret=SECRET)
    )
    shown = site.client().get("/alerts")
    assert shown.status_code == 200
    assert "T0K3N" not in shown.text


def test_a_change_that_people_see_is_live(site: ConsoleSite) -> None:
    """As another thing said of the same alarm is: no alert begins or ends by it."""
    device = site.add(1, "hall-1")
    alarm(site, device, "card 1 fell off the bus")
    client = site.client("otto")

    def mark() -> str:
        with site.store.read() as tx:
            return tx.alerts.mark()

    marks = [mark()]
    alarm(site, device, "card 2 fell off the bus")
    assert "card 2 fell off the bus" in client.get("/alerts").text
    marks.append(mark())
    look(site)
    assert mark() == marks[-1], "nothing has changed"
    for do in ("7200", "0", "seen"):
        client.post("/alerts/1", data={"csrf": "csrf-of-otto", "do": do})
        look(site)
        marks.append(mark())
    assert len(set(marks)) == len(marks)


def test_an_admin_sees_the_webhooks_host_alone_and_sends_a_test(site: ConsoleSite) -> None:
    site.alert_config = HOOKED
    client = site.client()
    page = client.get("/alerts").text
    assert "hooks.example.com:8443" in page
    assert client.post("/alerts/test", data={"csrf": "csrf-of-anna"}).status_code == 303
    page = client.get("/alerts").text
    assert "1 message waits for its receiver" in page
    for secret in ("T0K3N", "K3Y", "word", "secret of sixteen"):
        assert secret not in page, secret
    site.alert_config = AlertConfig()
    assert "Nobody is told of alerts" in client.get("/alerts").text
    refused = client.post("/alerts/test", data={"csrf": "csrf-of-anna"})
    assert (refused.status_code, "there is no webhook" in refused.text) == (400, True)


def test_a_person_sees_and_changes_the_alerts_of_their_scope_alone(site: ConsoleSite) -> None:
    for number, name in ((1, "hall"), (2, "yard")):
        alarm(site, site.add(number, f"{name}-1", site=name), f"card of {name}")
    alarm(site, "", "of the controller")
    site.alert_config = HOOKED
    hal = Visitor(name="hal", role=Role.ADMIN, csrf="c", scope="site=hall")
    site.signed_in.table["hal"] = hal
    client = site.client("hal")
    page = client.get("/alerts?show=all").text
    assert (rows(page), counted(page), "hooks.example" in page) == (["1"], "1", False)
    assert rows(client.get("/alerts?q=yard&show=all").text) == []
    for number in (2, 3):
        for do in ("7200", "seen"):
            assert client.post(f"/alerts/{number}", data={"csrf": "c", "do": do}).status_code == 404
    assert client.post("/alerts/test", data={"csrf": "c"}).status_code == 403
    assert client.post("/alerts/1", data={"csrf": "c", "do": "7200"}).status_code == 303


def test_hostile_texts_are_text(site: ConsoleSite) -> None:
    device = site.add(1, "hall-1")
    alarm(site, device, HOSTILE, kind=HOSTILE[:40])
    site.alert_config = HOOKED
    alarm(site, device, f"{HOSTILE} again", kind="other")
    for path in ("/alerts", "/alerts?show=all", f"/boxes/{device}"):
        page = site.client().get(path, params={"q": HOSTILE} if path == "/alerts" else {}).text
        assert "<script>alert" not in page
        assert "<img" not in page
    with site.store.write() as tx:
        (waiting,) = tx.alerts.claim(site.now_s, until_s=site.now_s, limit=9)
    assert not re.search(r"[^\x20-\x7e]", waiting.body), "other writing is escaped, so that no receiver reads it turned"
    assert "\u202e" not in json.loads(waiting.body)["alerts"][0]["text"]


def test_pages_of_many_alerts_follow_each_other(site: ConsoleSite) -> None:
    device = site.add(1, "hall-1")
    with site.store.write() as tx:
        for number in range(1, 121):
            over = number % 2 == 0
            tx.alerts.add([{
                "kind": "drift", "device": device, "about": f"item {number}", "text": "t", "since_s": 1.0,
                "firing_at_s": 2.0, "clear_since_s": None, "resolved_at_s": 3.0 if over else None,
                "silenced_until_s": 0.0, "silenced_by": "", "open_key": None if over else f"k{number}",
            }])  # fmt: skip
    seen, path = list[str](), "/alerts?show=all"
    while path:
        page = site.client().get(path).text
        seen += rows(page)
        following = re.findall(r'rel="next" href="([^"]+)"', page)
        path = following[0].replace("&amp;", "&") if following else ""
    assert seen == [str(number) for number in range(120, 0, -1)]
    assert len(rows(site.client().get("/alerts").text)) == 50
    assert counted(site.client().get("/alerts/count").text) == "60"
    for bad in ("/alerts?before=x", "/alerts?before=" + "9" * 17, "/alerts?q=" + "x" * 201):
        assert site.client().get(bad).status_code == 422
    assert site.client().get("/alerts?q=%00&kind=none&show=none").status_code == 200


def test_the_watcher_names_alerts_when_one_begins_is_silenced_and_ends(site: ConsoleSite) -> None:
    device, changes = site.add(1, "hall-1"), StoreChanges(site.store)
    position, _ = changes(None)

    def named() -> bool:
        nonlocal position
        position, found = changes(position)
        return ALERTS in found

    assert not named()
    alarm(site, device, "card 1 fell off the bus")
    assert (named(), named()) == (True, False)
    site.client().post("/alerts/1", data={"csrf": "csrf-of-anna", "do": "7200"})
    assert (named(), named()) == (True, False)
    site.client().post("/alerts/1", data={"csrf": "csrf-of-anna", "do": "seen"})
    look(site)
    assert (named(), named()) == (True, False)


def test_the_list_and_the_count_are_live(site: ConsoleSite, url: str) -> None:
    device = site.add(1, "hall-1")
    with browser(url) as context:
        page = context.new_page()
        with page.expect_response("**/live?*"):
            page.goto(url + "/alerts")
        page.get_by_text("Nothing fires").wait_for()
        alarm(site, device, "card 1 fell off the bus")
        page.get_by_text("card 1 fell off the bus").wait_for(timeout=20_000)
        page.locator("#alert-count .count").wait_for(timeout=20_000)
        with page.expect_response("**/live?*"):
            page.goto(url + "/enrol")
        site.client().post("/alerts/1", data={"csrf": "csrf-of-anna", "do": "seen"})
        look(site)
        page.locator("#alert-count .count").wait_for(state="detached", timeout=20_000)
