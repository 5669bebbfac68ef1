"""The churn run's checker: readings that are in order pass, and each kind of violation is found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from churn.arithmetic import Amounts, fits, possible
from churn.findings import KINDS
from churn.judge import Judge, Limits, Readings
from churn.outcome import Outcome
from churn.plants import Plants, kinds_of
from churn.records import INIT, Booking, ContainerRecord, Failure, PodRecord, Reading
from churn.windows import KILLS, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

A, B = "GPU-a", "GPU-b"
TOTALS = {A: Amounts(29, 100), B: Amounts(94, 100)}
KILL = Window("plugin_kill", 10.0, 15.0)
LATER_S = 150
"""By then each limit of time is over."""


def ids(card: str, letter: str, count: int, first: int = 0) -> frozenset[str]:
    return frozenset(f"{card}::{letter}{number:04d}" for number in range(first, first + count))


def pod(name: str, memory: int, core: int, card: str = A, **more: Any) -> PodRecord:  # noqa: ANN401
    bound = PodRecord(
        uid=name,
        name=name,
        node="node",
        phase="Running",
        running=True,
        started={"main": "containerd://1"},
        app=name,
        containers=(ContainerRecord("main", memory, core),),
        cards={"main": frozenset({card})},
    )
    return replace(bound, **more)


def booking(name: str, memory: int, core: int, card: str = A, first: int = 0) -> Booking:
    return Booking(name, "main", ids(card, "m", memory, first), ids(card, "c", core, first))


SHARED, OTHER, WHOLE = pod("shared", 4, 10), pod("other", 5, 20), pod("whole", 94, 100, B)
WAITING = pod("waiting", 20, 90, node="", phase="Pending", running=False, cards=None)
IMPOSSIBLE = replace(WAITING, uid="impossible", containers=(ContainerRecord("main", 200, 1),))
BOOKINGS = (booking("shared", 4, 10), booking("other", 5, 20, first=10), booking("whole", 94, 100, B))


def reading(at_s: float, *, pods: Sequence[PodRecord] = (SHARED, OTHER, WHOLE, WAITING, IMPOSSIBLE)) -> Reading:
    """Return what is in order: two pods share a card, a third has the other, a fourth waits, a fifth fits nowhere."""
    return Reading(
        at_s=at_s,
        pods=tuple(pods),
        bookings=BOOKINGS,
        listed=tuple(replace(entry, pod=f"churn/{entry.pod}") for entry in BOOKINGS),
        allocatable=(123, 200),
        wanted={"shared": 1},
    )


def judged(plant: str = "", *, windows: Sequence[Window] = (), seconds: int = LATER_S) -> Judge:
    judge, lies = Judge(TOTALS, lambda: windows, Limits()), Plants(kinds_of(plant), TOTALS, lambda: windows)
    for at_s in range(seconds):
        judge.take(lies.reading(reading(float(at_s))))
    judge.take_seen(SHARED, "main", seen=lies.seen(frozenset({A})), booked=frozenset({A}), at_s=0.0)
    return judge


def test_what_is_in_order_passes() -> None:
    judge = judged(windows=[KILL])
    assert not judge.findings.violations
    assert judge.findings.unchecked() == ["not_running_again", "pending_fits"], (
        "nobody failed, and nobody waited for long"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_violation_is_found(kind: str) -> None:
    judge = judged(kind, windows=[replace(KILL, begin_s=3.0, end_s=4.0)])
    assert judge.findings.counts()[kind] >= 1, judge.findings.examples()
    assert judge.findings.samples[kind] >= 1


def test_all_kinds_are_found_at_once() -> None:
    judge = judged("all", windows=[replace(KILL, begin_s=3.0, end_s=4.0)])
    assert all(judge.findings.counts().values()), judge.findings.counts()


def test_a_pod_that_would_fit_may_wait_for_two_minutes() -> None:
    small = replace(WAITING, containers=(ContainerRecord("main", 20, 70),))
    for seconds, count in ((121, 0), (122, 1)):
        judge = Judge(TOTALS, tuple, Limits())
        for at_s in range(seconds):
            judge.take(reading(float(at_s), pods=[SHARED, OTHER, WHOLE, small]))
        assert judge.findings.counts()["pending_fits"] == count


def test_a_planted_kind_has_a_name() -> None:
    with pytest.raises(ValueError, match="no violation is called two_card: there are unit_twice, "):
        kinds_of("two_card")


def test_kubelet_may_refuse_a_pod_while_a_kill_is_on() -> None:
    for kind in KILLS:
        judge = judged("not_running_again", windows=[Window(kind, 3.0, 8.0)], seconds=30)
        assert not judge.findings.counts()["admission_failed"]
        assert judge.refusals.excused == {kind: 1}


def test_a_replacement_that_runs_in_time_pays() -> None:
    windows = [Window("plugin_kill", 3.0, 8.0)]
    judge = Judge(TOTALS, lambda: windows, Limits())
    failed = pod(
        "dep",
        1,
        1,
        phase="Failed",
        reason="UnexpectedAdmissionError",
        running=False,
        owner="o",
        owner_kind="ReplicaSet",
    )
    successor = pod("dep-2", 1, 1, app="dep")
    for at_s in range(60):
        pods = [] if at_s < 5 else [failed] if at_s < 30 else [failed, successor]
        bookings = [booking(pod.uid, 1, 1) for pod in pods if pod.running]
        listed = [replace(entry, pod=f"churn/{entry.pod}") for entry in bookings]
        judge.take(
            Reading(at_s=at_s, pods=tuple(pods), bookings=tuple(bookings), listed=tuple(listed), wanted={"dep": 1})
        )
    assert not judge.findings.violations
    assert judge.refusals.replaced == 1
    assert judge.refusals.replaced_most_s == 20.0, "from 9 to 29 s: a kill's time is not counted"
    assert judge.refusals.replaced_most_wall_s == 25.0


def test_kubelet_may_refuse_a_pod_just_after_a_kill() -> None:
    for at_s, count in ((13, 0), (15, 1)):
        judge = Judge(TOTALS, lambda: [Window("plugin_kill", 3.0, 8.0)], Limits())
        for reading_s in range(20):
            refused = (
                [pod("late", 1, 1, phase="Failed", reason="UnexpectedAdmissionError")] if reading_s >= at_s else []
            )
            judge.take(reading(float(reading_s), pods=[SHARED, *refused]))
        assert judge.findings.counts()["admission_failed"] == count


def test_checkpoint_request_and_podresources_must_agree() -> None:
    truth = reading(0.0, pods=[SHARED])
    few = (replace(BOOKINGS[0], core=ids(A, "c", 9)), *BOOKINGS[1:])
    listed = tuple(replace(entry, pod=f"churn/{entry.pod}") for entry in few)
    for lie in (replace(truth, listed=listed), replace(truth, bookings=few, listed=listed)):
        for seconds, count in ((2, 0), (3, 1)):
            judge = Judge(TOTALS, tuple, Limits())
            for at_s in range(seconds):
                judge.take(replace(lie, at_s=float(at_s)))
            assert judge.findings.counts()["records_differ"] == count, "what is so for a moment is no violation"


def test_an_annotation_may_be_false_while_somebody_is_away_and_for_ten_seconds_more() -> None:
    for false_s, count in ((20, 0), (25, 1)):
        judge = Judge(TOTALS, lambda: [Window("api_away", 3.0, 8.0)], Limits())
        false = Plants(["annotation_false"], TOTALS, tuple)
        for at_s in range(40):
            truth = reading(float(at_s))
            judge.take(false.reading(truth) if 3 <= at_s < false_s else truth)
        assert judge.findings.counts()["annotation_false"] == 3 * count


def test_a_pod_that_fits_only_now_and_then_does_not_wait_too_long() -> None:
    judge = Judge(TOTALS, tuple, Limits())
    small = replace(WAITING, containers=(ContainerRecord("main", 1, 1),))
    for at_s in range(LATER_S):
        full = [pod("full", 20, 70)] if at_s % 100 == 0 else []
        judge.take(reading(float(at_s), pods=[SHARED, OTHER, WHOLE, small, *full]))
    assert not judge.findings.counts()["pending_fits"]


def test_an_init_container_hands_its_devices_on() -> None:
    first = replace(SHARED, containers=(ContainerRecord("first", 6, 10, INIT), ContainerRecord("main", 4, 10)))
    first = replace(first, cards={"first": frozenset({A}), "main": frozenset({A})})
    judge = Judge(TOTALS, tuple, Limits())
    both = (Booking("shared", "first", ids(A, "m", 6), ids(A, "c", 10)), booking("shared", 4, 10))
    judge.take(replace(reading(1.0, pods=[first]), bookings=both))
    assert not judge.findings.violations


def test_what_kubelet_still_has_of_a_pod_that_is_gone_counts_no_more() -> None:
    heir = pod("heir", 4, 10)
    for first, count in (([SHARED, heir], 1), ([heir], 0)):
        judge = Judge(TOTALS, tuple, Limits())
        judge.take(replace(reading(1.0, pods=[SHARED, heir]), bookings=BOOKINGS[:1]))
        judge.take(replace(reading(2.0, pods=first), bookings=(BOOKINGS[0], booking("heir", 4, 10))))
        assert judge.findings.counts()["unit_twice"] == count


def test_records_of_a_pod_that_kubelet_has_refused_differ_until_the_api_hears_of_it() -> None:
    windows = [Window("kubelet_kill", 0.0, 2.0)]
    refused = (Failure("shared", "UnexpectedAdmissionError"),)
    for failures, count in ((refused, 0), ((), 1)):
        judge = Judge(TOTALS, lambda: windows, Limits())
        for at_s in range(3, 20):
            truth = reading(float(at_s), pods=[SHARED])
            judge.take(replace(truth, bookings=(), listed=(), failures=failures))
        assert judge.findings.counts()["records_differ"] == count


def test_records_may_differ_while_kubelet_cannot_say_what_has_ended() -> None:
    windows = [Window("api_away", 3.0, 8.0)]
    for differ_s, count in ((range(3, 14), 0), (range(3, 18), 1), (range(1, 15), 0), (range(1, 16), 1)):
        judge = Judge(TOTALS, lambda: windows, Limits())
        for at_s in range(20):
            truth = reading(float(at_s), pods=[SHARED])
            judge.take(replace(truth, listed=()) if at_s in differ_s else truth)
        assert judge.findings.counts()["records_differ"] == count


def test_containers_of_a_pod_that_the_api_has_not_shown_yet_are_judged_when_it_has() -> None:
    for kind, count in ((INIT, 0), ("app", 1)):
        containers = (ContainerRecord("first", 4, 10, kind), ContainerRecord("main", 4, 10))
        both = (Booking("shared", "first", ids(A, "m", 4), ids(A, "c", 10)), booking("shared", 4, 10))
        judge = Judge(TOTALS, tuple, Limits())
        judge.take(replace(reading(1.0, pods=[OTHER]), bookings=both))
        assert not judge.findings.violations
        judge.take(replace(reading(2.0, pods=[OTHER, replace(SHARED, containers=containers)]), bookings=both))
        assert judge.findings.counts()["unit_twice"] == count


def test_a_container_that_is_booked_on_two_cards_must_not_start() -> None:
    split = Booking("shared", "main", ids(A, "m", 4), ids(B, "c", 10))
    for started, count in ((dict[str, str](), 0), ({"main": "containerd://1"}, 1)):
        judge = Judge(TOTALS, tuple, Limits())
        judge.take(replace(reading(1.0, pods=[replace(SHARED, started=started)]), bookings=(split,)))
        assert judge.findings.counts()["two_cards"] == count
        assert len(judge.split_bookings) == 1 - count


@pytest.mark.parametrize(("container", "count"), [("containerd://1", 0), ("containerd://2", 1)])
def test_a_container_that_is_booked_anew_has_not_started_while_the_api_knows_its_last_one(
    container: str, count: int
) -> None:
    """A kubelet that starts admits a pod once more whose containers have ended, and the API's word of it is old."""
    split = Booking("shared", "main", ids(A, "m", 4), ids(B, "c", 10))
    judge = Judge(TOTALS, tuple, Limits())
    judge.take(replace(reading(1.0, pods=[SHARED]), bookings=(booking("shared", 4, 10),)))
    for at_s in (2.0, 3.0):
        judge.take(replace(reading(at_s, pods=[SHARED]), bookings=(split,)))
        assert (judge.findings.counts()["two_cards"], len(judge.split_bookings)) == (0, 1)
    judge.take(replace(reading(4.0, pods=[replace(SHARED, started={"main": container})]), bookings=(split,)))
    assert judge.findings.counts()["two_cards"] == count


def test_a_silent_source_is_judged_as_nothing_and_counted() -> None:
    judge = Judge(TOTALS, tuple, Limits())
    for at_s in range(5):
        judge.take(Reading(at_s=float(at_s)))
    assert not judge.findings.violations
    assert judge.findings.unchecked() == list(KINDS)
    assert judge.readings == Readings(count=5, ledgers=0, api_silent_s=4.0, gap_most_s=1.0)


def outcome(**changes: Any) -> Outcome:  # noqa: ANN401
    good = Outcome(
        seconds=60.0,
        seed="1",
        pods=30,
        faults={"plugin_kill": 1},
        expected=["plugin_kill"],
        violations=dict.fromkeys(KINDS, 0),
        samples=dict.fromkeys(KINDS, 9),
        readings=Readings(count=60, ledgers=60),
    )
    return replace(good, **changes)


def test_a_run_passes_only_if_it_proves_something() -> None:
    assert outcome().clean
    for kind in KINDS:
        assert not outcome(violations={kind: 1}).clean
        unchecked = outcome(samples={**dict.fromkeys(KINDS, 9), kind: 0})
        assert f"never checked: {kind}" in unchecked.proves_nothing
        assert not unchecked.clean
    lackings: list[dict[str, object]] = [
        {"faults": {}},
        {"pods": 3},
        {"readings": Readings(ledgers=9)},
        {"errors": ["plugin"]},
    ]
    for lacking in lackings:
        assert not outcome(**lacking).clean
    assert not outcome(readings=Readings(ledgers=60, api_silent_s=7.0)).clean


def test_the_report_has_each_kind_though_there_was_none() -> None:
    report = outcome(violations={}).report()
    assert report["violations"] == dict.fromkeys(KINDS, 0)
    assert {"seconds", "pods", "faults"} <= report.keys()


@pytest.mark.parametrize(
    ("memory", "core", "answer"),
    [
        (29, 99, True),
        (94, 100, True),
        (95, 1, False),
        (0, 200, True),
        (58, 200, True),
        (60, 200, False),
        (1, 150, False),
    ],
)
def test_what_an_empty_node_can_run(memory: int, core: int, *, answer: bool) -> None:
    assert possible([ContainerRecord("main", memory, core)], TOTALS) is answer


def test_a_share_needs_room_on_one_card() -> None:
    free = {A: Amounts(14, 50), B: Amounts(14, 50)}
    assert not fits([ContainerRecord("main", 20, 10)], free, TOTALS)
    assert fits([ContainerRecord("a", 14, 10), ContainerRecord("b", 14, 10)], free, TOTALS)
    init = [ContainerRecord("a", 14, 10, INIT), ContainerRecord("b", 7, 10), ContainerRecord("c", 7, 10)]
    assert fits(init, free, TOTALS), "b and c have the init container's memory; of core 20 are needed at once"
    assert not fits(init, {A: Amounts(14, 19), B: Amounts(13, 50)}, TOTALS)
