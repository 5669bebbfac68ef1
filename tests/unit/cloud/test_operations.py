"""Operations: a change of many boxes is done once on each, whatever dies meanwhile, and what came of it is counted."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kits.controller import Bed, KilledError, Killer

from edgegpu_cloud.errors import CloudError, ConflictError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.access import Access, read_scope
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.phrases import Phrase
from edgegpu_cloud.store.operations.records import BoxArgs, BoxOutcome, OperationFilter, OperationKind, OperationState
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import Json
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import ResultCode

LIMITS: Json = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 4, "core": 1}
BOXES = 6


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """Return a controller whose boxes have each a cluster of their own."""
    bed = Bed(tmp_path, boxes=BOXES)
    for device in bed.devices:
        bed.box(device).cluster = f"c-{device}"
        bed.fleet.label(device, {"half": "low" if int(device) <= BOXES // 2 else "high"})
    bed.connect_all()
    bed.settle()
    yield bed
    bed.store.close()


def operations(bed: Bed, *, role: Role = Role.OPERATOR, scope: str = "") -> Operations:
    return Operations(bed.store, clock=bed.world.clock, access=Access("anna", role, read_scope(scope)))


def runner(bed: Bed) -> OperationRunner:
    return OperationRunner(bed.store, clock=bed.world.clock)


def run_all(bed: Bed) -> None:
    one = runner(bed)
    while one.step():
        pass


def outcomes(bed: Bed, id_: str) -> dict[str, int]:
    return {outcome.value: number for outcome, number in operations(bed).get(id_).outcomes.items()}


class TestLimits:
    def test_each_box_gets_them_as_if_it_was_asked_alone_and_its_answer_is_counted(self, bed: Bed) -> None:
        told = Settlement.rejected(ResultCode.NO_ROOM, "3 units free")
        bed.box(bed.devices[0]).verdict = lambda _: told
        bed.network.cut_off(bed.devices[1])
        id_ = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        assert outcomes(bed, id_) == {"QUEUED": BOXES}
        run_all(bed)
        assert outcomes(bed, id_) == {"STORED": BOXES}
        bed.settle()
        assert outcomes(bed, id_) == {"REJECTED": 1, "STORED": 1, "APPLIED": BOXES - 2}
        (rejected,) = operations(bed).boxes(id_, outcomes=[BoxOutcome.REJECTED]).boxes
        assert (rejected.name, rejected.box.text) == ("box-1", "Rejected: NO_ROOM: 3 units free")
        bed.network.connect(bed.box(bed.devices[1]))
        bed.settle()
        view = operations(bed).get(id_)
        assert view.settled
        assert view.operation.state is OperationState.DONE
        (bed.folder / "alone").mkdir()
        alone = Bed(bed.folder / "alone", boxes=1)
        alone.box().cluster = f"c-{bed.devices[0]}"
        alone.connect_all()
        alone.settle()
        alone.fleet.set_limits(alone.devices[0], ContainerLimits(**LIMITS))
        assert bed.fleet.spec(bed.devices[0]) == alone.fleet.spec(alone.devices[0])
        alone.store.close()

    def test_boxes_that_cannot_have_them_are_refused_and_stop_no_other(self, bed: Bed) -> None:
        first, second, third, *_ = bed.devices
        bed.fleet.revoke(first)
        bed.box(second).cluster = bed.box(third).cluster
        bed.box(second).say_reported()
        bed.settle()
        id_ = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        bed.fleet.forget(bed.devices[-1])
        run_all(bed)
        bed.settle()
        refused = {
            one.box.device: one.box.text for one in operations(bed).boxes(id_, outcomes=[BoxOutcome.REFUSED]).boxes
        }
        assert refused.keys() == {first, second, bed.devices[-1]}
        assert "it is revoked" in refused[first]
        assert "the cluster that it reports does not count" in refused[second]
        assert "forgotten" in refused[bed.devices[-1]]
        assert outcomes(bed, id_) == {"REFUSED": 3, "APPLIED": BOXES - 3}

    def test_the_same_again_is_tried_again_and_answered_anew(self, bed: Bed) -> None:
        first = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        run_all(bed)
        bed.settle()
        again = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        run_all(bed)
        assert outcomes(bed, again) == {"STORED": BOXES}
        bed.settle()
        assert outcomes(bed, first) == outcomes(bed, again) == {"APPLIED": BOXES}

    def test_each_box_has_its_audit_and_the_operation_one(self, bed: Bed) -> None:
        operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter(selector="half=low"))
        run_all(bed)
        with bed.store.read() as tx:
            lines = tx.notes.audits(limit=100)
        assert [one.what for one in lines].count("operation") == 1
        assert {one.device for one in lines if one.what == "box.spec"} == set(bed.devices[: BOXES // 2])


class TestWhatBoxesHaveOfTheirOwn:
    def own(self, bed: Bed, units: int = 8) -> dict[DeviceId, BoxArgs]:
        """Return other units for the first box, and the revision that each has."""
        revs = {device: bed.fleet.box(device).rev for device in bed.devices}
        first = bed.devices[0]
        return {one: BoxArgs(args={"memory_units": units} if one == first else {}, seen_rev=revs[one]) for one in revs}

    def test_each_box_gets_its_own_amount(self, bed: Bed) -> None:
        view = operations(bed).start(OperationKind.LIMITS, LIMITS, devices=bed.devices, own=self.own(bed))
        assert view.operation.per_box
        run_all(bed)
        bed.settle()
        assert outcomes(bed, view.operation.id) == {"APPLIED": BOXES}
        assert [bed.fleet.spec(one).app_limits[0].memory_units for one in bed.devices] == [8] + [4] * (BOXES - 1)

    def test_a_box_that_somebody_has_changed_meanwhile_is_refused_with_who_and_what(self, bed: Bed) -> None:
        id_ = operations(bed).start(OperationKind.LIMITS, LIMITS, devices=bed.devices, own=self.own(bed)).operation.id
        bob = Fleet(bed.store, clock=bed.world.clock, by="bob")
        bob.set_limits(bed.devices[1], ContainerLimits(**LIMITS | {"memory_units": 2}))
        bob.set_limits(bed.devices[2], ContainerLimits(**LIMITS | {"app": "plate"}))
        run_all(bed)
        (refused,) = operations(bed).boxes(id_, outcomes=[BoxOutcome.REFUSED]).boxes
        assert refused.name == "box-2"
        assert "bob has set 2 units, core 1 meanwhile" in refused.box.text
        assert bed.fleet.spec(bed.devices[1]).app_limits[0].memory_units == 2
        assert outcomes(bed, id_) == {"REFUSED": 1, "STORED": BOXES - 1}

    def test_of_two_operators_the_later_overwrites_nothing(self, bed: Bed) -> None:
        other = Operations(bed.store, clock=bed.world.clock, access=Access("bob", Role.OPERATOR))
        seen = self.own(bed)
        first = operations(bed).start(OperationKind.LIMITS, LIMITS, devices=bed.devices, own=seen).operation.id
        bed.world.now_s += 1
        second = other.start(OperationKind.LIMITS, LIMITS | {"core": 7}, devices=bed.devices, own=seen).operation.id
        run_all(bed)
        assert (outcomes(bed, first), outcomes(bed, second)) == ({"STORED": BOXES}, {"REFUSED": BOXES})
        texts = {one.box.text.rpartition(": ")[2] for one in operations(bed).boxes(second).boxes}
        assert texts == {"anna has set 4 units, core 1 meanwhile", "anna has set 8 units, core 1 meanwhile"}
        assert {bed.fleet.spec(device).app_limits[0].core for device in bed.devices} == {1}

    @pytest.mark.parametrize("seed", range(3))
    def test_a_runner_that_is_killed_between_batches_refuses_no_box_for_its_own_change(
        self, bed: Bed, seed: int
    ) -> None:
        rng = random.Random(seed)
        kills = Killer(lambda _: rng.random() < 0.5)
        id_ = operations(bed).start(OperationKind.LIMITS, LIMITS, devices=bed.devices, own=self.own(bed)).operation.id
        bed.watcher = kills
        while operations(bed).get(id_).operation.state is OperationState.RUNNING:
            try:
                OperationRunner(bed.store, clock=bed.world.clock, at_once=1).step()
            except KilledError:
                continue
        kills.off = True
        assert kills.kills
        assert outcomes(bed, id_) == {"STORED": BOXES}
        assert [bed.fleet.spec(one).app_limits[0].memory_units for one in bed.devices] == [8] + [4] * (BOXES - 1)
        assert {bed.fleet.spec(one).app_limits[0].retry for one in bed.devices} == {0}

    @pytest.mark.parametrize(
        ("kind", "args", "own"),
        [
            (OperationKind.LIMITS, LIMITS, {"memory_units": -1}),
            (OperationKind.LIMITS, LIMITS, {"memory_units": "x"}),
            (OperationKind.LIMITS, LIMITS, {"memory_units": [2]}),
            (OperationKind.LIMITS, LIMITS, {"namespace": "other"}),
            (OperationKind.LIMITS, LIMITS, {"force": "perhaps"}),
            (OperationKind.COMMAND, {"op": "doctor.run"}, {}),
        ],
    )
    def test_what_is_wrong_for_one_box_starts_nothing(
        self, bed: Bed, kind: OperationKind, args: Json, own: Json
    ) -> None:
        with pytest.raises(CloudError, match="cannot"):
            operations(bed).start(kind, args, devices=bed.devices, own={bed.devices[3]: BoxArgs(args=own)})
        assert operations(bed).list() == []


class TestWhyABoxWasRefused:
    def test_it_is_stored_as_a_sentence_that_a_page_can_translate(self, bed: Bed) -> None:
        bed.fleet.revoke(bed.devices[0])
        bed.box(bed.devices[1]).verdict = lambda _: Settlement.rejected(ResultCode.NO_ROOM, "3 units free")
        id_ = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        bed.fleet.forget(bed.devices[2])
        run_all(bed)
        bed.settle()
        bad = [BoxOutcome.REFUSED, BoxOutcome.REJECTED]
        revoked, rejected, forgotten = (one.box for one in operations(bed).boxes(id_, outcomes=bad).boxes)
        templates = [one.text.one for one in (revoked, rejected, forgotten) if isinstance(one.text, Phrase)]
        assert templates == [
            "cannot send anything to %(box)s: it is revoked",
            "%(state)s: %(words)s",
            "the box was forgotten meanwhile",
        ]
        assert isinstance(revoked.text, Phrase)
        assert revoked.text.fields == {"box": "box-1"}
        assert isinstance(revoked.remedy, Phrase)
        assert rejected.text == "Rejected: NO_ROOM: 3 units free"


class TestOtherKinds:
    def test_sharing_settings(self, bed: Bed) -> None:
        args: Json = {"policy": "spread", "unit_mib": 512}
        id_ = operations(bed).start(OperationKind.SHARING, args, where=BoxFilter()).operation.id
        run_all(bed)
        bed.settle()
        assert outcomes(bed, id_) == {"APPLIED": BOXES}
        policies = {item.policy for device in bed.devices if (item := bed.fleet.spec(device).policy) is not None}
        assert [str(one) for one in policies] == ["spread"]

    @pytest.mark.parametrize("kind", [OperationKind.INSTALL, OperationKind.UNINSTALL])
    def test_sharing_on_and_off(self, bed: Bed, kind: OperationKind) -> None:
        id_ = operations(bed).start(kind, {}, devices=bed.devices[:2]).operation.id
        run_all(bed)
        bed.until(lambda: operations(bed).get(id_).settled)
        assert outcomes(bed, id_) == {"APPLIED": 2}
        assert [one.op for one in bed.fleet.commands()] == [f"sharing.{kind.value}"] * 2

    def test_a_command_ends_each_box_by_its_result(self, bed: Bed) -> None:
        args: Json = {"op": "inventory.refresh", "wait_s": 60}
        id_ = operations(bed).start(OperationKind.COMMAND, args, where=BoxFilter()).operation.id
        run_all(bed)
        bed.network.cut_off(bed.devices[0])
        bed.until(lambda: outcomes(bed, id_).get("APPLIED") == BOXES - 1)
        bed.fleet.revoke(bed.devices[0])
        (ended,) = operations(bed).boxes(id_, outcomes=[BoxOutcome.REJECTED]).boxes
        assert (ended.name, ended.box.text[:16]) == ("box-1", "UNKNOWN: REVOKED")

    @pytest.mark.parametrize(
        ("kind", "args"),
        [
            (OperationKind.LIMITS, {}),
            (OperationKind.LIMITS, LIMITS | {"namespace": "kube-system"}),
            (OperationKind.LIMITS, LIMITS | {"memory_units": -1}),
            (OperationKind.LIMITS, LIMITS | {"memory_units": "x"}),
            (OperationKind.SHARING, {}),
            (OperationKind.SHARING, {"policy": "none such"}),
            (OperationKind.COMMAND, {"op": "no.such"}),
            (OperationKind.COMMAND, {"op": "sharing.install"}),
            (OperationKind.COMMAND, {"op": "doctor.run", "wait_s": 0}),
            (OperationKind.INSTALL, {"x": 1}),
        ],
    )
    def test_what_is_wrong_for_every_box_is_refused_at_once(self, bed: Bed, kind: OperationKind, args: Json) -> None:
        with pytest.raises(CloudError):
            operations(bed).start(kind, args, where=BoxFilter())
        assert operations(bed).list() == []


class TestWhoAndWhich:
    def test_a_scope_holds_for_the_boxes_that_are_changed_and_shown(self, bed: Bed) -> None:
        id_ = operations(bed, scope="half=low").start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        run_all(bed)
        bed.settle()
        assert outcomes(bed, id_) == {"APPLIED": BOXES // 2}
        assert len(operations(bed).boxes(id_).boxes) == BOXES // 2
        with pytest.raises(NotFoundError):
            operations(bed, scope="half=high").boxes(id_)
        with pytest.raises(NotFoundError):
            operations(bed, scope="half=none").start(OperationKind.LIMITS, LIMITS, where=BoxFilter())

    def test_who_may_not_change_boxes_starts_and_cancels_nothing(self, bed: Bed) -> None:
        with pytest.raises(ForbiddenError):
            operations(bed, role=Role.VIEWER).start(OperationKind.LIMITS, LIMITS, where=BoxFilter())
        id_ = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        with pytest.raises(ForbiddenError):
            operations(bed, role=Role.VIEWER).cancel(id_)

    def test_a_key_is_one_operation(self, bed: Bed) -> None:
        first = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter(), key="k1")
        assert operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter(), key="k1") == first
        with pytest.raises(ConflictError, match="was another request"):
            operations(bed).start(OperationKind.LIMITS, LIMITS | {"core": 2}, where=BoxFilter(), key="k1")
        assert len(operations(bed).list()) == 1

    def test_a_key_stands_for_its_boxes_and_their_amounts_too(self, bed: Bed) -> None:
        first, second = bed.devices[:2]
        own = {first: BoxArgs(args={"memory_units": 2})}
        made = operations(bed).start(OperationKind.LIMITS, LIMITS, devices=[first, second], own=own, key="k1")
        again = operations(bed).start(OperationKind.LIMITS, LIMITS, devices=[second, first], own=own, key="k1")
        assert again == made
        with pytest.raises(ConflictError, match="was another request"):
            operations(bed).start(OperationKind.LIMITS, LIMITS, devices=[second], key="k1")
        other = {first: BoxArgs(args={"memory_units": 3})}
        with pytest.raises(ConflictError, match="was another request"):
            operations(bed).start(OperationKind.LIMITS, LIMITS, devices=[first, second], own=other, key="k1")
        operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter(search="box"), key="k2")
        with pytest.raises(ConflictError, match="was another request"):
            operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter(search="box-1"), key="k2")

    def test_a_box_that_leaves_while_another_joins_is_noticed_and_both_are_named(self, bed: Bed) -> None:
        where = BoxFilter(selector="half=low")
        seen = operations(bed).seen(where)
        bed.fleet.label(bed.devices[0], {"half": "high"})
        bed.fleet.label(bed.devices[-1], {"half": "low"})
        with pytest.raises(ConflictError) as refused:
            operations(bed).start(OperationKind.LIMITS, LIMITS, where=where, expect=seen)
        assert refused.value.text == (
            "cannot start the operation: it is for 3 boxes, but not for the same ones; joined: box-6; left: box-1"
        )
        bed.fleet.label(bed.devices[0], {"half": "low"})
        with pytest.raises(ConflictError, match="it is for 4 boxes by now, not 3; joined: box-6; look at its boxes"):
            operations(bed).start(OperationKind.LIMITS, LIMITS, where=where, expect=seen)
        bed.fleet.forget(bed.devices[-1])
        assert operations(bed).list() == []
        assert operations(bed).start(OperationKind.LIMITS, LIMITS, where=where, expect=seen).operation.boxes == 3

    def test_boxes_that_were_forgotten_are_told_as_others(self, bed: Bed) -> None:
        seen = BoxSet.of(bed.devices)
        bed.fleet.forget(bed.devices[0])
        with pytest.raises(ConflictError, match="for 5 boxes by now, not 6; and others, which cannot be named"):
            operations(bed).start(OperationKind.LIMITS, LIMITS, devices=bed.devices, expect=seen)

    def test_the_whole_filter_is_kept(self, bed: Bed) -> None:
        where = BoxFilter(selector="half=low", search="box", connected=True, health=frozenset({"bad", "ok", "unknown"}))
        made = operations(bed).start(OperationKind.LIMITS, LIMITS, where=where).operation
        assert made.filter == {
            "selector": "half=low",
            "search": "box",
            "connected": True,
            "health": ["bad", "ok", "unknown"],
        }
        assert operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.filter == {}
        assert operations(bed).start(OperationKind.LIMITS, LIMITS, devices=bed.devices).operation.filter is None

    def test_the_search_goes_by_values_and_not_by_names_of_fields(self, bed: Bed) -> None:
        by = operations(bed)
        made = {
            "limits": by.start(OperationKind.LIMITS, LIMITS, where=BoxFilter(search="Box")),
            "policy": by.start(OperationKind.SHARING, {"policy": "best-fit"}, devices=bed.devices),
            "command": by.start(OperationKind.COMMAND, {"op": "doctor.run"}, where=BoxFilter(selector="half=low")),
        }
        kinds = {one.operation.id: name for name, one in made.items()}

        def found(text: str) -> set[str]:
            return {kinds[one.operation.id] for one in by.list(where=OperationFilter(search=text))}

        assert found("DOCTOR.run") == found("half=low") == {"command"}
        assert found("best-fit") == {"policy"}
        assert found(str(LIMITS["app"])) == found("bOX") == {"limits"}
        assert found(made["policy"].operation.id.lower()) == {"policy"}
        for name in ("null", "unit_mib", "on_drift", "force", "wait_s", "search", "{", '"', "%", "_"):
            assert found(name) == set(), name

    @pytest.mark.parametrize(("by_filter", "named"), [(True, True), (False, False)])
    def test_boxes_are_given_by_a_filter_or_by_name(self, bed: Bed, *, by_filter: bool, named: bool) -> None:
        where, devices = BoxFilter() if by_filter else None, bed.devices if named else ()
        with pytest.raises(CloudError, match="for the boxes of a filter, or for"):
            operations(bed).start(OperationKind.LIMITS, LIMITS, where=where, devices=devices)

    def test_pages_follow_each_other(self, bed: Bed) -> None:
        id_ = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        first = operations(bed).boxes(id_, limit=4)
        rest = operations(bed).boxes(id_, limit=4, after=first.next)
        assert [one.box.device for one in (*first.boxes, *rest.boxes)] == bed.devices
        assert rest.next == ""


class TestCancelAndDeath:
    def test_what_is_stored_goes_on_and_the_rest_is_left_out(self, bed: Bed) -> None:
        first = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter(selector="half=low")).operation.id
        run_all(bed)
        with pytest.raises(ConflictError, match="nothing of it waits"):
            operations(bed).cancel(first)
        second = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        view = operations(bed).cancel(second)
        assert (view.operation.state, view.outcomes) == (OperationState.CANCELLED, {BoxOutcome.CANCELLED: BOXES})
        run_all(bed)
        bed.settle()
        assert outcomes(bed, first) == {"APPLIED": BOXES // 2}
        assert [bool(bed.fleet.spec(device).app_limits) for device in bed.devices] == [True] * 3 + [False] * 3

    @pytest.mark.parametrize("seed", range(4))
    def test_a_runner_that_is_killed_at_any_commit_does_nothing_twice(self, bed: Bed, seed: int) -> None:
        rng = random.Random(seed)
        kills = Killer(lambda _: rng.random() < 0.4)
        bed.watcher = kills
        kills.off = True
        args: Json = {"op": "inventory.refresh"}
        id_ = operations(bed).start(OperationKind.COMMAND, args, where=BoxFilter()).operation.id
        kills.off = False
        while operations(bed).get(id_).operation.state is OperationState.RUNNING:
            one = OperationRunner(bed.store, clock=bed.world.clock, at_once=2)  # another process each time
            try:
                one.step()
            except KilledError:
                continue
        kills.off = True
        assert kills.kills
        bed.until(lambda: operations(bed).get(id_).settled)
        assert outcomes(bed, id_) == {"APPLIED": BOXES}
        assert len(bed.fleet.commands()) == BOXES

    def test_a_box_that_cannot_be_written_harms_no_other(self, bed: Bed) -> None:
        with bed.store.write() as tx:
            (box,) = tx.boxes.get([bed.devices[2]]).values()
            tx.boxes.put([replace(box, sequence=replace(box.sequence, rev=2**63 - 1), spec_rev=0)])
        id_ = operations(bed).start(OperationKind.LIMITS, LIMITS, where=BoxFilter()).operation.id
        run_all(bed)
        (refused,) = operations(bed).boxes(id_, outcomes=[BoxOutcome.REFUSED]).boxes
        assert refused.box.device == bed.devices[2]
        assert outcomes(bed, id_)["STORED"] == BOXES - 1
