"""Idempotency-Key at each request that changes something: done once, answered again, refused under another request."""

from dataclasses import replace

import pytest
from kits.console import ConsoleSite
from kits.details import box, card, pod, reported, saying
from starlette.testclient import TestClient

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.layout import AlertConfig, WebhookConfig
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import EnrolmentAttempt
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.topics import TopicKind

KEY = "9d1e1a52-7b0e-4c3f-8a9e-000000000001"
ALL = {"all": True}
SPREAD = {**ALL, "change": {"kind": "sharing", "policy": "spread"}}
MAKING: tuple[tuple[str, dict[str, object], dict[str, object]], ...] = (
    ("/boxes/hall-1/commands", {"op": "doctor.run"}, {"op": "inventory.refresh"}),
    ("/enrolment/tokens", {"name": "hall-9"}, {"name": "hall-8"}),
    ("/operations", {**ALL, "change": {"kind": "install"}}, {**ALL, "change": {"kind": "uninstall"}}),
    ("/rollouts", SPREAD, {**SPREAD, "change": {"kind": "sharing", "unit_mib": 512}}),
)
"""POSTs that make something, each with a body, and another one."""

LIMITS = "/boxes/{box}/limits/{namespace}/{app}/{container}"
CHANGING: tuple[tuple[str, str, object], ...] = (
    ("POST", "/operations/{id_}/undo", {}),
    ("PATCH", "/boxes/{box}", {"labels": {"rack": "3"}}),
    ("PUT", LIMITS, {"memory_units": 4, "core": 1}),
    ("PATCH", LIMITS, {"memory_units": 5}),
    ("DELETE", LIMITS, None),
    ("PATCH", "/boxes/{box}/sharing", {"policy": "spread"}),
    ("DELETE", "/boxes/{box}/sharing/{item}", None),
    ("POST", "/boxes/{box}/commands", {"op": "doctor.run"}),
    ("POST", "/commands/{id_}/cancel", None),
    ("POST", "/operations", SPREAD),
    ("POST", "/operations/{id_}/cancel", None),
    ("POST", "/rollouts", SPREAD),
    ("POST", "/rollouts/{number}/pause", None),
    ("POST", "/rollouts/{number}/resume", None),
    ("POST", "/rollouts/{number}/abort", {"returns": False}),
    ("POST", "/alarms/{number}/seen", None),
    ("POST", "/alerts/{number}/silence", {"for_s": 60}),
    ("POST", "/alerts/webhook/test", None),
    ("POST", "/alerts/webhooks", {"url": "https://pager.example.com/edgegpu"}),
    ("POST", "/alerts/webhooks/{id_}/test", None),
    ("PATCH", "/alerts/webhooks/{id_}", {"disabled": True}),
    ("DELETE", "/alerts/webhooks/{id_}", None),
    ("POST", "/enrolment/tokens", {"name": "hall-9"}),
    ("DELETE", "/enrolment/tokens/{id_}", None),
    ("POST", "/enrolment/attempts/{id_}/approve", None),
    ("POST", "/enrolment/attempts/{id_}/refuse", None),
    ("POST", "/boxes/{box}/evidence/check", None),
    ("POST", "/boxes/{box}/confirm", None),
    ("POST", "/boxes/{box}/cluster", {"accept": False}),
    ("POST", "/boxes/{box}/block", {"confirm": "hall-1"}),
    ("POST", "/boxes/{box}/unblock", None),
    ("POST", "/boxes/{box}/revoke", {"confirm": "hall-1"}),
    ("POST", "/boxes/{box}/forget", {"confirm": "hall-1"}),
)
"""Each request that changes something, in an order in which each finds what it changes."""

PREVIEWS = {
    ("POST", "/boxes/{box}/limits/preview"),
    ("POST", "/operations/preview"),
    ("POST", "/rollouts/preview"),
}


@pytest.fixture(autouse=True)
def hall(site: ConsoleSite) -> DeviceId:
    device = site.add(1, "hall-1", site="hall")
    site.connect(device)
    return device


@pytest.mark.parametrize(("path", "body", "other"), MAKING, ids=lambda one: str(one)[:30])
def test_the_same_request_is_done_once(
    site: ConsoleSite, path: str, body: dict[str, object], other: dict[str, object]
) -> None:
    client, headers = site.api("otto"), {"idempotency-key": KEY}
    first, again, quoted = (
        client.post(path, json=body, headers={"idempotency-key": key}) for key in (KEY, KEY, f'"{KEY}"')
    )
    assert first.status_code in {201, 202}, first.text
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert quoted.content == first.content
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    reused = client.post(path, json=other, headers=headers)
    assert (reused.status_code, reused.json()["code"]) == (422, "KEY_REUSED")
    short = client.post(path, json=body, headers={"idempotency-key": "short"}).json()
    assert (short["code"], short["detail"]) == ("INVALID", "idempotency-key: must have 16 characters or more")
    assert site.api("vera").post(path, json=body, headers=headers).status_code == 403


def test_each_request_that_changes_something_takes_a_key(site: ConsoleSite) -> None:
    paths = site.api().get("/openapi.json").json()["paths"]
    changing = {
        (method.upper(), path): [one["name"] for one in operation.get("parameters", ())]
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method != "get"
    }
    assert {one for one, names in changing.items() if "idempotency-key" in names} == set(changing) - PREVIEWS
    assert {(method, path) for method, path, _ in CHANGING} == set(changing) - PREVIEWS


def attempt(site: ConsoleSite, id_: str) -> None:
    """Let a box wait for a person."""
    asked = {"host": "new", "name": "new"}
    one = EnrolmentAttempt(id=id_ * 16, token="t" * 64, digest="d" * 64, asked=asked, at_s=site.now_s)
    with site.store.write() as tx:
        tx.enrolments.add_request(one)


@pytest.fixture
def busy(site: ConsoleSite, hall: DeviceId) -> ConsoleSite:
    """Return a console in which each change finds something: a box with a pod, an alarm, boxes that wait."""
    pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
    details = reported(box("hall-1", (card("0"),), pods, cluster="0" * 36), cluster="0" * 36)
    site.report(hall, saying(details, TopicKind.STATUS, state="birth", capabilities=["evidence.check"]))
    with site.store.write() as tx:
        held = tx.boxes.get([hall])[hall]
        tx.boxes.put([replace(held, sequence=replace(held.sequence, restored=True))])
        tx.notes.alarm("card.lost", device=hall, text="card 1 fell off the bus", now_s=site.now_s)
    hooks = WebhookConfig(urls=("https://hooks.example.com",), secret="a secret of sixteen")  # noqa: S106
    site.alert_config = AlertConfig(webhook=hooks)
    AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()
    for one in "ab":
        attempt(site, one)
    site.now_s -= 60
    site.operations().start(OperationKind.SHARING, {"policy": "best-fit"}, where=BoxFilter())
    while OperationRunner(site.store, clock=site.clock).step():
        pass
    site.now_s += 60
    return site


def found_id(client: TestClient, path: str) -> str:
    """Return the id of what a request changes: the newest of its list."""
    for name in ("/commands", "/operations", "/enrolment/tokens", "/enrolment/attempts", "/alerts/webhooks"):
        if path.startswith(f"{name}/{{id_}}"):
            found = client.get(name).json()
            return next(str(row["id"]) for row in (found if isinstance(found, list) else found["items"]) if row["id"])
    return ""


def test_each_change_is_made_once_and_answered_twice(busy: ConsoleSite) -> None:
    client = busy.api()
    names = {"box": "hall-1", "namespace": "default", "app": "asr", "container": "main", "item": "policy", "number": 1}
    for at, (method, path, body) in enumerate(CHANGING):
        url = path.format(**names, id_=found_id(client, path))
        headers = {"idempotency-key": f"{KEY}-{at}"}
        before = client.get("/audit?limit=200").json()["items"]
        first = client.request(method, url, json=body, headers=headers)
        assert first.is_success, (method, url, first.text)
        after = client.get("/audit?limit=200").json()["items"]
        again = client.request(method, url, json=body, headers=headers)
        same = (again.status_code, again.content, again.headers.get("etag"), again.headers.get("idempotency-replayed"))
        assert same == (first.status_code, first.content, first.headers.get("etag"), "true"), (method, url)
        assert client.get("/audit?limit=200").json()["items"] == after, (method, url)
        assert len(after) > len(before) or path.endswith("/test"), (method, url)


def test_a_request_that_was_refused_may_be_sent_again_under_its_key(site: ConsoleSite) -> None:
    client, headers = site.api("otto"), {"idempotency-key": KEY}
    refused = client.post("/boxes/hall-2/commands", json={"op": "doctor.run"}, headers=headers)
    assert refused.json()["code"] == "NOT_FOUND"
    site.add(2, "hall-2", site="hall")
    assert client.post("/boxes/hall-2/commands", json={"op": "doctor.run"}, headers=headers).status_code == 202


def test_a_box_gets_its_name_and_its_labels_or_neither(site: ConsoleSite) -> None:
    site.add(2, "hall-2", site="hall")
    client, body = site.api("otto"), {"labels": {"rack": "3"}, "name": "hall-2"}
    for _ in range(2):
        refused = client.patch("/boxes/hall-1", json=body, headers={"idempotency-key": KEY})
        assert (refused.status_code, refused.json()["code"]) == (422, "REFUSED")
        assert client.get("/boxes/hall-1").json()["labels"] == {"site": "hall"}
    body["name"] = "hall-3"
    changed = client.patch("/boxes/hall-1", json=body).json()
    assert (changed["name"], changed["labels"]) == ("hall-3", {"site": "hall", "rack": "3"})


def test_a_stale_change_is_stale_under_its_key_too(busy: ConsoleSite) -> None:
    client = busy.api()
    url = LIMITS.format(box="hall-1", namespace="default", app="asr", container="main")
    body = {"memory_units": 4, "core": 1}
    client.put(url, json=body)
    for _ in range(2):
        stale = client.put(url, json=body, headers={"idempotency-key": KEY, "if-match": '"0"'})
        assert (stale.status_code, stale.json()["code"]) == (412, "STALE_REVISION")
