"""schemathesis over the whole description of the API, as each role, against the application on a store with boxes."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from kits.console import OTTO, ConsoleSite
from kits.daily import how_many
from kits.details import box, card, pod
from kits.stores import open_store
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection

EXAMPLES = how_many(6, 100)
"""Requests for each endpoint, of each person and in each mode."""

HISTORIES, STEPS = how_many(25, 500), 12
"""Chains of requests in which one takes what another has answered, and how long they are."""

PEOPLE = {"admin": "egt_anna", "operator": "egt_otto", "viewer": "egt_vera", "scoped": "egt_hall"}
"""The API tokens: of each role, and one of an operator who sees the boxes of one hall."""

LEAST = 20
"""Endpoints that are asked at least."""

REFUSALS = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]
"""The answers to what does not fit: schemathesis's own, and 413, for what does not fit may be too long as well."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    folder: Path = tmp_path_factory.mktemp("api")
    store = open_store(folder / "controller.db")
    made = ConsoleSite(store)
    made.api_tokens["egt_hall"] = replace(OTTO, name="otto/hall", csrf="", scope="site=hall")
    for number, name in enumerate(("hall-1", "hall-2", "yard-1")):
        device = made.add(number, name, site=name.partition("-")[0])
        pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
        made.report(device, box(name, (card("0"),), pods, cluster="0" * 36))
    yield made
    store.close()


def description(site: ConsoleSite, **checks: Any) -> Any:  # noqa: ANN401  (schemathesis has a class for each way to load it)
    """Return the description of the API, with these checks of schemathesis set."""
    config = schemathesis.Config.from_dict({"checks": {"positive_data_acceptance": {"enabled": False}, **checks}})
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", site.app, config=config)
    return schema.exclude(path="/events")


@pytest.mark.timeout(7_200 if os.environ.get("TEST_FULL") else 300)
@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_schemathesis_finds_nothing(site: ConsoleSite, mode: GenerationMode, person: str) -> None:
    """Each endpoint is asked with what fits its description, and with what does not; the stream of events never ends.

    Left out is the check that what fits is accepted: no description says which cursors and selectors there are. And
    without a body the check that what does not fit is refused: it may be the header that this test always sends, or an
    empty parameter that no URL can hold. That unknown parameters are refused has a test of its own.
    """
    asked = 0
    refusals = {"expected-statuses": REFUSALS}
    for found in description(site, negative_data_rejection=refusals).get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case[Any]) -> None:
            bodiless: list[Any] = [negative_data_rejection] if case.method in {"GET", "DELETE"} else []
            case.call_and_validate(headers={"Authorization": f"Bearer {PEOPLE[person]}"}, excluded_checks=bodiless)

        try:
            ask()
        except Unsatisfiable:  # an endpoint that takes nothing: nothing wrong can be sent
            continue
        asked += 1
    assert asked >= LEAST


@pytest.mark.timeout(7_200 if os.environ.get("TEST_FULL") else 300)
def test_schemathesis_finds_nothing_in_chains_of_requests(site: ConsoleSite) -> None:
    """What one request answers is asked for by the next: a list's ids, an operation, a rollout that was started."""
    machine = description(site, negative_data_rejection={"enabled": False}).as_state_machine()

    class Chains(machine):  # type: ignore[misc, valid-type]  # schemathesis makes the class
        def get_call_kwargs(self, _case: schemathesis.Case[Any]) -> dict[str, Any]:
            return {"headers": {"Authorization": "Bearer egt_anna"}}

    Chains.run(
        settings=settings(
            max_examples=HISTORIES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        )
    )
