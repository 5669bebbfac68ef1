"""The pages of enrolment over a controller that enrols: tokens, boxes that wait, the end of a box."""

import csv
import html
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kits.browser import browser
from kits.cert import Authority
from kits.cloudcli import ok
from kits.console import ConsoleSite
from kits.details import box, card
from kits.enrol import Box, Office, office
from playwright.sync_api import expect

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.enrolment.bodies import ApprovalPending
from edgegpu_cloud.enrolment.install_lines import line_problems
from edgegpu_cloud.enrolment.tokens import RefusalCode, RequestRefusedError
from edgegpu_cloud.layout import load
from edgegpu_cloud.store.enrolments import AttemptFilter
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import BoxState, RequestState

ANNAS = {"csrf": "csrf-of-anna"}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Office]:
    made = office(tmp_path / "cloud")
    yield made
    made.store.close()


@pytest.fixture
def site(cloud: Office) -> ConsoleSite:
    return ConsoleSite(cloud.store)


def token_in(text: str) -> str:
    found = re.search(r"EDGEGPU_TOKEN=([a-z2-7]{32})", text)
    assert found is not None, text
    return found[1]


def test_a_token_is_shown_once_with_its_lines_and_a_box_enrols_with_it(cloud: Office, site: ConsoleSite) -> None:
    with site.client() as client:
        form = {"name": "hall", "labels": "site=hall, rack=3", "lasts_s": "3600", "boxes": "2"}
        page = client.post("/enrol/tokens", data={**ANNAS, **form})
        text = token_in(page.text)
        assert "--url https://cloud.example.com:8443 --ca-sha256 abab" in page.text
        assert "sudo edgegpu uninstall" in page.text
        assert len(re.findall(r'<svg[^>]* class="qr"', page.text)) == 2, "to install, and to uninstall"
        assert "style=" not in page.text
        again = client.get("/enrol/tokens/" + re.findall(r"/enrol/tokens/(\w+)", page.text)[0])
        assert again.status_code == 200
        assert text not in again.text
        assert text not in client.get("/enrol").text
    granted = Box(text).enrolled(cloud.desk)
    assert granted.name == "hall-1"
    assert cloud.fleet.box("hall-1").labels == {"site": "hall", "rack": "3"}
    with cloud.store.read() as tx:
        made = next(one for one in tx.notes.audits(limit=10) if one.what == "token.made")
    assert (made.by, text in repr(made)) == ("anna", False)


def test_a_line_that_installs_no_box_is_shown_with_why(site: ConsoleSite) -> None:
    why = "No box can be installed from here: the controller has no bundle."
    with site.client() as client:
        assert why not in client.get("/enrol").text
        site.address = replace(site.address, problems=line_problems("https://127.0.0.1:8443", has_bundle=False))
        form = client.get("/enrol").text
        made = client.post("/enrol/tokens", data={**ANNAS, "boxes": "1", "lasts_s": "3600"}).text
        assert "EDGEGPU_TOKEN=" in made
        for page in (form, made):
            assert why in page
            assert "127.0.0.1 is its own machine alone" in page
        token = re.findall(r"/enrol/tokens/(\w+)", made)[0]
        assert why not in client.get(f"/enrol/tokens/{token}").text, "there is no line any more"


@pytest.mark.parametrize(
    ("url", "problems"),
    [
        ("https://127.0.0.1:8443", 1),
        ("https://[::1]:8443", 1),
        ("https://localhost", 1),
        ("https://192.0.2.7:8443", 0),
        ("https://cloud.example.com", 0),
    ],
)
def test_an_address_of_the_machine_itself_is_named(url: str, problems: int) -> None:
    assert len(line_problems(url, has_bundle=True)) == problems


def test_page_api_and_command_line_take_the_controllers_defaults(tmp_path: Path) -> None:
    cloud = office(tmp_path / "own", tokens={"lasts_s": 5_400, "uses": 7, "approval": True})
    site = ConsoleSite(cloud.store)
    site.token_config = load(cloud.layout.config).tokens
    with site.client() as client:
        page = client.get("/enrol").text
        assert re.search(r'name="boxes" type="number" value="7"', page)
        assert re.search(r'name="approval" value="true" checked', page)
        assert re.findall(r'<option value="(\d+)" selected', page) == ["5400"]
        client.post("/enrol/tokens", data={**ANNAS, "boxes": "7", "lasts_s": "5400", "approval": "true"})
        client.post("/enrol/tokens", data={**ANNAS, "approval": "true"})
    assert site.api().post("/enrolment/tokens", json={}).status_code == 201
    ok("enrol", folder=cloud.layout.folder)
    with cloud.store.read() as tx:
        made = [(one.expires_at_s - one.at_s, one.uses, one.approval) for one in tx.enrolments.tokens()]
    assert made == [(5_400, 7, True)] * 4
    cloud.store.close()


def test_a_token_for_each_box_comes_as_a_file_whose_tokens_are_valid(cloud: Office, site: ConsoleSite) -> None:
    with site.client() as client:
        answer = client.post("/enrol/tokens", data={**ANNAS, "name": "plant", "boxes": "3", "each": "true"})
    assert answer.headers["content-disposition"] == 'attachment; filename="edgegpu-tokens.csv"'
    assert answer.headers["cache-control"] == "no-store"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [one["name"] for one in rows] == ["plant-1", "plant-2", "plant-3"]
    assert [Box(one["token"]).enrolled(cloud.desk).name for one in rows] == ["plant-1", "plant-2", "plant-3"]
    assert all(token_in(one["line"]) == one["token"] for one in rows)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"name": "no/name"}, "cannot call a box"),
        ({"labels": "site"}, "it has no value"),
        ({"boxes": "1001", "each": "true"}, "cannot make 1001 tokens"),
    ],
)
def test_a_refused_form_keeps_what_was_typed(site: ConsoleSite, form: dict[str, str], told: str) -> None:
    answer = site.client().post("/enrol/tokens", data={**ANNAS, "name": "hall", **form})
    assert answer.status_code == 400
    assert told in answer.text
    assert f'value="{form.get("name", "hall")}"' in answer.text


def test_a_box_waits_until_somebody_approves_it(cloud: Office, site: ConsoleSite) -> None:
    waiting, other = Box(cloud.token(approval=True, uses=2), host="asr-7"), Box(host="<b>bad</b>")
    other.token = waiting.token
    assert isinstance(waiting.enrol(cloud.desk), ApprovalPending)
    assert isinstance(other.enrol(cloud.desk), ApprovalPending)
    with cloud.store.read() as tx:
        ids = {one.asked["host"]: one.id for one in tx.enrolments.requests(AttemptFilter(state=RequestState.WAITING))}
    with site.client() as client:
        page = client.get("/enrol").text
        assert "asr-7" in page
        assert "&lt;b&gt;bad" in page
        assert "<b>bad" not in page
        done = client.post(f"/enrol/waiting/{ids['asr-7']}/approve", data=ANNAS)
        assert done.status_code == 303
        assert client.post(f"/enrol/waiting/{ids['<b>bad</b>']}/refuse", data=ANNAS).status_code == 303
        assert client.post(f"/enrol/waiting/{ids['asr-7']}/refuse", data=ANNAS).status_code == 409
        device = waiting.enrolled(cloud.desk).device
        site.report(device, box("asr-7", (card("0"),)))
        arrived = client.get(done.headers["location"]).text
        assert "29 of 29 units" in arrived
        assert f'data-live="enrol {device}"' in arrived
    with pytest.raises(RequestRefusedError) as refused:
        other.enrol(cloud.desk)
    assert refused.value.code is RefusalCode.REFUSED


def test_both_lists_and_the_boxes_of_a_token_are_searched_and_paged(cloud: Office, site: ConsoleSite) -> None:
    text = cloud.token(name="plant", approval=True, uses=60)
    for number in range(52):
        assert isinstance(Box(text, host=f"asr-{number:02d}").enrol(cloud.desk), ApprovalPending)
    with site.client() as client:
        client.post("/enrol/tokens", data={**ANNAS, "name": "yard", "boxes": "51", "each": "true"})

        def shown(address: str) -> tuple[str, int, int]:
            page = client.get(address).text
            return page, page.count("/approve"), page.count("/take-back")

        page, boxes, tokens = shown("/enrol")
        assert (boxes, tokens) == (50, 50)
        assert re.findall(r'<b class="count">(\d+)</b>', page) == ["52", "52"]
        older, more = (html.unescape(one) for one in re.findall(r'rel="next" href="([^"]+)"', page))
        assert [shown(older)[1:], shown(more)[1:]] == [(2, 50), (50, 2)]
        page, boxes, tokens = shown("/enrol?q=ASR-07")
        assert (boxes, tokens, "No token matches" in page) == (1, 0, True)
        assert shown("/enrol?q=yard-5")[1:] == (0, 3), "yard-5, yard-50, yard-51"
        id_ = next(one for one in re.findall(r'href="/enrol/tokens/(\w+)"', shown("/enrol?q=plant")[0]))
        hosts, address = list[set[str]](), f"/enrol/tokens/{id_}"
        while address:
            page = client.get(address).text
            hosts.append(set(re.findall(r"asr-\d\d", page)))
            address = html.unescape("".join(re.findall(r'rel="next" href="([^"]+)"', page)))
        assert "Newest" in page
        assert [len(part) for part in hosts] == [20, 20, 12]
        assert len(set.union(*hosts)) == 52
        assert client.get("/enrol?waiting=nonsense").status_code == 400


def test_a_token_that_is_taken_back_enrols_nobody(cloud: Office, site: ConsoleSite) -> None:
    text = cloud.token()
    with site.client() as client:
        id_ = re.findall(r'href="/enrol/tokens/(\w+)"', client.get("/enrol").text)[0]
        assert client.post(f"/enrol/tokens/{id_}/take-back", data=ANNAS).status_code == 303
        assert "No token is valid now" in client.get("/enrol").text
        assert client.post("/enrol/tokens/ab/take-back", data=ANNAS).status_code == 404
    with pytest.raises(RequestRefusedError):
        Box(text).enrol(cloud.desk)


def test_a_viewer_sees_and_changes_nothing_and_an_operator_ends_no_box(cloud: Office, site: ConsoleSite) -> None:
    device = Box(cloud.token(name="hall-1")).enrolled(cloud.desk).device
    with site.client("vera") as client:
        assert "Make the token" not in client.get("/enrol").text
        assert f"/boxes/{device}/remove" not in client.get(f"/boxes/{device}").text
        assert client.post("/enrol/tokens", data={"csrf": "csrf-of-vera"}).status_code == 403
        assert client.post(f"/boxes/{device}/replace", data={"csrf": "csrf-of-vera"}).status_code == 403
    with site.client("otto") as client:
        data = {"csrf": "csrf-of-otto", "typed": "hall-1"}
        assert f"/boxes/{device}/remove" in client.get(f"/boxes/{device}").text, "an operator may replace it"
        assert "Revoke 1 box" not in client.get(f"/boxes/{device}/remove").text
        assert client.post(f"/boxes/{device}/revoke", data=data).status_code == 403
        assert client.post(f"/boxes/{device}/forget", data=data).status_code == 403
    assert cloud.fleet.box(device).state is BoxState.ENROLLED


def test_who_sees_a_part_of_the_boxes_makes_and_sees_tokens_for_them_alone(cloud: Office, site: ConsoleSite) -> None:
    other = cloud.token(name="yard", approval=True)
    assert isinstance(Box(other).enrol(cloud.desk), ApprovalPending)
    site.signed_in.table["hal"] = Visitor(name="hal", role=Role.OPERATOR, csrf="c", scope="site=hall")
    with site.client("hal") as client:
        page = client.get("/enrol").text
        assert "No box waits" in page
        assert "No token is valid now" in page
        outside = client.post("/enrol/tokens", data={"csrf": "c", "labels": "site=yard"})
        assert outside.status_code == 400
        assert "outside of the boxes that you may see" in outside.text
        assert client.post("/enrol/tokens", data={"csrf": "c", "labels": "site=hall"}).status_code == 200
        with cloud.store.read() as tx:
            (waiting,) = tx.enrolments.requests(AttemptFilter(state=RequestState.WAITING))
        assert client.post(f"/enrol/waiting/{waiting.id}/approve", data={"csrf": "c"}).status_code == 404


def test_a_box_ends_after_its_name_was_typed_and_comes_back_by_a_token_of_its_own(
    cloud: Office, site: ConsoleSite
) -> None:
    first = Box(cloud.token(name="hall-1"))
    device = first.enrolled(cloud.desk).device
    with site.client() as client:
        wrong = client.post(f"/boxes/{device}/revoke", data={**ANNAS, "typed": "hall-2"})
        assert (wrong.status_code, "type its name, hall-1" in wrong.text) == (400, True)
        assert client.post(f"/boxes/{device}/revoke", data={**ANNAS, "typed": "hall-1"}).status_code == 303
        assert cloud.fleet.box(device).state is BoxState.REVOKED
        page = client.get(f"/boxes/{device}/remove").text
        assert f"edgegpu-cloud kick {device}" in page
        assert {"line-kick", "line-uninstall"} == {*re.findall(r'data-copy="([^"]+)"', page)}
        assert re.search(r'<svg[^>]* class="qr"', page), "of the line that takes edgegpu off"
        again = client.post(f"/boxes/{device}/replace", data={**ANNAS, "lasts_s": "3600"})
        granted = Box(token_in(again.text), host="new-machine").enrolled(cloud.desk)
        assert (granted.device, granted.name, granted.enrolment) == (device, "hall-1", 2)
        assert client.post(f"/boxes/{device}/forget", data={**ANNAS, "typed": "hall-1"}).status_code == 303
        assert "The box is forgotten" in client.get(f"/boxes/{device}/remove").text
        with site.client("otto") as operator:
            assert operator.get(f"/boxes/{device}/remove").status_code == 404
        assert client.get("/boxes/none/remove").status_code == 404


def test_replace_brings_a_machine_that_was_set_up_anew_back_and_no_other_token_does(
    cloud: Office, site: ConsoleSite
) -> None:
    before = Box(cloud.token(name="hall-1"))
    device = before.enrolled(cloud.desk).device
    with site.client() as client:
        page = client.post("/enrol/tokens", data={**ANNAS, "lasts_s": "3600", "boxes": "5"})
        with pytest.raises(RequestRefusedError, match="machine id of the box hall-1"):
            Box(token_in(page.text), instance=before.instance).enrolled(cloud.desk)
        assert [(one.kind, one.device) for one in cloud.fleet.alarms()] == [("enrol.REFUSED", device)]
        assert "be it the same one set up anew or another" in client.get(f"/boxes/{device}/remove").text
        again = client.post(f"/boxes/{device}/replace", data={**ANNAS, "lasts_s": "3600"})
    anew = Box(token_in(again.text), instance=before.instance)
    granted = anew.enrolled(cloud.desk)
    assert (granted.device, granted.name, granted.enrolment) == (device, "hall-1", 2)
    assert anew.enrolled(cloud.desk).certificate == granted.certificate, "its answer was lost, and it asks again"


def test_in_a_browser_the_line_is_copied_and_the_box_appears_by_itself(
    cloud: Office, site: ConsoleSite, tmp_path: Path
) -> None:
    with site.served(tmp_path, Authority("console")) as url, browser(url) as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.goto(f"{url}/enrol")
        page.get_by_label("Name of the box").fill("hall-1")
        page.get_by_label("Each box waits on this page until somebody approves it").check()
        page.get_by_role("button", name="Make the token").click()
        expect(page.get_by_text("No box has come yet")).to_be_visible()
        page.get_by_role("button", name="Copy").first.click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        new = Box(token_in(page.evaluate("navigator.clipboard.readText()")))
        assert isinstance(new.enrol(cloud.desk), ApprovalPending)
        page.get_by_role("button", name="Approve").click(timeout=5_000)
        expect(page.get_by_text("Approved: it asks again")).to_be_visible()
        device = new.enrolled(cloud.desk).device
        expect(page.get_by_role("link", name="hall-1")).to_be_visible(timeout=5_000)
        site.now_s += 1
        site.report(device, box("hall-1", (card("0"),)))
        expect(page.get_by_text("29 of 29 units")).to_be_visible(timeout=5_000)


def test_who_approves_by_keys_approves_the_box_that_is_in_focus_also_when_another_asks(
    cloud: Office, site: ConsoleSite, tmp_path: Path
) -> None:
    with site.client() as client:
        made = client.post("/enrol/tokens", data={**ANNAS, "boxes": "2", "lasts_s": "3600", "approval": "true"}).text
    first, second = (Box(token_in(made), host=f"asr-{number}") for number in (1, 2))
    assert isinstance(first.enrol(cloud.desk), ApprovalPending)
    with site.served(tmp_path, Authority("console")) as url, browser(url) as context:
        page = context.new_page()
        with page.expect_response("**/live?*"):
            page.goto(url + re.findall(r"/enrol/tokens/\w+", made)[0])
        page.get_by_role("button", name="Approve").focus()
        site.now_s += 1
        assert isinstance(second.enrol(cloud.desk), ApprovalPending)
        expect(page.get_by_role("button", name="Approve")).to_have_count(2, timeout=5_000)
        page.keyboard.press("Enter")
        expect(page.get_by_text("Approved: it asks again")).to_be_visible()
    assert first.enrolled(cloud.desk).name
    assert isinstance(second.enrol(cloud.desk), ApprovalPending)
