"""The matrix of apps and boxes: what is requested, what runs, what came of it, what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kits.details import box, pod

from edgegpu_cloud.fleet.limits.app_matrix import AppMatrix, MatrixCell, app_matrix
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.spec import AppLimits, Spec
from edgegpu_sync.messages.uplink import Condition, ItemReport, ItemState

if TYPE_CHECKING:
    from edgegpu_cloud.fleet.views import BoxDetails

ASR = ContainerKey("default", "asr", "main")
NAME = "app_limits/default/asr/main"


def asked(units: int, core: int = 1, *, rev: int = 3, app: str = "asr") -> AppLimits:
    return AppLimits(
        rev=rev, cluster="c" * 8, namespace="default", app=app, container="main", memory_units=units, core=core
    )


def told(state: ItemState, *, rev: int = 3, **more: Any) -> ItemReport:  # noqa: ANN401  (the report's fields)
    return ItemReport(state=state, rev=rev, hash="ab", retry=0, **more)


def with_limits(details: BoxDetails, *items: AppLimits, report: ItemReport | None = None) -> BoxDetails:
    view = replace(details.box, items={NAME: report} if report else {})
    return replace(details, spec=Spec(app_limits=items), box=view)


def asr(units: int, name: str = "box1", **more: Any) -> BoxDetails:  # noqa: ANN401  (the report's fields)
    return box(name, pods={"u": pod("asr-0", ("main", "0", units, 1))}, **more)


def cell(matrix: AppMatrix, at: int = 0, key: ContainerKey = ASR) -> MatrixCell:
    row = next(row for row in matrix.rows if row.key == key)
    return row.cells[matrix.boxes[at].box.device]


def test_a_row_for_each_container_and_a_cell_for_each_box_that_has_it() -> None:
    one = box("box1", pods={"u": pod("asr-0", ("main", "0", 1, 1), ("side", "1", 2, 5))})
    two = with_limits(box("box2"), asked(4, app="plate"))
    found = app_matrix([one, two])
    assert [(row.key.app, row.key.container, len(row.cells)) for row in found.rows] == [
        ("asr", "main", 1),
        ("asr", "side", 1),
        ("plate", "main", 1),
    ]
    assert cell(found).running[0].amounts == RequestedAmounts(1, 1)
    assert cell(found).running[0].cards == ("GPU-0",)
    assert [row.key.app for row in app_matrix([one, two], {"default/plate"}).rows] == ["plate"]


def test_what_most_boxes_have_is_the_rule_and_the_others_are_marked() -> None:
    boxes = [asr(4, "box1"), asr(4, "box2"), asr(5, "box3")]
    [row] = app_matrix(boxes).rows
    assert row.differs
    assert [row.cells[one.box.device].differs for one in boxes] == [False, False, True]


def test_where_no_limits_are_the_rule_all_are_marked_and_equal_ones_never() -> None:
    [row] = app_matrix([asr(4, "box1"), asr(5, "box2")]).rows
    assert [one.differs for one in row.cells.values()] == [True, True]
    [same] = app_matrix([asr(4, "box1"), asr(4, "box2")]).rows
    assert not same.differs


def test_boxes_of_different_units_are_compared_by_their_memory() -> None:
    [row] = app_matrix([asr(4, "box1"), asr(2, "box2", unit_mib=512)]).rows
    assert not row.differs


@pytest.mark.parametrize(
    ("report", "state", "text"),
    [
        (None, OutcomeState.WAITING, ""),
        (told(ItemState.APPLIED, rev=2), OutcomeState.WAITING, ""),
        (told(ItemState.OPEN), OutcomeState.WORKING, ""),
        (told(ItemState.APPLIED), OutcomeState.APPLIED, ""),
        (told(ItemState.REJECTED, code="NO_ROOM", text="needs 10"), OutcomeState.REJECTED, "NO_ROOM: needs 10"),
        (told(ItemState.REJECTED, code="NOT_INSTALLED"), OutcomeState.DORMANT, "NOT_INSTALLED"),
        (told(ItemState.ELSEWHERE, text="box-2 settles"), OutcomeState.ELSEWHERE, "box-2 settles"),
    ],
)
def test_what_came_of_a_request_is_that_of_the_present_one(
    report: ItemReport | None, state: OutcomeState, text: str
) -> None:
    found = cell(app_matrix([with_limits(asr(1), asked(10), report=report)]))
    assert (found.outcome.state, found.outcome.text) == (state, text)
    assert found.amounts == RequestedAmounts(10, 1)
    assert found.is_uneven
    assert found.outcome.is_problem is (state is OutcomeState.REJECTED)


def test_what_was_written_back_is_a_problem() -> None:
    report = told(ItemState.APPLIED, conditions=(Condition(type="Drifted", manager="helm", text="4 units"),))
    found = cell(app_matrix([with_limits(asr(4), asked(10), report=report)]))
    assert (found.outcome.drifted_by, found.outcome.is_problem) == ("helm", True)


def test_pods_of_one_app_that_hold_different_amounts_are_uneven() -> None:
    pods = {"u": pod("asr-0", ("main", "0", 1, 1)), "v": pod("asr-1", ("main", "0", 2, 1))}
    assert cell(app_matrix([box(pods=pods)])).is_uneven
    assert not cell(app_matrix([asr(3)])).is_uneven


def test_a_live_limit_counts_as_what_its_pod_runs_with() -> None:
    held = pod("asr-0", ("main", "0", 4, 1)) | {"enforced": "enforced"}
    held["pieces"] = [{**held["pieces"][0], "live_units": 2}]
    found = cell(app_matrix([with_limits(box(pods={"u": held}), asked(2), report=told(ItemState.APPLIED))]))
    assert not found.is_uneven
    (one,) = found.running
    assert (one.amounts, one.live_of_units) == (RequestedAmounts(2, 1), 4)


def test_a_request_without_a_pod_and_a_box_without_reports() -> None:
    silent = replace(with_limits(box(), asked(3)), latest={})
    found = cell(app_matrix([silent]))
    assert (found.running, found.unit_mib, found.is_uneven) == ((), 0, False)


def test_an_app_whose_name_looks_like_a_pods_is_found_by_its_request() -> None:
    details = with_limits(box(pods={"u": pod("llm-7b-0", ("main", "0", 1, 1))}), asked(1, app="llm-7b"))
    assert [row.key.app for row in app_matrix([details]).rows] == ["llm-7b"]
