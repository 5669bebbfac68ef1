"""The console's pages of rollouts: the waves before, one rollout, pause, resume and abort by forms."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kits.console import ConsoleSite
from kits.consolepages import fields
from kits.todaysstores import TodaysStores

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.rollouts.rollouts import Rollouts
from edgegpu_cloud.store.rollouts.records import RolloutState

CSRF = "0" * 8


@pytest.fixture
def site(todays_stores: TodaysStores) -> Iterator[ConsoleSite]:
    with todays_stores.opened() as store:
        site = ConsoleSite(store)
        for number in range(1, 8):
            site.add(number, f"box-{number}", site="hall" if number < 6 else "yard")
        yield site


def csrf_of(text: str) -> str:
    return text.split('name="csrf" value="')[1].split('"', maxsplit=1)[0]


FORM = {"what": "sharing", "policy": "spread", "labels": "site=hall", "first": "box-3", "canary": "1", "waves": "2"}


def test_the_waves_are_previewed_then_started_with_the_number_typed(site: ConsoleSite) -> None:
    with site.client() as client:
        assert "No rollout yet" in client.get("/rollouts").text
        page = client.get("/rollouts/new", params=FORM)
        assert page.status_code == 200
        assert page.text.count("<li>") == 3
        assert "<ol>" not in page.text, "waves are counted without the canary: a list's own numbers are others"
        assert "5 boxes offline now" in page.text
        form = fields(page.text, "/rollouts")
        refused = client.post("/rollouts", data=form | {"typed": "4"})
        assert refused.status_code == 400
        assert "it concerns 5 boxes by now, not 4" in refused.text
        assert 'value="site=hall"' in refused.text, "the form keeps what was typed"
        started = client.post("/rollouts", data=form | {"typed": "5"})
        assert started.status_code == 303
        path = started.headers["location"]  # PostgreSQL spends a number on what was refused
        one = client.get(path)
        assert "sharing policy spread" in one.text
        assert one.text.count('href="/boxes/') == 5
        assert 'class="wave-off"' in one.text
        assert "style=" not in one.text
        assert "queued" in client.get(path, params={"show": "QUEUED"}).text
        assert "box-3" not in client.get(path, params={"show": "FAILED"}).text


@pytest.mark.parametrize(
    ("typed", "words", "change"),
    [
        ({"what": "sharing", "isolation": "limiter"}, "sharing isolation limiter", {"isolation": "limiter"}),
        (
            {"what": "limits", "app": "asr", "memory": "4", "live": "yes", "interrupt": "yes", "force": "yes"},
            "4 units, core as it is, at once where possible, the app may be stopped, though they do not fit",
            {"live": True, "interrupt": True, "force": True},
        ),
    ],
)
def test_all_that_the_form_allows_is_rolled_out(
    site: ConsoleSite, typed: dict[str, str], words: str, change: dict[str, object]
) -> None:
    with site.client() as client:
        page = client.get("/rollouts/new", params={"waves": "9", **typed}).text
        assert page.count(" checked>") == (3 if "live" in typed else 0)
        assert ('value="limiter" selected' in page) is ("isolation" in typed)
        started = client.post("/rollouts", data=fields(page, "/rollouts") | {"typed": "7"})
        assert started.headers["location"] == "/rollouts/1", started.text
        assert words in client.get("/rollouts/1").text
    view = Rollouts(site.store, clock=site.clock, access=Access("anna")).show(1)
    assert change.items() <= view.change.items()


def test_other_boxes_than_the_page_has_shown_are_not_changed_though_they_are_as_many(site: ConsoleSite) -> None:
    with site.client() as client:
        form = fields(client.get("/rollouts/new", params=FORM).text, "/rollouts") | {"typed": "5"}
        Fleet(site.store, clock=site.clock, by="anna").label("box-2", {"site": "yard"})
        Fleet(site.store, clock=site.clock, by="anna").label("box-6", {"site": "hall"})
        refused = client.post("/rollouts", data=form)
        assert refused.status_code == 400
        assert "it concerns other boxes by now; joined: box-6; left: box-2" in refused.text
        again = fields(refused.text, "/rollouts") if "Start on" in refused.text else {}
        assert not again, "the waves are looked at again first"
        unsaid = client.post("/rollouts", data={**form, "seen": ""})
        assert (unsaid.status_code, "does not say which boxes were shown" in unsaid.text) == (400, True)
        assert "No rollout yet" in client.get("/rollouts").text


def test_the_api_compares_the_boxes_of_a_preview(site: ConsoleSite) -> None:
    api = site.api("otto")
    body = {"change": {"kind": "sharing", "policy": "spread"}, "labels": "site=hall"}
    seen = api.post("/rollouts/preview?limit=1", json=body).json()["seen"]
    assert api.post("/rollouts/preview?limit=1&cursor=1", json=body).json()["seen"] == seen, "each part has all of it"
    Fleet(site.store, clock=site.clock, by="anna").label("box-2", {"site": "yard"})
    Fleet(site.store, clock=site.clock, by="anna").label("box-6", {"site": "hall"})
    refused = api.post("/rollouts", json=body | {"expect": seen})
    assert (refused.status_code, "joined: box-6; left: box-2" in refused.json()["detail"]) == (409, True)
    assert api.post("/rollouts", json=body | {"expect": "5-x"}).status_code == 422
    fresh = api.post("/rollouts/preview", json=body).json()["seen"]
    assert api.post("/rollouts", json=body | {"expect": fresh}).status_code == 201


def test_it_is_paused_resumed_and_aborted_by_forms(site: ConsoleSite) -> None:
    with site.client() as client:
        page = client.get("/rollouts/new", params=FORM)
        data = fields(page.text, "/rollouts") | {"typed": "5"}
        client.post("/rollouts", data=data)
        assert client.post("/rollouts/1/return", data={**data, "typed": "3"}).status_code == 400
        assert client.post("/rollouts/1/pause", data=data).status_code == 303
        assert "Paused" in client.get("/rollouts/1").text
        assert client.post("/rollouts/1/resume", data=data).status_code == 303
        assert client.post("/rollouts/1/abort", data=data).status_code == 303
        assert "Aborting" in client.get("/rollouts").text
        assert client.post("/rollouts/1/explode", data=data).status_code == 400
        assert client.get("/rollouts/9").status_code == 404
        assert client.post("/rollouts/1/pause", data={"typed": "5"}).status_code == 403


@pytest.mark.parametrize(
    "wrong",
    [{"waves": "x"}, {"canary": "-1"}, {"policy": ""}, {"success": "0"}, {"labels": "(("}, {"on_failure": "explode"}],
)
def test_a_wrong_value_is_said_and_the_form_stays(site: ConsoleSite, wrong: dict[str, str]) -> None:
    with site.client() as client:
        page = client.get("/rollouts/new", params={**FORM, **wrong})
        assert page.status_code == 400
        assert 'role="alert"' in page.text
        assert 'value="box-3"' in page.text


def test_the_list_is_searched_and_paged(site: ConsoleSite) -> None:
    for policy in ("first-fit", "best-fit") * 26:
        number = (
            site.api("otto")
            .post("/rollouts", json={"change": {"kind": "sharing", "policy": policy}, "boxes": ["box-1"]})
            .json()["number"]
        )
        with site.store.write() as tx:
            rollout = tx.rollouts.get(number)
            assert rollout is not None
            tx.rollouts.put(replace(rollout, state=RolloutState.ABORTED))
    with site.client() as client:
        page = client.get("/rollouts").text
        assert page.count('<th scope="row"><a href="/rollouts/') == 50
        assert 'rel="next" href="/rollouts?before=3"' in page
        older = client.get("/rollouts?before=3").text
        assert re.findall(r'<a href="/rollouts/(\d+)"', older) == ["2", "1"]
        assert '<a href="/rollouts">Newest</a>' in older
        assert client.get("/rollouts?q=BEST-fit").text.count('<th scope="row">') == 26
        assert client.get("/rollouts?kind=sharing&state=ABORTED&q=52").text.count('<th scope="row">') == 1
        assert "No rollout matches" in client.get("/rollouts?kind=limits").text


def test_the_pages_are_in_chinese_too(site: ConsoleSite) -> None:
    client = site.client(language="zh-CN")
    assert "<h1>分批变更</h1>" in client.get("/rollouts").text
    assert "预览批次" in client.get("/rollouts/new").text


def test_each_number_of_the_strategy_is_in_the_form_and_on_the_page(site: ConsoleSite) -> None:
    numbers = {"max_unavailable": "2", "retries": "3", "retry_after": "10", "join_within": "14", "offline": "join"}
    typed = {"what": "sharing", "policy": "spread", "boxes": "box-1 box-6", "waves": "2", "soak": "90", **numbers}
    with site.client() as client:
        page = client.get("/rollouts/new", params=typed).text
        assert "Start on 2 boxes" in page
        assert 'name="boxes" value="box-1 box-6"' in page
        started = client.post("/rollouts", data=fields(page, "/rollouts") | {"typed": "2"})
        shown = client.get(started.headers["location"]).text
    strategy = Rollouts(site.store, clock=site.clock, access=Access("anna")).show(1).strategy
    assert (strategy.max_unavailable, strategy.retries, strategy.retry_after_s) == (2, 3, 600)
    assert strategy.join_within_s == 14 * 86_400
    facts = re.sub(r"<[^>]+>", " ", shown[shown.index('id="strategy"') :].partition("</dl>")[0])
    for words in ("3, each 10 minutes later", "join when they are back, within 14 days", "watched for 90 minutes"):
        assert words in facts, facts
    assert re.search(r"Changed at one time, at most\s+2\s", facts)


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("retries", "21", "the number of retries is &#39;21&#39;. give 0 to 20"),
        ("retry_after", "0", "the time between tries is &#39;0&#39;. give 1 to 1440"),
        ("join_within", "91", "the time to join is &#39;91&#39;. give 1 to 90"),
        ("max_unavailable", "-1", "the number of boxes at one time is &#39;-1&#39;. give 0 to 100000"),
        ("canary", "\N{SUPERSCRIPT TWO}", "the canary is"),
        ("waves", "5,x", "no size of a wave"),
        ("labels", "((", "is not a term"),
        ("first", "nobody", "cannot find a box"),
        ("boxes", "nobody", "cannot find a box"),
        ("unit_mib", "many", "the unit is"),
        ("exclude", "none of them", "cannot"),
        ("offline", "explode", "is no value of the form"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_what_was_typed_is_kept(
    site: ConsoleSite, field: str, text: str, words: str
) -> None:
    typed = FORM | {"retries": "4", field: text} | ({"labels": ""} if field == "boxes" else {})
    page = site.client().get("/rollouts/new", params=typed)
    assert page.status_code == 400
    assert "1 field has to be corrected" in page.text
    beside = page.text[page.text.index(f'id="{field}-problem"') :].partition("</p>")[0]
    assert words in beside
    marked = re.search(r'name="([a-z_]+)"[^>]* aria-invalid="true"', page.text)
    assert marked is not None
    assert marked[1] == field
    assert f'aria-describedby="{field}-problem' in page.text
    assert 'name="retries" value="' + ("21" if field == "retries" else "4") in page.text
