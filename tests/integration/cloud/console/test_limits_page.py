"""The limit editor: previews with numbers, the button, two people at once, bad input."""

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from kits.console import ConsoleSite
from kits.details import box, card, pod, reported
from starlette.testclient import TestClient

from edgegpu_cloud.console.phrasing import clock_time
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.store.operations.records import BoxOutcome
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.rules.box_sentences import LIVE_APPLIED, LIVE_HELD

HOSTILE = "<script>alert(1)</script>\"'&"
FIELD = {
    "u1": pod("asr-0", ("main", "0", 1, 1)),
    "u2": pod("plate-0", ("main", "0", 25, 1)),
    "u3": pod("count-0", ("main", "1", 25, 1)),
}
DAY_S = 86_400
ASR = "limits/default/asr/main"


def hall(site: ConsoleSite, number: int = 1, pods: dict[str, Any] | None = None, **more: Any) -> DeviceId:  # noqa: ANN401
    name = f"hall-{number}"
    device = site.add(number, name, site="hall")
    cluster = f"c0ffee0{number}"
    site.report(device, reported(box(name, pods=FIELD if pods is None else pods, **more), cluster=cluster))
    site.connect(device)
    return device


def words(text: str) -> str:
    start = text.find("<main")
    plain = re.sub(r"<[^>]+>", " ", text[max(0, start) :])
    return re.sub(r"\s+", " ", plain).replace("&#39;", "'")


def button(text: str) -> str:
    """Return what the button of the editor says."""
    found = re.search(r"data-sets>\s*([^<]+)</button>", text)
    return found[1].strip() if found else ""


def hidden(text: str) -> dict[str, Any]:
    """Return what the form of the button sends."""
    form = text[text.index('id="set"') :]
    fields: dict[str, Any] = {}
    for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form[: form.index("</form>")]):
        fields.setdefault(name, []).append(value)
    return fields


def fleet(site: ConsoleSite, by: str = "anna") -> Fleet:
    return Fleet(site.store, clock=site.clock, by=by)


def asr(units: int, core: int = 1) -> ContainerLimits:
    return ContainerLimits(namespace="default", app="asr", container="main", memory_units=units, core=core)


def test_one_to_ten_is_refused_with_its_numbers_before_the_button(site: ConsoleSite) -> None:
    device = hall(site)
    page = site.client().get(f"/boxes/{device}/{ASR}", params={"memory": "10"}).text
    told = words(page)
    assert "Does not fit: missing 6 units on card 0, 6 units on card 1" in told
    assert "card 0: 4 units and core 99 free, 6 units missing" in told
    assert button(page) == "Ask 1 box for 10 units (2.5 GiB), core 1: it refuses what does not fit"
    assert told.index("missing 6 units on card 0") < told.index("Ask 1 box for")
    assert page.count('class="beyond"') == 2


def test_four_and_twenty_and_twenty_on_two_cards_as_drawn(site: ConsoleSite) -> None:
    pods = {"a": pod("small-0", ("main", "0", 4, 1)), "b": pod("first-0", ("main", "0", 20, 1))}
    device = hall(site, pods=pods)
    page = site.client().get(f"/boxes/{device}/limits/default/second/main", params={"memory": "20", "core": "1"}).text
    drawn = re.findall(
        r'aria-label="default/([^"]+)"[^>]*><title>[^<]*</title><rect x="(\d+)" y="2" width="(\d+)"', page
    )
    assert [(name.split("/")[0], x, width) for name, x, width in drawn] == [
        ("small-0", "0", "40"),
        ("first-0", "40", "200"),
        ("second", "0", "200"),
    ]
    assert "Fits on card 1" in words(page)
    assert button(page) == "Set 20 units (5 GiB), core 1 on 1 box"


def test_a_stop_of_the_app_is_told(site: ConsoleSite) -> None:
    pods = {"a": pod("asr-0", ("main", "0", 9, 1)), "b": pod("full-0", ("main", "1", 29, 1))}
    device = hall(site, pods=pods)
    told = words(site.client().get(f"/boxes/{device}/{ASR}", params={"memory": "29"}).text)
    assert "Needs a stop of this app: fits on card 0 when its own pods have gone" in told


@pytest.mark.parametrize(
    ("typed", "what"),
    [
        ({"memory": "1", "measure": "GiB"}, "Set 4 units (1 GiB), core 1 on 1 box"),
        ({"memory": "600", "measure": "MiB"}, "Set 3 units (768 MiB), core 1 on 1 box"),
        ({"memory": "2", "core": "30"}, "Set 2 units (512 MiB), core 30 on 1 box"),
        ({"memory": "0", "core": "0"}, "Take the limits away on 1 box"),
        ({"memory": "10", "force": "yes"}, "Force 10 units (2.5 GiB), core 1 on 1 box, where it does not fit"),
    ],
)
def test_the_button_says_what_will_happen(site: ConsoleSite, typed: dict[str, str], what: str) -> None:
    device = hall(site)
    assert button(site.client().get(f"/boxes/{device}/{ASR}", params=typed).text) == what


@pytest.mark.parametrize(
    ("memory", "enforced", "is_live"),
    [(2, "enforced", True), (4, "enforced", False), (5, "enforced", False), (2, "off", False)],
)
def test_the_button_says_where_no_pod_is_touched(
    site: ConsoleSite, *, memory: int, enforced: str, is_live: bool
) -> None:
    device = hall(site, pods={"a": {**pod("asr-0", ("main", "0", 4, 1)), "enforced": enforced}})
    asked = {"memory": str(memory), "live": "yes"}
    page = site.client().get(f"/boxes/{device}/{ASR}", params=asked).text
    assert button(page).endswith("at once on 1 box: no pod is touched") is is_live
    assert ("At once on card 0: none of its pods is made anew" in words(page)) is is_live
    assert ("As it is on card 0" in words(page)) is (memory == 4)
    assert ("Not at once: " in words(page)) is (memory == 5 or enforced == "off")
    del asked["live"]
    assert "at once" not in button(site.client().get(f"/boxes/{device}/{ASR}", params=asked).text)


def test_the_form_of_the_button_sets_what_it_says(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        page = client.get(
            f"/boxes/{device}/{ASR}", params={"memory": "3", "core": "5", "on_drift": "enforce", "live": "yes"}
        ).text
        answer = client.post(f"/boxes/{device}/{ASR}", data=hidden(page))
        assert (answer.status_code, answer.headers["location"]) == (303, f"/boxes/{device}/{ASR}#outcome")
        [item] = fleet(site).spec(device).app_limits
        assert (item.memory_units, item.core, item.on_drift.value, item.live) == (3, 5, "enforce", True)
        told = words(client.get(f"/boxes/{device}/{ASR}").text)
        assert "Requested 3 units (768 MiB), core 5 (at once where possible) requested" in told
        assert 'name="live" value="yes" checked' in client.get(f"/boxes/{device}/{ASR}").text
        assert "Waiting for the box" in told


def test_what_a_box_says_of_live_limits_is_said_in_the_pages_language_in_the_history_too(site: ConsoleSite) -> None:
    site.now_s = (time.time() // DAY_S + 1.5) * DAY_S
    device = hall(site)
    rev = fleet(site).set_limits(device, replace(asr(2), live=True)).rev
    held, done = (one.of(units="2", held="4") for one in (LIVE_HELD, LIVE_APPLIED))
    notes = [{"type": "Live", "text": held}, {"type": "Drifted", "text": "<b>helm</b>"}]
    item = {"state": "Applied", "rev": rev, "text": done, "conditions": notes}
    site.report(device, reported(box("hall-1", pods=FIELD), cluster="c0ffee01", app_limits__default__asr__main=item))
    english = words(site.client().get(f"/boxes/{device}/{ASR}").text)
    assert english.count("live: 2 of 4 units held; no pod was touched") == 2, "of the request, and in the history"
    assert "Without a new pod live: 2 of 4 units held Changed on the box &lt;b&gt;helm" in english
    chinese = site.client(language="zh").get(f"/boxes/{device}/{ASR}").text
    assert re.findall(r'<q lang="en">([^<]*)</q>', chinese) == ["&lt;b&gt;helm&lt;/b&gt;"]


def test_history_and_one_press_back(site: ConsoleSite) -> None:
    device = hall(site)
    for who, units in (("anna", 2), ("bob", 3)):
        fleet(site, who).set_limits(device, asr(units))
    with site.client() as client:
        page = client.get(f"/boxes/{device}/{ASR}").text
        told = words(page)
        assert "bob 2 units, core 1 3 units, core 1 Waiting for the box" in told
        assert "anna \N{EN DASH} 2 units, core 1" in told
        form = page[page.index('id="history"') :]
        back = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
        assert "Back to 2 units, core 1" in form
        assert client.post(f"/boxes/{device}/{ASR}", data=back).status_code == 303
    assert fleet(site).spec(device).app_limits[0].memory_units == 2
    key = client.get(f"/boxes/{device}/{ASR}").text
    assert words(key).count("2 units, core 1") >= 3


def test_the_history_says_when_each_change_was_requested_and_when_it_was_settled(site: ConsoleSite) -> None:
    site.now_s = (time.time() // DAY_S + 1.5) * DAY_S  # at noon, after the migration: settlements are kept from then on
    device = hall(site)
    first = fleet(site, "anna").set_limits(device, asr(2)).rev
    site.now_s += 4
    applied_at = clock_time(site.now_s)
    applied = {"state": "Applied", "rev": first}
    hall_1 = box("hall-1", pods=FIELD)
    site.report(device, reported(hall_1, cluster="c0ffee01", app_limits__default__asr__main=applied))
    second = fleet(site, "bob").set_limits(device, asr(30)).rev
    refusal = {"state": "Rejected", "rev": second, "code": "NEVER_FITS", "text": "<b>29 units</b>"}
    site.now_s += 60
    refused_at = clock_time(site.now_s)
    site.report(device, reported(hall_1, cluster="c0ffee01", app_limits__default__asr__main=refusal))
    for units in (5, 6):
        site.now_s += 60
        fleet(site, "bob").set_limits(device, asr(units))
    page = site.client().get(f"/boxes/{device}/{ASR}").text
    told = words(page)
    assert f"Applied {applied_at}" in told
    assert f"Rejected {refused_at} NEVER_FITS: &lt;b&gt;29 units" in told
    assert f"Replaced {clock_time(site.now_s)} Another request came before the box reported on it." in told
    assert "<b>29 units" not in page
    assert "已被替换" in site.client(language="zh").get(f"/boxes/{device}/{ASR}").text


def test_two_people_see_each_others_change_and_neither_overwrites(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        page = client.get(f"/boxes/{device}/{ASR}", params={"memory": "3"}).text
        fleet(site, "bob").set_limits(device, asr(2))
        answer = client.post(f"/boxes/{device}/{ASR}", data=hidden(page))
        assert answer.status_code == 409
        told = words(answer.text)
        assert "bob has set 2 units, core 1 meanwhile" in told
        assert 'name="memory" id="memory" value="3"' in answer.text
        assert button(answer.text) == "Set 3 units (768 MiB), core 1 on 1 box"
        assert fleet(site).spec(device).app_limits[0].memory_units == 2
        assert client.post(f"/boxes/{device}/{ASR}", data=hidden(answer.text)).status_code == 303
    assert fleet(site).spec(device).app_limits[0].memory_units == 3


def test_a_change_of_another_app_is_no_conflict(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        page = client.get(f"/boxes/{device}/{ASR}", params={"memory": "3"}).text
        plate = ContainerLimits(namespace="default", app="plate", container="main", memory_units=2, core=1)
        fleet(site, "bob").set_limits(device, plate)
        assert client.post(f"/boxes/{device}/{ASR}", data=hidden(page)).status_code == 303
    assert len(fleet(site).spec(device).app_limits) == 2


def test_a_session_that_ends_keeps_what_was_typed(site: ConsoleSite) -> None:
    device = hall(site)
    page = site.client().get(f"/boxes/{device}/{ASR}", params={"memory": "3"}).text
    with site.client("") as client:
        answer = client.post(f"/boxes/{device}/{ASR}", data=hidden(page), headers={"origin": "https://console"})
        assert answer.status_code == 401
        assert f'name="kept.box" value="{device}:0:3:1"' in answer.text
        live = client.get(f"/boxes/{device}/{ASR}", params={"memory": "3"}, headers={"HX-Request": "true"})
        assert "memory%3D3" in live.headers["hx-redirect"]
    assert fleet(site).box(device).rev == 0


def test_the_same_on_other_boxes_by_their_labels(site: ConsoleSite) -> None:
    one, two = hall(site, 1, {}), hall(site, 2, {}, unit_mib=512)
    with site.client() as client:
        page = client.get(f"/boxes/{one}/{ASR}", params=BOTH).text
        assert button(page) == "Set 2 GiB, core 1 on 2 boxes"
        assert "Type 2, the number of boxes, to confirm" in words(page)
        assert hidden(page)["box"] == [f"{one}:0:8:1", f"{two}:0:4:1"]
        answer = client.post(f"/boxes/{one}/{ASR}", data=hidden(page) | {"number": "2"})
        [view] = site.operations().list()
        assert (answer.status_code, answer.headers["location"]) == (303, f"/operations/{view.operation.id}")
        assert fleet(site).box(one).rev == 0
        OperationRunner(site.store, clock=site.clock, at_once=1).step()
        assert [fleet(site).box(device).rev for device in (one, two)] == [1, 0]
        run(site)
        told = words(client.get(f"/operations/{view.operation.id}").text)
    assert [fleet(site).spec(device).app_limits[0].memory_units for device in (one, two)] == [8, 4]
    assert "each box its own units, core 1" in told
    assert "hall-2 4 units" in told


BOTH = {"memory": "2", "measure": "GiB", "core": "1", "also": "site=hall"}


def run(site: ConsoleSite) -> None:
    runner = OperationRunner(site.store, clock=site.clock)
    while runner.step():
        pass


@pytest.mark.parametrize("number", ["", "1", "3", "two"])
def test_several_boxes_need_their_number_typed_and_what_was_typed_is_kept(site: ConsoleSite, number: str) -> None:
    one, two = hall(site, 1, {}), hall(site, 2, {}, unit_mib=512)
    with site.client() as client:
        page = client.get(f"/boxes/{one}/{ASR}", params=BOTH).text
        answer = client.post(f"/boxes/{one}/{ASR}", data=hidden(page) | {"number": number})
    assert answer.status_code == 400
    assert "the number of boxes is 2, and " in words(answer.text)
    assert button(answer.text) == "Set 2 GiB, core 1 on 2 boxes"
    assert site.operations().list() == []
    assert [fleet(site).box(device).rev for device in (one, two)] == [0, 0]


def test_two_presses_are_one_operation(site: ConsoleSite) -> None:
    one, _ = hall(site, 1, {}), hall(site, 2, {})
    with site.client() as client:
        form = hidden(client.get(f"/boxes/{one}/{ASR}", params=BOTH).text) | {"number": "2"}
        first = client.post(f"/boxes/{one}/{ASR}", data=form).headers["location"]
        run(site)
        assert client.post(f"/boxes/{one}/{ASR}", data=form).headers["location"] == first
    assert len(site.operations().list()) == 1
    assert fleet(site).box(one).rev == 1


def test_of_several_boxes_the_one_that_somebody_has_changed_meanwhile_is_left_to_them(site: ConsoleSite) -> None:
    one, two = hall(site, 1, {}), hall(site, 2, {})
    with site.client() as client:
        form = hidden(client.get(f"/boxes/{one}/{ASR}", params=BOTH).text) | {"number": "2"}
        path = client.post(f"/boxes/{one}/{ASR}", data=form).headers["location"]
        fleet(site, "bob").set_limits(two, asr(3))
        run(site)
        told = words(client.get(path).text)
    assert [fleet(site).spec(device).app_limits[0].memory_units for device in (one, two)] == [8, 3]
    [refused] = site.operations().boxes(path.rpartition("/")[2], outcomes=[BoxOutcome.REFUSED]).boxes
    assert refused.box.device == two
    assert "cannot change default/asr/main on hall-2: bob has set 3 units, core 1 meanwhile" in told
    with site.client(language="zh") as client:
        chinese = client.get(path).text
    assert "bob" in words(chinese)
    assert "meanwhile" not in chinese
    assert '<q lang="en">' not in chinese


def test_a_box_that_is_gone_by_then_starts_nothing(site: ConsoleSite) -> None:
    one, two = hall(site, 1, {}), hall(site, 2, {})
    with site.client() as client:
        form = hidden(client.get(f"/boxes/{one}/{ASR}", params=BOTH).text) | {"number": "2"}
        fleet(site).forget(two)
        answer = client.post(f"/boxes/{one}/{ASR}", data=form)
    assert answer.status_code == 409
    assert "it is for 1 boxes by now, not 2" in words(answer.text)
    assert button(answer.text) == "Set 8 units (2 GiB), core 1 on 1 box"
    assert site.operations().list() == []


def test_a_box_of_a_cluster_that_another_settles_for_asks_that_one(site: ConsoleSite) -> None:
    settler = hall(site, 1, {})
    other = site.add(2, "hall-2")
    site.report(other, reported(box("hall-2"), cluster="c0ffee01", holder=False))
    page = site.client().get(f"/boxes/{other}/{ASR}", params=BOTH).text
    assert "hall-1 applies the app limits of this cluster, and is asked." in words(page)
    assert hidden(page)["box"] == [f"{settler}:0:8:1"]


def test_the_preview_alone_is_answered_to_htmx(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        for target in ("preview", "outcome", "history"):
            headers = {"HX-Request": "true", "HX-Target": target}
            page = client.get(f"/boxes/{device}/{ASR}", params={"memory": "2"}, headers=headers)
            assert re.match(rf'\s*<section[^>]*id="{target}"', page.text), target


@pytest.mark.parametrize(
    "typed",
    [
        {"memory": "ten"},
        {"memory": "-1"},
        {"memory": "1.5"},
        {"memory": "9999999"},
        {"memory": HOSTILE},
        {"memory": "1", "measure": HOSTILE},
        {"memory": "1", "core": "6401"},
        {"memory": "1", "core": "x"},
        {"memory": "1", "on_drift": HOSTILE},
        {"memory": "1", "also": "site=(("},
    ],
)
def test_what_is_no_amount_is_refused_and_kept(site: ConsoleSite, typed: dict[str, str]) -> None:
    device = hall(site)
    answer = site.client().get(f"/boxes/{device}/{ASR}", params=typed)
    assert answer.status_code == 400
    assert 'class="problem"' in answer.text
    assert "<script>alert" not in answer.text
    assert button(answer.text) == ""
    if typed["memory"] == "ten":
        assert 'value="ten"' in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("limits/kube-system/asr/main", 400),
        ("limits/default/ASR/main", 400),
        ("limits/default/asr/-main", 400),
        ("limits/default/%3Cscript%3E/main", 400),
        (f"limits/default/{'a' * 253}/main", 200),
        (f"limits/default/{'a' * 254}/main", 422),
        ("limits/default/unknown/main", 200),
    ],
)
def test_names_are_those_of_kubernetes(site: ConsoleSite, path: str, status: int) -> None:
    device = hall(site)
    answer = site.client().get(f"/boxes/{device}/{path}")
    assert answer.status_code == status
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"box": "x"},
        {"box": "hall-1:0"},
        {"box": "hall-1:0:-1"},
        {"box": "hall-1:0:1000001"},
        {"box": "hall-1:\u0661:1"},
        {"box": [f"b{number}:0:1" for number in range(51)]},
        {"box": "no-such-box:0:1"},
        {"box": "hall-1:7:1"},
        {"box": "hall-1:0:1", "core": "6401"},
        {"box": "hall-1:0:1:6401"},
        {"box": "hall-1:0:1", "on_drift": "never"},
        {"box": "hall-1:0:1", "also": "a" * 501},
        {"box": ["hall-1:0:1", "hall-2:0:1"], "number": "2"},
        {"box": [f"{'0' * 15}1:0:1", f"{'0' * 15}9:0:1"], "number": "2"},
        {"box": [f"{'0' * 15}1:0:1", f"{'0' * 15}2:0:1"], "number": "2", "once": "k" * 65},
        {"box": [f"{'0' * 15}1:0:1", "\0:0:1"], "number": "2"},
        {"box": [f"{'0' * 15}1:0:1", f"{'0' * 15}2:{2**63}:1"], "number": "2"},
        {"box": [f"{'0' * 15}1:0:1", f"{'0' * 15}1:0:1"], "number": "2"},
    ],
)
def test_a_form_that_no_page_has_sent_changes_nothing(site: ConsoleSite, form: dict[str, Any]) -> None:
    device = hall(site)
    answer = site.client().post(f"/boxes/{device}/{ASR}", data={"csrf": "csrf-of-anna", "core": "1", **form})
    assert answer.status_code in {400, 404, 409, 422}
    assert fleet(site).box(device).rev == 0


def test_a_request_is_taken_back(site: ConsoleSite) -> None:
    device = hall(site)
    fleet(site).set_limits(device, asr(2))
    with site.client() as client:
        forget, form = f"/boxes/{device}/{ASR}/forget", {"csrf": "csrf-of-anna", "rev": seen_rev(client, device)}
        assert client.post(forget, data=form).status_code == 303
        assert client.post(forget, data=form | {"rev": "2"}).status_code == 404
    assert fleet(site).spec(device).app_limits == ()


def test_what_somebody_has_set_meanwhile_is_not_taken_back_unseen(site: ConsoleSite) -> None:
    device = hall(site)
    fleet(site).set_limits(device, asr(2))
    with site.client() as client:
        form = {"csrf": "csrf-of-anna", "rev": seen_rev(client, device)}
        fleet(site, "otto").set_limits(device, asr(9))
        answer = client.post(f"/boxes/{device}/{ASR}/forget", data=form)
    assert answer.status_code == 409
    assert "otto has set 9 units, core 1 meanwhile" in words(answer.text)
    assert [one.memory_units for one in fleet(site).spec(device).app_limits] == [9]


def seen_rev(client: TestClient, device: str) -> str:
    """Return the revision that the form of the page takes back."""
    page = client.get(f"/boxes/{device}/{ASR}").text
    found = re.search(r'/forget">.*?name="rev" value="(\d+)"', page, re.DOTALL)
    return found[1] if found else "0"


def test_an_app_is_chosen_or_named(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        assert f'href="/boxes/{device}/limits/default/plate/main"' in client.get(f"/boxes/{device}/limits").text
        named = client.get(f"/boxes/{device}/limits", params={"app": "new"})
        assert named.headers["location"] == f"/boxes/{device}/limits/default/new/new"
        bad = client.get(f"/boxes/{device}/limits", params={"app": HOSTILE})
        assert bad.status_code == 400
        assert "<script>alert" not in bad.text
        near = client.get(f"/boxes/{device}/limits/default/plates/main").text
        assert "Almost so called: default/plate" in words(near)


def test_both_languages(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client(language="zh-CN") as client:
        page = client.get(f"/boxes/{device}/{ASR}", params={"memory": "10"}).text
        assert "放不下" in page
        assert "显卡 0 缺 6 个单位" in page
        assert button(page).startswith("向 1 台设备请求 10 个单位 (2.5 GiB)、算力 1")
        for path in (f"/boxes/{device}", "/apps", f"/boxes/{device}/sharing"):
            assert "设备" in client.get(path).text


def test_old_numbers_show_their_age_in_the_preview(site: ConsoleSite) -> None:
    device = hall(site, pods={}, cards=(card("0"),))
    site.now_s += 2 * 86_400
    told = words(site.client().get(f"/boxes/{device}/{ASR}", params={"memory": "2", "core": "1"}).text)
    assert "By what the box reported 2 days ago." in told
    assert "it gets the limits when it is back" in told
