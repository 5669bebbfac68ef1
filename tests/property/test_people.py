"""People's rules for all numbers: a lock is never longer than its most, a session never outlives its end."""

import math
from ipaddress import IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from edgegpu_cloud.fleet.access import Access, Permission, both_scopes, read_scope
from edgegpu_cloud.people.api_tokens import session_of_token
from edgegpu_cloud.people.lockout import OF_ACCOUNT, OF_ADDRESS, LockoutRule, address_block, locked_for_s
from edgegpu_cloud.people.sessions import SessionRules
from edgegpu_cloud.store.people.records import ApiToken, Role, SignInFailures, UserAccount, WebSession

TIMES = st.floats(min_value=0, max_value=4e9, allow_nan=False)
WAITS = st.floats(min_value=0, max_value=1e6, allow_nan=False)
RULES = st.sampled_from([OF_ACCOUNT, OF_ADDRESS])
LABELS = st.dictionaries(st.sampled_from(["site", "rack", "old"]), st.sampled_from(["hall", "yard", "3"]))
SELECTORS = st.lists(
    st.sampled_from(["site=hall", "site!=hall", "rack", "!old", "site in (hall,yard)", "rack notin (3)"]), max_size=3
).map(",".join)


@given(RULES, st.integers(min_value=0, max_value=10**9))
def test_a_lock_gets_longer_and_never_longer_than_its_most(rule: LockoutRule, count: int) -> None:
    assert 0 <= rule.lock_s(count) <= rule.lock_s(count + 1) <= rule.most_s
    assert (rule.lock_s(count) > 0) is (count >= rule.free)


@given(RULES, st.lists(WAITS, max_size=60))
def test_in_any_time_so_many_tries_are_looked_at_and_no_more(rule: LockoutRule, waits: list[float]) -> None:
    now_s, failures, tries = 1e9, SignInFailures("account x"), 0
    for wait_s in waits:
        now_s += wait_s
        if locked_for_s({"": failures}, now_s) == 0:
            failures, tries = rule.failed(failures, now_s), tries + 1
    days = math.floor((now_s - 1e9) / rule.forget_s) + 1
    doublings = math.ceil(math.log2(rule.most_s / rule.first_s)) + 1
    assert tries <= days * (rule.free + doublings + rule.forget_s / rule.most_s)


@given(RULES, st.integers(min_value=0, max_value=100), TIMES)
def test_a_try_that_is_given_back_is_as_if_it_had_not_been(rule: LockoutRule, count: int, now_s: float) -> None:
    before = SignInFailures("key", count, now_s - 1, 0.0)
    after = rule.given_back(rule.failed(before, now_s))
    assert after.count == before.count
    assert after.locked_until_s == 0 or count >= rule.free


@given(TIMES, WAITS, WAITS, st.floats(min_value=-1e6, max_value=1e6))
def test_a_session_never_outlives_its_end_nor_its_last_use(
    created_s: float, used_after_s: float, lasts_s: float, later_s: float
) -> None:
    rules = SessionRules()
    session = WebSession(
        digest="d" * 64,
        account="anna",
        created_at_s=created_s,
        used_at_s=created_s + used_after_s,
        ends_at_s=created_s + lasts_s,
        address="",
        agent="",
    )
    now_s = session.used_at_s + later_s
    if rules.is_alive(session, now_s):
        assert now_s < session.ends_at_s
        assert now_s < session.used_at_s + rules.idle_s
    assert "ddd" not in repr(session)


@given(st.sampled_from(Role), st.sampled_from(Role), SELECTORS, SELECTORS, LABELS)
def test_a_token_never_may_more_than_its_owner(
    owner: Role, role: Role, scope: str, narrower: str, labels: dict[str, str]
) -> None:
    account = UserAccount(name="anna", password="hash-of-it", role=owner, scope=scope, created_at_s=0.0)  # noqa: S106
    token = ApiToken(
        digest="d" * 64,
        account="anna",
        name="ci",
        role=role,
        scope=narrower,
        created_at_s=0.0,
        expires_at_s=1.0,
    )
    by_token, by_owner = session_of_token(token, account).access, Access("anna", owner, read_scope(scope))
    assert all(by_owner.may(one) for one in Permission if by_token.may(one))
    assert by_owner.sees(labels) or not by_token.sees(labels)
    assert read_scope(both_scopes(scope, narrower)).matches(labels) is by_token.sees(labels)
    assert "hash-of-it" not in repr(account)
    assert "ddd" not in repr(token)


@given(st.integers(min_value=0x2000 << 48, max_value=2**64 - 1), st.lists(st.integers(0, 2**64 - 1), min_size=2))
def test_all_addresses_of_one_ipv6_host_are_one(network: int, hosts: list[int]) -> None:
    blocks = {address_block(str(IPv6Address(network << 64 | host))) for host in hosts}
    assert len(blocks) == 1
    assert address_block(str(IPv6Address(network - 1 << 64))) not in blocks


@given(st.text(max_size=300))
def test_any_text_as_an_address_makes_a_short_key_without_spaces(text: str) -> None:
    assert 0 < len(address_block(text)) <= 64
    assert all("!" <= one <= "~" for one in address_block(text)), "every database takes it"
