"""The API over a store: what each role may, pages of lists, ETags, problems, events, secrets that stay out of logs."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kits.console import ConsoleSite, all_items
from kits.consoleworld import ConsoleWorld, SiteObjects, console_world
from kits.details import box, card, pod, reported, saying
from kits.enrol import Box, Office, office
from kits.todaysstores import TodaysStores

from edgegpu_cloud.console.visitor import SESSION_COOKIE, Visitor
from edgegpu_cloud.enrolment.bodies import ApprovalPending
from edgegpu_cloud.layout import AlertConfig, WebhookConfig
from edgegpu_cloud.store.people.records import Role
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.topics import TopicKind

LIMITS = "/boxes/hall-1/limits/default/asr/main"
FOUR = {"memory_units": 4, "core": 1}
VIEW, CHANGE, END = ("anna", "otto", "vera"), ("anna", "otto"), ("anna",)

ENDPOINTS: tuple[tuple[str, str, object, tuple[str, ...]], ...] = (
    ("GET", "/me", None, VIEW),
    ("GET", "/boxes", None, VIEW),
    ("GET", "/box-views", None, VIEW),
    ("GET", "/boxes/{box}/details", None, VIEW),
    ("GET", "/boxes/{box}/events", None, VIEW),
    ("GET", "/boxes/{box}/changes", None, VIEW),
    ("GET", "/boxes/{box}/requests", None, VIEW),
    ("GET", "/boxes/{box}", None, VIEW),
    ("PATCH", "/boxes/{box}", {"labels": {"rack": "3"}}, CHANGE),
    ("GET", "/boxes/{box}/cards", None, VIEW),
    ("GET", "/boxes/{box}/pods", None, VIEW),
    ("GET", "/boxes/{box}/pending", None, VIEW),
    ("GET", "/alerts/webhooks", None, END),
    ("POST", "/alerts/webhooks", {"url": "https://other.example.com/"}, END),
    ("PATCH", "/alerts/webhooks/{id_}", {"disabled": True}, END),
    ("POST", "/alerts/webhooks/{id_}/test", None, END),
    ("DELETE", "/alerts/webhooks/{id_}", None, END),
    ("GET", "/apps", None, VIEW),
    ("GET", "/apps/{namespace}/{app}/{container}/boxes", None, VIEW),
    ("GET", "/boxes/{box}/desired", None, VIEW),
    ("GET", "/boxes/{box}/limits", None, VIEW),
    ("PUT", "/boxes/{box}/limits/{namespace}/{app}/{container}", FOUR, CHANGE),
    ("PATCH", "/boxes/{box}/limits/{namespace}/{app}/{container}", {"memory_units": 4}, CHANGE),
    ("GET", "/boxes/{box}/limits/{namespace}/{app}/{container}", None, VIEW),
    ("DELETE", "/boxes/{box}/limits/{namespace}/{app}/{container}", None, CHANGE),
    ("GET", "/boxes/{box}/limits/{namespace}/{app}/{container}/history", None, VIEW),
    (
        "POST",
        "/boxes/{box}/limits/preview",
        {"namespace": "default", "app": "asr", "container": "main", **FOUR},
        VIEW,
    ),
    ("PATCH", "/boxes/{box}/sharing", {"policy": "spread"}, CHANGE),
    ("DELETE", "/boxes/{box}/sharing/{item}", None, CHANGE),
    ("POST", "/boxes/{box}/commands", {"op": "doctor.run"}, CHANGE),
    ("GET", "/commands", None, VIEW),
    ("GET", "/commands/{id_}", None, VIEW),
    ("POST", "/commands/{id_}/cancel", None, CHANGE),
    ("GET", "/alarms", None, VIEW),
    ("POST", "/alarms/{number}/seen", None, CHANGE),
    ("GET", "/audit", None, END),
    ("GET", "/enrolment/tokens", None, VIEW),
    ("POST", "/enrolment/tokens", {"name": "hall-9"}, CHANGE),
    ("DELETE", "/enrolment/tokens/{id_}", None, CHANGE),
    ("GET", "/enrolment/attempts", None, VIEW),
    ("POST", "/enrolment/attempts/{id_}/approve", None, CHANGE),
    ("POST", "/enrolment/attempts/{id_}/refuse", None, CHANGE),
    ("GET", "/boxes/{box}/evidence", None, VIEW),
    ("POST", "/boxes/{box}/evidence/check", None, CHANGE),
    ("GET", "/operations", None, VIEW),
    ("POST", "/operations", {"all": True, "change": {"kind": "command", "op": "doctor.run"}}, CHANGE),
    (
        "POST",
        "/operations/preview",
        {"all": True, "change": {"kind": "limits", "namespace": "default", "app": "asr", **FOUR}},
        VIEW,
    ),
    ("GET", "/operations/{id_}", None, VIEW),
    ("GET", "/operations/{id_}/boxes", None, VIEW),
    ("POST", "/operations/{id_}/cancel", None, CHANGE),
    ("GET", "/operations/{id_}/undo", None, VIEW),
    ("POST", "/operations/{id_}/undo", {}, CHANGE),
    ("GET", "/alerts", None, VIEW),
    ("GET", "/alerts/webhook", None, END),
    ("POST", "/alerts/webhook/test", None, END),
    ("POST", "/alerts/{number}/silence", {"for_s": 60}, CHANGE),
    ("GET", "/rollouts", None, VIEW),
    ("POST", "/rollouts", {"all": True, "change": {"kind": "sharing", "policy": "spread"}}, CHANGE),
    ("POST", "/rollouts/preview", {"all": True, "change": {"kind": "sharing", "policy": "spread"}}, VIEW),
    ("GET", "/rollouts/{number}", None, VIEW),
    ("GET", "/rollouts/{number}/boxes", None, VIEW),
    ("POST", "/rollouts/{number}/pause", None, CHANGE),
    ("POST", "/rollouts/{number}/resume", None, CHANGE),
    ("GET", "/rollouts/{number}/abort", None, VIEW),
    ("POST", "/rollouts/{number}/abort", {"returns": False}, CHANGE),
    ("GET", "/events", None, VIEW),
    ("POST", "/boxes/{box}/confirm", None, CHANGE),
    ("POST", "/boxes/{box}/cluster", {"accept": False}, END),
    ("POST", "/boxes/{box}/unblock", None, CHANGE),
    ("POST", "/boxes/{box}/block", {"confirm": "hall-1"}, CHANGE),
    ("POST", "/boxes/{box}/revoke", {"confirm": "hall-1"}, END),
    ("POST", "/boxes/{box}/forget", {"confirm": "hall-1"}, END),
)
"""Each endpoint, a body that it takes, and who may ask it."""


HOOK = WebhookConfig(urls=("https://hooks.example.com/x",), secret="a secret of sixteen")  # noqa: S106  (a test's)
PODS = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}


@pytest.fixture
def hall(site: ConsoleSite) -> DeviceId:
    device = site.add(1, "hall-1", site="hall")
    site.report(device, box("hall-1", (card("0"), card("1", units=20)), PODS, cluster="0" * 36))
    return device


@pytest.fixture
def copies(todays_stores: TodaysStores) -> Iterator[Callable[[], ConsoleWorld]]:
    """Return what makes a world with one of everything at two sites, each time anew; it ends the last one."""
    with ExitStack() as stack:

        def another() -> ConsoleWorld:
            stack.pop_all().close()
            world = stack.enter_context(console_world(todays_stores))
            world.site.alert_config = AlertConfig(webhook=HOOK)
            world.site.api_tokens["egt_yann"] = Visitor(name="yann", role=Role.ADMIN, csrf="", scope="site=yard")
            return world

        yield another


def path_of(path: str, of: SiteObjects) -> str:
    """Return the path of an endpoint with what there is in the place of its parameters."""
    names = {"box": of.device, "namespace": "default", "app": "asr", "container": "main", "item": "policy"}
    ids = {
        "/commands": of.command,
        "/operations": of.operation,
        "/enrolment/tokens": of.token,
        "/enrolment/attempts": of.attempt,
        "/alarms": of.alarm,
        "/alerts/webhooks": of.webhook,
        "/alerts": of.alert,
        "/rollouts": of.rollout,
    }
    id_ = next((value for start, value in ids.items() if path.startswith(start)), "")
    return path.format(**names, id_=id_, number=id_)


def test_the_table_below_has_every_endpoint(site: ConsoleSite) -> None:
    described = site.api().get("/openapi.json").json()
    assert described["openapi"].startswith("3.1.")
    there = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert there == {(method, path) for method, path, _, _ in ENDPOINTS}


@pytest.mark.parametrize(("method", "path", "body", "allowed"), ENDPOINTS, ids=lambda one: str(one)[:60])
def test_every_role_at_every_endpoint(
    copies: Callable[[], ConsoleWorld], method: str, path: str, body: object, allowed: tuple[str, ...]
) -> None:
    """Who is allowed has an answer of an object that is there: no 404, and each in a world where nobody was before."""
    for person in ("vera", "otto", "anna", ""):
        if path == "/events" and person:
            continue  # a stream that does not end: a test of its own
        world = copies()
        answer = world.site.api(person).request(method, path_of(path, world.hall), json=body)
        if not person:
            assert (answer.status_code, answer.json()["code"]) == (401, "NOT_SIGNED_IN")
        elif person in allowed:
            assert answer.status_code == ANSWERS.get(path, answer.status_code), (person, answer.text)
            assert answer.is_success or path in ANSWERS, (person, answer.text)
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "NOT_ALLOWED"), person


ANSWERS = {
    "/boxes/{box}/confirm": 422,  # no box of the world was found ahead of its store
    "/boxes/{box}/unblock": 422,  # no box of the world is blocked
    "/rollouts/{number}/resume": 409,  # it is not paused
    "/operations/{id_}/undo": 422,  # that of the world is a command
}
"""Endpoints that refuse a person who is allowed, by the state of what is there."""


@pytest.mark.parametrize(("method", "path", "body", "allowed"), ENDPOINTS, ids=lambda one: str(one)[:60])
def test_what_is_out_of_scope_does_not_exist(
    copies: Callable[[], ConsoleWorld], method: str, path: str, body: object, allowed: tuple[str, ...]
) -> None:
    if path == "/events":
        return  # a stream that does not end: `named_for` has a test of its own
    world = copies()
    of, before = world.hall, seen_by_anna(world)
    answer = world.site.api("yann").request(method, path_of(path, of), json=body)
    if "{" in path and (method, path) not in BEYOND_A_SCOPE and path not in OF_SEVERAL_BOXES:
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert seen_by_anna(world) == before, "nothing was changed"
        return
    assert answer.status_code == BEYOND_A_SCOPE.get((method, path), answer.status_code), answer.text
    assert answer.is_success or (method, path) in BEYOND_A_SCOPE, answer.text
    named = ("hall-1", of.device, of.command, of.operation, of.token, of.attempt)
    assert not [text for text in named if text in answer.text]
    assert allowed


BEYOND_A_SCOPE = {
    ("GET", "/alerts/webhook"): 403,  # for admins of all boxes
    ("POST", "/alerts/webhook/test"): 403,
    ("GET", "/alerts/webhooks"): 403,
    ("POST", "/alerts/webhooks"): 403,
    ("PATCH", "/alerts/webhooks/{id_}"): 403,
    ("POST", "/alerts/webhooks/{id_}/test"): 403,
    ("DELETE", "/alerts/webhooks/{id_}"): 403,
    ("POST", "/enrolment/tokens"): 422,  # without the labels of the scope its box would be outside of it
}
"""Endpoints that refuse an admin with a scope, though their paths name no box."""

OF_SEVERAL_BOXES = {"/apps/{namespace}/{app}/{container}/boxes"}
"""Endpoints whose paths name what other boxes may have too: they answer for those of the scope."""

SCOPED_LISTS = {
    "/boxes": "device",
    "/box-views": "device",
    "/commands": "command",
    "/alarms": "device",
    "/alerts": "device",
    "/audit": "device",
    "/operations": "operation",
    "/enrolment/tokens": "token",
    "/enrolment/attempts": "attempt",
}
"""The lists, and what of a site each of them names."""


def seen_by_anna(world: ConsoleWorld) -> dict[str, object]:
    """Return what the lists have for an admin of all boxes."""
    found = {path: world.site.api().get(path).json() for path in SCOPED_LISTS}
    return found | {"rollouts": world.site.api().get("/rollouts").json()["items"]}


@pytest.mark.parametrize("path", SCOPED_LISTS)
def test_a_list_has_what_is_in_scope(copies: Callable[[], ConsoleWorld], path: str) -> None:
    world = copies()
    mine, other = (str(getattr(of, SCOPED_LISTS[path])) for of in (world.yard, world.hall))
    text = world.site.api("yann").get(path).text
    assert (mine in text, other in text) == (True, False)
    assert other in world.site.api("anna").get(path).text


def test_the_list_of_rollouts_has_those_in_scope(copies: Callable[[], ConsoleWorld]) -> None:
    world = copies()
    numbers = [one["number"] for one in world.site.api("yann").get("/rollouts").json()["items"]]
    assert numbers == [int(world.yard.rollout)]
    assert len(world.site.api("anna").get("/rollouts").json()["items"]) == 2


def test_lists_show_what_is_in_scope_and_are_paged_by_next(site: ConsoleSite) -> None:
    for number in range(5):
        site.add(number, f"box-{number}", site="hall" if number % 2 else "yard")
    client = site.api()
    names, path = [], "/boxes?limit=2&labels=site"
    while path:
        answer = client.get(path).json()
        names += [one["name"] for one in answer["items"]]
        path = (answer["next"] or "").removeprefix("/api/v1")
    assert names == [f"box-{number}" for number in range(5)]
    site.api_tokens["egt_hal"] = Visitor(name="hal", role=Role.VIEWER, csrf="", scope="site=hall")
    assert [one["name"] for one in site.api("hal").get("/boxes").json()["items"]] == ["box-1", "box-3"]
    assert client.get("/boxes?cursor=xyz").status_code == 422
    assert client.get("/boxes?label=site").status_code == 400, "a misspelt filter would be every box"
    assert client.get("/alarms?unknown=1").json()["code"] == "BAD_REQUEST"


def test_commands_are_paged_and_cancelled(site: ConsoleSite, hall: str) -> None:
    client = site.api()
    ids = [client.post(f"/boxes/{hall}/commands", json={"op": "doctor.run"}).json()["id"] for _ in range(3)]
    first = client.get("/commands?limit=2&box=hall-1").json()
    assert [one["id"] for one in first["items"]] == [ids[2], ids[1]]
    rest = client.get(first["next"].removeprefix("/api/v1")).json()
    assert ([one["id"] for one in rest["items"]], rest["next"]) == ([ids[0]], None)
    assert client.post(f"/commands/{ids[0]}/cancel").json()["cancelled"]
    wrong = client.post(f"/boxes/{hall}/commands", json={"op": "no.such"})
    assert wrong.status_code == 422
    assert "there are" in wrong.json()["remedy"]


def test_what_was_read_is_not_sent_again_and_a_stale_change_is_refused(site: ConsoleSite, hall: str) -> None:
    client = site.api("otto")
    for path in ("", "/cards", "/desired"):
        read = client.get(f"/boxes/{hall}{path}")
        again = client.get(f"/boxes/{hall}{path}", headers={"if-none-match": read.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    seen = client.get(f"/boxes/{hall}/desired").headers["etag"]
    assert client.put(LIMITS, json=FOUR, headers={"if-match": seen}).json() == {"revision": 1, "replaced": None}
    stale = client.put(LIMITS, json={"memory_units": 5, "core": 1}, headers={"if-match": seen})
    assert (stale.status_code, stale.json()["code"]) == (412, "STALE_REVISION")
    assert stale.headers["content-type"] == "application/problem+json"
    assert (
        client.patch(f"/boxes/{hall}/sharing", json={"policy": "spread"}, headers={"if-match": seen}).status_code == 412
    )
    assert client.delete(LIMITS, headers={"if-match": seen}).status_code == 412
    assert client.delete(LIMITS, headers={"if-match": "x"}).status_code == 400
    assert client.get(LIMITS).json()["memory_units"] == 4
    now = client.get(f"/boxes/{hall}/desired").headers["etag"]
    assert client.delete(LIMITS, headers={"if-match": now}).json() == {"revision": 2}
    assert client.get(LIMITS).status_code == 404


def test_cards_and_pods_have_the_memory_that_is_used(site: ConsoleSite, hall: DeviceId) -> None:
    client = site.api("vera")
    [pod_] = client.get(f"/boxes/{hall}/pods").json()
    assert (pod_["used"], pod_["given_mib"], pod_["uses_too_much"], pod_["use_at_s"]) == (None, 0, False, None)
    use = {"card": "GPU-0", "uid": "u1", "container": "main", "processes": 2, "memory_mib": 2_561}
    host = {"card": "GPU-0", "processes": 1}
    at = int(site.now_s) - 60
    sample = {"at": at, "cards": [], "memory_use": [use, host]}
    site.report(hall, saying(box("hall-1"), TopicKind.METRICS, period_s=60, samples=[sample]))
    site.report(hall, box("hall-1", pods=PODS))
    told = {"used": {"processes": 2, "memory_mib": 2_561}, "given_mib": 2_560, "uses_too_much": True}
    first, second = client.get(f"/boxes/{hall}/cards").json()["cards"]
    assert {name: first["pieces"][0][name] for name in told} == told
    assert first["others"] == [{"owner": "", "used": {"processes": 1, "memory_mib": None}}]
    assert (first["use_at_s"], second["use_at_s"], second["others"]) == (at, None, [])
    [pod_] = client.get(f"/boxes/{hall}/pods").json()
    assert {name: pod_[name] for name in (*told, "use_at_s")} == {**told, "use_at_s": at}


def test_cards_pods_and_a_preview_have_the_boxes_numbers(site: ConsoleSite, hall: str) -> None:
    client = site.api("vera")
    first, second = client.get(f"/boxes/{hall}/cards").json()["cards"]
    assert (first["free_units"], second["free_units"], first["pieces"][0]["app"]) == (19, 20, "asr")
    assert [one["units"] for one in client.get(f"/boxes/{hall}/pods").json()] == [10]
    wanted = {"namespace": "default", "app": "other", "container": "main", "core": 1}
    fits = client.post(f"/boxes/{hall}/limits/preview", json={**wanted, "memory_units": 20}).json()
    never = client.post(f"/boxes/{hall}/limits/preview", json={**wanted, "memory_units": 40}).json()
    assert (fits["answer"], never["answer"]) == ("fits", "never_fits")


def test_a_preview_says_whether_running_pods_can_follow(site: ConsoleSite, hall: str) -> None:
    asr = {"namespace": "default", "app": "asr", "container": "main", "core": 1, "live": True}
    free = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
    for enforced, expected in (
        ("enforced", ("held", True, "")),
        ("off", ("new", False, "nothing holds asr-5d98c8c9f7-zfpmp to its memory")),
    ):
        site.report(DeviceId(hall), box("hall-1", pods={"u1": {**free["u1"], "enforced": enforced}}))
        client = site.api("vera")
        one = client.post(f"/boxes/{hall}/limits/preview", json={**asr, "memory_units": 4}).json()
        change = {"kind": "limits", **asr, "memory_units": 4}
        [many] = client.post("/operations/preview", json={"change": change, "devices": [hall]}).json()["items"]
        assert (one["pods"], one["live"], one["not_live"]) == expected
        assert many["preview"] == one


def test_a_change_of_limits_says_whose_it_replaces_and_can_refuse_to(site: ConsoleSite, hall: str) -> None:
    otto, anna, at_s = site.api("otto"), site.api(), site.now_s
    seen = otto.put(LIMITS, json=FOUR).json()["revision"]
    site.now_s += 60
    done = anna.put(LIMITS, json={"memory_units": 5, "core": 1}).json()
    theirs = done["replaced"]
    assert (theirs["requested_by"], theirs["requested_at_s"], theirs["limits"]["memory_units"]) == ("otto", at_s, 4)
    assert anna.put(LIMITS, json={"memory_units": 6, "core": 1}).json()["replaced"] is None, "her own"
    refused = otto.put(LIMITS, json={**FOUR, "seen_rev": seen})
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
    assert "anna has set 6 units, core 1 meanwhile" in refused.json()["detail"]
    now = otto.get(f"/boxes/{hall}/desired").json()["revision"]
    otto.patch(f"/boxes/{hall}/sharing", json={"policy": "spread"})
    found = otto.put(LIMITS, json={**FOUR, "seen_rev": now}).json()["replaced"]
    assert found["limits"]["memory_units"] == 6, "another change of the document is none of the limits"


def test_limits_say_when_they_were_requested_and_when_the_box_had_settled_them(site: ConsoleSite, hall: str) -> None:
    site.now_s = time.time() + 60  # after the migration, from when on settlements are kept
    client, began_s = site.api("otto"), site.now_s
    rev = client.put(LIMITS, json=FOUR).json()["revision"]
    waits = client.get(LIMITS).json()
    assert (waits["requested_at_s"], waits["requested_by"]) == (began_s, "otto")
    assert (waits["settled_at_s"], waits["report"]) == (None, None)
    site.now_s += 60
    refused = {"state": "Rejected", "rev": rev, "code": "NEVER_FITS", "text": "4 of 29 units are free"}
    details = reported(box("hall-1"), cluster="0" * 36, rev=rev, app_limits__default__asr__main=refused)
    site.report(DeviceId(hall), details)
    (settled,) = client.get(f"/boxes/{hall}/limits").json()
    assert settled == client.get(LIMITS).json()
    assert (settled["settled_at_s"], settled["report"]["code"]) == (began_s + 60, "NEVER_FITS")
    site.now_s += 60
    client.put(LIMITS, json={"memory_units": 5, "core": 1})
    assert client.get(LIMITS).json()["report"] is None, "what the box says of an older request is not of this one"
    site.now_s += 60
    client.delete(LIMITS)
    taken_back, later, first = site.api("vera").get(f"{LIMITS}/history").json()
    assert (first["before"], first["after"]["memory_units"], first["requested_at_s"]) == (None, 4, began_s)
    assert (first["outcome"]["state"], first["outcome"]["at_s"]) == ("rejected", began_s + 60)
    assert (later["outcome"]["state"], later["outcome"]["at_s"]) == ("replaced", began_s + 180)
    assert (taken_back["after"], taken_back["outcome"]) == (None, None)
    assert client.get("/boxes/hall-1/limits/default/none/main/history").json() == []


def test_the_webhook_is_for_an_admin_of_all_boxes(site: ConsoleSite) -> None:
    site.api_tokens["egt_hal"] = Visitor(name="hal", role=Role.ADMIN, csrf="", scope="site=hall")
    for method, path in (("GET", "/alerts/webhook"), ("POST", "/alerts/webhook/test")):
        assert site.api("hal").request(method, path).json()["code"] == "NOT_ALLOWED"
    assert site.api().post("/alerts/webhook/test").json()["code"] == "REFUSED"
    urls = ("https://user:word@hooks.example.com/services/T0K3N",)
    site.alert_config = AlertConfig(webhook=WebhookConfig(urls=urls, secret="a secret of sixteen"))  # noqa: S106
    told = {"receivers": ["hooks.example.com"], "waiting": 1, "error": ""}
    sent = site.api().post("/alerts/webhook/test")
    assert (sent.status_code, sent.json()) == (202, told)
    assert site.api().get("/alerts/webhook").json() == told


def test_a_session_changes_something_with_its_csrf_header_alone(site: ConsoleSite, hall: str) -> None:
    client = site.api("")
    client.cookies.set(SESSION_COOKIE, "otto")
    body = {"labels": {"rack": "3"}}
    assert client.get(f"/boxes/{hall}").status_code == 200
    assert client.patch(f"/boxes/{hall}", json=body).json()["code"] == "NO_CSRF_TOKEN"
    own = {"x-csrf-token": "csrf-of-otto"}
    other = {"origin": "https://evil.example", **own}
    assert client.patch(f"/boxes/{hall}", json=body, headers=other).status_code == 403
    assert client.patch(f"/boxes/{hall}", json=body, headers=own).json()["labels"] == {"site": "hall", "rack": "3"}
    assert client.get(f"/boxes/{hall}", headers={"authorization": "Bearer egt_nobody"}).status_code == 401


def test_a_token_is_in_its_answer_alone(site: ConsoleSite, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = site.api("otto")
    made = client.post("/enrolment/tokens", json={"name": "hall-9", "labels": {"site": "hall"}, "lasts_s": 60}).json()
    assert made["token"] in made["line"]
    listed = client.get("/enrolment/tokens").text
    audit = site.api("anna").get("/audit?what=token").text
    assert "token.made" in audit
    secrets = (made["token"], "egt_otto", "egt_anna")
    assert not [one for one in secrets if one in caplog.text + listed + audit]
    assert client.delete(f"/enrolment/tokens/{made['id']}").status_code == 200
    assert client.get("/enrolment/tokens").json() == {"items": [], "next": None}
    invalid = client.post("/enrolment/tokens", json={"lasts_s": "a-secret-value"})
    assert (invalid.status_code, "a-secret-value" in invalid.text) == (422, False)


def test_tokens_are_searched_and_read_in_parts(site: ConsoleSite) -> None:
    client = site.api("otto")
    for number in range(5):
        assert client.post("/enrolment/tokens", json={"name": f"hall-{number}", "lasts_s": 60}).status_code == 201
    found = all_items(client, "/enrolment/tokens?limit=2")
    assert sorted(one["name"] for one in found) == [f"hall-{number}" for number in range(5)]
    assert [one["name"] for one in all_items(client, "/enrolment/tokens?search=HALL-3")] == ["hall-3"]
    assert client.get("/enrolment/tokens?cursor=nonsense").status_code == 422


def test_a_box_that_waits_is_approved_by_a_program(tmp_path: Path) -> None:
    cloud: Office = office(tmp_path / "cloud")
    client = ConsoleSite(cloud.store).api("otto")
    made = client.post("/enrolment/tokens", json={"approval": True}).json()
    new = Box(made["token"])
    assert isinstance(new.enrol(cloud.desk), ApprovalPending)
    (waiting,) = client.get("/enrolment/attempts").json()["items"]
    assert client.post(f"/enrolment/attempts/{waiting['id']}/approve").json()["state"] == "APPROVED"
    assert client.post(f"/enrolment/attempts/{waiting['id']}/refuse").json()["code"] == "CONFLICT"
    device = new.enrolled(cloud.desk).device
    assert client.get("/enrolment/attempts?state=DONE").json()["items"][0]["device"] == device
    cloud.store.close()


def test_a_body_that_is_too_long_and_a_path_that_is_none_are_problems(site: ConsoleSite) -> None:
    client = site.api()
    long = client.post("/enrolment/tokens", content=b"x" * 40_000)
    assert (long.status_code, long.headers["content-type"]) == (413, "application/problem+json")
    assert client.get("/none").json()["code"] == "NOT_FOUND"
    assert client.put("/boxes").json()["code"] == "METHOD_NOT_ALLOWED"
    assert client.post("/enrolment/tokens", content=b"{").json()["code"] == "INVALID"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"{", "body: is not valid JSON"),
        (b"7", "body: is not an object"),
        (b'{"uses": "many"}', "uses: is not a whole number"),
        (b'{"uses": 0}', "uses: must be 1 or more"),
        (b'{"none": 1}', "none: is not known here"),
    ],
)
def test_a_fault_of_a_body_is_told_in_plain_words(site: ConsoleSite, body: bytes, detail: str) -> None:
    answer = site.api().post("/enrolment/tokens", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)
