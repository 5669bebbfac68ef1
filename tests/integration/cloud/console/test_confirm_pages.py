"""What harms a box is confirmed on a page of its own, which says what happens there; scripts are not needed."""

import html

import pytest
from kits.console import ConsoleSite
from kits.details import box, card, pod
from starlette.testclient import TestClient

from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_sync.ids import DeviceId

CSRF = {"csrf": "csrf-of-otto"}


@pytest.fixture
def device(site: ConsoleSite) -> DeviceId:
    found = site.add(1, "hall-1", site="hall")
    pods = {"u1": pod("asr-5d98c8c9f7-x2x4z", ("main", "0", 4, 1)), "u2": pod("tts-0", ("main", "0", 4, 1))}
    site.report(found, box("hall-1", (card("0"),), pods))
    return found


def asked_of(site: ConsoleSite) -> list[str]:
    """Return the commands that were queued."""
    return [str(one.op) for one in Fleet(site.store, clock=site.clock, by="anna").commands()]


@pytest.mark.parametrize(
    ("path", "op", "what"),
    [("commands", "k3s.restart", "A restart cannot be undone."), ("sharing/uninstall", "sharing.uninstall", "Pending")],
)
def test_a_press_leads_to_a_page_that_says_what_happens(
    site: ConsoleSite, device: DeviceId, path: str, op: str, what: str
) -> None:
    client = site.client("otto")
    answer = client.post(f"/boxes/{device}/{path}", data={**CSRF, "op": op})
    assert (answer.status_code, asked_of(site)) == (303, []), "nothing is sent by one press"
    page = html.unescape(client.get(answer.headers["location"]).text)
    for text in ("hall-1?</h1>", "2 pods hold shares.", "default/asr-5d98c8c9f7-x2x4z", what, "Offline"):
        assert text in page, text
    assert client.post(f"/boxes/{device}/{path}", data={**CSRF, "op": op, "confirmed": "yes"}).status_code == 303
    assert asked_of(site) == [op]


def test_what_does_not_harm_is_sent_at_once(site: ConsoleSite, device: DeviceId) -> None:
    client = site.client("otto")
    for op in ("doctor.run", "inventory.refresh", "plugin.restart"):
        assert client.post(f"/boxes/{device}/commands", data={**CSRF, "op": op}).status_code == 303
    assert sorted(asked_of(site)) == ["doctor.run", "inventory.refresh", "plugin.restart"]


def test_only_what_is_confirmed_has_a_page(site: ConsoleSite, device: DeviceId) -> None:
    for op in ("doctor.run", "", "agent.upgrade"):
        assert site.client("otto").get(f"/boxes/{device}/confirm", params={"op": op}).status_code == 400


def previewed(client: TestClient, query: str) -> str:
    answer = client.get(f"/operations/new?which=all&filled=yes&{query}")
    assert answer.status_code == 200
    return html.unescape(answer.text)


def test_many_boxes_are_told_with_their_pods_and_that_a_verb_cannot_be_undone(
    site: ConsoleSite, device: DeviceId
) -> None:
    del device
    other = site.add(2, "hall-2", site="hall")
    site.report(other, box("hall-2", (card("0"),), {"u3": pod("asr-1", ("main", "0", 4, 1))}))
    client = site.client("otto")
    page = previewed(client, "kind=command&op=k3s.restart")
    assert "A restart cannot be undone." in page
    assert "<dt>Pods that hold shares there</dt><dd>3</dd>" in page
    assert "Type 2, the number of boxes, to confirm" in page
    assert "new GPU pods wait Pending" in previewed(client, "kind=uninstall")
    assert "cannot be undone" not in previewed(client, "kind=limits&app=asr&memory=4")
