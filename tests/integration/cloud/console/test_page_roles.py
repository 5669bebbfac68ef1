"""Every route of the pages: who may, who may not, and who has no such box; with an object for each, and its form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from fastapi.routing import APIRoute
from kits.consolepages import POSTED
from kits.consoleworld import console_world
from kits.people import PASSWORD
from kits.todaysstores import TodaysStores

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.console.web import ROUTERS
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.layout import AlertConfig, WebhookConfig
from edgegpu_cloud.store.people.records import Role
from edgegpu_sync.ids import DeviceId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx2 as httpx
    from kits.consoleworld import ConsoleWorld

EVERYBODY = ("anna", "otto", "vera", "")
VIEW, CHANGE, END = ("anna", "otto", "vera"), ("anna", "otto"), ("anna",)
BOX = "/boxes/{device}"
ASR = "/boxes/{device}/limits/{namespace}/{app}/{container}"
HOOK = AlertConfig(
    webhook=WebhookConfig(urls=("https://hooks.example.com/x",), secret="a secret of sixteen")  # noqa: S106  (a test's)
)
OTHER = "rain on a tin roof"
OF_BOXES = (
    "{device}",
    "/rollouts/{number}",
    "/operations/{id_}",
    "/alerts/{number}",
    "/enrol/tokens/{id_}",
    "/enrol/waiting/{id_}",
)
"""What in a path names a box, or something of boxes: it does not exist for a person with another scope."""


@dataclass(frozen=True)
class Row:
    """A route, who may use it, how it answers those; its form or query, with `{rev}` and the like in it."""

    method: str
    path: str
    allowed: tuple[str, ...]
    status: int = 200
    form: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def get(path: str, allowed: tuple[str, ...] = VIEW, **query: str) -> Row:
    return Row("GET", path, allowed, form=query)


def post(path: str, allowed: tuple[str, ...], status: int = 303, **form: str) -> Row:
    return Row("POST", path, allowed, status, form)


ROWS = (
    get("/"),
    get("/account"),
    get("/alerts"),
    get("/alerts/count"),
    get("/apps"),
    get("/apps/{namespace}/{app}/{container}"),
    get("/audit", END),
    get(BOX),
    get("/boxes/{device}/confirm", CHANGE, op="k3s.restart"),
    get("/boxes/{device}/limits"),
    get(ASR),
    get("/boxes/{device}/remove"),
    get("/boxes/{device}/sharing"),
    get("/enrol"),
    get("/enrol/tokens/{id_}"),
    get("/link", EVERYBODY, code="{code}"),
    get("/live"),
    get("/operations"),
    get("/operations/new", CHANGE, kind="command", which="all"),
    get("/operations/{id_}"),
    Row("GET", "/operations/{id_}/undo", CHANGE, 400),  # that of the world is a command
    get("/people", END),
    get("/people/{name}", END),
    get("/rollouts"),
    get("/rollouts/new", CHANGE),
    get("/rollouts/{number}"),
    get("/sign-in", EVERYBODY),
    post("/account/language", VIEW, language="zh"),
    post("/account/password", VIEW, current=PASSWORD, password=OTHER, again=OTHER),
    post("/account/sessions/end-others", VIEW),
    post("/account/sessions/{id_}/end", VIEW),
    post("/account/tokens", VIEW, 200, name="program"),
    post("/account/tokens/{id_}/revoke", VIEW),
    post("/alerts/silence", CHANGE, kind="alarm", about="card.lost", do="7200"),
    post("/alerts/test", END),
    get("/alerts/webhooks", END),
    get("/alerts/webhooks/{id_}/delete", END),
    post("/alerts/webhooks", END, 200, url="https://other.example.com/"),
    post("/alerts/webhooks/{id_}/test", END),
    post("/alerts/webhooks/{id_}/disable", END, disabled="yes"),
    post("/alerts/webhooks/{id_}/delete", END, confirmed="yes"),
    post("/alerts/{number}", CHANGE, do="7200"),
    post("/boxes/{device}/block", CHANGE),
    Row("POST", "/boxes/{device}/unblock", CHANGE, 400),  # that of the world is not blocked
    post("/boxes/{device}/commands", CHANGE, op="plugin.restart"),
    post("/boxes/{device}/commands/{command}/cancel", CHANGE),
    post("/boxes/{device}/evidence", CHANGE),
    post("/boxes/{device}/forget", END, typed="hall-1"),
    post(ASR, CHANGE, box="{device}:{rev}:6", core="1"),
    post(f"{ASR}/forget", CHANGE, rev="{rev}"),
    post("/boxes/{device}/replace", CHANGE, 200),
    post("/boxes/{device}/revoke", END, typed="hall-1"),
    post("/boxes/{device}/sharing", CHANGE, rev="{rev}", policy="spread"),
    post("/boxes/{device}/sharing/install", CHANGE),
    post("/boxes/{device}/sharing/uninstall", CHANGE, confirmed="yes"),
    post("/enrol/tokens", CHANGE, 200, name="hall"),
    post("/enrol/tokens/{id_}/take-back", CHANGE),
    post("/enrol/waiting/{id_}/approve", CHANGE),
    post("/enrol/waiting/{id_}/refuse", CHANGE),
    post("/link", EVERYBODY, code="{code}", password=OTHER, again=OTHER),
    post("/operations", CHANGE, query="kind=uninstall&which=all&q=hall", typed="1", seen="{seen}", key="a"),
    post("/operations/{id_}/cancel", CHANGE),
    post("/operations/{id_}/undo", CHANGE, 400, typed="1", seen="{seen}"),
    post("/people", END, 200, name="bea", role="viewer"),
    post("/people/{name}/disable", END),
    post("/people/{name}/enable", END),
    post("/people/{name}/link", END, 200),
    post("/people/{name}/remove", END, typed="lin"),
    post("/people/{name}/role", END, role="operator"),
    post("/people/{name}/scope", END, scope="site=hall"),
    post("/people/{name}/sessions/end", END),
    post("/preferences", EVERYBODY, theme="dark"),
    post("/rollouts", CHANGE, query="what=sharing&policy=spread&labels=site%3Dhall", typed="1", seen="{seen}"),
    post("/rollouts/{number}/{verb}", CHANGE, typed="1"),
    post("/sign-in", EVERYBODY, name="vera", password=PASSWORD),
    post("/sign-out", VIEW),
)


@pytest.fixture
def world(todays_stores: TodaysStores) -> Iterator[ConsoleWorld]:
    yann = Visitor(name="yann", role=Role.ADMIN, csrf="csrf-of-yann", scope="site=yard")
    with console_world(todays_stores) as made:
        made.site.alert_config = HOOK
        made.site.signed_in.table["yann"] = yann
        yield made


def values_of(world: ConsoleWorld, row: Row, person: str) -> dict[str, str]:
    """Return what stands in the place of the parameters of a route: the hall's objects, and a person's own."""
    of = world.hall
    ids = {"/account/sessions": world.session_of, "/account/tokens": world.api_token_of}
    own = next((find(person or "vera") for start, find in ids.items() if row.path.startswith(start)), "")
    others = {
        "/enrol/tokens": of.token,
        "/enrol/waiting": of.attempt,
        "/operations": of.operation,
        "/alerts/webhooks": of.webhook,
    }
    return {
        "device": of.device,
        "command": of.command,
        "namespace": "default",
        "app": "asr",
        "container": "main",
        "name": "lin",
        "verb": "pause",
        "number": of.alert if row.path.startswith("/alerts") else of.rollout,
        "id_": own or next((id_ for start, id_ in others.items() if row.path.startswith(start)), ""),
        "rev": str(world.fleet.box(of.device).rev),
        "code": world.code,
        "seen": BoxSet.of([DeviceId(of.device)]).text,
    }


def answer_of(world: ConsoleWorld, row: Row, person: str, *, csrf: bool = True) -> httpx.Response:
    values = values_of(world, row, person)
    client, path = world.site.client(person), row.path.format(**values)
    form = {name: text.format(**values) for name, text in row.form.items()}
    if row.method == "GET":
        return client.get(path, params=form)
    given = {"csrf": f"csrf-of-{person}"} if csrf else {}
    return client.post(path, data=given | form)


def test_the_table_has_every_route_of_the_pages() -> None:
    routes = [one for router in ROUTERS for one in router.routes if isinstance(one, APIRoute)]
    there = {f"{method} {route.path}" for route in routes for method in route.methods or ()}
    assert there == {str(row) for row in ROWS}


def test_each_page_that_answers_a_form_is_among_those_that_are_looked_at() -> None:
    answered = {row.path for row in ROWS if row.method == "POST" and row.status == 200}
    assert answered | {"/sign-in"} == {one.route for one in POSTED}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_person_who_may_not_is_refused(world: ConsoleWorld, row: Row) -> None:
    for person in (one for one in EVERYBODY if one not in row.allowed):
        answer = answer_of(world, row, person)
        if person:
            assert answer.status_code == 403, (person, answer.text)
            assert 'class="problem"' in answer.text
        elif row.method == "GET" and row.path != "/live":
            assert (answer.status_code, answer.headers["location"][:9]) == (303, "/sign-in?")
        else:
            assert answer.status_code == 401
    if row.method == "POST" and "" not in row.allowed:
        assert answer_of(world, row, "anna", csrf=False).status_code == 403, "without the token of the form"


@pytest.mark.parametrize(
    ("row", "person"), [(row, person) for row in ROWS for person in row.allowed if row.path != "/live"], ids=str
)
def test_a_person_who_may_is_answered(world: ConsoleWorld, row: Row, person: str) -> None:
    answer = answer_of(world, row, person)
    assert answer.status_code == row.status, (answer.headers, answer.text)
    if row.status == 303:
        assert not answer.headers["location"].startswith("/sign-in") or row.path == "/sign-out"


@pytest.mark.parametrize("row", [row for row in ROWS if row.path != "/live" and "" not in row.allowed], ids=str)
def test_boxes_of_another_scope_do_not_exist(world: ConsoleWorld, row: Row) -> None:
    if any(one in row.path for one in OF_BOXES):
        before = world.fleet.box(world.hall.device), len(world.fleet.commands())
        answer = answer_of(world, row, "yann")
        assert answer.status_code == 404
        assert "hall-1" not in answer.text
        assert (world.fleet.box(world.hall.device), len(world.fleet.commands())) == before
        return
    if row.method == "GET" and not row.path.startswith(("/account", "/people", "/alerts/webhooks")):
        answer = answer_of(world, row, "yann")
        assert answer.status_code == 200
        of = world.hall
        named = ("hall-1", of.device, of.operation, of.attempt, f'/rollouts/{of.rollout}"')
        assert not [text for text in named if text in answer.text]


LISTS = {
    "/": "yard-1",
    "/alerts": "yard-1",
    "/apps": "on 1 box",
    "/audit": "yard-1",
    "/enrol": "host-of-yard-1",
    "/operations": "/operations/{operation}",
    "/rollouts": "/rollouts/{rollout}",
}


@pytest.mark.parametrize("path", LISTS)
def test_a_list_shows_what_is_in_scope(world: ConsoleWorld, path: str) -> None:
    shown = LISTS[path].format(operation=world.yard.operation, rollout=world.yard.rollout)
    assert shown in world.site.client("yann").get(path).text
