"""What a container has on a box, and the limits that a change makes of it which names a part."""

from __future__ import annotations

from typing import Any

import pytest
from kits.details import box, pod

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.present.amounts import (
    UNKNOWN,
    PresentLimits,
    checked_patch,
    held_limits,
    present_limits,
    whole_limits,
)
from edgegpu_cloud.fleet.present.steps import LimitsStep, LimitsSteps
from edgegpu_cloud.fleet.reports import pods_of
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.spec import AppLimits
from edgegpu_sync.messages.uplink import ItemReport, ItemState

KEY = ContainerKey("default", "asr", "main")
HELD = PresentLimits(memory_units=12, core=10)
REQUESTED = PresentLimits(memory_units=7, core=30)


def held(*pieces: tuple[tuple[str, str, int, int], ...], name: str = "asr-{}") -> PresentLimits:
    """Return what the container holds in pods of these pieces."""
    pods = {f"u{at}": pod(name.format(at), *each) for at, each in enumerate(pieces)}
    return held_limits(pods_of(box(pods=pods).latest).values(), KEY)


def test_what_all_pods_hold_is_known_amount_by_amount() -> None:
    one, more = ("main", "0", 12, 10), ("main", "1", 8, 10)
    assert held((one,)) == held((one,), (one,)) == HELD
    assert held((one,), (more,)) == PresentLimits(core=10), "their memory differs"
    assert held((one, ("side", "0", 3, 4))) == HELD, "another container is none of it"
    assert held((one,), (("side", "0", 3, 4),)) == UNKNOWN, "in one pod it holds nothing"
    assert held((("main", "0", 29, 100), ("main", "1", 29, 100))) == PresentLimits(core=200)
    assert held() == held((one,), name="asr-two-{}") == UNKNOWN


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (None, REQUESTED),
        ({"state": "Open"}, REQUESTED),
        ({"state": "Applied"}, REQUESTED),
        ({"state": "Pending", "code": "NO_ROOM"}, REQUESTED),
        ({"state": "Failed", "code": "TIMED_OUT"}, REQUESTED),
        ({"state": "Rejected", "code": "NOT_INSTALLED"}, REQUESTED),
        ({"state": "Rejected", "code": "NO_ROOM"}, HELD),
        ({"state": "Failed", "code": "NO_ROOM", "restored": True}, HELD),
        ({"state": "Elsewhere"}, HELD),
        ({"state": "Unsupported"}, HELD),
        ({"state": "Applied", "conditions": ({"type": "Drifted"},)}, HELD),
        ({"state": "Rejected", "rev": 1}, REQUESTED),
    ],
)
def test_a_request_counts_while_it_stands(more: dict[str, Any] | None, expected: PresentLimits) -> None:
    report = None
    if more is not None:
        state = ItemState(more["state"])
        report = ItemReport.model_validate({"rev": 2, "hash": "ab", "retry": 0, **more, "state": state})
    assert present_limits(_item(), report, HELD) == expected


def _item(**more: Any) -> AppLimits:  # noqa: ANN401  (its fields)
    names = {"namespace": "default", "app": "asr", "container": "main", "cluster": "c0ffee00"}
    return AppLimits.model_validate({"rev": 2, "memory_units": 7, "core": 30, **names, **more})


def test_live_limits_that_a_pod_has_lost_are_those_of_the_app() -> None:
    values = {"state": ItemState.APPLIED, "rev": 2, "hash": "ab", "retry": 0, "conditions": ({"type": "Drifted"},)}
    assert present_limits(_item(live=True), ItemReport.model_validate(values), HELD) == REQUESTED
    assert present_limits(None, None, HELD) == HELD


def patch(memory_units: int | None = None, core: int | None = None) -> LimitsPatch:
    return LimitsPatch(namespace="default", app="asr", container="main", memory_units=memory_units, core=core)


@pytest.mark.parametrize(
    ("asked", "present", "expected"),
    [
        (patch(memory_units=10), HELD, (10, 10)),
        (patch(core=25), HELD, (12, 25)),
        (patch(memory_units=10, core=25), UNKNOWN, (10, 25)),
        (patch(memory_units=0), HELD, (0, 0)),
        (patch(memory_units=0), UNKNOWN, (0, 0)),
        (patch(memory_units=0, core=100), HELD, (0, 100)),
        (patch(memory_units=10), PresentLimits(core=100), (10, 100)),
    ],
)
def test_what_is_not_named_is_as_it_was(asked: LimitsPatch, present: PresentLimits, expected: tuple[int, int]) -> None:
    whole = whole_limits(asked, present, box="hall")
    assert (whole.memory_units, whole.core) == expected


@pytest.mark.parametrize(
    ("asked", "present", "words"),
    [
        (patch(memory_units=10), UNKNOWN, "no core is given, and"),
        (patch(memory_units=10), PresentLimits(memory_units=12), "no core is given, and"),
        (patch(memory_units=10), PresentLimits(memory_units=0, core=0), "no core is given, and"),
        (patch(core=10), PresentLimits(core=100), "no memory is given, and"),
        (patch(), HELD, "nothing is named"),
    ],
)
def test_nothing_is_made_up(asked: LimitsPatch, present: PresentLimits, words: str) -> None:
    with pytest.raises(CloudError) as refused:
        whole_limits(asked, present, box="hall")
    assert words in refused.value.text


def test_a_change_is_checked_before_anything_is_known_of_a_box() -> None:
    assert checked_patch(patch(memory_units=10)).memory_units == 10
    with pytest.raises(CloudError, match="nothing is named"):
        checked_patch(patch())


def test_steps_are_said_in_short_the_most_frequent_first() -> None:
    steps = LimitsSteps(
        steps=[
            LimitsStep(before=HELD, after=RequestedAmounts(10, 10), boxes=48),
            LimitsStep(before=PresentLimits(core=100), after=None, boxes=1),
        ],
        not_asked=2,
        not_judged=3,
    )
    assert steps.lines() == [
        "12/10 -> 10/10 on 48 boxes",
        "?/100 -> refused, for want of what it has on 1 box",
        "not asked: 2 (another box of the cluster is, or it has reported none)",
        "not judged: 3",
    ]
