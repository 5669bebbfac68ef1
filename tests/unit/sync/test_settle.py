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


def observed(board: DesiredState, rev: int, spec: Spec) -> DesiredState:
    return board.observe(SeenRevision(rev, f"{rev:016x}"), asked(spec.to_json(), rev))


def worked(board: DesiredState, settlement: Settlement, found: SharingFound | None = None) -> DesiredState:
    one = board.next()
    assert one is not None
    return board.begin(one).settle(one.name, one.key, settlement, found)


def spec(*apps: AppLimits, installed: bool | None = None, rev: int = 1) -> Spec:
    return Spec(sharing=None if installed is None else Sharing(rev=rev, installed=installed), app_limits=apps)


def states(board: DesiredState) -> list[ItemState]:
    return [one.state for one in board.report().values()]


def test_a_revision_is_applied_when_all_of_its_items_are_settled() -> None:
    board = observed(DesiredState(), 1, spec(limits("a"), limits("b")))
    assert (board.applied_rev, states(board)) == (0, [ItemState.OPEN, ItemState.OPEN])
    board = worked(board, APPLIED)
    assert board.applied_rev == 0
    board = worked(board, REJECTED)
    assert (board.applied_rev, states(board), board.next()) == (1, [ItemState.APPLIED, ItemState.REJECTED], None)


def test_an_empty_revision_is_applied_at_once() -> None:
    assert observed(DesiredState(), 7, Spec()).applied_rev == 7


def test_a_refused_item_is_not_tried_again_by_another_items_edit() -> None:
    board = worked(observed(DesiredState(), 7, spec(limits("a", rev=7))), REJECTED)
    board = observed(board, 8, spec(limits("a", rev=7), limits("b", rev=8)))
    one = board.next()
    assert one is not None
    assert one.name == "app_limits/default/b/main"
    board = worked(board, APPLIED)
    assert (board.applied_rev, states(board)) == (8, [ItemState.REJECTED, ItemState.APPLIED])


@pytest.mark.parametrize("edit", [limits("a", rev=8), limits("a", retry=1), limits("a", units=3)])
def test_it_is_tried_again_when_somebody_asks_for_it(edit: AppLimits) -> None:
    board = worked(observed(DesiredState(), 7, spec(limits("a"))), REJECTED)
    board = observed(board, 8, spec(edit))
    assert states(board) == [ItemState.OPEN]
    assert states(worked(board, APPLIED)) == [ItemState.APPLIED]


def test_a_newer_revision_supersedes_what_is_being_tried() -> None:
    board = observed(DesiredState(), 7, spec(limits("a", units=4)))
    old = board.next()
    assert old is not None
    board = observed(board.begin(old), 8, spec(limits("a", units=5, rev=8)))
    board = board.settle(old.name, old.key, APPLIED)
    assert (states(board), board.applied_rev) == ([ItemState.OPEN], 0)
    assert worked(board, APPLIED).applied_rev == 8


def test_what_is_not_asked_for_any_more_settles_nothing() -> None:
    board = observed(DesiredState(), 7, spec(limits("a")))
    old = board.next()
    assert old is not None
    board = observed(board.begin(old), 8, Spec())
    assert board.settle(old.name, old.key, APPLIED) == board
    assert board.noticed(old.name, ()) == board
    assert board.report() == {}


def test_what_cannot_be_done_is_settled_as_unsupported() -> None:
    board = DesiredState().observe(
        SeenRevision(3, "x"), asked({"sharing": {"rev": 3, "installed": True, "critical": ["how"]}}, 3)
    )
    (report,) = board.report().values()
    assert (report.state, report.text, board.applied_rev) == (
        ItemState.UNSUPPORTED,
        "this agent does not know how",
        3,
    )


def test_an_item_that_kills_the_agent_ends() -> None:
    board = observed(DesiredState(), 7, spec(limits("a")))
    for _ in range(MOST_TRIES + 1):
        one = board.next()
        assert one is not None
        board = board.begin(one)
    (report,) = board.report().values()
    assert (report.state, report.code, report.restored) == (ItemState.FAILED, ResultCode.ATTEMPTS, False)


def test_a_forced_item_is_settled_as_pending_and_may_land() -> None:
    board = worked(observed(DesiredState(), 7, spec(limits("a", force=True))), Settlement(state=ItemState.PENDING))
    assert (board.applied_rev, states(board)) == (7, [ItemState.PENDING])
    one = board.asked[0]
    assert states(board.landed(one.name, one.key, APPLIED)) == [ItemState.APPLIED]
    done = board.landed(one.name, one.key, APPLIED)
    assert done.landed(one.name, one.key, REJECTED) == done


def test_conditions_do_not_touch_the_settlement() -> None:
    board = worked(observed(DesiredState(), 7, spec(limits("a"))), APPLIED)
    drifted = Condition(type="Drifted", manager="baetyl")
    (report,) = board.noticed(board.asked[0].name, (drifted,)).report().values()
    assert (report.state, report.conditions) == (ItemState.APPLIED, (drifted,))


def test_a_revision_does_not_come_twice_and_open_settles_nothing() -> None:
    board = observed(DesiredState(), 7, spec(limits("a")))
    with pytest.raises(MessageRefusedError, match="OldRev"):
        observed(board, 7, Spec())
    with pytest.raises(ValueError, match="as Open"):
        board.settle("a", board.asked[0].key, Settlement(state=ItemState.OPEN))


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
    board = observed(DesiredState(), 7, spec(installed=True))
    assert sharing_command(INSTALL, 7, board) == CommandWait(7)
    ended = sharing_command(INSTALL, 7, worked(board, settlement))
    assert isinstance(ended, ItemEnd)
    assert (ended.state, ended.code) == (state, code)


def test_a_sharing_command_waits_for_its_revision() -> None:
    assert sharing_command(UNINSTALL, 8, observed(DesiredState(), 7, spec(installed=True))) == CommandWait(8)


def test_a_sharing_command_that_a_newer_revision_contradicts_is_superseded() -> None:
    board = worked(observed(DesiredState(), 9, spec(installed=False)), APPLIED)
    for other in (board, observed(DesiredState(), 9, Spec())):
        ended = sharing_command(INSTALL, 7, other)
        assert isinstance(ended, ItemEnd)
        assert (ended.state, ended.code) == (CommandState.REJECTED, ResultCode.SUPERSEDED)
    assert sharing_command(UNINSTALL, 7, board) == ItemEnd(CommandState.SUCCEEDED)


PRESENT, ABSENT = SharingFound(installed=True), SharingFound(installed=False)
UNIT = UnitSize(rev=1, mib=1024)
CARDS = Exclusions(rev=1, cards=("0",))


def refused_without_sharing() -> DesiredState:
    """Settings and an app's limits that came before sharing; one app was refused for another reason."""
    wanted = Spec(unit_size=UNIT, exclusions=CARDS, app_limits=(limits("a"), limits("b")))
    board = observed(DesiredState(), 1, wanted)
    for settlement in (NO_SHARING, NO_SHARING, NO_SHARING, REJECTED):
        board = worked(board, settlement)
    assert board.next() is None
    return board


def with_sharing(board: DesiredState, *, installed: bool) -> DesiredState:
    apps = (limits("a"), limits("b"))
    sharing = Sharing(rev=2, installed=installed)
    return observed(board, 2, Spec(sharing=sharing, unit_size=UNIT, exclusions=CARDS, app_limits=apps))


def test_what_wanted_sharing_is_looked_at_again_when_it_has_come() -> None:
    board = worked(with_sharing(refused_without_sharing(), installed=True), APPLIED, PRESENT)
    assert board.applied_rev == 1
    assert states(board) == [ItemState.APPLIED, *[ItemState.OPEN] * 3, ItemState.REJECTED]
    for _ in range(3):
        board = worked(board, APPLIED)
    assert (board.next(), board.applied_rev) == (None, 2)


@pytest.mark.parametrize(
    ("installed", "settlement"),
    [
        (False, APPLIED),
        (True, Settlement.failed(ResultCode.ERROR, "k3s is not well", restored=True)),
        (True, Settlement.rejected(ResultCode.PRECHECK, "no driver")),
    ],
)
def test_it_stays_refused_where_sharing_has_not_come(*, installed: bool, settlement: Settlement) -> None:
    board = worked(with_sharing(refused_without_sharing(), installed=installed), settlement, ABSENT)
    assert (board.next(), board.applied_rev) == (None, 2)
    assert states(board)[1:] == [ItemState.REJECTED] * 4


def test_sharing_that_goes_leaves_limits_and_refusals_as_they_are() -> None:
    wanted = Spec(unit_size=UNIT, exclusions=CARDS, app_limits=(limits("a"),))
    board = worked(worked(worked(observed(DesiredState(), 1, wanted), REJECTED), APPLIED), APPLIED)
    assert [one.name for one in board.asked] == ["exclusions", "unit_size", "app_limits/default/a/main"]
    board = observed(board, 2, wanted.model_copy(update={"sharing": Sharing(rev=2, installed=False)}))
    board = worked(board, APPLIED, ABSENT)
    assert (board.next(), board.applied_rev) == (None, 2)
    codes = {name: (one.state, one.code) for name, one in board.report().items()}
    assert codes == {
        "sharing": (ItemState.APPLIED, None),
        "exclusions": (ItemState.REJECTED, ResultCode.NO_ROOM),
        "unit_size": (ItemState.REJECTED, ResultCode.NOT_INSTALLED),
        "app_limits/default/a/main": (ItemState.APPLIED, None),
    }


def test_what_was_done_under_an_old_key_has_changed_the_box_too() -> None:
    wanted = Spec(unit_size=UNIT, sharing=Sharing(rev=1, installed=True))
    board = observed(
        worked(worked(observed(DesiredState(), 1, wanted), APPLIED, PRESENT), APPLIED, PRESENT), 2, spec(rev=2)
    )
    board = observed(board, 3, wanted.model_copy(update={"sharing": Sharing(rev=3, installed=False)}))
    board = worked(worked(board, APPLIED, PRESENT), APPLIED, PRESENT)
    going = board.asked[0]
    board = observed(board, 4, wanted.model_copy(update={"sharing": Sharing(rev=4, installed=False)})).begin(going)
    board = observed(board, 5, wanted.model_copy(update={"sharing": Sharing(rev=5, installed=True)}))
    board = board.settle(going.name, going.key, APPLIED, ABSENT)
    assert states(board) == [ItemState.OPEN, ItemState.REJECTED]
    failed = Settlement.failed(ResultCode.ERROR, "k3s is not well", restored=True)
    assert states(worked(board, failed, ABSENT)) == [ItemState.FAILED, ItemState.REJECTED]


def test_a_box_of_which_nothing_is_known_or_that_stands_as_asked_changes_nothing() -> None:
    wanted = Spec(sharing=Sharing(rev=1, installed=True), policy=PolicyItem(rev=1, policy="spread"), unit_size=UNIT)
    board = observed(DesiredState(), 1, wanted)
    for _ in range(3):
        board = worked(board, APPLIED)
    as_asked = SharingFound(installed=True, policy="spread", excluded=["7"], unit_mib=1024)
    assert board.follow(None) is board.follow(PRESENT) is board.follow(as_asked) is board


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
    board = worked(worked(observed(DesiredState(), 1, Spec(unit_size=UNIT, exclusions=CARDS)), APPLIED), APPLIED)
    told = [one.conditions[0].text if one.conditions else None for one in board.follow(found).report().values()]
    assert tuple(told) == texts
    assert board.follow(found).follow(PRESENT) == board


def test_sharing_itself_follows_what_stands_and_what_failed_stays_as_it_is() -> None:
    board = worked(observed(DesiredState(), 1, spec(installed=True)), APPLIED, PRESENT)
    (gone,) = board.follow(ABSENT).report().values()
    assert (gone.state, gone.code) == (ItemState.REJECTED, ResultCode.NOT_INSTALLED)
    assert states(board.follow(ABSENT).follow(PRESENT)) == [ItemState.OPEN]
    away = worked(observed(DesiredState(), 1, spec(installed=False)), APPLIED, ABSENT)
    (there,) = away.follow(PRESENT).report().values()
    assert (there.state, there.code) == (ItemState.REJECTED, ResultCode.INSTALLED)
    assert states(away.follow(PRESENT).follow(ABSENT)) == [ItemState.OPEN]
    failed = Settlement.failed(ResultCode.ERROR, "k3s is not well", restored=True)
    board = worked(observed(DesiredState(), 1, spec(installed=True)), failed, ABSENT)
    assert board.follow(PRESENT) is board


@pytest.mark.parametrize("settled", [APPLIED, REJECTED, Settlement(state=ItemState.PENDING)])
def test_an_item_is_settled_once(settled: Settlement) -> None:
    board = worked(observed(DesiredState(), 7, spec(limits("a"))), settled)
    one = board.asked[0]
    assert board.settle(one.name, one.key, REJECTED if settled is APPLIED else APPLIED) is board
