"""Requests over many boxes: the database chooses, orders, counts and pages, so a request reads no more rows with more.

What a request reads is counted, not timed: each statement is asked once more beside it, and its rows are counted.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event

from edgegpu_cloud.enrolment.manager import EnrolmentManager, TokenRequest, place_of
from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.access import Access, read_scope
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.rollouts.rollouts import OUTLINED_BOXES, RolloutPlan, RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.strategy import RolloutStrategy, WaveSize
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import EnrolledBox, EnrolmentAttempt, RequestState, Token
from edgegpu_cloud.store.rollouts.records import RolloutFilter, RolloutState
from edgegpu_cloud.store.summaries.tables import BoxSummary
from edgegpu_sync.ids import DeviceId, device_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgegpu_cloud.store.store import ControllerStore

NOW_S = 1_790_000_000.0
MANY = 400
MOST_STATEMENTS, MOST_ROWS = 25, 130
SPREAD = SharingSettings(policy="spread")
LIMITS = ContainerLimits(namespace="default", app="asr", container="main", memory_units=4, core=1)
FIVES = RolloutStrategy(canary=1, sizes=(WaveSize(3), WaveSize(5)))


class Reads:
    """What was read: how many statements, and how many rows they have returned."""

    def __init__(self) -> None:
        self.statements, self.rows = 0, 0

    def asked(self, connection: Any, _: object, statement: str, parameters: Any, __: object, many: bool) -> None:  # noqa: ANN401, FBT001
        """Count a statement, and the rows that it returns when it is asked again."""
        if not statement.lstrip().upper().startswith(("SELECT", "WITH")) or many:
            return
        cursor = connection.connection.cursor()
        cursor.execute(statement, parameters)
        self.statements, self.rows = self.statements + 1, self.rows + len(cursor.fetchall())
        cursor.close()


@contextmanager
def few_reads(ids: int = 0) -> Iterator[Reads]:
    """Hold what is done here to few statements and few rows; `ids` rows more, where a set is compared by its ids."""
    reads = Reads()
    event.listen(Engine, "after_cursor_execute", reads.asked)
    try:
        yield reads
    finally:
        event.remove(Engine, "after_cursor_execute", reads.asked)
    assert 0 < reads.statements <= MOST_STATEMENTS
    assert reads.rows <= MOST_ROWS + ids


def device(number: int) -> DeviceId:
    return device_id(f"{number:016d}")


def take_in(store: ControllerStore, number: int, *, away: Sequence[int] = (), clusters: int = 0) -> None:
    """Enrol boxes 0 to `number`; those in `away` are offline, the others are split among so many clusters."""
    with store.write() as tx:
        for at in range(number):
            box = EnrolledBox(
                device=device(at), enrolment=1, public="A" * 43, instance=f"{at:064d}", name=f"box-{at:04d}"
            )
            add_box(tx, box, Author("setup", NOW_S))
        boxes = tx.boxes.get([device(at) for at in range(number)])
        tx.boxes.put([replace(box, online=True, seen_at_s=NOW_S) for box in boxes.values()])
        tx.boxes.put([replace(boxes[device(at)], online=False) for at in away])
        tx.summaries.put(
            BoxSummary(device=device(at), cluster=f"c{at % clusters}" if clusters else "", holder=at in {5, 6})
            for at in range(number)
        )


def rollouts_of(store: ControllerStore, scope: str = "") -> Rollouts:
    return Rollouts(store, clock=lambda: NOW_S, access=Access("anna", Role.ADMIN, read_scope(scope)))


def enrolment_of(store: ControllerStore, scope: str = "") -> EnrolmentManager:
    return EnrolmentManager(store, clock=lambda: NOW_S, access=Access("anna", Role.ADMIN, read_scope(scope)))


def add_attempts(store: ControllerStore, token: Token, number: int, state: RequestState) -> None:
    with store.write() as tx:
        for at in range(number):
            asked = {"host": f"host-{at}", "address": f"10.0.0.{at}", "name": "", "instance": ""}
            one = EnrolmentAttempt(
                id=f"{at:032x}", token=token.digest, digest="d", asked=asked, at_s=NOW_S + at // 2, state=state
            )
            box = device(at) if state is RequestState.DONE else None
            tx.enrolments.add_request(replace(one, device=box))


class TestEnrolment:
    def test_a_tokens_page_reads_the_attempts_that_it_shows(self, store: ControllerStore) -> None:
        take_in(store, MANY)
        manager = enrolment_of(store)
        token = manager.make(TokenRequest(uses=MANY, name="hall")).token
        add_attempts(store, token, MANY, RequestState.DONE)
        with few_reads():
            newest = manager.attempts(token=token.digest, newest_first=True, limit=21)
        assert [one.box for one in newest[:2]] == [f"box-{MANY - 1:04d}", f"box-{MANY - 2:04d}"]
        assert {one.made_by for one in newest} == {"anna"}

    def test_boxes_that_wait_are_paged_searched_counted_and_decided(self, store: ControllerStore) -> None:
        manager = enrolment_of(store)
        token = manager.make(TokenRequest(uses=MANY, approval=True)).token
        add_attempts(store, token, MANY, RequestState.WAITING)
        found: list[str] = []
        with few_reads():
            first = manager.attempts(RequestState.WAITING, limit=50)
            assert manager.attempt_count(RequestState.WAITING) == MANY
        while part := manager.attempts(
            RequestState.WAITING, after=place_of(first[0].attempt) if found else "", limit=50
        ):
            found += [one.attempt.id for one in part]
            first = part[-1:]
        assert found == [f"{at:032x}" for at in range(MANY)], "none twice, none left out, also at the same moment"
        with few_reads():
            for search, hosts in (
                ("HOST-39", 11),
                ("10.0.0.7", 11),
                ("%", 0),
                ("anna", MANY),
                (token.digest[:9], MANY),
            ):
                assert manager.attempt_count(RequestState.WAITING, search=search) == hosts
        with few_reads():
            assert manager.decide(found[7], RequestState.APPROVED).made_by == "anna"
        assert manager.attempt_count(RequestState.WAITING) == MANY - 1

    def test_tokens_are_paged_searched_and_counted(self, store: ControllerStore) -> None:
        manager = enrolment_of(store)
        manager.make_many(TokenRequest(name="plant", labels={"site": "hall"}), MANY)
        manager.make(TokenRequest(name="other", labels={"site": "yard"}, lasts_s=60))
        with few_reads():
            part = manager.tokens(limit=50)
            assert manager.token_count() == MANY + 1
        assert len(manager.tokens(after=place_of(part[-1]), limit=1_000)) == MANY + 1 - 50
        with few_reads():
            assert manager.token_count("PLANT-39") == 11
            assert [one.name for one in manager.tokens("site=yard")] == ["other"]
        for scope, number in (("site=hall", MANY), ("site!=hall", 1), ("site in (hall,yard)", MANY + 1), ("!site", 0)):
            assert enrolment_of(store, scope).token_count() == number
        (other,) = manager.tokens("other")
        with few_reads():
            manager.take_back(other.digest[:12])
        assert manager.token_count("other") == 0

    @pytest.mark.parametrize("cursor", ["x", "nan abc", "inf abc", "\0"])
    def test_a_cursor_of_no_page_is_refused(self, store: ControllerStore, cursor: str) -> None:
        if cursor == "\0":
            assert enrolment_of(store).tokens(cursor, after="") == []
            return
        with pytest.raises(CloudError, match="belongs to no page"):
            enrolment_of(store).tokens(after=cursor)


class TestRollouts:
    def test_a_plan_and_its_start_read_a_part_of_the_boxes(self, store: ControllerStore) -> None:
        take_in(store, MANY, away=[1, 2])
        rollouts, request = rollouts_of(store), RolloutRequest(change=SPREAD, first=["box-0300"])
        with few_reads(ids=MANY):
            outline = rollouts.outline(request)
        assert [(wave.name, wave.size) for wave in outline.waves] == [
            ("canary", 1),
            *((f"wave {number}", 100) for number in (1, 2, 3)),
            ("wave 4", 99),
        ]
        assert [len(wave.boxes) for wave in outline.waves] == [1] + [OUTLINED_BOXES] * 4
        with few_reads(ids=MANY):
            part = rollouts.preview(request, limit=50, offset=90)
        assert [len(wave.boxes) for wave in part.waves] == [0, 11, 39, 0, 0]
        assert part.notes == ["2 boxes offline now"]
        with few_reads():
            number = rollouts.start(request, expect_boxes=MANY)
        shown = rollouts.boxes(number, limit=MANY)
        assert [box.position for box in shown] == list(range(MANY))
        assert [shown[at].name for at in (0, 1, 2, -2, -1)] == [
            *("box-0300", "box-0000", "box-0003"),
            *("box-0001", "box-0002"),
        ]
        assert [box.wave for box in shown] == [0] + [1] * 100 + [2] * 100 + [3] * 100 + [4] * 99
        assert rollouts.show(number).waves[-1].boxes == 99

    def test_a_plan_is_what_is_started(self, store: ControllerStore) -> None:
        take_in(store, 23, away=[0, 5, 9], clusters=7)
        rollouts = rollouts_of(store)
        for change in (SPREAD, LIMITS):
            request = RolloutRequest(change=change, strategy=FIVES, first=["box-0006"])
            plan = rollouts.preview(request, limit=100)
            started = rollouts.boxes(rollouts.start(request), limit=100)
            planned = [(at, box) for at, wave in enumerate(plan.waves) for box in wave.boxes]
            assert [(box.wave, box.device, box.position) for box in started] == [
                (at, box.device, box.position) for at, box in planned
            ]
            assert [set(box.others) for box in started] == [set(box.others) for _, box in planned]
            assert plan.boxes == len(planned) == sum(wave.size for wave in plan.waves)

    def test_of_each_cluster_the_box_is_taken_that_applies_app_limits_else_one_that_is_online(
        self, store: ControllerStore
    ) -> None:
        take_in(store, 14, away=[0, 5], clusters=7)
        plan = rollouts_of(store).preview(RolloutRequest(change=LIMITS))
        chosen = {box.name: set(box.others) for box in boxes_of(plan)}
        taken = {"box-0007", "box-0001", "box-0002", "box-0003", "box-0004", "box-0012", "box-0006"}
        assert set(chosen) == taken, "5 applies them, but is offline"
        assert chosen["box-0007"] == {device(0)}
        assert plan.notes == ["7 boxes left out: another box of the cluster applies its app limits"]
        first = RolloutRequest(change=LIMITS, first=["box-0008"])
        assert "box-0001" not in {box.name for box in boxes_of(rollouts_of(store).preview(first))}
        with pytest.raises(CloudError, match="cannot begin with box-0000: not among the boxes"):
            rollouts_of(store).preview(replace(first, first=["box-0000"]))

    def test_a_box_without_a_cluster_is_one_of_its_own(self, store: ControllerStore) -> None:
        take_in(store, 3)
        plan = rollouts_of(store).preview(RolloutRequest(change=LIMITS))
        assert [box.others for box in boxes_of(plan)] == [[], [], []]
        assert plan.notes == ["3 boxes without a reported cluster: app limits are refused there"]

    def test_boxes_out_of_ones_scope_are_not_named_and_do_not_exist(self, store: ControllerStore) -> None:
        take_in(store, 4, clusters=2)
        fleet = Fleet(store, clock=lambda: NOW_S, by="anna")
        for name in ("box-0000", "box-0001"):
            fleet.label(name, {"site": "hall"})
        mine = rollouts_of(store, "site=hall")
        assert {box.name: box.others for box in boxes_of(mine.preview(RolloutRequest(change=LIMITS)))} == {
            "box-0000": [],
            "box-0001": [],
        }
        for named in ("box-0002", "box-0004"):
            for request in (RolloutRequest(change=SPREAD, first=[named]), RolloutRequest(change=SPREAD, boxes=[named])):
                with pytest.raises(NotFoundError, match=f"cannot find a box '{named}'"):
                    mine.preview(request)
        with pytest.raises(NotFoundError, match=r"2 begin so \(box-0000, box-0001\)"):
            mine.preview(RolloutRequest(change=SPREAD, boxes=["box"]))

    def test_what_is_refused_leaves_nothing(self, store: ControllerStore) -> None:
        take_in(store, 6)
        rollouts = rollouts_of(store)
        with pytest.raises(ConflictError, match="it concerns 6 boxes by now, not 5"):
            rollouts.start(RolloutRequest(change=SPREAD), expect_boxes=5)
        first = rollouts.start(RolloutRequest(change=SPREAD, boxes=["box-0003"]))
        with pytest.raises(ConflictError, match=f"rollout {first} changes the same on box-0003"):
            rollouts.start(RolloutRequest(change=SPREAD))
        assert [one.number for one in rollouts.all()] == [first]
        assert rollouts.start(RolloutRequest(change=SPREAD, boxes=["box-0004"])) > first

    def test_the_list_is_searched_filtered_and_paged(self, store: ControllerStore) -> None:
        take_in(store, 5)
        rollouts = rollouts_of(store)
        numbers = [rollouts.start(RolloutRequest(change=SPREAD, boxes=[f"box-000{at}"])) for at in range(4)]
        numbers.append(rollouts.start(RolloutRequest(change=LIMITS, boxes=["box-0004"])))
        rollouts.pause(numbers[0])

        def found(where: RolloutFilter, *, before: int | None = None) -> list[int]:
            return [one.number for one in rollouts.all(where=where, before=before, limit=3)]

        assert found(RolloutFilter()) == numbers[:1:-1]
        assert found(RolloutFilter(), before=numbers[2]) == [numbers[1], numbers[0]]
        assert found(RolloutFilter(search="ASR")) == found(RolloutFilter(kind="limits")) == [numbers[4]]
        assert found(RolloutFilter(state=RolloutState.PAUSED)) == [numbers[0]]
        assert found(RolloutFilter(search="spread"), before=numbers[2]) == [numbers[1], numbers[0]]
        assert found(RolloutFilter(search=str(numbers[1]))) == [numbers[1]]
        for nothing in ("bert", "exclude", "null", "container"):
            assert found(RolloutFilter(search=nothing)) == []


def boxes_of(plan: RolloutPlan) -> list[Any]:
    return [box for wave in plan.waves for box in wave.boxes]
