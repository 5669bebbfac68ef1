"""Forms that come too late: their session has ended, or somebody else was faster. What was typed is kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from fastapi.routing import APIRoute
from kits.browser import browser
from kits.cert import Authority
from kits.console import ConsoleSite
from kits.consolepages import fields
from kits.details import box, card, pod, reported
from kits.enrol import office
from kits.people import LOCAL, PASSWORD
from playwright.sync_api import expect

from edgegpu_cloud.console.people_visitors import PeopleVisitors
from edgegpu_cloud.console.visitor import SESSION_COOKIE
from edgegpu_cloud.console.web import ROUTERS
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.testclient import TestClient

    from edgegpu_sync.ids import DeviceId

ASR = "limits/default/asr/main"


OWN = {"origin": "https://console"}

NOT_OURS: list[dict[str, str]] = [
    {},
    {"origin": "null"},
    {"origin": "https://evil.example"},
    {"origin": "http://console"},
    {**OWN, "sec-fetch-site": "cross-site"},
    {**OWN, "sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
]


def hall(site: ConsoleSite) -> DeviceId:
    """Return a connected box with two cards, of which an app holds 4 units."""
    device = site.add(1, "hall-1", site="hall")
    pods = {"u1": pod("asr-0", ("main", "0", 4, 1))}
    site.report(device, reported(box("hall-1", (card("0"), card("1")), pods)))
    site.connect(device)
    return device


def let_anna_sign_in(site: ConsoleSite) -> None:
    site.use(PeopleVisitors(site.people))
    site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)


class LateForms:
    """A console with real sessions, and a person whose session ends while a form is open."""

    def __init__(self, site: ConsoleSite) -> None:
        self.site = site
        let_anna_sign_in(site)
        self.client: TestClient = site.client("")
        self.client.headers["sec-fetch-site"] = "same-origin"  # a browser says so of the console's own forms
        self.sign_in()

    def sign_in(self) -> None:
        self.client.post("/sign-in", data={"name": "anna", "password": PASSWORD})

    def sent_late(self, path: str, form: dict[str, Any]) -> Any:  # noqa: ANN401  (the client's answer)
        """Send a form after the session's end, sign in on the page that answers, and send what that shows."""
        client = self.client
        self.site.people.sign_out(client.cookies[SESSION_COOKIE])
        late = client.post(path, data=form)
        assert late.status_code == 401
        kept = fields(late.text, "/sign-in")
        again = client.post("/sign-in", data={**kept, "name": "anna", "password": PASSWORD})
        assert (again.status_code, "Nothing was changed yet" in again.text) == (200, True)
        shown = fields(again.text, path)
        assert {name: str(value) for name, value in form.items() if name != "csrf"}.items() <= shown.items()
        return client.post(path, data=shown)


@pytest.fixture
def late(tmp_path: Path) -> Iterator[LateForms]:
    cloud = office(tmp_path / "cloud")
    with (made := LateForms(ConsoleSite(cloud.store))).client:
        yield made
    cloud.store.close()


def test_limits_that_come_after_the_session_are_kept_and_set(late: LateForms) -> None:
    device = hall(late.site)
    path = f"/boxes/{device}/{ASR}"
    page = late.client.get(path, params={"memory": "7", "core": "3"}).text
    assert late.sent_late(path, fields(page, path) | {"box": f"{device}:0:7", "core": "3"}).status_code == 303
    [item] = Fleet(late.site.store, clock=late.site.clock, by="anna").spec(device).app_limits
    assert (item.memory_units, item.core) == (7, 3)


def test_sharing_that_comes_after_the_session_is_kept_and_requested(late: LateForms) -> None:
    device = hall(late.site)
    path = f"/boxes/{device}/sharing"
    form = {"rev": "0", "policy": "spread", "unit_mib": "256", "exclude": "1"}
    assert late.sent_late(path, form).status_code == 303
    spec = Fleet(late.site.store, clock=late.site.clock, by="anna").spec(device)
    assert spec.policy is not None
    assert spec.exclusions is not None
    assert (spec.policy.policy, spec.exclusions.cards) == ("spread", ("1",))


def test_a_rollout_that_comes_after_the_session_is_kept_and_started(late: LateForms) -> None:
    hall(late.site)
    page = late.client.get("/rollouts/new", params={"what": "sharing", "policy": "spread", "waves": "2"}).text
    form = fields(page, "/rollouts") | {"typed": "1"}
    started = late.sent_late("/rollouts", form)
    assert (started.status_code, started.headers["location"]) == (303, "/rollouts/1")


WITHOUT_SESSION = {"/sign-in", "/link", "/preferences"}
"""Where a form needs no session."""


def every_form() -> list[str]:
    """Return the routes of all forms that need a session."""
    found = [one for router in ROUTERS for one in router.routes if isinstance(one, APIRoute)]
    return [one.path for one in found if "POST" in (one.methods or ()) and one.path not in WITHOUT_SESSION]


@pytest.mark.parametrize("path", every_form())
def test_every_form_that_comes_after_the_session_is_kept_or_says_that_it_is_not(late: LateForms, path: str) -> None:
    there = re.sub(r"{\w+}", "x", path)
    page = late.client.get("/account").text
    csrf = fields(page, "/account/language")["csrf"]
    late.site.people.sign_out(late.client.cookies[SESSION_COOKIE])
    form = {"csrf": csrf, "name": "a <b>", "typed": "7"}
    answer = late.client.post(there, data=form)
    kept = fields(answer.text, "/sign-in")
    assert (answer.status_code, kept["kept.name"], kept["kept.typed"], kept["next"]) == (401, "a <b>", "7", there)
    secret = late.client.post(there, data={**form, "password": PASSWORD})
    assert (secret.status_code, "A password is not kept" in secret.text, PASSWORD in secret.text) == (401, True, False)


def test_a_form_that_no_page_of_ours_is_said_to_have_sent_is_not_kept_for_the_next_sign_in(late: LateForms) -> None:
    late.site.people.sign_out(late.client.cookies[SESSION_COOKIE])
    form = {"name": "typed-name", "role": "admin", "days": "30"}
    for headers in NOT_OURS:
        stranger = late.site.client("")
        answer = stranger.post("/account/tokens", data=form, headers=headers)
        shown = fields(answer.text, "/sign-in")
        assert (answer.status_code, shown["next"], "typed-name" in answer.text) == (401, "/", False), headers


def test_a_kept_form_that_no_page_of_ours_is_said_to_have_sent_is_dropped_at_the_sign_in(late: LateForms) -> None:
    form = {"kept.name": "typed-name", "kept.role": "admin", "next": "/account/tokens"}
    for headers in NOT_OURS:
        stranger = late.site.client("")
        answer = stranger.post("/sign-in", data={**form, "name": "anna", "password": PASSWORD}, headers=headers)
        assert answer.status_code in {303, 403}, headers
        assert "typed-name" not in answer.text, headers


def test_what_another_sites_page_sends_in_a_browser_waits_at_no_sign_in(site: ConsoleSite, tmp_path: Path) -> None:
    let_anna_sign_in(site)
    with site.served(tmp_path, Authority("console")) as url, browser(url, person="") as context:
        page = context.new_page()
        page.set_content(
            f'<form method="post" action="{url}/account/tokens"><input name="name" value="typed-name"></form>'
        )
        page.locator("form").evaluate("form => form.submit()")
        page.get_by_label("Name").fill("anna")
        assert "typed-name" not in page.content()
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Boxes")).to_be_visible()
    assert site.people.tokens("anna", by=LOCAL) == []


def test_what_was_typed_is_shown_in_the_words_of_its_form(late: LateForms) -> None:
    device = hall(late.site)
    path = f"/boxes/{device}/{ASR}"
    late.site.people.sign_out(late.client.cookies[SESSION_COOKIE])
    kept = {"kept.box": f"{device}:0:7", "kept.memory": "7", "kept.live": "yes", "kept.query": "waves=2&soak=5"}
    again = late.client.post("/sign-in", data={**kept, "name": "anna", "password": PASSWORD, "next": path}).text
    shown = dict(re.findall(r"<dt>([^<]+)</dt><dd>(?:<code>)?([^<]+)<", again))
    assert (shown["Page"], shown["Memory"], shown["Sizes of the waves"]) == (path, "7", "2")
    assert (shown["Watched for so many minutes"], "yes" in shown.values()) == ("5", True)
    assert f">{device}:0:7<" not in again


@pytest.mark.parametrize(
    ("path", "form", "told"),
    [
        ("/people", {"name": "otto", "role": "operator", "scope": "site=hall", "language": ""}, "link?code="),
        ("/enrol/tokens", {"name": "hall-9", "labels": "site=hall", "boxes": "1", "lasts_s": "3600"}, "EDGEGPU_TOKEN="),
    ],
)
def test_what_is_made_by_a_late_form_is_shown_this_once(
    late: LateForms, path: str, form: dict[str, str], told: str
) -> None:
    done = late.sent_late(path, form)
    assert (done.status_code, told in done.text) == (200, True)


def test_a_preview_that_comes_after_the_session_leads_back_to_what_was_typed(late: LateForms) -> None:
    device = hall(late.site)
    client = late.client
    late.site.people.sign_out(client.cookies[SESSION_COOKIE])
    typed = f"/boxes/{device}/sharing?typed=yes&policy=spread&unit_mib=512"
    answer = client.get(typed, headers={"HX-Request": "true"})
    assert answer.status_code == 401
    shown = client.get(answer.headers["hx-redirect"]).text
    back = client.post("/sign-in", data=fields(shown, "/sign-in") | {"name": "anna", "password": PASSWORD})
    assert (back.status_code, back.headers["location"]) == (303, typed)


def test_sharing_that_another_person_has_changed_is_not_overwritten_and_what_was_typed_stays(site: ConsoleSite) -> None:
    device = hall(site)
    path = f"/boxes/{device}/sharing"
    with site.client("otto") as client:
        page = client.get(path, params={"typed": "yes", "policy": "spread", "unit_mib": "256", "exclude": "1"}).text
        anna = Fleet(site.store, clock=site.clock, by="anna")
        anna.set_settings("hall-1", SharingSettings(policy="best-fit"))
        refused = client.post(path, data=fields(page, path))
        assert refused.status_code == 409
        assert "anna has changed its settings meanwhile" in refused.text
        assert "best-fit" in refused.text
        assert "<option selected>spread</option>" in refused.text
        assert 'name="exclude" value="1" checked' in refused.text
        assert "Request 2 changes on hall-1" in refused.text
        assert anna.spec(device).policy is not None
        assert anna.spec(device).exclusions is None
        assert client.post(path, data=fields(refused.text, path)).status_code == 303
    spec = anna.spec(device)
    assert spec.policy is not None
    assert spec.policy.policy == "spread"


def test_sharing_that_is_refused_keeps_what_was_typed(site: ConsoleSite) -> None:
    device = hall(site)
    form = {"csrf": "csrf-of-anna", "rev": "0", "policy": "spread", "unit_mib": "two"}
    refused = site.client().post(f"/boxes/{device}/sharing", data=form)
    assert refused.status_code == 400
    assert 'name="unit_mib" value="two"' in refused.text
    assert "it is no whole number" in refused.text


def test_two_operators_at_one_app_see_each_other_and_neither_overwrites(site: ConsoleSite, url: str) -> None:
    device = hall(site)
    editor = f"{url}/boxes/{device}/{ASR}"
    with browser(url, "otto") as context:
        otto = context.new_page()
        with otto.expect_response("**/live?*"):
            otto.goto(editor)
        otto.get_by_label("Memory", exact=True).fill("7")
        expect(otto.locator("[data-sets]")).to_have_text("Set 7 units (1.75 GiB), core 1 on 1 box")
        site.now_s += 1
        anna = Fleet(site.store, clock=site.clock, by="anna")
        with site.client("anna") as client:
            page = client.get(f"/boxes/{device}/{ASR}", params={"memory": "5"}).text
            path = f"/boxes/{device}/{ASR}"
            assert client.post(path, data=fields(page, path) | {"box": f"{device}:0:5:1"}).status_code == 303
        expect(otto.locator("#outcome")).to_contain_text("5 units (1.25 GiB)", timeout=5_000)
        expect(otto.locator("#history")).to_contain_text("anna", timeout=5_000)
        expect(otto.get_by_label("Memory", exact=True)).to_have_value("7")
    assert [one.memory_units for one in anna.spec(device).app_limits] == [5]


def test_a_press_on_an_old_preview_is_answered_with_the_other_persons_change(site: ConsoleSite, url: str) -> None:
    device = hall(site)
    editor = f"{url}/boxes/{device}/{ASR}?memory=7"
    with browser(url, "otto", scripts=False) as context:
        otto = context.new_page()
        otto.goto(editor)
        anna = Fleet(site.store, clock=site.clock, by="anna")
        with site.client("anna") as client:
            path = f"/boxes/{device}/{ASR}"
            client.post(path, data={"csrf": "csrf-of-anna", "box": f"{device}:0:5", "core": "1"})
        otto.locator("[data-sets]").click()
        expect(otto.get_by_role("alert")).to_contain_text("anna has set 5 units, core 1 meanwhile")
        expect(otto.get_by_label("Memory", exact=True)).to_have_value("7")
        assert [one.memory_units for one in anna.spec(device).app_limits] == [5]
        otto.locator("[data-sets]").click()
        expect(otto.locator("#outcome")).to_contain_text("7 units (1.75 GiB)")
    assert [one.memory_units for one in anna.spec(device).app_limits] == [7]


def annas_session(site: ConsoleSite) -> str:
    """Let people sign in for real; return the token of a session."""
    let_anna_sign_in(site)
    return site.people.sign_in("anna", PASSWORD, address="127.0.0.1").session_token


def test_in_a_browser_what_was_typed_stays_when_the_session_ends_and_comes_with_the_button(
    site: ConsoleSite, tmp_path: Path
) -> None:
    device, token = hall(site), annas_session(site)
    with site.served(tmp_path, Authority("console")) as url, browser(url, token) as context:
        page, other = context.new_page(), context.new_page()
        page.goto(f"{url}/people")
        page.get_by_label("Name", exact=True).fill("otto")
        other.goto(f"{url}/boxes/{device}/{ASR}")
        other.get_by_label("Memory", exact=True).fill("7")
        with other.expect_response("**/limits/default/asr/main?*memory=7*"):  # a field that is left asks once more
            other.get_by_label("Memory", exact=True).press("Tab")
        expect(other.locator("[data-sets]")).to_have_text(re.compile("Set 7 units"))
        site.people.sign_out(token)
        for one in (page, other):
            expect(one.get_by_text("You are signed out.")).to_be_visible(timeout=40_000)
        expect(page.get_by_label("Name", exact=True)).to_have_value("otto")
        other.locator("[data-sets]").click()
        other.get_by_label("Name").fill("anna")
        other.get_by_label("Password").fill(PASSWORD)
        other.get_by_role("button", name="Sign in").click()
        expect(other.get_by_text("Nothing was changed yet")).to_be_visible()
    assert Fleet(site.store, clock=site.clock, by="anna").box(device).rev == 0


def test_what_asks_for_itself_does_not_lead_away_from_what_was_typed(site: ConsoleSite, tmp_path: Path) -> None:
    device, token = hall(site), annas_session(site)
    with site.served(tmp_path, Authority("console")) as url, browser(url, token) as context:
        page = context.new_page()
        with page.expect_response("**/live?*"):
            page.goto(f"{url}/boxes/{device}/sharing")
        unit = page.get_by_label("Unit size in MiB")
        unit.fill("512")
        expect(page.get_by_role("button", name="Request 1 change on hall-1")).to_be_visible()
        site.people.sign_out(token)
        site.now_s += 1
        site.report(device, reported(box("hall-1", (card("0"), card("1")), {"u1": pod("asr-0", ("main", "0", 5, 1))})))
        expect(page.get_by_text("You are signed out.")).to_be_visible(timeout=5_000)
        expect(unit).to_have_value("512")


def form_of_an_earlier_session(late: LateForms, name: str = "anna") -> dict[str, str]:
    """Return the form of a token as one session has drawn it; another one begins meanwhile, in another tab."""
    form = fields(late.client.get("/account").text, "/account/tokens")
    late.site.people.sign_out(late.client.cookies[SESSION_COOKIE])
    late.client.post("/sign-in", data={"name": name, "password": PASSWORD})
    return form | {"name": "typed-name", "scope": "site=hall", "days": "30", "role": "viewer"}


@pytest.mark.parametrize("headers", [OWN, {"sec-fetch-site": "same-origin"}])
def test_a_form_of_an_earlier_session_is_shown_again_and_sent_by_a_press(
    late: LateForms, headers: dict[str, str]
) -> None:
    del late.client.headers["sec-fetch-site"]
    form = form_of_an_earlier_session(late)
    answer = late.client.post("/account/tokens", data=form, headers=headers)
    assert (answer.status_code, "Nothing was changed yet" in answer.text) == (403, True)
    assert "You are signed in as anna" in answer.text
    assert late.site.people.tokens("anna", by=LOCAL) == []
    shown = fields(answer.text, "/account/tokens")
    assert shown["csrf"] != form["csrf"]
    assert shown | {"csrf": form["csrf"]} == form
    assert "egt_" in late.client.post("/account/tokens", data=shown, headers=headers).text
    [token] = late.site.people.tokens("anna", by=LOCAL)
    assert (token.name, token.scope) == ("typed-name", "site=hall")


def test_a_form_of_another_person_is_shown_with_the_name_of_who_would_send_it(late: LateForms) -> None:
    late.site.people.redeem(late.site.people.create("otto", role=Role.VIEWER, by=LOCAL), "", PASSWORD)
    form = form_of_an_earlier_session(late, "otto")
    answer = late.client.post("/account/tokens", data=form, headers=OWN)
    assert "You are signed in as otto" in answer.text
    assert "anna" not in answer.text
    assert [late.site.people.tokens(name, by=LOCAL) for name in ("anna", "otto")] == [[], []]


def test_a_form_that_no_page_of_ours_is_said_to_have_sent_is_not_shown_again(late: LateForms) -> None:
    form = form_of_an_earlier_session(late)
    del late.client.headers["sec-fetch-site"]
    for headers in NOT_OURS:
        answer = late.client.post("/account/tokens", data=form, headers=headers)
        assert (answer.status_code, "another site" in answer.text) == (403, True), headers
        assert "typed-name" not in answer.text, headers


def test_a_form_without_a_token_or_with_a_password_is_not_shown_again(late: LateForms) -> None:
    another = {"csrf": "0" * 64}
    for form, headers in (
        ({}, {}),
        ({"csrf": ""}, {}),
        (another, {"x-csrf-token": "0" * 64}),
        ({**another, "password": PASSWORD}, {}),
    ):
        sent = {"name": "typed-name", **form}
        answer = late.client.post("/account/tokens", data=sent, headers={**OWN, **headers})
        assert (answer.status_code, "This change was not taken" in answer.text) == (403, True), form
        assert not any(text in answer.text for text in ("typed-name", PASSWORD)), form


def test_every_form_of_an_earlier_session_is_kept(late: LateForms) -> None:
    form = {"csrf": "0" * 64, "name": "a <b>", "query": "waves=2&soak=5"}
    for path in every_form():
        there = re.sub(r"{\w+}", "x", path.replace("{number}", "1"))
        answer = late.client.post(there, data=form, headers=OWN)
        _, _, content = answer.text.partition("<main")
        shown = fields(content, there)
        assert (answer.status_code, shown["name"], shown["query"]) == (403, "a <b>", "waves=2&soak=5"), path
