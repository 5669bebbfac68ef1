"""A rollout is paused and aborted by one press at the top of its page, and taken back after its end."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from kits.browser import browser
from kits.cert import Authority
from kits.console import OTTO, ConsoleSite
from kits.rolloutbed import QUICK, RolloutBed
from playwright.sync_api import expect

from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.rollouts.strategy import FailurePolicy
from edgegpu_cloud.store.rollouts.records import RolloutState

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.testclient import TestClient

CSRF = {"csrf": OTTO.csrf}


def test_it_is_stopped_by_one_press_at_the_top_and_goes_on_with_the_number_typed(tmp_path: Path) -> None:
    bed = RolloutBed(tmp_path / "bed", boxes=3)
    bed.start()
    client = ConsoleSite(bed.store, now_s=bed.world.clock()).client("otto")
    page = client.get("/rollouts/1").text
    top, _, rest = page.partition("Waves")
    assert re.findall(r'action="/rollouts/1/(\w+)"', top) == ["pause", "abort"]
    assert 'name="typed"' not in top
    assert "/pause" not in client.get("/rollouts/1").text.partition("Waves")[2]
    assert 'action="/rollouts/1/return"' in rest
    assert "/rollouts/1/pause" not in ConsoleSite(bed.store).client("vera").get("/rollouts/1").text
    assert client.post("/rollouts/1/pause", data=CSRF).status_code == 303
    assert client.post("/rollouts/1/resume", data=CSRF).status_code == 400, "it changes boxes: their number is typed"
    assert client.post("/rollouts/1/resume", data={**CSRF, "typed": "3"}).status_code == 303
    assert client.post("/rollouts/1/return", data=CSRF).status_code == 400
    assert client.post("/rollouts/1/abort", data=CSRF).status_code == 303
    assert bed.rollouts.show(1).state is RolloutState.ABORTING
    bed.store.close()


def test_what_comes_back_is_said_before_and_what_somebody_has_changed_since_stays(tmp_path: Path) -> None:
    bed = RolloutBed(tmp_path / "bed", boxes=5)
    bed.book(4).values["policy"] = "spread"  # set on the box itself
    bed.connect_all()
    bed.fleet.set_settings(bed.devices[1], SharingSettings(policy="best-fit"))
    bed.settle(3)
    bed.to_the_end(bed.start())
    bed.fleet.set_settings(bed.devices[2], SharingSettings(policy="best-fit"))
    bed.fleet.revoke(bed.devices[4])
    client = ConsoleSite(bed.store, now_s=bed.world.clock()).client("otto")
    assert steps_of(client) == [
        "Policy spread → Policy best-fit : 1 box",
        "Policy spread → Policy first-fit : 1 box",
        "Policy spread → Policy spread : 1 box",
    ]
    names = {box.device: box.name for box in bed.rollouts.boxes(1)}
    left = {
        names[bed.devices[2]]: "somebody else has changed it since",
        names[bed.devices[4]]: "the box was revoked, set aside, blocked or forgotten",
    }
    back = ConsoleSite(bed.store, now_s=bed.world.clock()).api("otto").get("/rollouts/1/abort").json()
    assert [(one["before"], one["after"], one["boxes"]) for one in back["steps"]] == [
        ({"policy": "spread"}, {"policy": after}, 1) for after in ("best-fit", "first-fit", "spread")
    ]
    assert (back["boxes"], back["more_boxes"]) == (3, 0)
    assert {one["name"]: one["text"] for one in back["left"]} == left
    page = words(client.get("/rollouts/1").text)
    assert "2 boxes keep what they have" in page
    assert all(f"{name} : {text}" in page for name, text in left.items())
    bed.store.close()


def test_a_box_that_never_said_what_it_had_gets_back_what_is_not_known(tmp_path: Path) -> None:
    bed = RolloutBed(tmp_path / "bed", boxes=1)
    bed.network.connect(bed.box(bed.devices[0]))  # it reports no cards
    bed.book(1).fails = True
    bed.to_the_end(bed.start(replace(QUICK, on_failure=FailurePolicy.STOP)))
    assert bed.rollouts.show(1).state is RolloutState.STOPPED
    client = ConsoleSite(bed.store, now_s=bed.world.clock()).client("otto")
    assert steps_of(client) == ["Policy spread → not known : 1 box"]
    assert [step.words() for step in bed.rollouts.way_back(1).steps] == ["policy spread -> not known on 1 box"]
    bed.store.close()


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def steps_of(client: TestClient) -> list[str]:
    """Return what the page says that boxes get back."""
    page = client.get("/rollouts/1").text
    listed = page[page.index('id="steps"') : page.index("</ul>", page.index('id="steps"'))]
    return [words(f"<li{one}") for one in listed.split("<li")[1:]]


def test_on_a_phone_both_buttons_are_in_sight_and_one_press_pauses(tmp_path: Path) -> None:
    bed = RolloutBed(tmp_path / "bed")
    bed.start()
    site = ConsoleSite(bed.store, now_s=bed.world.clock())
    with (
        site.served(tmp_path, Authority("console")) as url,
        browser(url, "otto", width=360, height=640) as context,
    ):
        page = context.new_page()
        page.goto(f"{url}/rollouts/1")
        expect(page.get_by_role("button", name="Abort: boxes keep what they have")).to_be_in_viewport(ratio=1)
        page.get_by_role("button", name="Pause: begin no box").click()
        expect(page.get_by_role("button", name="Pause: begin no box")).to_have_count(0)
        expect(page.get_by_role("button", name="Abort: boxes keep what they have")).to_be_in_viewport(ratio=1)
    assert bed.rollouts.show(1).state is RolloutState.PAUSED
    bed.store.close()


def test_one_that_is_done_is_taken_back(tmp_path: Path) -> None:
    bed = RolloutBed(tmp_path / "bed", boxes=3)
    bed.connect_all()
    had, documents = bed.settings(), bed.documents()
    bed.to_the_end(bed.start())
    assert bed.rollouts.show(1).state is RolloutState.DONE
    assert bed.settings() != had
    client = ConsoleSite(bed.store, now_s=bed.world.clock()).client("otto")
    page = client.get("/rollouts/1").text
    assert linked_forms(page) == ["Undo: give boxes back what they had…"]
    assert 'action="/rollouts/1/return"' in page.partition("Waves")[2]
    assert steps_of(client) == ["Policy spread → Policy first-fit : 3 boxes"]
    assert client.post("/rollouts/1/return", data=CSRF).status_code == 400
    assert client.post("/rollouts/1/return", data={**CSRF, "typed": "3"}).status_code == 303
    assert bed.rollouts.show(1).reason == "taken back by otto"
    bed.to_the_end(1)
    assert bed.rollouts.show(1).state is RolloutState.RETURNED
    assert (bed.settings(), bed.documents()) == (had, documents)
    assert "Undo: give" not in client.get("/rollouts/1").text
    bed.store.close()


def test_what_takes_the_number_of_boxes_is_a_press_away_from_the_top_however_many_boxes_are_listed(
    tmp_path: Path,
) -> None:
    bed = RolloutBed(tmp_path / "bed", boxes=3)
    bed.start()
    site = ConsoleSite(bed.store, now_s=bed.world.clock())
    client, give_back = site.client("otto"), "Abort, and give boxes back what they had…"
    assert linked_forms(client.get("/rollouts/1").text) == [give_back]
    client.post("/rollouts/1/pause", data=CSRF)
    assert linked_forms(client.get("/rollouts/1").text) == ["Resume…", give_back]
    assert linked_forms(site.client("vera").get("/rollouts/1").text) == []
    bed.store.close()


def linked_forms(page: str) -> list[str]:
    """Return the texts of the links at the top of a rollout's page that lead to the forms behind its lists."""
    return re.findall(r'href="#change">([^<]+)<', page.partition("Waves")[0])
