"""The annotation in which a node's plugin says what it has and who holds it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from property.cases import slots_of

from edgegpu_core.choices.pod_choice import AllowedChoices
from edgegpu_core.inventory import CardCapacity
from edgegpu_core.nodereport import NodeReport, read_report, write_report
from edgegpu_core.placement import Policy, Share

REPORT = NodeReport(
    boot="b",
    generation=7,
    time="2026-01-01T00:00:00Z",
    policy=Policy.SPREAD,
    unit_mib=256,
    core_required=True,
    slots=(*slots_of(29, 94), CardCapacity("GPU-2", "2:1", 16, healthy=False)),
    held={"u": (Share("GPU-1", 4, 10), Share("GPU-0", 29, 100)), "v": ()},
    waiting=frozenset({"u"}),
    allowed=AllowedChoices("limiter", ("none",), "why"),
)


def test_round_trip() -> None:
    assert read_report(write_report(REPORT)) == REPORT


def test_a_report_of_a_plugin_that_knows_no_choice() -> None:
    older = replace(REPORT, allowed=None)
    assert read_report(write_report(older)) == older


def test_units_that_allocatable_must_equal() -> None:
    assert REPORT.units() == 29 + 94


def test_a_share_of_a_card_that_is_gone_is_left_out() -> None:
    report = replace(REPORT, held={"u": (Share("GPU-9", 4, 10), Share("GPU-0", 1, 1))})
    found = read_report(write_report(report))
    assert found is not None
    assert found.held == {"u": (Share("GPU-0", 1, 1),)}


@pytest.mark.parametrize("text", [None, "", "{", "null", "7", "[]", "{}", '{"v":2}', '"v"', "[" * 100_000])
def test_what_is_no_report(text: str | None) -> None:
    assert read_report(text) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("v", 2),
        ("v", None),
        ("gen", "x"),
        ("gen", float("inf")),
        ("gen", float("nan")),
        ("allowed", None),
        ("allowed", {"isolation": "none", "isolations": 7}),
        ("policy", "random"),
        ("policy", []),
        ("unit", {}),
        ("cards", None),
        ("cards", [["GPU-0"]]),
        ("cards", [["GPU-0", "0", float("inf"), 1]]),
        ("cards", "GPU"),
        ("held", None),
        ("held", []),
        ("held", {"u": [[3, 1, 1]]}),
        ("held", {"u": [[-1, 1, 1]]}),
        ("held", {"u": [[0, 1]]}),
        ("held", {"u": [["0", 1, 1]]}),
        ("held", {"u": [[0, -1, 1]]}),
        ("held", {"u": 7}),
        ("waiting", 7),
        ("waiting", None),
    ],
)
def test_a_field_of_another_shape_spoils_the_report(field: str, value: object) -> None:
    raw: dict[str, Any] = json.loads(write_report(REPORT))
    raw[field] = value
    assert read_report(json.dumps(raw)) is None
