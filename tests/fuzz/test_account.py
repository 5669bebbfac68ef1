from __future__ import annotations

from dataclasses import replace

import pytest
from fuzz.account import Asked, Sent, Stand, effects, undone, unwell
from fuzz.guided import judged
from fuzz.lies import Lie
from fuzz.mutate import mutated

from edgegpu_sync.errors import RefusalReason

BEFORE = Stand(
    pid=7,
    resident_mib=50.0,
    heap_mib=30.0,
    epoch=3,
    enrolment=1,
    key_set=1,
    rev=4,
    server_time=1_000,
    refused={},
    ledger={"doctor": 1, "k3s.service": 2},
    commands={"first"},
)
DOCTOR = Asked("second", "doctor.run", "doctor", "SUCCEEDED")
AFTER = replace(BEFORE, ledger={"doctor": 2, "k3s.service": 2}, commands={"first", "second"})


def sent(*each: tuple[RefusalReason, ...]) -> Sent:
    made = Sent()
    for whys in each:
        made.add(Lie("bent", "t", b"", retain=False, whys=frozenset(whys)))
    return made


def test_what_is_counted_as_it_was_sent_is_right() -> None:
    lies = sent((RefusalReason.FORGED,), (RefusalReason.FORGED, RefusalReason.MALFORMED), (), (RefusalReason.OLD_REV,))
    assert lies.refusable == 3
    assert lies.miscounted({"Forged": 2, "OldRev": 1}) == []
    assert lies.miscounted({"Forged": 1, "Malformed": 1, "OldRev": 1}) == []


@pytest.mark.parametrize(
    "counted",
    [{}, {"Forged": 2}, {"Forged": 3}, {"Malformed": 2, "OldRev": 1}, {"Forged": 2, "OldRev": 2}, {"Cloned": 3}],
)
def test_one_too_few_too_many_or_under_another_name_is_found(counted: dict[str, int]) -> None:
    assert sent(
        (RefusalReason.FORGED,), (RefusalReason.FORGED, RefusalReason.MALFORMED), (RefusalReason.OLD_REV,)
    ).miscounted(counted)


def test_what_was_asked_for_is_no_effect_of_lies() -> None:
    assert effects(BEFORE, AFTER, [DOCTOR], now_s=1_000) == []
    assert unwell(BEFORE, AFTER) == undone([DOCTOR]) == []


@pytest.mark.parametrize(
    "after",
    [
        replace(AFTER, epoch=4),
        replace(AFTER, key_set=2),
        replace(AFTER, rev=5),
        replace(AFTER, server_time=9_000),
        replace(AFTER, ledger={"doctor": 2, "k3s.service": 3}),
        replace(AFTER, ledger={"doctor": 1, "k3s.service": 2}),
        replace(AFTER, commands={"first", "second", "fuzz0000"}),
    ],
    ids=["epoch", "keys", "revision", "time", "one more", "one less", "journal"],
)
def test_an_effect_is_found(after: Stand) -> None:
    assert len(effects(BEFORE, after, [DOCTOR], now_s=1_000)) == 1


@pytest.mark.parametrize(
    "after",
    [
        replace(AFTER, pid=8),
        replace(AFTER, unforeseen=1),
        replace(AFTER, resident_mib=90.0),
        replace(AFTER, heap_mib=45.0),
    ],
)
def test_a_process_that_suffers_is_found(after: Stand) -> None:
    assert len(unwell(BEFORE, after)) == 1


def test_a_command_in_earnest_has_to_succeed() -> None:
    assert undone([DOCTOR, replace(DOCTOR, state="FAILED"), replace(DOCTOR, state="")]) == [
        "doctor.run second is FAILED",
        "doctor.run second is not heard of",
    ]


def test_what_libfuzzer_says_is_read() -> None:
    log = "#2\tINITED cov: 11 ft: 11\n#99\tDONE   cov: 31 ft: 40 corp: 9/1b\nDone 99 runs in 6 second(s)\n"
    assert (judged(log, 0).runs, judged(log, 0).seconds, judged(log, 0).coverage, judged(log, 0).wrong) == (
        99,
        6,
        31,
        "",
    )
    assert "KeyError" in judged("#7\tNEW cov: 12 ft: 3\nKeyError: 'a'\n", 77).wrong
    assert judged("#2\tINITED exec/s: 0\nDone 9 runs in 1 second(s)\n", 0).wrong


def test_a_body_is_changed_as_json_and_what_is_none_is_left() -> None:
    body = b'{"v":1,"epoch":{"count":42},"cards":[{"uuid":"x"}]}'
    changed = {mutated(body, number) for number in range(200)}
    assert len(changed) > 100
    assert None not in {mutated(body, number) for number in range(20)}
    assert mutated(b"\xff", 1) is mutated(b"7", 1) is mutated(b"{", 1) is None
