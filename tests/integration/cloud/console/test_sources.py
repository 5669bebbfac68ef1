"""Pages say how old each figure is, by its own source; a silent source is called silent."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.details import box, card, pod, saying

from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from kits.console import ConsoleSite

    from edgegpu_cloud.fleet.views import BoxDetails
    from edgegpu_sync.ids import DeviceId

PODS = {"u1": pod("asr-5d98c8c9f7-x2x4z", ("main", "0", 16, 10))}


def reported(site: ConsoleSite, details: BoxDetails, name: str = "hall-1") -> DeviceId:
    device = site.add(1, name, site="hall")
    site.report(device, details)
    site.connect(device)
    return device


def cards_of(site: ConsoleSite, device: DeviceId) -> str:
    """Return the words of the cards on a box's page."""
    page = site.client().get(f"/boxes/{device}").text
    part = page[page.index('id="cards"') : page.index('id="use"')]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", part)).split())


def test_cards_and_pods_have_their_own_ages(site: ConsoleSite) -> None:
    device = reported(site, box("hall-1", (card("0"),)))
    site.now_s += 540
    newer = box("hall-1", (card("0"),), PODS)
    site.report(device, replace(newer, latest={TopicKind.ALLOC: newer.latest[TopicKind.ALLOC]}))
    site.now_s += 10
    words = cards_of(site, device)
    assert "The cards as the box reported 9 minutes ago, the pods as it reported 10 seconds ago." in words
    body = site.api().get(f"/boxes/{device}/cards").json()
    assert (body["cards_at_s"], body["pods_at_s"]) == (site.now_s - 550, site.now_s - 10)


def test_a_preview_has_the_ages_of_the_cards_and_of_the_pods(site: ConsoleSite) -> None:
    device = reported(site, box("hall-1", (card("0"),)))
    preview = f"/boxes/{device}/limits/default/asr/main?memory=2&core=1"
    site.now_s += 420
    assert "By what the box reported 7 minutes ago." in site.client().get(preview).text
    newer = box("hall-1", (card("0"),), PODS)
    site.report(device, replace(newer, latest={TopicKind.ALLOC: newer.latest[TopicKind.ALLOC]}))
    site.now_s += 10
    page = site.client().get(preview).text
    assert "By the cards as the box reported 7 minutes ago, and the pods as it reported 10 seconds ago." in page
    limits = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 2, "core": 1}
    body = site.api().post(f"/boxes/{device}/limits/preview", json=limits).json()
    assert (body["as_of_s"], body["pods_as_of_s"]) == (site.now_s - 430, site.now_s - 10)


def test_with_sharing_off_there_are_no_figures_in_red(site: ConsoleSite) -> None:
    device = reported(site, box("hall-1", (card("0", 0),), PODS, sharing=False, unit_mib=0))
    page, words = site.client().get(f"/boxes/{device}").text, cards_of(site, device)
    assert "GPU sharing is off" in words
    assert "16 units, core 10" in words
    for wrong in ("more than it has", "0 MiB)", "of 100 free", "0 units free"):
        assert wrong not in page, wrong


def test_a_silent_source_is_named_where_its_figures_stand(site: ConsoleSite) -> None:
    text = "it does not answer since 2026-09-21 14:13:20 UTC; systemd says failed"
    parts = [
        {"name": "plugin", "state": "bad", "text": text},
        {"name": "api", "state": "warn", "text": "connection refused"},
        {"name": "disk", "state": "bad", "text": "full"},
    ]
    device = reported(site, saying(box("hall-1", (card("0"),), PODS), TopicKind.HEALTH, state="bad", parts=parts))
    words = cards_of(site, device)
    assert f"Silent: plugin {text}" in words
    assert "Silent: api connection refused" in words
    assert "Silent: disk" not in words


REASON = "needs 20 vcuda-memory on one card; card 0 has 9 free, card 1 has 4 free"


def waiting(created_at: int, **more: object) -> dict[str, object]:
    asks = [{"name": "main", "memory_units": 20, "core": 10}]
    pod_waits = {"uid": "u7", "namespace": "default", "name": "llm-0", "state": "pending", "reason": REASON}
    return {"cluster": True, "pods": [{**pod_waits, "created_at": created_at, "containers": asks}], **more}


def part_of(site: ConsoleSite, device: DeviceId, name: str) -> str:
    """Return the words of a part of a box's page."""
    page = site.client().get(f"/boxes/{device}").text
    part = page[page.index(f'id="{name}"') :]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", part[: part.index("</section>")])).split())


def test_a_pod_without_a_card_is_on_the_page_and_in_the_api_with_the_box_s_numbers(site: ConsoleSite) -> None:
    pending = waiting(int(site.now_s) - 540, more=3)
    device = reported(site, saying(box("hall-1", (card("0"),)), TopicKind.ALLOC, pods=PODS, pending=pending))
    site.now_s += 60
    words = part_of(site, device, "pending")
    assert "As the box reported 1 minute ago." in words
    assert f"default/llm-0 10 minutes ago 20 units, core 10 {REASON}" in words
    assert "3 more pods wait, which the box has not named" in words
    body = site.api().get(f"/boxes/{device}/pending").json()
    assert (body["reported"], body["cluster"], body["silent"], body["more"]) == (True, True, "", 3)
    (waits,) = body["pods"]
    assert (waits["pod"], waits["state"], waits["reason"]) == ("llm-0", "pending", REASON)
    assert waits["containers"] == [{"container": "main", "memory_units": 20, "core": 10}]
    assert body["as_of_s"] == site.now_s - 60


def test_an_api_server_that_is_silent_on_the_box_is_called_so_beside_who_waits(site: ConsoleSite) -> None:
    silent = "connection refused; heard last at 2026-09-21 14:13:20 UTC"
    pending = waiting(int(site.now_s) - 540, silent=silent)
    device = reported(site, saying(box("hall-1", (card("0"),)), TopicKind.ALLOC, pods=PODS, pending=pending))
    assert f"Silent: API server {silent} The list may be old." in part_of(site, device, "pending")
    assert site.api().get(f"/boxes/{device}/pending").json()["silent"] == silent


def test_an_older_agent_and_a_node_that_is_no_server_have_words_of_their_own(site: ConsoleSite) -> None:
    older = reported(site, box("hall-1", (card("0"),), PODS))
    assert "The agent of this box does not report them: upgrade it." in part_of(site, older, "pending")
    assert site.api().get(f"/boxes/{older}/pending").json()["reported"] is False
    node = saying(box("hall-1", (card("0"),)), TopicKind.ALLOC, pods={}, pending={"cluster": False})
    site.report(older, node)
    words = part_of(site, older, "pending")
    assert "seen by the servers of the cluster alone, and this box is none. None waits." in words


def test_an_offline_box_keeps_its_problems_and_has_nothing_free(site: ConsoleSite) -> None:
    parts = [{"name": "plugin", "state": "bad", "text": "gone"}]
    device = reported(site, saying(box("hall-1", (card("0"),)), TopicKind.HEALTH, state="bad", parts=parts))
    other = site.add(2, "hall-2", site="hall")
    site.report(other, saying(box("hall-2", (card("0"),)), TopicKind.HEALTH, state="ok", parts=()))
    site.connect(other)
    with site.store.write() as tx:
        tx.boxes.put([replace(tx.boxes.get([device])[device], online=False)])
        tx.summaries.mark([device])
    client = site.client()
    unhealthy = client.get("/?show=unhealthy").text
    assert ("hall-1" in unhealthy, "Problems" in unhealthy, "hall-2" in unhealthy) == (True, True, False)
    page = html.unescape(client.get("/").text)
    assert "2 boxes match. Of those that are connected 29 of 29 units are free." in page
    assert "29 units of boxes that are offline are not counted." in page
    assert "offline: 29 units, not counted as free" in page
    assert "hall-1" not in client.get("/?free=1").text
    api = site.api()
    assert [one["health"] for one in api.get("/boxes").json()["items"]] == ["bad", "ok"]
    assert api.get(f"/boxes/{device}").json()["health"] == "bad"
    assert [one["name"] for one in api.get("/boxes?health=bad").json()["items"]] == ["hall-1"]


@pytest.mark.parametrize(("show", "boxes"), [("all", 3), ("connected", 2), ("offline", 1)])
def test_the_number_of_boxes_that_match_is_one_number(site: ConsoleSite, show: str, boxes: int) -> None:
    for number in range(1, 4):
        device = site.add(number, f"hall-{number}", site="hall")
        site.report(device, box(f"hall-{number}", (card("0"),)))
        if number > 1:
            site.connect(device)
    page = html.unescape(site.client("otto").get(f"/?show={show}").text)
    found = re.findall(r"(\d+) box(?:es)? match(?:es)?\.", page)
    button = re.findall(r"Change (?:all|the) (\d+) box(?:es)? that match", page)
    assert (found, button, page.count('<th scope="row">')) == ([str(boxes)], [str(boxes)], boxes)
