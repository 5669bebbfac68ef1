"""The limit editor in a real Chromium: typing, dragging, keys; the refusal before the button; no reload."""

import pytest
from kits.browser import browser
from kits.console import ConsoleSite
from kits.details import box, card, pod, reported, saying
from playwright.sync_api import Locator, Page, Route, expect

from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.topics import TopicKind

ASR = "limits/default/asr/main"
TWO_CARDS = {"a": pod("small-0", ("main", "0", 4, 1)), "b": pod("first-0", ("main", "0", 20, 1))}


def hall(site: ConsoleSite, others: int = 90) -> DeviceId:
    """Return a box with one card of 94 units, of which the app holds one, and others hold so many."""
    device = site.add(1, "hall-1")
    pods = {"u1": pod("asr-0", ("main", "0", 1, 1)), "u2": pod("plate-0", ("main", "0", others, 1))}
    site.report(device, reported(box("hall-1", (card("0", 94),), pods)))
    site.connect(device)
    return device


def widths(bar: Locator) -> list[str | None]:
    """Return where the pieces of a bar stand, as drawn: x and width."""
    found = bar.locator(".piece rect")
    return [f"{one.get_attribute('x')}+{one.get_attribute('width')}" for one in found.all()]


def set_button(page: Page) -> Locator:
    return page.locator("[data-sets]")


def test_one_to_ten_typed_is_refused_with_its_numbers_before_the_button(site: ConsoleSite, url: str) -> None:
    device = hall(site)
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}")
        page.get_by_role("link", name="default/asr-0/main: 1 unit").click()
        expect(page).to_have_url(f"{url}/boxes/{device}/{ASR}")
        page.get_by_label("Memory", exact=True).fill("10")
        expect(page.get_by_text("Does not fit: missing 6 units on card 0")).to_be_visible()
        expect(page.get_by_text("4 units and core 99 free, 6 units missing")).to_be_visible()
        assert page.locator("#preview .bar .beyond").first.get_attribute("width") == "60"
        expect(set_button(page)).to_have_text("Ask 1 box for 10 units (2.5 GiB), core 1: it refuses what does not fit")
        page.get_by_label("Measure").select_option("GiB")
        page.get_by_label("Memory", exact=True).fill("0.5")
        expect(page.get_by_text("Fits on card 0")).to_be_visible()
        expect(set_button(page)).to_have_text("Set 2 units (512 MiB), core 1 on 1 box")
    assert Fleet(site.store, clock=site.clock, by="anna").box(device).rev == 0


def test_what_is_typed_before_the_scripts_have_come_is_previewed_too(site: ConsoleSite, url: str) -> None:
    device = hall(site)
    with browser(url) as context:
        page = context.new_page()
        held: list[Route] = []
        are_there = False
        page.route("**/*.js", lambda route: route.continue_() if are_there else held.append(route))
        page.goto(f"{url}/boxes/{device}/{ASR}", wait_until="commit")
        page.get_by_label("Memory", exact=True).fill("10")
        are_there = True
        for one in held:
            one.continue_()
        expect(page.get_by_text("Does not fit: missing 6 units on card 0")).to_be_visible()
        expect(set_button(page)).to_have_text("Ask 1 box for 10 units (2.5 GiB), core 1: it refuses what does not fit")


def test_the_edge_is_dragged_and_the_button_sets_what_is_drawn(site: ConsoleSite, url: str) -> None:
    device = hall(site, others=40)
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}/{ASR}")
        edge, bar = page.locator("#edge"), page.locator("#preview .bar").first
        at, whole = edge.bounding_box(), bar.bounding_box()
        assert at is not None
        assert whole is not None
        x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        for step in range(1, 11):
            page.mouse.move(x + step * 2 * whole["width"] / 94, y)
        page.mouse.up()
        expect(page.get_by_label("Memory", exact=True)).to_have_value("21")
        expect(set_button(page)).to_have_text("Set 21 units (5.25 GiB), core 1 on 1 box")
        expect(page.locator("#edge")).to_have_attribute("aria-valuetext", "21 units (5.25 GiB)")
        assert widths(page.locator("#preview .bar:not(.core)")) == ["0+210", "210+400"]
        set_button(page).click()
        expect(page.locator("#outcome").get_by_text("Waiting for the box")).to_be_visible()
        refusal = {"state": "Applied", "rev": 1}
        pods = {"u1": pod("asr-0", ("main", "0", 21, 1)), "u2": pod("plate-0", ("main", "0", 40, 1))}
        details = reported(box("hall-1", (card("0", 94),), pods), rev=1, app_limits__default__asr__main=refusal)
        site.now_s += 1
        site.report(device, details)
        expect(page.locator("#outcome").get_by_text("Applied")).to_be_visible(timeout=5_000)
    [item] = Fleet(site.store, clock=site.clock, by="anna").spec(device).app_limits
    assert (item.memory_units, item.core) == (21, 1)


def test_on_a_phone_a_finger_beside_the_edge_drags_it(site: ConsoleSite, url: str) -> None:
    device = hall(site, others=40)
    with browser(url, width=360) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}/{ASR}")
        edge, bar = page.locator("#edge"), page.locator("#preview .bar").first
        edge.scroll_into_view_if_needed()
        at, whole = edge.bounding_box(), bar.bounding_box()
        assert at is not None
        assert whole is not None
        x, y = at["x"] + at["width"] / 2 + 10, at["y"] + at["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 10 * whole["width"] / 94, y)
        page.mouse.up()
        expect(page.get_by_label("Memory", exact=True)).to_have_value("11")


def test_on_two_boxes_the_number_is_typed_while_they_report_and_the_operation_is_followed(
    site: ConsoleSite, url: str
) -> None:
    devices = [site.add(number, f"hall-{number}", site="hall") for number in (1, 2)]
    for at, device in enumerate(devices):
        site.report(device, reported(box(f"hall-{at + 1}", (card("0", 94),)), cluster=f"c0ffee0{at}"))
        site.connect(device)
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{devices[0]}/{ASR}?memory=4&core=1&also=site%3Dhall")
        expect(set_button(page)).to_have_text("Set 4 units (1 GiB), core 1 on 2 boxes")
        number = page.get_by_label("Type 2, the number of boxes, to confirm")
        number.press_sequentially("2")
        page.evaluate("document.getElementById('set').dataset.kept = 'yes'")
        with page.expect_request(lambda one: "/live" not in one.url and "hx-request" in one.headers):
            site.now_s += 1
            site.report(devices[0], reported(box("hall-1", (card("0", 94),)), cluster="c0ffee00"))
        expect(page.locator("#set")).to_have_attribute(
            "data-kept", "yes"
        )  # other parts are drawn anew, this one is not
        expect(number).to_have_value("2")
        set_button(page).click()
        expect(page.get_by_role("link", name="queued 2")).to_be_visible()
    [view] = site.operations().list()
    assert view.operation.boxes == 2


def test_the_edge_is_moved_by_keys_alone(site: ConsoleSite, url: str) -> None:
    device = hall(site, others=40)
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}/{ASR}")
        page.locator("#edge").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#edge")).to_have_attribute("aria-valuetext", "2 units (512 MiB)")
        expect(page.locator("#edge")).to_be_focused()
        page.keyboard.press("PageUp")
        expect(set_button(page)).to_have_text("Set 10 units (2.5 GiB), core 1 on 1 box")
        page.keyboard.press("End")
        expect(page.get_by_text("Does not fit: missing 40 units on card 0")).to_be_visible()
        page.keyboard.press("Home")
        expect(page.get_by_label("Memory", exact=True)).to_have_value("0")


def test_four_and_twenty_and_twenty_on_two_cards_as_drawn(site: ConsoleSite, url: str) -> None:
    device = site.add(1, "hall-1")
    site.report(device, reported(box("hall-1", pods=TWO_CARDS)))
    site.connect(device)
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}/limits/default/second/main?memory=20&core=1")
        expect(page.get_by_text("Fits on card 1")).to_be_visible()
        bars = page.locator("#preview .bar:not(.core)")
        assert [widths(bar) for bar in bars.all()] == [["0+40", "40+200"], ["0+200"]]
        site.report(device, reported(box("hall-1", pods=TWO_CARDS | {"c": pod("second-0", ("main", "1", 20, 1))})))
        page.goto(f"{url}/boxes/{device}")
        bars = page.locator(".card .bar:not(.core)")
        assert [widths(bar) for bar in bars.all()] == [["0+40", "40+200"], ["0+200"]]


@pytest.mark.parametrize(
    ("language", "at_once", "sets", "stays"),
    [
        (
            "en-GB",
            "At once on card 0: none of its pods is made anew",
            "Set 4 units (1 GiB) at once on 1 box: no pod is touched",
            "held to 4 of its 10 units",
        ),
        (
            "zh-CN",
            "在 显卡 0",
            "4 个单位 (1 GiB)",
            "10 个单位",
        ),
    ],
    ids=["en", "zh"],
)
def test_live_limits_keep_the_piece_and_its_units(
    site: ConsoleSite, url: str, language: str, at_once: str, sets: str, stays: str
) -> None:
    device = site.add(1, "hall-1")
    held = {**pod("asr-0", ("main", "0", 10, 1)), "enforced": "enforced"}
    pods = {"u1": held, "u2": pod("plate-0", ("main", "0", 84, 1))}
    site.report(device, reported(box("hall-1", (card("0", 94),), pods)))
    site.connect(device)
    with browser(url, language=language) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}/{ASR}")
        bar, live = page.locator("#preview .bar:not(.core)"), page.locator("#edit input[name=live]")
        page.locator("#memory").fill("4")
        expect(page.locator(".verdict.stop")).to_be_visible()
        assert widths(bar) == ["0+40", "40+840"]
        live.check()
        expect(page.locator(".verdict.fits")).to_contain_text(at_once)
        expect(set_button(page)).to_contain_text(sets)
        assert widths(bar) == ["0+100", "40+60", "100+840"], "the piece, what it may not use of it, the other one"
        expect(page.locator("#preview .legend li").first).to_contain_text(stays)
        expect(page.locator("#edge")).to_have_attribute("aria-valuenow", "4")
        page.locator("#edge").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#preview .idle")).to_have_attribute("width", "50")
        page.locator("#memory").fill("11")
        expect(page.locator(".verdict.never")).to_be_visible()
        page.locator("#memory").fill("4")
        expect(set_button(page)).to_contain_text(sets)
        set_button(page).click()
        expect(page.locator("#outcome .badge").first).to_be_visible()
        held["pieces"] = [{**held["pieces"][0], "live_units": 4}]
        site.now_s += 1
        site.report(
            device,
            reported(
                box("hall-1", (card("0", 94),), pods), app_limits__default__asr__main={"state": "Applied", "rev": 1}
            ),
        )
        expect(page.locator("#outcome")).to_contain_text(stays.rpartition("of its ")[2], timeout=5_000)
        expect(live).to_be_checked()
        page.goto(f"{url}/boxes/{device}")
        assert widths(page.locator(".card .bar:not(.core)").first) == ["0+100", "40+60", "100+840"]
    [item] = Fleet(site.store, clock=site.clock, by="anna").spec(device).app_limits
    assert (item.memory_units, item.live) == (4, True)


def test_hover_and_focus_say_whose_a_piece_is(site: ConsoleSite, url: str) -> None:
    device = hall(site)
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}")
        said = page.locator("#piece-words")
        page.locator("a.piece").nth(1).hover()
        expect(said).to_have_text("default/plate-0/main: 90 units (22.5 GiB), core 1, Running")
        page.locator("a.piece").first.focus()
        expect(said).to_have_text("default/asr-0/main: 1 unit (256 MiB), core 1, Running")


def test_hover_and_focus_say_how_much_a_piece_uses_and_a_phone_reads_it_below(site: ConsoleSite, url: str) -> None:
    device = hall(site)
    uses = [
        {"card": "GPU-0", "uid": "u1", "container": "main", "processes": 1, "memory_mib": 700},
        {"card": "GPU-0", "uid": "u2", "container": "main", "processes": 1, "memory_mib": 1_024},
    ]
    sample = {"at": int(site.now_s) - 180, "cards": [], "memory_use": uses}
    site.report(device, saying(box("hall-1", (card("0", 94),)), TopicKind.METRICS, period_s=60, samples=[sample]))
    pods = {"u1": pod("asr-0", ("main", "0", 1, 1)), "u2": pod("plate-0", ("main", "0", 90, 1))}
    site.report(device, box("hall-1", (card("0", 94),), pods))
    with browser(url) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}")
        said = page.locator("#piece-words")
        page.locator("a.piece").nth(1).hover()
        expect(said).to_contain_text(
            "default/plate-0/main: 90 units (22.5 GiB), core 1, Running; uses 1 GiB of 22.5 GiB ("
        )
        page.locator("a.piece").first.focus()
        expect(said).to_contain_text("Running; uses 700 MiB of 256 MiB, more than it was given (")
        over = page.locator("a.piece.over rect").first
        assert over.evaluate("one => getComputedStyle(one).strokeWidth") == "4px"
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
        page.evaluate("htmx.ajax('GET', location.pathname, {target: '#cards', source: '#cards', swap: 'outerHTML'})")
        expect(page.locator("#cards .pieces li").first).to_contain_text("uses 700 MiB of 256 MiB")
        expect(page.locator("#requests")).to_have_count(1)
    with browser(url, width=360, scripts=False) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}")
        expect(page.get_by_text("uses 700 MiB of 256 MiB", exact=True)).to_be_visible()
        expect(page.get_by_text("More than it was given", exact=True)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_box_changes_without_reload(site: ConsoleSite, url: str) -> None:
    device = hall(site)
    with browser(url) as context:
        page = context.new_page()
        with page.expect_response("**/live?*"):
            page.goto(f"{url}/boxes/{device}")
        expect(page.get_by_text("3 of 94 units free")).to_be_visible()
        site.now_s += 1
        site.report(device, reported(box("hall-1", (card("0", 94),), {"u1": pod("asr-0", ("main", "0", 10, 1))})))
        expect(page.get_by_text("84 of 94 units free")).to_be_visible(timeout=5_000)


def test_the_editor_works_without_scripts_in_chinese_on_a_phone(site: ConsoleSite, url: str) -> None:
    device = hall(site)
    with browser(url, width=360, language="zh-CN", scripts=False, dark=True) as context:
        page = context.new_page()
        page.goto(f"{url}/boxes/{device}/{ASR}")
        page.locator("#memory").fill("3")
        page.get_by_role("button", name="预览").click()
        expect(page.locator(".verdict.fits")).to_contain_text("放得下")
        set_button(page).click()
        expect(page.locator("#outcome").get_by_text("等待设备")).to_be_visible()
    assert Fleet(site.store, clock=site.clock, by="anna").spec(device).app_limits[0].memory_units == 3
