"""The console's pages of operations: boxes are selected, the change is previewed, started, followed, cancelled."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

import pytest
from kits.browser import browser
from kits.console import ANNA, ConsoleSite
from kits.details import box, card, pod, reported, saying
from kits.people import LOCAL, PASSWORD
from playwright.sync_api import expect

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.errors import NotFoundError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.people.records import Role
from edgegpu_sync.messages.spec import LIMITER
from edgegpu_sync.rules.ops import OPS
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.testclient import TestClient

    from edgegpu_sync.ids import DeviceId

HALL, YARD = 5, 2
LIMITS = {"kind": "limits", "app": "asr", "container": "main", "memory": "4", "core": "1", "filled": "yes"}


@pytest.fixture
def devices(site: ConsoleSite) -> Sequence[DeviceId]:
    """Return five connected boxes of the hall, each its own cluster, and two of the yard that have said nothing."""
    found = []
    for number in range(1, HALL + YARD + 1):
        at_hall = number <= HALL
        found.append(site.add(number, f"box-{number}", site="hall" if at_hall else "yard"))
        if at_hall:
            units = 2 if number == 1 else 29
            pods = {"u1": pod("asr-0", ("main", "0", 2, 1))}
            site.report(found[-1], reported(box(f"box-{number}", (card("0", units),), pods), cluster=f"{number:08d}"))
            site.connect(found[-1])
    return found


def run(site: ConsoleSite) -> None:
    runner = OperationRunner(site.store, clock=site.clock)
    while runner.step():
        pass


def form_of(text: str, action: str = "/operations") -> dict[str, str]:
    """Return the hidden fields of a form."""
    found = re.search(rf'<form method="post" action="{re.escape(action)}".*?</form>', text, re.DOTALL)
    assert found is not None, text
    fields = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', found[0])
    return {name: html.unescape(value) for name, value in fields}


def previewed(client: TestClient, **params: Any) -> dict[str, str]:  # noqa: ANN401  (fields of the form)
    page = client.get("/operations/new", params={**LIMITS, "which": "all", **params})
    assert page.status_code == 200, page.text
    return form_of(page.text)


def all_operations(site: ConsoleSite) -> int:
    return len(site.operations().list())


class TestSelection:
    def test_each_row_has_a_checkbox_and_a_link_selects_the_page(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        client = site.client("otto")
        page = client.get("/?labels=site=hall").text
        assert page.count('type="checkbox" form="selection"') == HALL
        assert "Change all 5 boxes that match" in page
        assert 'name="labels" value="site=hall"' in page.split('id="selection"')[1]
        link = re.search(r'href="(/\?[^"]*checked=true)"', page)
        assert link is not None
        page = client.get(html.unescape(link[1])).text
        assert len(re.findall(r'name="box"[^>]* checked>', page)) == HALL
        assert "checked" not in re.findall(r'href="(/\?[^"]*sort=free[^"]*)"', page)[0], "another list selects nothing"
        assert all(device in page for device in devices[:HALL])

    @pytest.mark.parametrize(
        ("show", "number"), [("all", 7), ("connected", 5), ("offline", 2), ("room", 4), ("ignored", 1), ("guessed", 7)]
    )
    def test_the_number_on_the_button_is_that_of_the_list(
        self, site: ConsoleSite, devices: Sequence[DeviceId], show: str, number: int
    ) -> None:
        if show == "ignored":
            Fleet(site.store, clock=site.clock, by="anna").revoke(devices[0])
        page = site.client().get("/", params={"show": show}).text
        assert page.count('name="box"') == number
        assert re.search(rf"Change (all )?(the )?{number} box", page)

    def test_a_viewer_sees_none_of_it(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        vera, otto = site.client("vera"), site.client("otto")
        page = vera.get("/").text
        assert 'name="box"' not in page
        assert "selection" not in page.split("<main")[1]
        assert vera.get("/operations/new", params={**LIMITS, "which": "all"}).status_code == 403
        form = previewed(otto)
        assert vera.post("/operations", data={**form, "typed": "7", "csrf": "csrf-of-vera"}).status_code == 403
        assert otto.post("/operations", data={**form, "typed": "7", "csrf": ""}).status_code == 403
        assert otto.post("/operations", data={**form, "typed": "7"}).status_code == 303
        id_ = site.operations().list()[0].operation.id
        assert "Cancel it" in otto.get(f"/operations/{id_}").text
        assert "Cancel it" not in vera.get(f"/operations/{id_}").text
        assert vera.post(f"/operations/{id_}/cancel", data={"csrf": "csrf-of-vera"}).status_code == 403
        assert devices[0] in vera.get(f"/operations/{id_}").text


class TestPreview:
    def test_it_says_on_how_many_it_fits_and_how_many_it_judged(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        page = site.client().get("/operations/new", params={**LIMITS, "which": "all"})
        assert page.status_code == 200
        text = " ".join(re.sub(r"<[^>]+>", " ", page.text).split())
        assert "does not fit 1" in text
        assert "not known 2" in text
        assert "2 units, core 1 → 4 units, core 1 (1 GiB)" in text
        assert "Judged by the boxes' last reports" in html.unescape(text)
        assert all(device in page.text for device in devices)

    def test_limits_without_a_new_pod_are_judged_so(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        full = {"u1": {**pod("asr-0", ("main", "0", 4, 1)), "enforced": "enforced"}}
        site.report(devices[0], reported(box("box-1", (card("0", 2),), full), cluster="00000001"))
        asked = {**LIMITS, "memory": "3", "which": "all", "labels": "site=hall"}
        with site.client() as client:
            anew = client.get("/operations/new", params=asked).text
            live = client.get("/operations/new", params={**asked, "live": "yes"}).text
        assert ("at once: no pod is made anew" in anew, anew.count("does not fit<")) == (False, 2)
        assert ("at once: no pod is made anew" in live, live.count("does not fit<")) == (True, 0)

    def test_of_many_boxes_the_first_twenty_are_judged_and_that_is_said(self, site: ConsoleSite) -> None:
        for number in range(30):
            site.add(number, f"box-{number:02d}")
        page = site.client().get("/operations/new", params={**LIMITS, "which": "all"}).text
        assert "the first 20 boxes by name" in page
        assert "Type 30, the number of boxes, to confirm" in page
        assert page.count('<th scope="row">') == 20

    @pytest.mark.parametrize(
        ("typed", "args", "words"),
        [
            ({"live": "yes"}, {"live": True}, "at once where possible"),
            ({"kind": "sharing", "isolation": "limiter"}, {"isolation": "limiter"}, "the limiter"),
            ({"kind": "command", "op": "doctor.run"}, {"op": "doctor.run"}, "Command: Run the doctor"),
        ],
    )
    def test_what_the_form_has_is_kept_said_and_started(
        self,
        site: ConsoleSite,
        devices: Sequence[DeviceId],
        typed: dict[str, str],
        args: dict[str, object],
        words: str,
    ) -> None:
        for device in devices:
            site.report(device, saying(box("box"), TopicKind.STATUS, state="birth", capabilities=[*OPS, LIMITER]))
        with site.client() as client:
            page = client.get("/operations/new", params={**LIMITS, "which": "all", **typed}).text
            assert words in " ".join(re.sub(r"<[^>]+>", " ", page).split())
            assert re.search(r'name="live"[^>]* checked|value="(limiter|doctor.run)" selected', page)
            assert client.post("/operations", data={**form_of(page), "typed": "7"}).status_code == 303
        [view] = site.operations().list()
        assert args.items() <= view.operation.args.items()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"memory": "4.5"},
            {"memory": "", "core": ""},
            {"core": "x"},
            {"app": ""},
            {"app": "kube-system/dns"},
            {"labels": "(("},
            {"q": "x" * 300},
            {"kind": "explode"},
            {"which": "selected"},
            {"kind": "sharing"},
            {"kind": "sharing", "unit_mib": "x"},
            {"kind": "command", "op": "sharing.install"},
        ],
    )
    def test_a_wrong_value_is_said_and_nothing_can_be_started(
        self, site: ConsoleSite, devices: Sequence[DeviceId], wrong: dict[str, str]
    ) -> None:
        assert devices
        page = site.client().get("/operations/new", params={**LIMITS, "which": "all", **wrong})
        assert page.status_code == 400
        assert 'role="alert"' in page.text
        assert '<form method="post" action="/operations"' not in page.text

    def test_the_preview_refuses_a_card_that_boxes_do_not_have(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        assert devices
        page = site.client().get(
            "/operations/new", params={"kind": "sharing", "exclude": "7", "which": "all", "filled": "1"}
        )
        assert page.status_code == 200
        assert page.text.count("there is no such card") == HALL, "the others have said nothing"

    @pytest.mark.parametrize("kind", ["install", "uninstall"])
    def test_what_has_no_fields_is_confirmed_at_once(
        self, site: ConsoleSite, devices: Sequence[DeviceId], kind: str
    ) -> None:
        client = site.client()
        page = client.get("/operations/new", params={"kind": kind, "which": "selected", "box": devices[:3]})
        form = form_of(page.text)
        assert client.post("/operations", data={**form, "typed": "3"}).status_code == 303
        assert site.operations().list()[0].operation.kind == kind


class TestStart:
    def test_the_search_goes_along_and_every_box_that_matches_is_changed(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        client = site.client("otto")
        form = previewed(client, labels="site=hall", show="connected")
        assert not any(device in form["query"] for device in devices)
        answer = client.post("/operations", data={**form, "typed": "5"})
        assert answer.status_code == 303
        run(site)
        view = site.operations().list()[0]
        assert answer.headers["location"] == f"/operations/{view.operation.id}"
        assert (view.operation.boxes, view.operation.by) == (HALL, "otto")
        specs = [Fleet(site.store, clock=site.clock, by="anna").spec(device) for device in devices]
        assert [[limits.memory_units for limits in spec.app_limits] for spec in specs] == [[4]] * HALL + [[]] * YARD

    def test_selected_boxes_alone_are_changed(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        client = site.client()
        params = {"kind": "command", "op": "doctor.run", "filled": "yes", "which": "selected", "q": "box"}
        form = previewed(client, **{**params, "box": [devices[1], devices[3]]})
        assert client.post("/operations", data={**form, "typed": "2"}).status_code == 303
        id_ = site.operations().list()[0].operation.id
        boxes = site.operations().boxes(id_).boxes
        assert [one.box.device for one in boxes] == [devices[1], devices[3]]

    def test_one_box_needs_no_typing(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        client = site.client()
        form = previewed(client, which="selected", box=devices[0])
        assert form["typed"] == "1"
        assert client.post("/operations", data=form).status_code == 303

    def test_a_fleet_that_changed_meanwhile_is_refused_with_both_numbers(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        client = site.client()
        form = previewed(client, labels="site=hall")
        site.add(9, "box-9", site="hall")
        answer = client.post("/operations", data={**form, "typed": "5"})
        assert answer.status_code == 409
        assert "it is for 6 boxes by now, not 5" in answer.text
        assert "Type 6, the number of boxes, to confirm" in answer.text
        assert 'value="asr"' in answer.text, "the form keeps what was typed"
        assert all_operations(site) == 0
        assert "joined: box-9" in answer.text
        form = previewed(client, which="selected", box=list(devices[:3]))
        Fleet(site.store, clock=site.clock, by="anna").forget(devices[0])
        assert "it is for 2 boxes by now, not 3" in client.post("/operations", data={**form, "typed": "3"}).text
        assert all_operations(site) == 0

    def test_one_box_that_leaves_while_another_joins_is_noticed(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        client = site.client()
        fleet = Fleet(site.store, clock=site.clock, by="anna")
        form = previewed(client, labels="site=hall")
        fleet.label(devices[0], {"site": "yard"})
        fleet.label(devices[6], {"site": "hall"})
        answer = client.post("/operations", data={**form, "typed": "5"})
        assert answer.status_code == 409
        assert "it is for 5 boxes, but not for the same ones; joined: box-7; left: box-1" in answer.text
        assert all_operations(site) == 0
        form = form_of(answer.text)
        assert client.post("/operations", data={**form, "typed": "5"}).status_code == 303

    @pytest.mark.parametrize("seen", ["", "7", "7.AAAA", "x"])
    def test_a_form_that_does_not_say_which_boxes_starts_nothing(
        self, site: ConsoleSite, devices: Sequence[DeviceId], seen: str
    ) -> None:
        assert devices
        client = site.client()
        form = previewed(client)
        assert client.post("/operations", data={**form, "typed": "7", "seen": seen}).status_code == 400
        assert all_operations(site) == 0

    @pytest.mark.parametrize("typed", ["", "4", "x", "-5", "5 boxes"])
    def test_another_number_starts_nothing(self, site: ConsoleSite, devices: Sequence[DeviceId], typed: str) -> None:
        assert devices
        client = site.client()
        form = previewed(client, labels="site=hall")
        assert client.post("/operations", data={**form, "typed": typed}).status_code in {400, 409}
        assert all_operations(site) == 0

    def test_a_double_press_is_one_operation(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        assert devices
        client = site.client()
        form = previewed(client) | {"typed": "7"}
        first, second = (client.post("/operations", data=form) for _ in range(2))
        assert first.headers["location"] == second.headers["location"]
        assert all_operations(site) == 1

    def test_a_person_changes_their_own_boxes_alone(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        site.signed_in.table["lisa"] = lisa = Visitor(name="lisa", role=Role.OPERATOR, csrf="c", scope="site=yard")
        client = site.client("lisa")
        form = previewed(client, which="selected", box=[devices[0], devices[5], devices[6]])
        assert client.post("/operations", data={**form, "typed": "3"}).status_code == 400
        assert client.post("/operations", data={**form, "typed": "2"}).status_code == 303
        site.operations(ANNA).start(OperationKind.COMMAND, {"op": "doctor.run"}, where=BoxFilter())
        [hers] = site.operations(lisa).list()
        assert hers.operation.by == "lisa"
        page = client.get("/operations").text
        assert (page.count('<th scope="row">'), "anna" in page) == (1, False)
        [whole] = [one for one in site.operations(ANNA).list() if one.operation.by == "anna"]
        assert client.get(f"/operations/{whole.operation.id}").status_code == 404
        with pytest.raises(NotFoundError):
            site.operations(lisa).get(whole.operation.id)


class TestPages:
    def test_an_operation_shows_its_outcomes_as_links_and_its_boxes(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        client = site.client()
        fleet = Fleet(site.store, clock=site.clock, by="anna")
        form = previewed(client)
        page = client.post("/operations", data={**form, "typed": "7"}, follow_redirects=True)
        assert "queued <b>7</b>" in page.text
        assert "every 2s" in page.text
        fleet.revoke(devices[0])
        run(site)
        path = str(page.url.path)
        page = client.get(path)
        assert "every 2s" not in page.text
        # The yard's boxes have named no cluster.
        assert "cannot be requested <b>3</b>" in page.text
        assert f'href="{path}?show=STORED&amp;after="' in page.text
        refused = client.get(path, params={"show": "REFUSED"}).text
        assert devices[0] in refused
        assert "it is revoked" in refused
        assert devices[1] not in refused
        assert "No box matches" in client.get(path, params={"show": "REJECTED"}).text
        assert client.get("/operations/9ZZ").status_code == 404

    def test_it_says_what_its_boxes_were_found_by(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        client = site.client()
        searches: Sequence[tuple[str, dict[str, Any]]] = [
            ("4", {"q": "box", "labels": "site=hall", "show": "room", "free": "4"}),
            ("2", {"show": "offline"}),
            ("7", {}),
            ("2", {"which": "selected", "box": list(devices[:2])}),
        ]
        for typed, params in searches:
            site.now_s += 1
            form = previewed(client, **params)
            assert client.post("/operations", data={**form, "typed": typed}).status_code == 303
        views = site.operations().list()
        pages = [client.get(f"/operations/{one.operation.id}").text for one in views[::-1]]
        labels = [re.findall(r'class="label">([^<]*)<', page) for page in pages]
        assert labels == [["Labels: site=hall", "Words: box", "Free units, at least: 4"], ["Offline"], [], []]
        assert ["every box" in page for page in pages] == [False, False, True, False]
        listed = client.get("/operations").text
        assert re.findall(r'class="label">([^<]*)<', listed) == ["Offline", *labels[0]]
        assert "离线" in client.get("/operations", headers={"accept-language": "zh"}).text
        assert client.get("/operations", params={"q": "site=hall"}).text.count('<th scope="row">') == 1

    @pytest.mark.usefixtures("devices")
    def test_that_boxes_were_left_out_is_no_search_for_boxes(self, site: ConsoleSite) -> None:
        where = BoxFilter(selector="site=hall", askable=True)
        id_ = site.operations().start(OperationKind.INSTALL, {}, where=where).operation.id
        for path in (f"/operations/{id_}", "/operations"):
            assert re.findall(r'class="label">([^<]*)<', site.client().get(path).text) == ["Labels: site=hall"]

    def test_why_a_box_was_refused_is_said_in_chinese_too(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        Fleet(site.store, clock=site.clock, by="anna").revoke(devices[0])
        args = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 4, "core": 1}
        id_ = site.operations().start(OperationKind.LIMITS, args, where=BoxFilter()).operation.id
        Fleet(site.store, clock=site.clock, by="anna").forget(devices[1])
        run(site)
        page = site.client(language="zh").get(f"/operations/{id_}", params={"show": "REFUSED"}).text
        assert '<q lang="en">' not in page
        assert "该设备在此期间已被删除" in page
        assert "it is revoked" not in page

    def test_its_boxes_come_page_by_page(self, site: ConsoleSite) -> None:
        for number in range(60):
            site.add(number, f"box-{number:02d}")
        id_ = site.operations().start(OperationKind.COMMAND, {"op": "doctor.run"}, where=BoxFilter()).operation.id
        client = site.client()
        first = client.get(f"/operations/{id_}").text
        link = re.search(r'rel="next" href="([^"]+)"', first)
        assert link is not None
        second = client.get(html.unescape(link[1])).text
        shown = [re.findall(r'href="/boxes/(\w+)"', page) for page in (first, second)]
        assert [len(one) for one in shown] == [50, 10]
        assert len({*shown[0], *shown[1]}) == 60
        assert 'rel="next"' not in second

    def test_it_is_cancelled_while_boxes_are_queued(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        client = site.client()
        id_ = site.operations().start(OperationKind.COMMAND, {"op": "doctor.run"}, where=BoxFilter()).operation.id
        OperationRunner(site.store, clock=site.clock, at_once=3).step()
        form = form_of(client.get(f"/operations/{id_}").text, f"/operations/{id_}/cancel")
        assert client.post(f"/operations/{id_}/cancel").status_code == 403
        assert client.post(f"/operations/{id_}/cancel", data=form).status_code == 303
        page = client.get(f"/operations/{id_}").text
        assert f"cancelled <b>{len(devices) - 3}</b>" in page
        assert "Cancel it" not in page
        late = client.post(f"/operations/{id_}/cancel", data=form)
        assert late.status_code == 409
        assert "nothing of it waits to be stored" in late.text

    def test_the_list_is_searched_and_paged(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        operations, asr = site.operations(), {"namespace": "default", "container": "main", "memory_units": 4, "core": 1}
        for number in range(52):
            site.now_s += 1
            operations.start(OperationKind.LIMITS, {**asr, "app": f"asr-{number:02d}"}, where=BoxFilter())
        site.now_s += 1
        yard = BoxFilter(selector="site=yard")
        operations.start(OperationKind.COMMAND, {"op": "doctor.run"}, where=yard)
        client = site.client()

        def number_of(**params: str) -> int:
            return client.get("/operations", params=params).text.count('<th scope="row">')

        assert (number_of(), number_of(q="ASR-07"), number_of(q="yard"), number_of(q="doctor")) == (50, 1, 1, 1)
        assert (number_of(kind="command"), number_of(kind="guessed"), number_of(q="%")) == (1, 50, 0)
        assert (number_of(state="RUNNING", q="asr-1"), number_of(state="DONE")) == (10, 0)
        assert number_of(box=devices[6], kind="command") == 1
        assert number_of(box=devices[0], kind="command") == 0
        link = re.search(r'rel="next" href="([^"]+)"', client.get("/operations").text)
        assert link is not None
        older = client.get(html.unescape(link[1])).text
        assert older.count('<th scope="row">') == 3
        assert "Newest" in older

    def test_audit_and_box_lead_there(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        view = site.operations().start(OperationKind.COMMAND, {"op": "doctor.run"}, where=BoxFilter(search="box-1"))
        client = site.client()
        assert f'href="/operations/{view.operation.id}"' in client.get("/audit", params={"what": "operation"}).text
        assert f'href="/operations?box={devices[0]}"' in client.get(f"/boxes/{devices[0]}").text


def test_in_a_browser_boxes_are_selected_by_keys_and_followed_live(
    site: ConsoleSite, devices: Sequence[DeviceId], url: str
) -> None:
    assert devices
    site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
    with browser(url, width=360) as context:
        page = context.new_page()
        page.goto(url)
        for name in ("box-2", "box-3"):
            page.get_by_label(f"Select {name}").focus()
            page.keyboard.press("Space")
        expect(page.get_by_text("Selected: 2")).to_be_visible()
        expect(page.locator("#list [data-editing]")).to_have_count(1)  # live.js leaves the list as it is
        page.get_by_label("Change many boxes").select_option("command")
        page.get_by_role("button", name="Change the selected boxes").click()
        page.get_by_label("Command").select_option("doctor.run")
        page.get_by_role("button", name="Preview").click()
        page.get_by_label("Type 2, the number of boxes, to confirm").fill("2")
        page.get_by_role("button", name="Start on 2 boxes").click()
        expect(page.get_by_role("link", name="queued 2")).to_be_visible()
        run(site)
        expect(page.get_by_role("link", name="waiting for the box 2")).to_be_visible(timeout=5_000)


def test_without_scripts_all_that_match_are_changed(site: ConsoleSite, devices: Sequence[DeviceId], url: str) -> None:
    assert devices
    with browser(url, scripts=False) as context:
        page = context.new_page()
        page.goto(f"{url}/?labels=site%3Dhall")
        page.get_by_label("Change many boxes").select_option("sharing")
        page.get_by_role("button", name="Change all 5 boxes that match").click()
        page.get_by_label("Policy").select_option("spread")
        page.get_by_role("button", name="Preview").click()
        page.get_by_label("Type 5, the number of boxes, to confirm").fill("5")
        page.get_by_role("button", name="Start on 5 boxes").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Settings of sharing")
        page.go_back()
    assert all_operations(site) == 1
