"""schemathesis over the whole description of the API, as each role, on a store that has one of everything."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from kits.console import OTTO
from kits.consoleworld import ConsoleWorld, SiteObjects, console_world
from kits.daily import how_many
from kits.todaysstores import TodaysStores
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection

from edgegpu_cloud.layout import AlertConfig, WebhookConfig

EXAMPLES = how_many(6, 100)
"""Requests for each endpoint, of each person and in each mode."""

HISTORIES, STEPS = how_many(25, 500), 12
"""Chains of requests in which one takes what another has answered, and how long they are."""

PEOPLE = {"admin": "egt_anna", "operator": "egt_otto", "viewer": "egt_vera", "scoped": "egt_hall"}
"""The API tokens: of each role, and one of an operator who sees the boxes of one hall."""

REFUSALS = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]
"""The answers to what does not fit: schemathesis's own, and 413, for what does not fit may be too long as well."""

NOT_DONE = {
    "POST /boxes/{box}/confirm": "no box here was found ahead of its controller",
    "POST /boxes/{box}/unblock": "no box here is blocked",
    "GET /operations/{id_}/undo": "the change of many boxes is under way",
    "POST /operations/{id_}/undo": "the change of many boxes is under way",
    "POST /rollouts/{number}/resume": "the rollout runs",
}
"""Endpoints that do not do what they are asked for in any of these requests, with the reason; tests of their own do."""

TAKES_NOTHING = {
    *("GET /me", "GET /alerts/webhook", "GET /alerts/webhooks"),
    *("GET /operations/{id_}", "GET /commands/{id_}"),
    *(f"GET /boxes/{{box}}/{name}" for name in ("details", "evidence", "limits", "pending", "pods")),
    "GET /boxes/{box}/limits/{namespace}/{app}/{container}/history",
}
"""Endpoints that take nothing but a word in their path, and any word fits."""

LISTS = {
    "/boxes": ("device", "box"),
    "/commands": ("id", "id_"),
    "/operations": ("id", "id_"),
    "/rollouts": ("number", "number"),
    "/alarms": ("number", "number"),
    "/alerts": ("number", "number"),
    "/enrolment/tokens": ("id", "id_"),
    "/enrolment/attempts": ("id", "id_"),
}
"""The lists, with the field by which an item is known, and the parameter by which the paths below name it."""

OF_A_BOX = {"namespace": "default", "app": "asr", "container": "main", "item": "policy"}
"""What the box of `console_world` has, by the parameters of paths."""

OF_A_CHANGE = {
    "namespace": "default",
    "app": "asr",
    "container": "main",
    "policy": "spread",
    "isolation": "none",
    "confirm": "hall-1",
}
"""What a change names, where it names it: any word fits the description."""

NewWorld = Callable[[], ConsoleWorld]

LEAST_FOLLOWED = 8
"""So many endpoints at least are reached by what a list has answered, in the chains of a run; 20 are usual."""


@pytest.fixture
def new_world(todays_stores: TodaysStores) -> Iterator[NewWorld]:
    """Yield what makes a world; it ends the one before, of which a database has its connections."""
    with ExitStack() as stack:

        def make() -> ConsoleWorld:
            stack.pop_all().close()
            world = stack.enter_context(console_world(todays_stores))
            world.site.api_tokens["egt_hall"] = replace(OTTO, name="otto/hall", csrf="", scope="site=hall")
            webhook = WebhookConfig(urls=("https://hooks.example.com/x",), secret="a secret of a test")  # noqa: S106
            world.site.alert_config = AlertConfig(webhook=webhook)
            return world

        yield make


def description(world: ConsoleWorld, *, linked: bool = False, **checks: Any) -> Any:  # noqa: ANN401  (schemathesis has a class for each way to load it)
    """Return the description of the API, with these checks of schemathesis set; `linked`: with what lists lead to.

    The header with the token is the test's own: else a third of all requests that do not fit would end at it.
    """
    config = schemathesis.Config.from_dict(
        {
            "generation": {"with-security-parameters": False},
            "checks": {"positive_data_acceptance": {"enabled": False}, **checks},
        }
    )
    raw = world.site.api().get("/openapi.json").json()
    del raw["paths"]["/events"]  # this one never ends
    if linked:
        add_links(raw["paths"])
    schema = schemathesis.openapi.from_dict(raw, config=config)
    schema.app, schema.location = world.site.app, "/api/v1/openapi.json"
    return schema


def add_links(paths: dict[str, Any]) -> None:
    """Add to each list the endpoints that take the id of its first item."""
    for name, (field, parameter) in LISTS.items():
        links = paths[name]["get"]["responses"]["200"].setdefault("links", {})
        for path, methods in paths.items():
            if path.startswith(f"{name}/{{{parameter}}}"):
                given_by = {f"path.{parameter}": f"$response.body#/items/0/{field}"}
                given_by |= {f"path.{key}": value for key, value in OF_A_BOX.items() if f"{{{key}}}" in path}
                for method, one in methods.items():
                    links[f"{method} {path}"] = {"operationId": one["operationId"], "parameters": given_by}


def put_real(case: schemathesis.Case[Any], of: SiteObjects) -> None:
    """Put what there is into a request that only fits its description: else nearly all of them end with 404 or 400."""
    path = case.operation.path
    ids = {
        "/commands": of.command,
        "/operations": of.operation,
        "/rollouts": of.rollout,
        "/alarms": of.alarm,
        "/alerts/webhooks": of.webhook,
        "/alerts": of.alert,
        "/enrolment/tokens": of.token,
        "/enrolment/attempts": of.attempt,
    }
    real = {"box": of.device, **OF_A_BOX}
    real |= dict.fromkeys(("id_", "number"), next((one for name, one in ids.items() if path.startswith(name)), ""))
    case.path_parameters = {name: real[name] for name in case.path_parameters or {}}
    for name in [name for name in case.headers or {} if name.lower().startswith("if-")]:
        del case.headers[name]
    for name in ("cursor", "labels"):
        (case.query or {}).pop(name, None)
    if isinstance(case.body, dict):
        put_real_body(case.body, path)


def put_real_body(body: dict[str, Any], path: str) -> None:
    for name in ("expect", "boxes", "devices", "first"):
        body.pop(name, None)
    if path in {"/operations", "/operations/preview", "/rollouts", "/rollouts/preview"}:
        body["all"] = True
    for part in (body, body.get("change", {})):
        part |= {name: word for name, word in OF_A_CHANGE.items() if name in part}
        part.pop("exclude", None)
        if (part is body and path.endswith("/{container}")) or part.get("kind") == "limits":
            part |= {name: 1 for name in ("memory_units", "core") if part.get(name) is None}  # none is no request
        if "op" in part:
            part["op"] = "doctor.run"
            part.pop("args", None)
        if part.get("wait_s"):
            part["wait_s"] = 1  # an answer is waited for as long as that, and a connection does not wait for minutes
        if isinstance(part.get("labels"), str):
            part["labels"] = ""
    if "url" in body:
        body["url"] = "https://hooks.example.com/new"
    if path.endswith("/sharing"):
        body["policy"] = OF_A_CHANGE["policy"]


def ask(operation: Any, mode: GenerationMode, token: str, of: SiteObjects) -> Counter[int]:  # noqa: ANN401
    """Ask an endpoint some times, with what fits or with what does not; return how often each status came.

    Raises:
        Unsatisfiable: it takes nothing, so nothing wrong can be sent.
    """
    came = Counter[int]()

    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def each(case: schemathesis.Case[Any]) -> None:
        bodiless: list[Any] = [negative_data_rejection] if case.method in {"GET", "DELETE"} else []
        if mode is GenerationMode.POSITIVE:
            put_real(case, of)
        answer = case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, excluded_checks=bodiless)
        came[answer.status_code] += 1

    each()
    return came


@pytest.mark.timeout(7_200 if os.environ.get("TEST_FULL") else 300)
@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_schemathesis_finds_nothing(new_world: NewWorld, mode: GenerationMode, person: str) -> None:
    """Each endpoint is asked with what fits its description, and with what does not; the stream of events never ends.

    What fits is asked of objects that there are: an administrator gets an answer of success from each endpoint, or it
    stands in `NOT_DONE`. Left out is the check that all that fits is accepted: no description says which cursors and
    selectors there are. And without a body the check that what does not fit is refused: it may be an empty parameter
    that no URL can hold. That unknown parameters are refused has a test of its own.
    """
    came, nothing = dict[str, Counter[int]](), set[str]()
    world, fits, changed = new_world(), mode is GenerationMode.POSITIVE, False
    for found in description(world, negative_data_rejection={"expected-statuses": REFUSALS}).get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if fits and changed:
            world = new_world()  # this endpoint may need what the last one has ended
        changed = operation.method != "get"
        operation.app = world.site.app
        try:
            came[operation.label] = ask(operation, mode, PEOPLE[person], world.hall)
        except Unsatisfiable:
            nothing.add(operation.label)
    assert nothing <= (set() if fits else TAKES_NOTHING)
    assert not [label for label, codes in came.items() if codes[401]], "the token is not part of what is tried"
    if fits and person == "admin":
        undone = {label: dict(codes) for label, codes in came.items() if not any(code < 300 for code in codes)}
        assert undone.keys() == NOT_DONE.keys(), undone


@pytest.mark.timeout(7_200 if os.environ.get("TEST_FULL") else 300)
def test_schemathesis_finds_nothing_in_chains_of_requests(new_world: NewWorld) -> None:
    """What one request answers is asked for by the next: the ids of a list's boxes, commands, operations, rollouts."""
    here = [new_world()]

    async def application(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        await here[0].site.app(scope, receive, send)

    schema = description(here[0], linked=True, negative_data_rejection={"enabled": False})
    schema.app = application
    machine, done = schema.as_state_machine(), set[str]()

    class Chains(machine):  # type: ignore[misc, valid-type]  # schemathesis makes the class
        def setup(self) -> None:
            here[0] = new_world()  # hypothesis draws a chain again: it has to find what the first one has found

        def get_call_kwargs(self, _case: schemathesis.Case[Any]) -> dict[str, Any]:
            return {"headers": {"Authorization": "Bearer egt_anna"}}

        def validate_response(self, response: Any, case: schemathesis.Case[Any], **options: Any) -> None:  # noqa: ANN401
            if response.status_code < 300:
                done.add(case.operation.path)
            super().validate_response(response, case, **options)

    Chains.run(
        settings=settings(
            max_examples=HISTORIES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        )
    )
    followed = {path for path in done if "{" in path}
    assert len(followed) >= LEAST_FOLLOWED, followed
