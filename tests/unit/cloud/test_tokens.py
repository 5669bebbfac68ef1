"""One-time tokens: what each use comes to, and who has to wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgegpu_cloud.enrolment import tokens
from edgegpu_cloud.enrolment.tokens import RefusalCode, RequestRefusedError, Throttle
from edgegpu_cloud.store.records import ONLY_FOR, Token

NOW_S = 1_790_000_000.0


def token(*, uses: int = 1, used: int = 0, name: str = "", revoked: bool = False) -> Token:
    return Token(
        digest="0" * 64,
        by="anna",
        at_s=NOW_S,
        expires_at_s=NOW_S + 3_600,
        uses=uses,
        used=used,
        name=name,
        revoked=revoked,
    )


def test_a_token_is_spent_once() -> None:
    once = tokens.spend(token(), NOW_S)
    assert once.used == 1
    with pytest.raises(RequestRefusedError, match="used already") as caught:
        tokens.spend(once, NOW_S)
    assert caught.value.code == RefusalCode.TOKEN_USED
    assert caught.value.alarm, "somebody else has it"


def test_a_bulk_token_is_spent_as_often_as_it_says() -> None:
    one = token(uses=3, name="hall")
    names = []
    for _ in range(3):
        one = tokens.spend(one, NOW_S)
        names.append(tokens.box_name(one))
    assert names == ["hall-1", "hall-2", "hall-3"]
    with pytest.raises(RequestRefusedError) as caught:
        tokens.spend(one, NOW_S)
    assert caught.value.code == RefusalCode.TOKEN_EXHAUSTED
    assert caught.value.alarm


@pytest.mark.parametrize(("later_s", "good"), [(0, True), (3_599, True), (3_600, False), (1e9, False)])
def test_a_token_lasts_as_long_as_it_says(later_s: float, *, good: bool) -> None:
    if good:
        tokens.spend(token(), NOW_S + later_s)
        return
    with pytest.raises(RequestRefusedError) as caught:
        tokens.spend(token(), NOW_S + later_s)
    assert caught.value.code == RefusalCode.TOKEN_EXPIRED
    assert caught.value.alarm, "whoever pasted it waits for a box that does not come"


def test_a_token_that_is_used_up_and_old_is_told_as_used() -> None:
    with pytest.raises(RequestRefusedError) as caught:
        tokens.spend(token(used=1), NOW_S + 1e6)
    assert caught.value.code == RefusalCode.TOKEN_USED


def test_a_token_that_was_taken_back() -> None:
    with pytest.raises(RequestRefusedError, match="taken back"):
        tokens.spend(token(revoked=True), NOW_S)


def test_each_refusal_of_a_token_says_what_to_do() -> None:
    for code in RefusalCode:
        if code.startswith("TOKEN"):
            error = RequestRefusedError(code)
            assert error.text
            assert "edgegpu-cloud enrol" in error.remedy


def test_what_is_stored_is_no_token() -> None:
    text = tokens.mint()
    assert len(text) == 32
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz234567")
    assert tokens.mint() != text
    assert text not in tokens.digest(text)
    assert tokens.digest(f" {text}\n") == tokens.digest(text), "a pasted end of line does no harm"
    assert tokens.digest("\ud800") != tokens.digest("")


def test_a_token_for_one_box() -> None:
    assert tokens.only_for(token()) == ""
    mine = replace(token(), labels={ONLY_FOR: "k3f9x2m7q1w8e5r4"})
    assert tokens.only_for(mine) == "k3f9x2m7q1w8e5r4"


def test_an_address_with_too_many_wrong_tries_waits_until_the_period_is_over() -> None:
    throttle = Throttle(most=3, period_s=600)
    for second in range(3):
        assert throttle.wait_s("10.0.0.1", NOW_S + second) == 0
        throttle.wrong("10.0.0.1", NOW_S + second)
    assert throttle.wait_s("10.0.0.1", NOW_S + 10) == 590
    assert throttle.wait_s("10.0.0.2", NOW_S + 10) == 0
    assert throttle.wait_s("10.0.0.1", NOW_S + 600) == 0
    throttle.wrong("10.0.0.1", NOW_S + 600)
    assert throttle.wait_s("10.0.0.1", NOW_S + 601) == 0


def test_the_throttle_forgets_addresses_before_it_grows() -> None:
    throttle = Throttle(most=1, addresses=2)
    for address in ("a", "b", "c"):
        throttle.wrong(address, NOW_S)
    assert [throttle.wait_s(one, NOW_S) > 0 for one in "abc"] == [False, True, True]
