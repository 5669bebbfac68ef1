"""A day-old copy of the store under a live fleet: boxes that know more are left alone until a person confirms."""

from pathlib import Path

import pytest
from kits.controller import Bed
from kits.modelbox import ROOT, SIGNING

from edgegpu_base.x509 import key_pem
from edgegpu_cloud.enrolment.key_files import write_file
from edgegpu_cloud.enrolment.key_sets import add, prepare, sign
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout
from edgegpu_sync.keys import public_text
from edgegpu_sync.messages.spec import Isolation, IsolationMode, Spec
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.topics import TopicKind, parse


def set_mode(bed: Bed, mode: IsolationMode) -> int:
    def edit(spec: Spec) -> Spec:
        return spec.model_copy(update={"isolation": Isolation(rev=0, mode=mode)})

    return bed.fleet.set_spec("box-1", edit)


def run(bed: Bed, op: str = "k3s.restart") -> None:
    id_ = bed.fleet.command("box-1", op, {}, wait_s=600)
    bed.until(lambda: bed.fleet.one_command(id_).ended)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    bed = Bed(tmp_path)
    bed.connect_all()
    bed.settle(2)
    set_mode(bed, IsolationMode.NONE)
    run(bed)
    return bed


def test_nothing_but_receipts_is_signed_before_a_person_confirms(bed: Bed) -> None:
    backup = bed.backup()
    bed.restore(backup)
    bed.settle(2)
    set_mode(bed, IsolationMode.LIMITER)
    run(bed)
    run(bed)
    bed.network.seen_down.clear()

    bed.restore(backup)
    bed.settle(120, step_s=2)
    waiting = bed.fleet.command("box-1", "plugin.restart", {}, wait_s=600)
    bed.settle(60, step_s=2)

    assert bed.fleet.box("box-1").restored
    assert [alarm.kind for alarm in bed.fleet.alarms()] == ["RESTORED"]
    assert {parse(topic).kind for topic, _ in bed.network.seen_down} == {TopicKind.RECEIPT}
    assert bed.state(waiting) is None
    assert bed.box().desired_state.asked[0].item == Isolation(rev=2, mode=IsolationMode.LIMITER)

    bed.fleet.confirm_restored("box-1")
    bed.until(lambda: bed.fleet.one_command(waiting).ended)
    bed.settle(5)

    view = bed.fleet.box("box-1")
    assert not view.restored
    assert bed.state(waiting) is CommandState.SUCCEEDED
    assert (view.rev, view.applied_rev) == (3, 3)
    assert bed.box().desired_state.asked[0].item == Isolation(rev=1, mode=IsolationMode.NONE)
    with pytest.raises(CloudError, match="not RESTORED"):
        bed.fleet.confirm_restored("box-1")


def test_keys_that_were_changed_after_the_backup_are_told_and_not_changed_beside(bed: Bed, tmp_path: Path) -> None:
    layout = CloudLayout(tmp_path / "cloud")
    layout.keys.mkdir(parents=True)
    write_file(layout.signing_key, key_pem(SIGNING))
    write_file(layout.root_public, public_text(ROOT))
    backup = bed.backup()
    bed.restore(backup)
    add(layout, bed.store, sign(prepare(layout, bed.store, rotate=True, drop_old=False), ROOT), by="anna", now_s=0)
    bed.until(lambda: bed.box().ring.version == 2)
    with bed.store.read() as tx:
        second = tx.notes.chain()[1]

    bed.restore(backup)
    write_file(layout.signing_key, key_pem(SIGNING))
    bed.settle(30, step_s=2)
    assert "KEYS_AHEAD" in [alarm.kind for alarm in bed.fleet.alarms()]
    with pytest.raises(CloudError, match=r"box-1 holds set 2, and the sets here end with 1.*docs/cloud/backup.md"):
        prepare(layout, bed.store, rotate=True, drop_old=False)
    if bed.fleet.box("box-1").restored:
        bed.fleet.confirm_restored("box-1")
    run(bed)

    add(layout, bed.store, second, by="anna", now_s=0)
    add(layout, bed.store, sign(prepare(layout, bed.store, rotate=True, drop_old=True), ROOT), by="anna", now_s=0)
    bed.until(lambda: bed.box().ring.version == 3)


def test_what_the_backup_knows_as_never_signed_is_not_done_twice(bed: Bed) -> None:
    bed.network.cut_off(bed.devices[0])
    bed.settle(2)
    first = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=36_000)
    second = bed.fleet.command("box-1", "plugin.restart", {}, wait_s=36_000)
    backup = bed.backup()
    bed.restore(backup)
    bed.network.connect(bed.box())
    bed.until(lambda: {first, second} <= bed.box().receipted)

    bed.restore(backup)
    bed.settle(30)
    assert [bed.state(first), bed.state(second)] == [None, None]
    bed.fleet.confirm_restored("box-1")
    bed.until(lambda: all(bed.fleet.one_command(id_).ended for id_ in (first, second)))

    assert bed.state(first) is bed.state(second) is CommandState.SUCCEEDED
    assert [bed.world.done[bed.devices[0], id_] for id_ in (first, second)] == [1, 1]


def test_ends_of_unknown_commands_are_kept_and_receipted(bed: Bed) -> None:
    backup = bed.backup()
    bed.restore(backup)
    bed.settle(2)
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=600)
    bed.until(lambda: id_ in bed.box().records)
    bed.network.detach()
    bed.network.up.clear()
    for _ in range(10):
        bed.box().work()
    bed.box().outgoing.clear()

    bed.restore(backup)
    bed.settle(120, step_s=2)

    assert [(one.id, one.state) for one in bed.fleet.details("box-1").orphans] == [(id_, CommandState.SUCCEEDED)]
    assert id_ in bed.box().receipted


def test_a_box_that_was_enrolled_anew_since_ends_what_is_open(bed: Bed) -> None:
    bed.network.cut_off(bed.devices[0])
    bed.settle(1)
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=36_000)

    bed.enrol(bed.devices[0], "box-1", enrolment=2)
    bed.connect_all()
    bed.settle(5)

    view = bed.fleet.one_command(id_)
    assert (view.state, view.code) == (CommandState.UNKNOWN, ResultCode.REIMAGED)
    assert [line.state for line in view.history] == [CommandState.UNKNOWN]
    assert bed.fleet.box("box-1").applied_rev == 1
    run(bed)


def test_an_unknown_enrolment_is_taken_over(bed: Bed) -> None:
    """The backup has the box's key, but not its last enrolment number: the same key was enrolled again."""
    backup = bed.backup()
    bed.restore(backup)
    box = bed.box()
    bed.network.cut_off(box.device)
    waiting = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=36_000)
    anew = type(box)(bed.world, box.device, enrolment=2)
    anew.signer = box.signer
    bed.network.connect(anew)
    bed.settle(5)

    view = bed.fleet.box("box-1")
    assert (view.enrolment, view.restored) == (2, True)
    assert bed.fleet.one_command(waiting).code == ResultCode.REIMAGED
    bed.fleet.confirm_restored("box-1")
    run(bed)
