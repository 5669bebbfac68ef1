"""The counts of a large rollout's fit: when an address is believed, by how old reports they are, what is refused."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kits.console import ANNA, ConsoleSite
from kits.details import box, card, pod, reported
from kits.todaysstores import TodaysStores

from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.console.pages.rollouts.new import JUDGED
from edgegpu_cloud.fleet.operations.box_set import MOST_BOXES
from edgegpu_sync.ids import device_id

FORM = {"what": "limits", "app": "asr", "memory": "12", "core": "10", "waves": "100%"}
ROOM: dict[str, Any] = {"u1": pod("asr-0", ("main", "0", 4, 10))}
FULL: dict[str, Any] = {**ROOM, "u2": pod("big-0", ("main", "0", 20, 10))}
PART = {"hx-request": "true", "hx-target": "fit-counts"}
LAST = JUDGED + 2


@pytest.fixture
def site(todays_stores: TodaysStores) -> Iterator[ConsoleSite]:
    with todays_stores.opened() as store:
        yield ConsoleSite(store)


def add(site: ConsoleSite, number: int, pods: dict[str, Any] = ROOM) -> None:
    name = f"box-{number:03d}"
    device = site.add(number, name)
    site.report(device, reported(box(name, (card("0"),), pods), cluster=f"{number:08d}"))
    site.connect(device)


def large(site: ConsoleSite) -> None:
    """Add more boxes than one part has; the limits do not fit on the last but one."""
    for number in range(1, LAST + 1):
        add(site, number, FULL if number == LAST - 1 else ROOM)


def following(page: str) -> str:
    found = re.search(r'hx-get="([^"]+)" hx-trigger="load"', page)
    assert found is not None, page
    return html.unescape(found[1])


def words(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text))).strip()


def test_a_part_has_the_counts_alone_and_looks_for_no_container(site: ConsoleSite) -> None:
    large(site)
    with site.client() as client:
        address = following(client.get("/rollouts/new", params=FORM).text)
        assert "&container=main&" in address
        part = client.get(address, headers=PART).text
    assert "<table" not in part
    assert "<ol" not in part
    assert words(part).startswith("fits 101 does not fit 1 Start: 102 boxes, 1 will not fit")
    assert 'id="start-words" hx-swap-oob="true"' in part


def test_a_box_that_goes_offline_between_two_parts_hides_none(site: ConsoleSite) -> None:
    large(site)
    with site.client() as client:
        address = following(client.get("/rollouts/new", params=FORM).text)
        device = device_id(f"{50:016d}")
        with site.store.write() as tx:
            tx.boxes.put([replace(tx.boxes.get([device])[device], online=False)])
        assert "Start: 102 boxes, 1 will not fit" in words(client.get(address, headers=PART).text)


def test_counts_of_an_address_are_believed_only_where_this_session_has_counted_them(site: ConsoleSite) -> None:
    large(site)
    begun = f"{JUDGED} of {LAST} boxes are judged so far"
    with site.client() as client, site.client("otto") as other:
        address = following(client.get("/rollouts/new", params=FORM).text)
        for forged in (
            "102.0.0.0",
            f"{LAST}.0.0.0.0.{'0' * 32}.box-102",
            re.sub(r".*counted=100\.", "101.", address),
        ):
            told = words(client.get("/rollouts/new", params={**FORM, "counted": forged}).text)
            assert begun in told, forged
            assert "all fit" not in told
            assert "counted from the beginning" in told
        assert begun in words(client.get(address.replace("memory=12", "memory=11")).text)
        assert begun in words(other.get(address).text)
        assert "1 will not fit" in words(client.get(address).text)
        fleet_of(site.store, ANNA, clock=site.clock).label("box-001", {"rack": "3"})
        assert "1 will not fit" in words(client.get(address).text), "a change elsewhere is none of its boxes"
        add(site, LAST + 1)
        changed = words(client.get(address, headers=PART).text)
        assert f"{JUDGED} of {LAST + 1} boxes are judged so far. The boxes or the session have changed" in changed


def test_a_refusal_of_a_later_part_stands_in_the_place_of_the_counts(site: ConsoleSite) -> None:
    large(site)
    with site.client() as client:
        address = following(client.get("/rollouts/new", params={**FORM, "labels": "site!=hall"}).text)
        gone = address.replace("site%21%3Dhall", "site%3Dhall")
        told = client.get(gone, headers=PART)
        assert told.status_code == 200
        assert 'id="fit-counts"' in told.text
        assert "The boxes are not counted any further: cannot find a box by 'site=hall'" in words(told.text)
        assert f'href="{html.escape(gone)}#fit"' in told.text
        wrong = client.get(address.replace("memory=12", "memory=much"), headers=PART)
        assert "The boxes are not counted any further" in wrong.text


def test_old_reports_show_their_age_and_are_counted(site: ConsoleSite) -> None:
    add(site, 1)
    site.now_s += 7_200
    add(site, 2)
    with site.client() as client:
        told = words(client.get("/rollouts/new", params={**FORM, "each": "all"}).text)
        assert "fits 2 1 of them by old reports" in told
        assert "all fit, 1 of them by old reports" in told
        assert told.count("By what the box reported 2 hours ago.") == 1


def test_names_count_once_and_more_than_a_request_may_have_are_refused(site: ConsoleSite) -> None:
    add(site, 1)
    with site.client() as client:
        told = words(client.get("/rollouts/new", params={**FORM, "boxes": "box-001 " * 5_000}).text)
        assert "Start: 1 box, all fit" in told
        many = " ".join(f"b{number}" for number in range(MOST_BOXES + 1))
        for field in ("boxes", "first"):
            refused = client.get("/rollouts/new", params={**FORM, field: many})
            assert refused.status_code == 400
            assert f'id="{field}-problem"' in refused.text
            assert f"name up to {MOST_BOXES} boxes" in words(refused.text)


def test_what_is_wrong_with_a_release_stands_beside_its_field(site: ConsoleSite) -> None:
    add(site, 1)
    release = {
        "what": "upgrade",
        "version": "1.2.3",
        "url": "http://example.com/edgegpu.tar.gz",
        "sha256": "no",
        "signature": "A" * 86,
    }
    page = site.client().get("/rollouts/new", params=release).text
    problems = dict(re.findall(r'id="(\w+)-problem">([^<]*)', page))
    assert problems.keys() == {"url", "sha256"}
    assert "url: is not an https:// URL" in problems["url"]
    assert 'aria-describedby="url-problem' in page
