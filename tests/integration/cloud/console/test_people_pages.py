"""My account, People and Audit, as a browser sends their forms: who may, what is shown once, what is refused."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.browser import browser
from kits.cert import Authority
from kits.console import ConsoleSite
from kits.people import LOCAL, PASSWORD
from kits.todaysstores import TodaysStores
from playwright.sync_api import expect
from starlette.testclient import TestClient

from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.console.live import ENROL, MOST_NAMED, named_for
from edgegpu_cloud.console.people_visitors import PeopleVisitors
from edgegpu_cloud.console.visitor import SESSION_COOKIE, Visitor
from edgegpu_cloud.store.people.records import Role
from edgegpu_sync.ids import DeviceId

OTHER = "rain on a tin roof"


@pytest.fixture
def site(todays_stores: TodaysStores) -> Iterator[ConsoleSite]:
    with todays_stores.opened() as store:
        site = ConsoleSite(store)
        site.use(PeopleVisitors(site.people))
        for name, role, scope in (
            ("anna", Role.ADMIN, ""),
            ("otto", Role.OPERATOR, ""),
            ("hal", Role.ADMIN, "site=hall"),
        ):
            site.people.redeem(site.people.create(name, role=role, scope=scope, by=LOCAL), "", PASSWORD)
        yield site


class Person:
    """A person with a browser."""

    def __init__(self, site: ConsoleSite, name: str, password: str = PASSWORD) -> None:
        self.token = site.people.sign_in(name, password, address="10.0.0.1", agent=f"{name}'s browser").session_token
        self.client: TestClient = site.client(self.token)
        session = site.people.session(self.token)
        assert session is not None
        self.csrf = session.csrf

    def get(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def post(self, path: str, **data: str) -> tuple[int, str]:
        answer = self.client.post(path, data={"csrf": self.csrf, **data})
        return answer.status_code, answer.headers.get("location", "") or answer.text


def test_accounts_are_searched_and_paged(site: ConsoleSite) -> None:
    for number in range(60):
        site.people.create(f"vera-{number:02d}", role=Role.VIEWER, scope="site=yard", by=LOCAL)
    anna = Person(site, "anna")
    first = anna.get("/people")
    assert first.count('<th scope="row"><a href="/people/') == 50
    (address,) = (one.replace("&amp;", "&") for one in re.findall(r'rel="next" href="([^"]+)"', first))
    assert re.findall(r'href="/people/(vera-[0-9]+)"', anna.get(address))[-1] == "vera-59"
    assert re.findall(r'<a href="/people/([^"]+)"', anna.get("/people?q=VERA-07")) == ["vera-07"]
    assert re.findall(r'<a href="/people/([^"]+)"', anna.get("/people?q=site%3Dhall")) == ["hal"]
    assert re.findall(r'<a href="/people/([^"]+)"', anna.get("/people?q=operator")) == ["otto"]
    assert "Nobody matches" in anna.get("/people?q=%25")


def test_sessions_are_shown_and_ended_there(site: ConsoleSite) -> None:
    here, there, third = (Person(site, "otto") for _ in range(3))
    page = here.get("/account")
    assert page.count("otto&#39;s browser") == 3
    assert page.count("this one") == 1
    ids = re.findall(r"/account/sessions/(\w+)/end\"", page)
    other = site.people.session(there.token)
    assert other is not None
    assert other.id in ids
    assert here.post(f"/account/sessions/{other.id}/end") == (303, "/account")
    assert there.client.get("/account").status_code == 303
    assert here.post("/account/sessions/end-others") == (303, "/account")
    assert third.client.get("/account").status_code == 303
    assert here.get("/account").count("otto&#39;s browser") == 1
    anna = Person(site, "anna")
    assert here.post(f"/account/sessions/{site.people.sessions('anna', by=LOCAL)[0].id}/end")[0] == 404
    assert anna.get("/account")


def test_a_token_is_shown_once_and_has_no_higher_role_than_its_owner(site: ConsoleSite) -> None:
    otto = Person(site, "otto")
    page = otto.get("/account")
    assert "<option>operator</option>" in page
    assert "<option>admin</option>" not in page
    status, shown = otto.post("/account/tokens", name="ci", role="operator", days="7")
    assert status == 200
    found = re.search(r"egt_[\w-]{43}", shown)
    assert found
    session = site.people.api_token(found[0])
    assert session is not None
    assert session.by == "otto/ci"
    assert found[0] not in otto.get("/account")
    status, text = otto.post("/account/tokens", name="more", role="admin")
    assert status == 400
    assert "has the role operator" in text
    assert otto.post(f"/account/tokens/{session.id}/revoke") == (303, "/account")
    assert site.people.api_token(found[0]) is None


def test_the_password_is_changed_with_the_present_one(site: ConsoleSite) -> None:
    otto, elsewhere = Person(site, "otto"), Person(site, "otto")
    form = {"current": PASSWORD, "password": OTHER, "again": OTHER}
    for wrong, said in (
        ({"current": "wrong"}, "The present password is wrong"),
        ({"again": "another one here"}, "The two passwords differ"),
        ({"password": "short", "again": "short"}, "fewer than 12 characters"),
    ):
        status, text = otto.post("/account/password", **{**form, **wrong})
        assert status == 400
        assert said in text
    assert otto.post("/account/password", **form) == (303, "/account")
    assert otto.get("/account"), "this session goes on"
    assert elsewhere.client.get("/account").status_code == 303
    assert Person(site, "otto", OTHER).get("/account")


def test_the_language_of_the_account_goes_before_the_browsers(site: ConsoleSite) -> None:
    otto = Person(site, "otto")
    assert otto.post("/account/language", language="zh") == (303, "/account")
    assert "我的账号" in otto.get("/account")
    assert otto.post("/account/language", language="fr")[0] == 400


def test_an_admin_adds_changes_and_removes_a_person(site: ConsoleSite) -> None:
    anna = Person(site, "anna")
    status, text = anna.post("/people", name="Bea", role="operator", scope="site=hall", language="zh")
    assert status == 200
    link = re.search(r"https://cloud\.example\.com:8444/link\?code=([\w-]{43})", text)
    assert link
    assert "Invited" in anna.get("/people")
    site.people.redeem(link[1], "", PASSWORD)
    bea = Person(site, "bea")
    assert anna.post("/people/bea/role", role="viewer") == (303, "/people/bea")
    assert anna.post("/people/bea/scope", scope="site in (hall,yard)") == (303, "/people/bea")
    page = anna.get("/people/bea")
    assert "<option selected>viewer</option>" in page
    assert "site in (hall,yard)" in page
    assert link[1] not in page
    assert anna.post("/people/bea/scope", scope="a b")[0] == 400
    assert anna.post("/people/bea/sessions/end") == (303, "/people/bea")
    assert bea.client.get("/account").status_code == 303
    assert "/link?code=" in anna.post("/people/bea/link")[1]
    assert anna.post("/people/bea/disable") == (303, "/people/bea")
    assert anna.post("/people/bea/link")[0] == 400
    assert anna.post("/people/bea/enable") == (303, "/people/bea")
    assert "That was another name" in anna.post("/people/bea/remove", typed="anna")[1]
    assert anna.post("/people/bea/remove", typed="bea") == (303, "/people")
    assert "/people/bea" not in anna.get("/people")  # the three letters may be a part of a token
    assert anna.client.get("/people/bea").status_code == 404


def test_the_form_keeps_what_was_typed_when_it_is_refused_and_shows_it_as_text(site: ConsoleSite) -> None:
    anna = Person(site, "anna")
    status, text = anna.post("/people", name='"><script>x</script>', role="admin", scope="site=hall")
    assert status == 400
    assert "cannot call a person" in text
    assert "<script>x" not in text
    assert 'value="site=hall"' in text
    assert anna.post("/people", name="anna", role="viewer")[0] == 400
    assert anna.post("/people", name="zoe", role="king")[0] == 422


REFUSED = [
    ("/account/tokens", {"name": "typed-name", "role": "operator", "scope": "((typed", "days": "365"}),
    ("/account/tokens", {"name": "typed-name", "role": "admin", "scope": "((typed", "days": "45"}),
    ("/people", {"name": "Bad Name!", "role": "operator", "scope": "a=b", "language": "zh"}),
    ("/people/otto/scope", {"scope": "((typed"}),
    ("/people/anna/role", {"role": "viewer"}),
    ("/enrol/tokens", {"name": "typed-name", "labels": "((typed", "boxes": "7", "lasts_s": "86400"}),
]
"""Forms that are refused for what was typed or chosen."""


def shown_in(form: str) -> dict[str, str]:
    """Return what a form shows: the text of its inputs, and what is chosen in its lists."""
    shown = dict(re.findall(r'<input[^>]* ?name="(\w+)"[^>]*? value="([^"]*)"', form))
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', form, re.DOTALL):
        [(tag, text)] = re.findall(r"<option([^>]* selected[^>]*)>([^<]*)<", options)
        value = re.search(r'value="([^"]*)"', tag)
        shown[name] = value[1] if value else text
    return shown


@pytest.mark.parametrize(("path", "sent"), REFUSED)
def test_a_refused_form_shows_what_was_typed_and_chosen(site: ConsoleSite, path: str, sent: dict[str, str]) -> None:
    status, page = Person(site, "anna").post(path, **sent)
    form = re.search(rf'<form method="post" action="{path}".*?</form>', page, re.DOTALL)
    assert form is not None, page
    assert status == 400
    assert sent.items() <= shown_in(form[0]).items()


def test_the_last_admin_stays(site: ConsoleSite) -> None:
    anna = Person(site, "anna")
    for path, data in (
        ("role", {"role": "viewer"}),
        ("scope", {"scope": "a=b"}),
        ("disable", {}),
        ("remove", {"typed": "anna"}),
    ):
        status, text = anna.post(f"/people/anna/{path}", **data)
        assert status == 400
        assert "no enabled admin" in text


PATHS = ["/people", "/people/anna", "/people/otto"]
POSTS: dict[str, dict[str, str]] = {
    "/people": {"name": "zoe", "role": "admin"},
    "/people/otto/role": {"role": "admin"},
    "/people/otto/scope": {"scope": ""},
    "/people/otto/disable": {},
    "/people/otto/enable": {},
    "/people/otto/link": {},
    "/people/otto/sessions/end": {},
    "/people/otto/remove": {"typed": "otto"},
}


@pytest.mark.parametrize("name", ["otto", "hal"])
def test_people_are_for_admins_of_all_boxes_alone(site: ConsoleSite, name: str) -> None:
    person = Person(site, name)
    before = site.people.all(by=LOCAL)
    for path in PATHS:
        assert person.client.get(path).status_code == 403, path
    for path, data in POSTS.items():
        if not (name == "otto" and path.endswith("sessions/end")):  # everybody may end their own
            assert person.post(path, **data)[0] == 403, path
    assert site.people.all(by=LOCAL) == before
    assert person.client.get("/audit").status_code == (403 if name == "otto" else 200)


def test_every_form_needs_the_csrf_token(site: ConsoleSite) -> None:
    anna = Person(site, "anna")
    posts = {**POSTS, "/account/password": {"current": PASSWORD, "password": OTHER, "again": OTHER}}
    posts |= {"/account/language": {}, "/account/tokens": {"name": "ci"}, "/account/sessions/end-others": {}}
    for path, data in posts.items():
        assert anna.client.post(path, data=data).status_code == 403, path
        assert anna.client.post(path, data={**data, "csrf": "0" * 64}).status_code == 403, path
    assert site.people.tokens("anna", by=LOCAL) == []


def test_the_audit_is_filtered_and_paged_and_shows_before_and_after(site: ConsoleSite) -> None:
    device = site.add(1, "hall-1", site="hall")
    site.add(2, "yard-1", site="yard")
    anna = Person(site, "anna")
    anna.post("/people/otto/role", role="viewer")
    anna.post("/people/otto/role", role="operator")
    page = anna.get("/audit?by=anna&what=person")
    assert page.count("person.role") == 2
    assert "{&#34;role&#34;: &#34;viewer&#34;}" in page
    assert "box.enrolled" not in page
    assert f"/boxes/{device}" in anna.get("/audit?box=hall-1")
    assert "Nothing was changed" in anna.get("/audit?by=nobody-else")
    for number in range(60):
        anna.post("/people/otto/role", role=("viewer", "operator")[number % 2])
    first = anna.get("/audit?by=anna&what=person")
    assert first.count("person.role") == 50
    older = re.search(r'rel="next" href="([^"]+)"', first)
    assert older
    rest = anna.get(older[1].replace("&amp;", "&"))
    assert rest.count("person.role") == 12
    assert 'rel="next"' not in rest
    hal = Person(site, "hal").get("/audit")
    assert "box.enrolled" in hal
    assert "yard-1" not in hal
    assert "person.role" not in hal
    assert PASSWORD not in anna.get("/audit")


def test_a_one_time_link_leads_to_the_console_whatever_host_the_request_names(site: ConsoleSite) -> None:
    anna = Person(site, "anna")
    anna.post("/people", name="bea", role="operator")
    for headers in ({"host": "evil.example"}, {"x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}):
        anna.client.headers.update(headers)
        for path, form in (("/people/bea/link", {}), ("/people", {"name": f"person-{len(headers)}", "role": "viewer"})):
            status, text = anna.post(path, **form)
            assert status == 200
            assert re.findall(r"(https:[^<>\s]+)/link\?code=", text) == ["https://cloud.example.com:8444"], headers
            assert "evil.example" not in text


def test_a_person_signs_in_adds_another_and_signs_out_in_a_real_browser(site: ConsoleSite, tmp_path: Path) -> None:
    with site.served(tmp_path, Authority("console")) as url, browser(url, "", scripts=False) as context:
        page = context.new_page()
        page.goto(f"{url}/people")
        page.get_by_label("Name").fill("anna")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="People")).to_be_visible()
        page.get_by_label("Name", exact=True).fill("bea")
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_text("/link?code=")).to_be_visible()
        page.goto(f"{url}/account")
        expect(page.get_by_text("this one")).to_be_visible()
        page.get_by_role("button", name="Sign out", exact=True).click()
        expect(page.get_by_label("Password")).to_be_visible()
        assert SESSION_COOKIE not in {one["name"] for one in context.cookies()}


def test_a_live_page_names_no_box_out_of_scope(site: ConsoleSite) -> None:
    hall, yard = site.add(1, "hall-1", site="hall"), site.add(2, "yard-1", site="yard")
    changed = [hall, yard, DeviceId(ENROL)]
    whole = Visitor(name="anna", role=Role.ADMIN, csrf="")
    part = Visitor(name="hal", role=Role.ADMIN, csrf="", scope="site=hall")
    fleets = [fleet_of(site.store, visitor, clock=site.clock) for visitor in (whole, part)]
    assert [named_for(fleet, changed) for fleet in fleets] == [sorted(changed), sorted([hall, ENROL])]
    assert named_for(fleets[1], [yard]) == []
    many = [DeviceId(f"{number:016d}") for number in range(MOST_NAMED + 1)]
    assert named_for(fleets[1], many) == ["all"]
