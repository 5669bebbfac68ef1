"""Settlement: tried once, superseded, never sprung to life; and the commands whose result it is."""

import pytest
from kits.sync import limits

from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.messages.spec import AppLimits, Exclusions, PolicyItem, Sharing, Spec, UnitSize, asked
from edgegpu_sync.messages.uplink import Condition, ItemState
from edgegpu_sync.rules.replay_guard import SeenRevision
from edgegpu_sync.rules.settle import (
    INSTALL,
    MOST_TRIES,
    NO_SHARING,
    UNINSTALL,
    CommandWait,
    DesiredState,
    ItemEnd,
    Settlement,
    SharingFound,
    sharing_command,
)
from edgegpu_sync.states import CommandState, ResultCode

APPLIED = Settlement.applied()
REJECTED = Settlement.rejected(ResultCode.NO_ROOM, "needs 10, card 0 has 9 free")


def observed(desired_state: DesiredState, rev: int, spec: Spec) -> DesiredState:
    return desired_state.observe(SeenRevision(rev, f"{rev:016x}"), asked(spec.to_json(), rev))


def worked(desired_state: DesiredState, settlement: Settlement, found: SharingFound | None = None) -> DesiredState:
    one = desired_state.next()
    assert one is not None
    return desired_state.begin(one).settle(one.name, one.key, settlement, found)


def spec(*apps: AppLimits, installed: bool | None = None, rev: int = 1) -> Spec:
    return Spec(sharing=None if installed is None else Sharing(rev=rev, installed=installed), app_limits=apps)


def states(desired_state: DesiredState) -> list[ItemState]:
    return [one.state for one in desired_state.report().values()]


def test_a_revision_is_applied_when_all_of_its_items_are_settled() -> None:
    desired_state = observed(DesiredState(), 1, spec(limits("a"), limits("b")))
    assert (desired_state.applied_rev, states(desired_state)) == (0, [ItemState.OPEN, ItemState.OPEN])
    desired_state = worked(desired_state, APPLIED)
    assert desired_state.applied_rev == 0
    desired_state = worked(desired_state, REJECTED)
    assert (desired_state.applied_rev, states(desired_state), desired_state.next()) == (
        1,
        [ItemState.APPLIED, ItemState.REJECTED],
        None,
    )


def test_an_empty_revision_is_applied_at_once() -> None:
    assert observed(DesiredState(), 7, Spec()).applied_rev == 7


def test_a_refused_item_is_not_tried_again_by_another_items_edit() -> None:
    desired_state = worked(observed(DesiredState(), 7, spec(limits("a", rev=7))), REJECTED)
    desired_state = observed(desired_state, 8, spec(limits("a", rev=7), limits("b", rev=8)))
    one = desired_state.next()
    assert one is not None
    assert one.name == "app_limits/default/b/main"
    desired_state = worked(desired_state, APPLIED)
    assert (desired_state.applied_rev, states(desired_state)) == (8, [ItemState.REJECTED, ItemState.APPLIED])


@pytest.mark.parametrize("edit", [limits("a", rev=8), limits("a", retry=1), limits("a", units=3)])
def test_it_is_tried_again_when_somebody_asks_for_it(edit: AppLimits) -> None:
    desired_state = worked(observed(DesiredState(), 7, spec(limits("a"))), REJECTED)
    desired_state = observed(desired_state, 8, spec(edit))
    assert states(desired_state) == [ItemState.OPEN]
    assert states(worked(desired_state, APPLIED)) == [ItemState.APPLIED]


def test_a_newer_revision_supersedes_what_is_being_tried() -> None:
    desired_state = observed(DesiredState(), 7, spec(limits("a", units=4)))
    old = desired_state.next()
    assert old is not None
    desired_state = observed(desired_state.begin(old), 8, spec(limits("a", units=5, rev=8)))
    desired_state = desired_state.settle(old.name, old.key, APPLIED)
    assert (states(desired_state), desired_state.applied_rev) == ([ItemState.OPEN], 0)
    assert worked(desired_state, APPLIED).applied_rev == 8


def test_what_is_not_asked_for_any_more_settles_nothing() -> None:
    desired_state = observed(DesiredState(), 7, spec(limits("a")))
    old = desired_state.next()
    assert old is not None
    desired_state = observed(desired_state.begin(old), 8, Spec())
    assert desired_state.settle(old.name, old.key, APPLIED) == desired_state
    assert desired_state.noticed(old.name, ()) == desired_state
    assert desired_state.report() == {}


def test_what_cannot_be_done_is_settled_as_unsupported() -> None:
    desired_state = DesiredState().observe(
        SeenRevision(3, "x"), asked({"sharing": {"rev": 3, "installed": True, "critical": ["how"]}}, 3)
    )
    (report,) = desired_state.report().values()
    assert (report.state, report.text, desired_state.applied_rev) == (
        ItemState.UNSUPPORTED,
        "this agent does not know how",
        3,
    )


def test_an_item_that_kills_the_agent_ends() -> None:
    desired_state = observed(DesiredState(), 7, spec(limits("a")))
    for _ in range(MOST_TRIES + 1):
        one = desired_state.next()
        assert one is not None
        desired_state = desired_state.begin(one)
    (report,) = desired_state.report().values()
    assert (report.state, report.code, report.restored) == (ItemState.FAILED, ResultCode.ATTEMPTS, False)


def test_a_forced_item_is_settled_as_pending_and_may_land() -> None:
    desired_state = worked(
        observed(DesiredState(), 7, spec(limits("a", force=True))), Settlement(state=ItemState.PENDING)
    )
    assert (desired_state.applied_rev, states(desired_state)) == (7, [ItemState.PENDING])
    one = desired_state.asked[0]
    assert states(desired_state.landed(one.name, one.key, APPLIED)) == [ItemState.APPLIED]
    done = desired_state.landed(one.name, one.key, APPLIED)
    assert done.landed(one.name, one.key, REJECTED) == done


def test_conditions_do_not_touch_the_settlement() -> None:
    desired_state = worked(observed(DesiredState(), 7, spec(limits("a"))), APPLIED)
    drifted = Condition(type="Drifted", manager="baetyl")
    (report,) = desired_state.noticed(desired_state.asked[0].name, (drifted,)).report().values()
    assert (report.state, report.conditions) == (ItemState.APPLIED, (drifted,))


def test_a_revision_does_not_come_twice_and_open_settles_nothing() -> None:
    desired_state = observed(DesiredState(), 7, spec(limits("a")))
    with pytest.raises(MessageRefusedError, match="OldRev"):
        observed(desired_state, 7, Spec())
    with pytest.raises(ValueError, match="as Open"):
        desired_state.settle("a", desired_state.asked[0].key, Settlement(state=ItemState.OPEN))


@pytest.mark.parametrize(
    ("settlement", "state", "code"),
    [
        (APPLIED, CommandState.SUCCEEDED, ""),
        (
            Settlement.rejected(ResultCode.PRECHECK, "k3s is given its arguments by hand"),
            CommandState.REJECTED,
            ResultCode.PRECHECK,
        ),
        (Settlement.failed(ResultCode.TIMED_OUT, "", restored=True), CommandState.ROLLED_BACK, ResultCode.TIMED_OUT),
        (Settlement.failed(ResultCode.INCONSISTENT, "", restored=False), CommandState.FAILED, ResultCode.INCONSISTENT),
        (Settlement(state=ItemState.UNSUPPORTED, code="UNSUPPORTED"), CommandState.REJECTED, ResultCode.UNSUPPORTED),
    ],
)
def test_the_result_of_sharing_commands_is_the_settlement(
    settlement: Settlement, state: CommandState, code: str
) -> None:
    desired_state = observed(DesiredState(), 7, spec(installed=True))
    assert sharing_command(INSTALL, 7, desired_state) == CommandWait(7)
    ended = sharing_command(INSTALL, 7, worked(desired_state, settlement))
    assert isinstance(ended, ItemEnd)
    assert (ended.state, ended.code) == (state, code)


def test_a_sharing_command_waits_for_its_revision() -> None:
    assert sharing_command(UNINSTALL, 8, observed(DesiredState(), 7, spec(installed=True))) == CommandWait(8)


def test_a_sharing_command_that_a_newer_revision_contradicts_is_superseded() -> None:
    desired_state = worked(observed(DesiredState(), 9, spec(installed=False)), APPLIED)
    for other in (desired_state, observed(DesiredState(), 9, Spec())):
        ended = sharing_command(INSTALL, 7, other)
        assert isinstance(ended, ItemEnd)
        assert (ended.state, ended.code) == (CommandState.REJECTED, ResultCode.SUPERSEDED)
    assert sharing_command(UNINSTALL, 7, desired_state) == ItemEnd(CommandState.SUCCEEDED)


PRESENT, ABSENT = SharingFound(installed=True), SharingFound(installed=False)
UNIT = UnitSize(rev=1, mib=1024)
CARDS = Exclusions(rev=1, cards=("0",))


def refused_without_sharing() -> DesiredState:
    """Settings and an app's limits that came before sharing; one app was refused for another reason."""
    wanted = Spec(unit_size=UNIT, exclusions=CARDS, app_limits=(limits("a"), limits("b")))
    desired_state = observed(DesiredState(), 1, wanted)
    for settlement in (NO_SHARING, NO_SHARING, NO_SHARING, REJECTED):
        desired_state = worked(desired_state, settlement)
    assert desired_state.next() is None
    return desired_state


def with_sharing(desired_state: DesiredState, *, installed: bool) -> DesiredState:
    apps = (limits("a"), limits("b"))
    sharing = Sharing(rev=2, installed=installed)
    return observed(desired_state, 2, Spec(sharing=sharing, unit_size=UNIT, exclusions=CARDS, app_limits=apps))


def test_what_wanted_sharing_is_looked_at_again_when_it_has_come() -> None:
    desired_state = worked(with_sharing(refused_without_sharing(), installed=True), APPLIED, PRESENT)
    assert desired_state.applied_rev == 1
    assert states(desired_state) == [ItemState.APPLIED, *[ItemState.OPEN] * 3, ItemState.REJECTED]
    for _ in range(3):
        desired_state = worked(desired_state, APPLIED)
    assert (desired_state.next(), desired_state.applied_rev) == (None, 2)


@pytest.mark.parametrize(
    ("installed", "settlement"),
    [
        (False, APPLIED),
        (True, Settlement.failed(ResultCode.ERROR, "k3s is not well", restored=True)),
        (True, Settlement.rejected(ResultCode.PRECHECK, "no driver")),
    ],
)
def test_it_stays_refused_where_sharing_has_not_come(*, installed: bool, settlement: Settlement) -> None:
    desired_state = worked(with_sharing(refused_without_sharing(), installed=installed), settlement, ABSENT)
    assert (desired_state.next(), desired_state.applied_rev) == (None, 2)
    assert states(desired_state)[1:] == [ItemState.REJECTED] * 4


def test_sharing_that_goes_leaves_limits_and_refusals_as_they_are() -> None:
    wanted = Spec(unit_size=UNIT, exclusions=CARDS, app_limits=(limits("a"),))
    desired_state = worked(worked(worked(observed(DesiredState(), 1, wanted), REJECTED), APPLIED), APPLIED)
    assert [one.name for one in desired_state.asked] == ["exclusions", "unit_size", "app_limits/default/a/main"]
    desired_state = observed(desired_state, 2, wanted.model_copy(update={"sharing": Sharing(rev=2, installed=False)}))
    desired_state = worked(desired_state, APPLIED, ABSENT)
    assert (desired_state.next(), desired_state.applied_rev) == (None, 2)
    codes = {name: (one.state, one.code) for name, one in desired_state.report().items()}
    assert codes == {
        "sharing": (ItemState.APPLIED, None),
        "exclusions": (ItemState.REJECTED, ResultCode.NO_ROOM),
        "unit_size": (ItemState.REJECTED, ResultCode.NOT_INSTALLED),
        "app_limits/default/a/main": (ItemState.APPLIED, None),
    }


def test_what_was_done_under_an_old_key_has_changed_the_box_too() -> None:
    wanted = Spec(unit_size=UNIT, sharing=Sharing(rev=1, installed=True))
    desired_state = observed(
        worked(worked(observed(DesiredState(), 1, wanted), APPLIED, PRESENT), APPLIED, PRESENT), 2, spec(rev=2)
    )
    desired_state = observed(desired_state, 3, wanted.model_copy(update={"sharing": Sharing(rev=3, installed=False)}))
    desired_state = worked(worked(desired_state, APPLIED, PRESENT), APPLIED, PRESENT)
    going = desired_state.asked[0]
    desired_state = observed(
        desired_state, 4, wanted.model_copy(update={"sharing": Sharing(rev=4, installed=False)})
    ).begin(going)
    desired_state = observed(desired_state, 5, wanted.model_copy(update={"sharing": Sharing(rev=5, installed=True)}))
    desired_state = desired_state.settle(going.name, going.key, APPLIED, ABSENT)
    assert states(desired_state) == [ItemState.OPEN, ItemState.REJECTED]
    failed = Settlement.failed(ResultCode.ERROR, "k3s is not well", restored=True)
    assert states(worked(desired_state, failed, ABSENT)) == [ItemState.FAILED, ItemState.REJECTED]


def test_a_box_of_which_nothing_is_known_or_that_stands_as_asked_changes_nothing() -> None:
    wanted = Spec(sharing=Sharing(rev=1, installed=True), policy=PolicyItem(rev=1, policy="spread"), unit_size=UNIT)
    desired_state = observed(DesiredState(), 1, wanted)
    for _ in range(3):
        desired_state = worked(desired_state, APPLIED)
    as_asked = SharingFound(installed=True, policy="spread", excluded=["7"], unit_mib=1024)
    assert (
        desired_state.follow(None) is desired_state.follow(PRESENT) is desired_state.follow(as_asked) is desired_state
    )


@pytest.mark.parametrize(
    ("found", "texts"),
    [
        (SharingFound(installed=True, excluded=(), unit_mib=1024), ("on the box it is none", None)),
        (
            SharingFound(installed=True, excluded=("1", "0"), unit_mib=256),
            ("on the box it is 0, 1", "on the box it is 256 MiB"),
        ),
    ],
)
def test_settings_that_are_otherwise_on_the_box_have_drifted(
    found: SharingFound, texts: tuple[str | None, ...]
) -> None:
    desired_state = worked(
        worked(observed(DesiredState(), 1, Spec(unit_size=UNIT, exclusions=CARDS)), APPLIED), APPLIED
    )
    told = [one.conditions[0].text if one.conditions else None for one in desired_state.follow(found).report().values()]
    assert tuple(told) == texts
    assert desired_state.follow(found).follow(PRESENT) == desired_state


def test_sharing_itself_follows_what_stands_and_what_failed_stays_as_it_is() -> None:
    desired_state = worked(observed(DesiredState(), 1, spec(installed=True)), APPLIED, PRESENT)
    (gone,) = desired_state.follow(ABSENT).report().values()
    assert (gone.state, gone.code) == (ItemState.REJECTED, ResultCode.NOT_INSTALLED)
    assert states(desired_state.follow(ABSENT).follow(PRESENT)) == [ItemState.OPEN]
    away = worked(observed(DesiredState(), 1, spec(installed=False)), APPLIED, ABSENT)
    (there,) = away.follow(PRESENT).report().values()
    assert (there.state, there.code) == (ItemState.REJECTED, ResultCode.INSTALLED)
    assert states(away.follow(PRESENT).follow(ABSENT)) == [ItemState.OPEN]
    failed = Settlement.failed(ResultCode.ERROR, "k3s is not well", restored=True)
    desired_state = worked(observed(DesiredState(), 1, spec(installed=True)), failed, ABSENT)
    assert desired_state.follow(PRESENT) is desired_state


@pytest.mark.parametrize("settled", [APPLIED, REJECTED, Settlement(state=ItemState.PENDING)])
def test_an_item_is_settled_once(settled: Settlement) -> None:
    desired_state = worked(observed(DesiredState(), 7, spec(limits("a"))), settled)
    one = desired_state.asked[0]
    assert desired_state.settle(one.name, one.key, REJECTED if settled is APPLIED else APPLIED) is desired_state
