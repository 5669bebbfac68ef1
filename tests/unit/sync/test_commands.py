"""A command's states: what follows what, what is refused before anything is done, and every line of the crash table."""

from dataclasses import replace
from functools import partial

import pytest
from kits.sync import ID, RESTART

from edgegpu_sync.ids import command_id, op_name
from edgegpu_sync.rules.commands import (
    MOST_ATTEMPTS,
    CommandRecord,
    Decision,
    EndStep,
    RecoveryProbe,
    RecoveryStep,
    after_crash,
    to_begin,
)
from edgegpu_sync.rules.ops import (
    OPS,
    Declaration,
    Evidence,
    LinkMove,
    LogsArgs,
    NoArgs,
    RestartRule,
    UnitRun,
    read_args,
    transaction_evidence,
)
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.wire import Json

ABLE = frozenset(OPS)
RECORD = CommandRecord(id=ID, op=RESTART, seq=1, args={}, until_s=100.0, left_s=50.0, boot="a")
NEITHER = Declaration(op=op_name("once"), settling=RestartRule.NEITHER, args=NoArgs, lasts_s=1)
LOGS, DOCTOR = op_name("logs.collect"), op_name("doctor.run")
HERE = RecoveryProbe(boot="a", now_s=60.0)


def asked(op: str, args: Json) -> CommandRecord:
    return replace(RECORD, op=op_name(op), args=args)


def test_the_way_to_an_end() -> None:
    record = RECORD.admitted(ABLE, room=True).begun("token").verifying().ended(CommandState.SUCCEEDED)
    assert (record.state, record.token, record.attempts, record.code) == (CommandState.SUCCEEDED, "token", 1, "")


@pytest.mark.parametrize(
    ("record", "able", "room", "code"),
    [
        (asked("disk.format", {}), ABLE | {"disk.format"}, True, ResultCode.UNKNOWN_OP),
        (RECORD, ABLE - {RESTART}, True, ResultCode.UNKNOWN_OP),
        (RECORD, ABLE, False, ResultCode.OUTBOX_FULL),
        (asked("sharing.install", {}), ABLE, True, ResultCode.BAD_ARGUMENTS),
        (asked("sharing.install", {"min_rev": "7"}), ABLE, True, ResultCode.BAD_ARGUMENTS),
        (asked("logs.collect", {"url": "http://plain/"}), ABLE, True, ResultCode.BAD_ARGUMENTS),
        (asked("doctor.run", {"critical": ["deep"]}), ABLE, True, ResultCode.UNSUPPORTED),
    ],
)
def test_what_cannot_be_done_is_rejected_at_once(
    record: CommandRecord, able: frozenset[str], code: ResultCode, *, room: bool
) -> None:
    rejected = record.admitted(able, room=room)
    assert (rejected.state, rejected.code) == (CommandState.REJECTED, code)


def test_arguments_are_read() -> None:
    args = read_args(OPS[op_name("logs.collect")], {"url": "https://cloud/up/1", "later": True})
    assert args == LogsArgs(url="https://cloud/up/1")


def test_states_do_not_go_back() -> None:
    with pytest.raises(ValueError, match="RUNNING does not follow RECEIVED"):
        RECORD.begun("token")
    with pytest.raises(ValueError, match="ACCEPTED is no end"):
        RECORD.ended(CommandState.ACCEPTED)
    with pytest.raises(ValueError, match="only what is RUNNING"):
        RECORD.again()
    with pytest.raises(ValueError, match="needs a token"):
        RECORD.admitted(ABLE, room=True).begun()


def test_every_verifiable_op_says_by_what() -> None:
    for one in OPS.values():
        assert bool(one.proof) == (one.settling is RestartRule.VERIFIABLE)


def test_time_is_that_of_this_boot() -> None:
    assert RECORD.may_begin("a", 99.0) is True
    assert RECORD.may_begin("a", 100.0) is False
    assert RECORD.may_begin("b", 49.0) is None
    assert RECORD.may_begin("b", 50.0) is False
    renewed = RECORD.renewed(30.0, boot="b", now_s=10.0)
    assert (renewed.may_begin("b", 29.0), renewed.left_s) == (True, 20.0)
    running = replace(RECORD, state=CommandState.RUNNING)
    assert running.renewed(30.0, boot="b", now_s=10.0) == running


def test_one_restart_at_a_time_whatever_else_goes_on_beside_it() -> None:
    ids = [command_id(f"command-{n}") for n in range(4)]
    first, second = (replace(RECORD, id=ids[n], seq=n, state=CommandState.ACCEPTED) for n in (0, 1))
    logs, doctor = (replace(first, id=ids[n], seq=n, op=op) for n, op in ((2, LOGS), (3, DOCTOR)))
    may = partial(to_begin, boot="a", now_s=60.0)
    assert may([doctor, second, first, logs]) == [first, logs, doctor]
    running = first.begun("token")
    assert may([running, second, logs.begun(), doctor]) == [doctor]
    assert may([running.ended(CommandState.SUCCEEDED), second]) == [second]
    assert may([replace(second, op=op_name("gone"), state=CommandState.RUNNING), first]) == []
    assert may([replace(first, boot="before"), second]) == [second]


def end(state: CommandState, code: ResultCode) -> tuple[CommandState, ResultCode]:
    return state, code


RUNNING = [
    (RestartRule.IDEMPOTENT, 1, Evidence.UNREADABLE, RecoveryStep.ACT_AGAIN),
    (RestartRule.IDEMPOTENT, MOST_ATTEMPTS, Evidence.UNREADABLE, end(CommandState.FAILED, ResultCode.ATTEMPTS)),
    (RestartRule.NEITHER, 1, Evidence.NOT_DONE, end(CommandState.UNKNOWN, ResultCode.CUT_SHORT)),
    (RestartRule.VERIFIABLE, 1, Evidence.NOT_DONE, RecoveryStep.ACT_AGAIN),
    (RestartRule.VERIFIABLE, MOST_ATTEMPTS, Evidence.NOT_DONE, end(CommandState.FAILED, ResultCode.ATTEMPTS)),
    (RestartRule.VERIFIABLE, 1, Evidence.DONE, RecoveryStep.VERIFY),
    (RestartRule.VERIFIABLE, 1, Evidence.UNDER_WAY, RecoveryStep.PROBE_AGAIN),
    (RestartRule.VERIFIABLE, 1, Evidence.UNREADABLE, RecoveryStep.PROBE_AGAIN),
    (RestartRule.VERIFIABLE, 1, Evidence.PUT_BACK, end(CommandState.ROLLED_BACK, ResultCode.CUT_SHORT)),
    (RestartRule.VERIFIABLE, 1, Evidence.BROKEN, end(CommandState.FAILED, ResultCode.INCONSISTENT)),
    (RestartRule.VERIFIABLE, 1, Evidence.OTHER, end(CommandState.FAILED, ResultCode.SUPERSEDED)),
]


@pytest.mark.parametrize(("settling", "attempts", "evidence", "decision"), RUNNING)
def test_a_crash_while_running(
    settling: RestartRule, attempts: int, evidence: Evidence, decision: Decision | tuple[CommandState, ResultCode]
) -> None:
    record = replace(RECORD, state=CommandState.RUNNING, attempts=attempts)
    found = after_crash(record, replace(HERE, evidence=evidence), replace(NEITHER, settling=settling))
    assert ((found.state, found.code) if isinstance(found, EndStep) else found) == decision


@pytest.mark.parametrize(
    ("settling", "evidence", "decision"),
    [
        (RestartRule.IDEMPOTENT, Evidence.UNREADABLE, RecoveryStep.VERIFY),
        (RestartRule.NEITHER, Evidence.UNREADABLE, RecoveryStep.VERIFY),
        (RestartRule.VERIFIABLE, Evidence.DONE, RecoveryStep.VERIFY),
        (RestartRule.VERIFIABLE, Evidence.NOT_DONE, RecoveryStep.VERIFY),
        (RestartRule.VERIFIABLE, Evidence.UNDER_WAY, RecoveryStep.PROBE_AGAIN),
    ],
)
def test_a_crash_while_verifying(settling: RestartRule, evidence: Evidence, decision: Decision) -> None:
    record = replace(RECORD, state=CommandState.VERIFYING, attempts=1)
    assert after_crash(record, replace(HERE, evidence=evidence), replace(NEITHER, settling=settling)) == decision


@pytest.mark.parametrize("state", [CommandState.RECEIVED, CommandState.ACCEPTED])
def test_a_crash_before_it_began(state: CommandState) -> None:
    record = replace(RECORD, state=state)
    assert after_crash(record, HERE) == RecoveryStep.BEGIN
    assert after_crash(record, RecoveryProbe(boot="b", now_s=1.0)) == RecoveryStep.AWAIT_RENEWAL
    for late in (RecoveryProbe(boot="a", now_s=100.0), RecoveryProbe(boot="b", now_s=50.0)):
        found = after_crash(record, late)
        assert isinstance(found, EndStep)
        assert found.state is CommandState.EXPIRED


def test_a_crash_after_the_end_and_of_an_op_of_another_version() -> None:
    for state in CommandState:
        if state.terminal:
            assert after_crash(replace(RECORD, state=state), HERE) == RecoveryStep.NONE
    found = after_crash(replace(RECORD, op=op_name("gone"), state=CommandState.RUNNING), HERE)
    assert isinstance(found, EndStep)
    assert found.state is CommandState.UNKNOWN


def test_what_the_traces_say() -> None:
    run = UnitRun("boot", "run-1")
    assert run.evidence(run) is Evidence.NOT_DONE
    assert run.evidence(UnitRun("boot", "run-2")) is Evidence.DONE
    assert run.evidence(UnitRun("boot-2", "run-1")) is Evidence.DONE
    assert run.evidence(None) is Evidence.UNREADABLE
    move = LinkMove("0.1", "0.2")
    seen = [move.evidence(now) for now in ("0.1", "0.2", "0.3", None)]
    assert seen == [Evidence.NOT_DONE, Evidence.DONE, Evidence.OTHER, Evidence.UNREADABLE]
    assert move.evidence("0.1", put_back=True) is Evidence.PUT_BACK
    states = [None, "COMMITTED", "ROLLED_BACK", "INCONSISTENT", "SWAPPED", "ROLLING_BACK"]
    assert [transaction_evidence(state) for state in states] == [
        Evidence.NOT_DONE,
        Evidence.DONE,
        Evidence.PUT_BACK,
        Evidence.BROKEN,
        Evidence.UNDER_WAY,
        Evidence.UNDER_WAY,
    ]
