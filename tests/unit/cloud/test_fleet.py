"""What people do to the fleet: named boxes, revised documents, commands; refused with a remedy where it cannot be."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kits.reportedcluster import tell_cluster
from kits.stores import open_store

from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box, new_command_id, next_enrolment
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.store.records import AuditEntry, BoxState, EnrolledBox
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.messages.spec import MAX_APP_LIMITS, Exclusions, PolicyItem, Sharing, Spec
from edgegpu_sync.states import CommandState

NOW_S = 1_790_000_000.0


def enrolled(number: int, name: str = "", *, enrolment: int = 1) -> EnrolledBox:
    device = device_id(f"{number:016d}")
    return EnrolledBox(device=device, enrolment=enrolment, public="A" * 43, instance="ab" * 32, name=name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControllerStore]:
    store = open_store(tmp_path / "controller.db")
    yield store
    store.close()


def take_in(store: ControllerStore, box: EnrolledBox) -> None:
    with store.write() as tx:
        add_box(tx, box, Author("anna", NOW_S))


def audits(store: ControllerStore, device: str | None = None) -> list[AuditEntry]:
    with store.read() as tx:
        return tx.notes.audits(device, limit=50)


@pytest.fixture
def fleet(store: ControllerStore) -> Fleet:
    fleet = Fleet(store, clock=lambda: NOW_S, by="anna")
    for number, name in ((1, "berlin-1"), (2, "berlin-2"), (3, "munich")):
        take_in(store, enrolled(number, name))
    return fleet


def policy(name: str) -> PolicyItem:
    return PolicyItem.model_validate({"rev": 0, "policy": name})


def set_policy(fleet: Fleet, name: str, *, expect_rev: int | None = None) -> int:
    return fleet.set_spec(
        "munich", lambda spec: spec.model_copy(update={"policy": policy(name)}), expect_rev=expect_rev
    )


def set_limits(fleet: Fleet, app: str = "asr", *, units: int = 4, force: bool = False) -> int:
    limits = ContainerLimits(namespace="default", app=app, container="main", memory_units=units, core=1, force=force)
    return fleet.set_limits("munich", limits).rev


class TestNames:
    def test_a_box_is_found_by_id_name_and_the_beginning_of_either(self, fleet: Fleet) -> None:
        for name in ("munich", "mun", "0000000000000003"):
            assert fleet.box(name).name == "munich"

    @pytest.mark.parametrize(("name", "words"), [("berlin", "2 begin so"), ("paris", "boxes"), ("", "find a box")])
    def test_no_box_and_more_than_one_are_refused(self, fleet: Fleet, name: str, words: str) -> None:
        with pytest.raises(NotFoundError, match=words):
            fleet.box(name)

    def test_a_whole_name_wins_over_one_that_begins_so(self, fleet: Fleet) -> None:
        fleet.rename("berlin-2", "berlin-11")
        assert fleet.box("berlin-1").device == "0000000000000001"

    def test_wildcards_are_no_wildcards(self, fleet: Fleet) -> None:
        for name in ("%", "_", "berl_n-1", "*"):
            with pytest.raises(NotFoundError):
                fleet.box(name)

    def test_two_boxes_cannot_have_one_name(self, fleet: Fleet, store: ControllerStore) -> None:
        with pytest.raises(CloudError, match="another"):
            take_in(store, enrolled(4, "munich"))
        with pytest.raises(CloudError, match="no other box"):
            fleet.rename("berlin-1", "munich")
        assert len(fleet.boxes()) == 3

    def test_labels_are_set_and_taken_away(self, fleet: Fleet) -> None:
        fleet.label("munich", {"site": "m", "rack": "3"})
        fleet.label("munich", {"rack": ""})
        assert fleet.box("munich").labels == {"site": "m"}


class TestDocuments:
    def test_items_that_were_not_edited_keep_their_revision(self, fleet: Fleet) -> None:
        assert set_policy(fleet, "spread") == 1
        cards = Exclusions(rev=0, cards=("1",))
        assert fleet.set_spec("munich", lambda spec: spec.model_copy(update={"exclusions": cards})) == 2
        assert set_policy(fleet, "best-fit") == 3
        spec = fleet.spec("munich")
        assert spec.policy is not None
        assert spec.exclusions is not None
        assert (spec.policy.rev, spec.exclusions.rev) == (3, 2)

    def test_what_changes_nothing_makes_no_revision(self, fleet: Fleet) -> None:
        assert [set_policy(fleet, "spread"), set_policy(fleet, "spread")] == [1, 1]

    def test_trying_again_keeps_the_items_revision_and_is_one_of_the_document(self, fleet: Fleet) -> None:
        set_policy(fleet, "spread")

        def again(spec: Spec) -> Spec:
            assert spec.policy is not None
            return spec.model_copy(update={"policy": spec.policy.model_copy(update={"retry": 1})})

        assert fleet.set_spec("munich", again) == 2
        assert fleet.spec("munich").policy == PolicyItem(rev=1, retry=1, policy="spread")

    def test_somebody_else_was_faster(self, fleet: Fleet) -> None:
        set_policy(fleet, "spread")
        set_policy(fleet, "best-fit", expect_rev=1)
        with pytest.raises(ConflictError, match="revision 2 by now"):
            set_policy(fleet, "first-fit", expect_rev=1)
        assert fleet.box("munich").rev == 2

    def test_limits_of_an_app_replace_those_that_it_had(self, fleet: Fleet, store: ControllerStore) -> None:
        tell_cluster(store, device_id("0000000000000003"))
        assert [set_limits(fleet), set_limits(fleet, "ocr"), set_limits(fleet, units=6)] == [1, 2, 3]
        limits = {one.app: (one.memory_units, one.rev, one.retry) for one in fleet.spec("munich").app_limits}
        assert limits == {"asr": (6, 3, 0), "ocr": (4, 2, 0)}

    def test_the_same_limits_once_more_are_tried_again(self, fleet: Fleet, store: ControllerStore) -> None:
        tell_cluster(store, device_id("0000000000000003"))
        assert [set_limits(fleet), set_limits(fleet)] == [1, 2]
        (one,) = fleet.spec("munich").app_limits
        assert (one.rev, one.retry) == (1, 1)
        set_limits(fleet, force=True)
        (one,) = fleet.spec("munich").app_limits
        assert (one.rev, one.force) == (3, True)

    def test_limits_wait_until_the_cluster_is_known(self, fleet: Fleet) -> None:
        with pytest.raises(CloudError, match="not reported its cluster"):
            set_limits(fleet)

    def test_limits_are_refused_on_a_box_for_whose_cluster_another_settles(
        self, fleet: Fleet, store: ControllerStore
    ) -> None:
        munich, other = device_id("0000000000000003"), fleet.boxes()[0].device
        tell_cluster(store, munich)
        tell_cluster(store, other, holder=True)
        set_limits(fleet)  # the other one is away: what it has told may be old
        with store.write() as tx:
            (box,) = tx.boxes.get([other]).values()
            tx.boxes.put([replace(box, online=True)])
        with pytest.raises(CloudError, match=f"; set them on {box.name}"):
            set_limits(fleet)

    @pytest.mark.parametrize("units", [-1, 10_000_000])
    def test_amounts_that_cannot_be_are_refused(self, fleet: Fleet, store: ControllerStore, units: int) -> None:
        tell_cluster(store, device_id("0000000000000003"))
        with pytest.raises(CloudError, match="memory_units"):
            set_limits(fleet, units=units)
        assert fleet.box("munich").rev == 0

    def test_too_many_apps_are_refused_before_they_are_kept(self, fleet: Fleet, store: ControllerStore) -> None:
        tell_cluster(store, device_id("0000000000000003"))
        set_limits(fleet)

        def grown(spec: Spec) -> Spec:
            (one,) = spec.app_limits
            many = (one.model_copy(update={"app": f"app-{number}"}) for number in range(MAX_APP_LIMITS + 1))
            return spec.model_copy(update={"app_limits": tuple(many)})

        with pytest.raises(CloudError, match="app_limits"):
            fleet.set_spec("munich", grown)
        assert fleet.box("munich").rev == 1

    def test_more_than_64_kib_is_refused_before_it_is_kept(self, fleet: Fleet, store: ControllerStore) -> None:
        tell_cluster(store, device_id("0000000000000003"))
        set_limits(fleet)

        def grown(spec: Spec) -> Spec:
            (one,) = spec.app_limits
            long = {"namespace": "n" * 253, "container": "c" * 253}
            many = (one.model_copy(update={**long, "app": f"{number:a>253}"}) for number in range(MAX_APP_LIMITS))
            return spec.model_copy(update={"app_limits": tuple(many)})

        with pytest.raises(CloudError, match="too large"):
            fleet.set_spec("munich", grown)
        assert fleet.box("munich").rev == 1

    def test_an_item_that_stands_there_twice_is_refused(self, fleet: Fleet, store: ControllerStore) -> None:
        tell_cluster(store, device_id("0000000000000003"))
        set_limits(fleet)
        with pytest.raises(CloudError, match="twice"):
            fleet.set_spec("munich", lambda spec: spec.model_copy(update={"app_limits": spec.app_limits * 2}))


class TestCommands:
    def test_install_is_a_revision_and_the_command_to_settle_it(self, fleet: Fleet) -> None:
        command = fleet.one_command(fleet.install("munich"))
        assert (command.op, command.args, command.state) == ("sharing.install", {"min_rev": 1}, None)
        assert fleet.spec("munich").sharing == Sharing(rev=1, installed=True)

    def test_install_once_more_is_tried_again(self, fleet: Fleet) -> None:
        fleet.install("munich")
        assert fleet.one_command(fleet.install("munich")).args == {"min_rev": 2}
        assert fleet.spec("munich").sharing == Sharing(rev=1, retry=1, installed=True)
        assert fleet.one_command(fleet.uninstall("munich")).args == {"min_rev": 3}

    @pytest.mark.parametrize(
        ("op", "args", "words"),
        [
            ("k3s.explode", {}, "knows it"),
            ("K3S", {}, "is not words"),
            ("sharing.install", {}, "min_rev"),
            ("logs.collect", {"url": "http://plain/"}, "url"),
            ("doctor.run", {"critical": ["deep"]}, "deep"),
            ("doctor.run", {"note": "x" * 70_000}, "limit"),
        ],
    )
    def test_what_cannot_be_done_is_refused(self, fleet: Fleet, op: str, args: dict[str, object], words: str) -> None:
        with pytest.raises(CloudError, match=words):
            fleet.command("munich", op, args, wait_s=60)
        assert fleet.commands("munich") == []

    @pytest.mark.parametrize("wait_s", [0, -1, 10**9])
    def test_a_command_waits_for_a_time_that_can_be(self, fleet: Fleet, wait_s: int) -> None:
        with pytest.raises(CloudError, match="wait"):
            fleet.command("munich", "k3s.restart", {}, wait_s=wait_s)

    def test_commands_are_found_by_the_beginning_of_their_id(self, fleet: Fleet) -> None:
        first, second = (fleet.command(name, "k3s.restart", {}, wait_s=60) for name in ("munich", "berlin-1"))
        assert fleet.one_command(first).box == "munich"
        with pytest.raises(NotFoundError, match="several"):
            fleet.one_command(first[:9])
        with pytest.raises(NotFoundError, match="commands"):
            fleet.one_command("zzz")
        assert [view.id for view in fleet.commands()] == [second, first]
        assert [view.id for view in fleet.commands("munich")] == [first]

    def test_ids_are_in_the_order_of_time(self) -> None:
        ids = [new_command_id(NOW_S + step, lambda _: 0) for step in range(5)]
        assert ids == sorted(ids)
        assert len(ids[0]) == 26

    def test_following_ends_in_time(self, store: ControllerStore, fleet: Fleet) -> None:
        clock = [NOW_S]

        def sleep(seconds: float) -> None:
            clock[0] += seconds

        id_ = fleet.command("munich", "k3s.restart", {}, wait_s=2)
        views = list(Fleet(store, clock=lambda: clock[0], by="anna", sleep=sleep).follow(id_, timeout_s=10))
        assert [(view.state, view.overdue) for view in views] == [(None, False), (None, True)]
        assert clock[0] >= NOW_S + 10


class TestMembers:
    def test_a_revoked_box_is_asked_for_nothing_and_its_commands_end(self, fleet: Fleet) -> None:
        id_ = fleet.command("munich", "k3s.restart", {}, wait_s=60)
        fleet.revoke("munich")
        assert fleet.box("munich").state is BoxState.REVOKED
        assert (fleet.one_command(id_).state, fleet.one_command(id_).code) == (CommandState.UNKNOWN, "REVOKED")
        with pytest.raises(CloudError, match="revoked"):
            fleet.command("munich", "k3s.restart", {}, wait_s=60)
        with pytest.raises(CloudError, match="revoked"):
            set_policy(fleet, "spread")
        with pytest.raises(ConflictError, match="has ended"):
            fleet.cancel(id_)

    def test_of_a_forgotten_box_alarms_and_audit_are_left_and_it_cannot_be_named(
        self, fleet: Fleet, store: ControllerStore
    ) -> None:
        tell_cluster(store, DeviceId("0000000000000003"))
        set_policy(fleet, "spread")
        id_ = fleet.command("munich", "doctor.run", {})
        kept = fleet.command("berlin-1", "doctor.run", {})
        with store.write() as tx:
            tx.notes.alarm("CLONED", device="0000000000000003", text="a copy", now_s=NOW_S)
        fleet.forget("munich")
        assert [view.name for view in fleet.boxes()] == ["berlin-1", "berlin-2"]
        for name in ("munich", "0000000000000003"):
            with pytest.raises(NotFoundError):
                fleet.box(name)
        with pytest.raises(NotFoundError):
            fleet.one_command(id_)
        assert [one.id for one in fleet.commands()] == [kept]
        assert fleet.alarms() == []
        assert [(one.kind, one.seen_by) for one in fleet.alarms(unseen=False)] == [("CLONED", "anna")]
        (entry,) = [one for one in audits(store) if one.what == "box.forgotten"]
        assert (entry.device, entry.by, entry.detail["before"]["name"]) == ("0000000000000003", "anna", "munich")
        assert not fleet.is_forgotten("0000000000000003"), "it never had a certificate"
        take_in(store, enrolled(4, "munich"))
        assert fleet.box("munich").rev == 0, "the name is free again"

    def test_a_box_that_is_enrolled_anew_keeps_name_document_and_history(
        self, fleet: Fleet, store: ControllerStore
    ) -> None:
        set_policy(fleet, "spread")
        fleet.revoke("munich")
        device = fleet.box("munich").device
        with store.read() as tx:
            assert next_enrolment(tx, device) == 2
        take_in(store, enrolled(3, enrolment=2))
        view = fleet.box("munich")
        assert (view.state, view.enrolment, view.rev, view.observed_rev) == (BoxState.ENROLLED, 2, 1, 0)
        assert fleet.spec("munich").policy == PolicyItem(rev=1, policy="spread")

    def test_everything_is_audited(self, fleet: Fleet, store: ControllerStore) -> None:
        set_policy(fleet, "spread")
        fleet.cancel(fleet.command("munich", "k3s.restart", {}, wait_s=60))
        fleet.rename("munich", "muc")
        fleet.label("muc", {"a": "b"})
        fleet.revoke("muc")
        what = [entry.what for entry in reversed(audits(store, fleet.box("muc").device))]
        assert what == [
            "box.enrolled",
            "box.spec",
            "command",
            "command.cancelled",
            "box.renamed",
            "box.labels",
            "box.revoked",
        ]
        assert {entry.by for entry in audits(store)} == {"anna"}
