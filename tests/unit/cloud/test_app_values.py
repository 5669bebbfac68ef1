"""Apps on boxes by their values: what is wanted, what the pods have, what came of it, what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kits.details import box, pod

from edgegpu_cloud.fleet.limits.app_values import (
    AppOnBox,
    AppValue,
    AppValues,
    CountedValue,
    app_on_box,
    read_value,
    values_on,
)
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState
from edgegpu_cloud.fleet.reports import pods_of
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.spec import AppLimits, Spec
from edgegpu_sync.messages.uplink import Condition, ItemReport, ItemState

if TYPE_CHECKING:
    from edgegpu_cloud.fleet.views import BoxDetails

ASR = ContainerKey("default", "asr", "main")
NAME = "app_limits/default/asr/main"
AMOUNTS = st.builds(RequestedAmounts, st.integers(0, 2**53), st.integers(0, 6_400))


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


def on(details: BoxDetails, key: ContainerKey = ASR) -> AppOnBox:
    found = app_on_box(details, key)
    values = values_on(details.spec.app_limits, pods_of(details.latest), unit_mib=found.value.unit_mib)
    assert values[key] == found.value
    return found


def test_a_value_for_each_container() -> None:
    details = with_limits(
        box(pods={"u": pod("asr-0", ("main", "0", 1, 1), ("side", "1", 2, 5))}), asked(4, app="plate")
    )
    found = values_on(details.spec.app_limits, pods_of(details.latest), unit_mib=256)
    assert {(key.app, key.container): one.key for key, one in found.items()} == {
        ("asr", "main"): "none_1.1_256",
        ("asr", "side"): "none_2.5_256",
        ("plate", "main"): "4.1_none_256",
    }
    assert on(details).running[0].cards == ("GPU-0",)


@given(
    value=st.builds(
        AppValue,
        wanted=st.none() | AMOUNTS,
        reported=st.lists(AMOUNTS, max_size=4).map(tuple),
        unit_mib=st.integers(0, 2**53),
    )
)
def test_a_value_is_read_from_its_key(value: AppValue) -> None:
    assert read_value(value.key) == value


@pytest.mark.parametrize("key", ["", "4.1", "4.1__256", "4.1_none_", "-4.1_none_256", "4.1_none_256_", "٤.1_none_256"])
def test_what_is_no_key_is_none(key: str) -> None:
    assert read_value(key) is None


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
    found = on(with_limits(asr(1), asked(10), report=report))
    assert (found.outcome.state, found.outcome.text) == (state, text)
    assert found.value.wanted == RequestedAmounts(10, 1)
    assert found.value.differs
    assert found.outcome.is_problem is (state is OutcomeState.REJECTED)


def test_what_was_written_back_is_a_problem() -> None:
    report = told(ItemState.APPLIED, conditions=(Condition(type="Drifted", manager="helm", text="4 units"),))
    found = on(with_limits(asr(4), asked(10), report=report))
    assert (found.outcome.drifted_by, found.outcome.is_problem) == ("helm", True)


def test_pods_of_one_app_that_hold_different_amounts_differ() -> None:
    pods = {"u": pod("asr-0", ("main", "0", 1, 1)), "v": pod("asr-1", ("main", "0", 2, 1))}
    assert on(box(pods=pods)).value.reported == (RequestedAmounts(2, 1), RequestedAmounts(1, 1))
    assert on(box(pods=pods)).value.differs
    assert not on(asr(3)).value.differs


def test_boxes_of_the_same_amounts_do_not_differ_where_some_had_a_request_and_others_none() -> None:
    four, five = RequestedAmounts(4, 1), RequestedAmounts(5, 1)
    asked_for, never_asked, without_pod = (
        AppValue(wanted=wanted, reported=reported, unit_mib=256)
        for wanted, reported in ((four, (four,)), (None, (four,)), (four, ()))
    )
    assert not counted(asked_for, never_asked, without_pod).differs
    assert counted(asked_for, replace(never_asked, reported=(five,))).differs
    assert counted(asked_for, replace(never_asked, unit_mib=512)).differs


def counted(*values: AppValue) -> AppValues:
    return AppValues(key=ASR, values=[CountedValue(value, 1) for value in values])


def test_a_live_limit_counts_as_what_its_pod_runs_with() -> None:
    held = pod("asr-0", ("main", "0", 4, 1)) | {"enforced": "enforced"}
    held["pieces"] = [{**held["pieces"][0], "live_units": 2}]
    found = on(with_limits(box(pods={"u": held}), asked(2), report=told(ItemState.APPLIED)))
    assert not found.value.differs
    (one,) = found.running
    assert (one.amounts, one.live_of_units) == (RequestedAmounts(2, 1), 4)


def test_a_request_without_a_pod_and_a_box_without_reports() -> None:
    found = on(replace(with_limits(box(), asked(3)), latest={}))
    assert (found.running, found.value.key, found.value.differs) == ((), "3.1_none_0", False)


def test_an_app_whose_name_looks_like_a_pods_is_found_by_its_request() -> None:
    details = with_limits(box(pods={"u": pod("llm-7b-0", ("main", "0", 1, 1))}), asked(1, app="llm-7b"))
    assert on(details, ContainerKey("default", "llm-7b", "main")).value.key == "1.1_1.1_256"
