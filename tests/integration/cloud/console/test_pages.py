"""The console's frame: sessions, languages, headers, the fleet's list."""

import json
import re

import pytest
from fastapi.routing import APIRoute
from kits.console import ConsoleSite
from kits.consolepages import POSTED, Places, fields
from kits.details import box, card, pod
from kits.people import LOCAL, PASSWORD

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.console.web import ROUTERS
from edgegpu_cloud.store.people.records import Role
from edgegpu_sync.ids import DeviceId


def rows(text: str) -> list[str]:
    return re.findall(r'<th scope="row">(?:<label class="select">.*?</label>)?<a href="/boxes/\w+">([^<]+)</a>', text)


def test_who_is_not_signed_in_is_sent_to_the_sign_in_and_back(site: ConsoleSite) -> None:
    answer = site.client("").get("/?q=hall")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2F%3Fq%3Dhall"
    assert site.client("").get("/", headers={"HX-Request": "true"}).headers["hx-redirect"].startswith("/sign-in?next=")
    assert site.client("gone").get("/live").status_code == 401


def test_each_answer_carries_the_policy_and_static_files_are_kept(site: ConsoleSite) -> None:
    with site.client() as client:
        page = client.get("/")
        assert "unsafe" not in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        assert "style=" not in page.text
        (settings,) = re.findall(r"<meta name=\"htmx-config\" content='([^']+)'", page.text)
        assert json.loads(settings) == {
            "allowEval": False,
            "includeIndicatorStyles": False,
            "selfRequestsOnly": True,
            "historyCacheSize": 0,
        }
        assert not re.search(r"<script(?![^>]+src=)", page.text)
        for path in set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)):
            asset = client.get(path)
            assert asset.status_code == 200, path
            assert asset.headers["cache-control"].endswith("immutable")
        assert client.get("/no/such/page").status_code == 404
        assert "There is no such thing here" in client.get("/no/such/page").text


def test_the_language_is_the_cookies_then_the_browsers(site: ConsoleSite) -> None:
    assert "<h1>Boxes</h1>" in site.client().get("/").text
    client = site.client(language="zh-CN,zh;q=0.9,en;q=0.8")
    assert "<h1>边缘设备</h1>" in client.get("/").text
    answer = client.post("/preferences", data={"language": "en", "back": "/?show=offline"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?show=offline")
    assert "<h1>Boxes</h1>" in client.get("/").text
    assert site.client(language="xx, *;q=x").get("/").text.count("<h1>Boxes</h1>") == 1


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
def test_preferences_lead_to_no_other_host(site: ConsoleSite, back: str) -> None:
    assert site.client().post("/preferences", data={"theme": "dark", "back": back}).headers["location"] == "/"


LONG = "/operations/new?kind=limits&" + "&".join(f"box={number:016d}" for number in range(950))


def test_preferences_lead_back_to_a_page_with_a_long_address(site: ConsoleSite) -> None:
    with site.client() as client:
        form = fields(client.get(LONG).text, "/preferences")
        answer = client.post("/preferences", data={**form, "theme": "dark"})
        assert (answer.status_code, answer.headers["location"]) == (303, LONG)


def test_no_preferences_where_the_address_is_longer_than_a_form(site: ConsoleSite) -> None:
    longer = LONG + "&app=" + "%25" * 4_000
    page = site.client().get(longer)
    assert (page.status_code, "/preferences" in page.text) == (200, False)


BROWSERS = {"sec-fetch-site": "same-origin"}
"""What a browser says of a form that a page of the console sends."""


def test_a_page_that_answers_a_form_has_no_preferences_that_would_lose_it(site: ConsoleSite) -> None:
    device = site.add(1, "hall-1", site="hall")
    site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
    places = Places(site, device)
    for page in POSTED:
        answer = site.client().post(places.at(page.address), data=places.form(page), headers=BROWSERS)
        assert (answer.status_code, "/preferences" in answer.text) == (200, False), page
    late = site.client("").post("/account/tokens", data={"name": "typed-name"}, headers=BROWSERS)
    assert (late.status_code, "typed-name" in late.text, "/preferences" in late.text) == (401, True, False)


NO_NUMBERS = ("0", "-1", "x", str(2**53 + 1), str(2**63), str(10**20))


def numbered() -> list[tuple[str, str]]:
    """Return method and path of each route that has a number in its path, with `{}` in the number's place."""
    found: list[tuple[str, str]] = []
    for one in (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)):
        path = one.path
        for field in one.dependant.path_params:
            path = path.replace(f"{{{field.name}}}", "{}" if field.field_info.annotation is int else "pause")
        found += [(method, path) for method in sorted(one.methods or ()) if "{}" in path]
    return found


def test_a_path_with_a_number_that_none_can_be_is_refused(site: ConsoleSite) -> None:
    routes = numbered()
    assert ("GET", "/rollouts/{}") in routes
    assert ("POST", "/rollouts/{}/pause") in routes
    with site.client() as client:
        for method, path in routes:
            for number in NO_NUMBERS:
                answer = client.request(method, path.format(number), data={"csrf": "csrf-of-anna", "typed": "1"})
                assert answer.status_code in {404, 422}, (method, path, number)


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_a_form_of_another_site_is_refused(site: ConsoleSite, headers: dict[str, str]) -> None:
    answer = site.client().post("/preferences", data={"theme": "dark"}, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text
    assert "set-cookie" not in answer.headers


def test_the_fleet_shows_its_boxes_with_free_units_and_links_of_counts(site: ConsoleSite) -> None:
    hall, yard = site.add(1, "hall-1", site="hall"), site.add(2, "yard-1", site="yard")
    pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
    site.connect(hall)
    site.report(hall, box("hall-1", (card("0"), card("1", units=20, excluded=True)), pods))
    with site.client() as client:
        page = client.get("/")
        assert rows(page.text) == ["hall-1", "yard-1"]
        assert "19 of 29 units" in page.text
        assert f"/boxes/{yard}" in page.text
        assert rows(client.get("/", params={"labels": "site=yard"}).text) == ["yard-1"]
        assert rows(client.get("/", params={"q": "HALL"}).text) == ["hall-1"]
        assert "No box matches" in client.get("/", params={"q": "nothing like it"}).text
        assert rows(client.get("/", params={"show": "offline"}).text) == ["yard-1"]
        refused = client.get("/", params={"labels": "site=(("})
        assert 'class="problem"' in refused.text
        partial = client.get("/", headers={"HX-Request": "true"})
        assert partial.text.lstrip().startswith("<section")


def test_the_fleet_is_filtered_sorted_and_paged_by_its_address(site: ConsoleSite) -> None:
    for number in range(120):
        site.add(number, f"box-{number:03d}", zone=str(number % 2))
    large = site.add(200, "large")
    site.connect(large)
    site.report(large, box("large", (card("0", units=94),)))
    with site.client() as client:
        first = client.get("/").text
        assert rows(first) == [f"box-{number:03d}" for number in range(50)]
        following = re.findall(r'rel="next" href="([^"]+)"', first)[0].replace("&amp;", "&")
        second = client.get(following).text
        assert rows(second) == [f"box-{number:03d}" for number in range(50, 100)]
        before = re.findall(r'rel="prev" href="([^"]+)"', second)[0].replace("&amp;", "&")
        assert rows(client.get(before).text) == rows(first)
        assert rows(client.get("/?free=50").text) == rows(client.get("/?show=room").text) == ["large"]
        assert rows(client.get("/?sort=free&down=true").text)[0] == "large"
        assert "Offline <b>120</b>" in first
        assert re.search(r'href="/\?show=room"[^>]*>With free units <b>1</b>', first)
        assert rows(client.get("/?free=many&show=nothing&sort=nothing").text)[0] == "box-000"
        assert client.get("/?at=guessed").text.count('role="alert"') == 1
        assert client.get("/?q=" + "x" * 300).status_code == 422


def test_a_hostile_name_is_text(site: ConsoleSite) -> None:
    site.add(1, "a", note="<script>alert(1)</script>\"'")
    page = site.client().get("/", params={"q": '"><img src=x onerror=alert(1)>'})
    assert "<img" not in page.text
    assert "<script>alert" not in site.client().get("/").text


def test_a_person_sees_the_boxes_of_their_scope_alone(site: ConsoleSite) -> None:
    site.add(1, "hall-1", site="hall")
    site.add(2, "yard-1", site="yard")
    site.signed_in.table["hal"] = Visitor(name="hal", role=Role.VIEWER, csrf="c", scope="site=hall")
    for number, name in ((1, "hall-1"), (2, "yard-1")):
        pods = {"u1": pod(f"{name}-app-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
        site.report(DeviceId(f"{number:016d}"), box(name, (card("0"),), pods))
    with site.client("hal") as client:
        assert rows(client.get("/").text) == ["hall-1"]
        apps = client.get("/apps").text
        assert ("hall-1-app" in apps, "yard-1" in apps) == (True, False)
    assert "yard-1-app" in site.client().get("/apps").text


def test_the_menu_leads_to_screens_that_there_are(site: ConsoleSite) -> None:
    with site.client() as client:
        menu = re.findall(r'<nav class="main".*?</nav>', client.get("/").text, re.DOTALL)[0]
        paths = re.findall(r'href="([^"]+)"', menu)
        assert {"/", "/enrol"} <= set(paths)
        assert {path: client.get(path).status_code for path in paths} == dict.fromkeys(paths, 200)


def test_the_units_of_all_boxes_that_match_are_added_up(site: ConsoleSite) -> None:
    held = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
    for number, name in enumerate(("hall-1", "hall-2", "yard-1")):
        device = site.add(number, name)
        site.connect(device)
        site.report(device, box(name, (card("0"),), held if name == "hall-1" else {}))
    assert "77 of 87 units are free" in site.client().get("/").text
    assert "48 of 58 units are free" in site.client().get("/?q=hall").text
    assert "units are free" not in site.client().get("/?q=nothing").text
    assert "空闲 77 个" in site.client(language="zh-CN").get("/").text
