"""A controller with boxes that follow the protocol's rules: what is asked comes to be, and is told."""

from kits.controller import NewBed

from edgegpu_sync.messages.spec import PolicyItem
from edgegpu_sync.states import CommandState


def test_a_command_is_done_and_told(new_bed: NewBed) -> None:
    bed = new_bed()
    bed.connect_all()
    bed.settle(2)

    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=600)
    views = list(bed.fleet.follow(id_, timeout_s=60))

    assert views[-1].state is CommandState.SUCCEEDED
    assert [line.state for line in views[-1].history][-1] is CommandState.SUCCEEDED
    assert bed.world.done[bed.devices[0], id_] == 1
    bed.settle(2)
    assert id_ in bed.box().receipted


def test_a_desired_document_is_settled(new_bed: NewBed) -> None:
    bed = new_bed()
    bed.connect_all()
    bed.settle(2)

    rev = bed.fleet.set_spec(
        "box-1", lambda spec: spec.model_copy(update={"policy": PolicyItem(rev=0, policy="spread")})
    )
    bed.settle(5)

    view = bed.fleet.box("box-1")
    assert (view.rev, view.observed_rev, view.applied_rev) == (rev, rev, rev)
    assert view.items["policy"].state == "Applied"


def test_sharing_is_installed_by_a_revision_and_its_command(new_bed: NewBed) -> None:
    bed = new_bed()
    bed.connect_all()
    bed.settle(2)

    id_ = bed.fleet.install("box-1")
    bed.until(lambda: bed.fleet.one_command(id_).ended, within_s=60)

    assert bed.state(id_) is CommandState.SUCCEEDED
    assert bed.fleet.box("box-1").items["sharing"].state == "Applied"
