"""schemathesis over the whole description of the API, against the application on a store with boxes in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from kits.console import ConsoleSite
from kits.details import box, card, pod
from kits.stores import open_store
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

EXAMPLES = 8
"""Requests for each endpoint."""

LEAST = 20
"""Endpoints that are asked at least."""

REFUSALS = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]
"""The answers to what does not fit: schemathesis's own, and 413, for what does not fit may be too long as well."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    folder: Path = tmp_path_factory.mktemp("api")
    store = open_store(folder / "controller.db")
    made = ConsoleSite(store)
    for number, name in enumerate(("hall-1", "hall-2")):
        device = made.add(number, name, site="hall")
        pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
        made.report(device, box(name, (card("0"),), pods, cluster="0" * 36))
    yield made
    store.close()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_schemathesis_finds_nothing(site: ConsoleSite, mode: GenerationMode) -> None:
    """Each endpoint is asked with what fits its description, and with what does not; the stream of events never ends.

    Left out is the check that what fits is accepted: no description says which cursors and selectors there are. And
    without a body the check that what does not fit is refused: it may be the header that this test always sends, or an
    empty parameter that no URL can hold. That unknown parameters are refused has a test of its own.
    """
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}})
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", site.app, config=config).exclude(path="/events")
    asked = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case[Any]) -> None:
            bodiless = [negative_data_rejection] if case.method in {"GET", "DELETE"} else []
            case.call_and_validate(
                headers={"Authorization": "Bearer egt_anna"}, excluded_checks=[positive_data_acceptance, *bodiless]
            )

        try:
            ask()
        except Unsatisfiable:  # an endpoint that takes nothing: nothing wrong can be sent
            continue
        asked += 1
    assert asked >= LEAST
