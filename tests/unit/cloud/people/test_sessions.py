"""Sessions end: unused, too old, signed out, revoked, with the account; API tokens likewise, and never allow more."""

import pytest
from kits.people import LOCAL, NOW_S, PeopleBed

from edgegpu_cloud.errors import CloudError, ConflictError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.access import Permission
from edgegpu_cloud.people.api_tokens import MOST_TOKENS
from edgegpu_cloud.people.secret_texts import csrf_of
from edgegpu_cloud.people.sessions import SessionRules
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.store import ControllerStore

DAY_S = 86_400.0


def used_at_s(bed: PeopleBed, name: str = "anna") -> list[float]:
    return [one.used_at_s for one in bed.people.sessions(name, by=LOCAL)]


def test_a_session_that_is_used_lasts_a_week_and_no_longer(bed: PeopleBed) -> None:
    bed.add("anna")
    token = bed.sign_in("anna").session_token
    alive = 0
    while bed.people.session(token) is not None:
        alive += 1
        bed.clock.pass_time(6 * 3_600)
    assert alive == 28


def test_a_session_that_is_not_used_for_half_a_day_ends(bed: PeopleBed) -> None:
    bed.add("anna")
    token = bed.sign_in("anna").session_token
    bed.clock.pass_time(12 * 3_600 - 1)
    assert bed.people.session(token) is not None
    bed.clock.pass_time(12 * 3_600)
    assert bed.people.session(token) is None
    assert bed.people.sessions("anna", by=LOCAL) == []


def test_the_last_use_is_stored_once_a_minute(bed: PeopleBed) -> None:
    bed.add("anna")
    token = bed.sign_in("anna").session_token
    bed.clock.pass_time(59)
    bed.people.session(token)
    assert used_at_s(bed) == [NOW_S]
    bed.clock.pass_time(1)
    bed.people.session(token)
    assert used_at_s(bed) == [NOW_S + 60]


def test_signing_out_ends_one_session_and_revoking_any(bed: PeopleBed) -> None:
    bed.add("anna")
    tokens = [bed.sign_in("anna").session_token for _ in range(4)]
    bed.people.sign_out(tokens[0])
    bed.people.sign_out("no such token")
    assert bed.people.session(tokens[0]) is None
    session = bed.people.session(tokens[1])
    assert session is not None
    bed.people.revoke_session(session.id, by=session.access)
    assert bed.people.session(tokens[1]) is None
    kept = bed.people.session(tokens[2])
    assert kept is not None
    assert bed.people.revoke_sessions("anna", by=kept.access, but=kept.id) == 1
    assert bed.people.session(tokens[2]) is not None
    assert bed.people.session(tokens[3]) is None


def test_nobody_sees_or_ends_anothers_sessions_but_who_manages_people(bed: PeopleBed) -> None:
    bed.add("anna")
    bed.add("bea", Role.OPERATOR)
    anna, bea = bed.session("anna"), bed.session("bea")
    with pytest.raises(ForbiddenError):
        bed.people.sessions("anna", by=bea.access)
    with pytest.raises(NotFoundError):
        bed.people.revoke_session(anna.id, by=bea.access)
    for part in ("", anna.id[:4], "%", "_" * 12, "\0"):
        with pytest.raises(NotFoundError):
            bed.people.revoke_session(part, by=anna.access)
    bed.people.revoke_session(bea.id, by=anna.access)
    assert used_at_s(bed, "bea") == []


def test_role_and_scope_count_from_the_next_request_on_and_a_disabled_account_has_no_session(bed: PeopleBed) -> None:
    bed.add("anna")
    bed.add("bea", Role.OPERATOR)
    token = bed.sign_in("bea").session_token
    bed.people.set_role("bea", Role.VIEWER, by=LOCAL)
    bed.people.set_scope("bea", "site=hall", by=LOCAL)
    session = bed.people.session(token)
    assert session is not None
    assert (session.role, session.scope_text) == (Role.VIEWER, "site=hall")
    bed.people.disable("bea", by=LOCAL)
    assert bed.people.session(token) is None
    bed.people.enable("bea", by=LOCAL)
    assert bed.people.session(token) is None, "enabling does not bring a session back"


def test_a_new_password_ends_all_sessions_but_the_one_that_set_it(bed: PeopleBed) -> None:
    bed.add("anna")
    here, there = bed.sign_in("anna").session_token, bed.sign_in("anna").session_token
    session = bed.people.session(here)
    assert session is not None
    bed.people.set_password(
        "anna", "another good one", by=session.access, current="four boxes in a hall", keep_session=here
    )
    assert bed.people.session(here) is not None
    assert bed.people.session(there) is None


def test_csrf_belongs_to_one_session(bed: PeopleBed) -> None:
    bed.add("anna")
    one, other = bed.sign_in("anna"), bed.sign_in("anna")
    first, second = bed.people.session(one.session_token), bed.people.session(other.session_token)
    assert first is not None
    assert second is not None
    assert first.csrf == csrf_of(one.session_token) != second.csrf
    assert one.session_token not in first.csrf


def test_an_account_has_so_many_sessions_and_no_more(store: ControllerStore) -> None:
    bed = PeopleBed(store, rules=SessionRules(most=3))
    bed.add("anna")
    tokens = []
    for _ in range(5):
        tokens.append(bed.sign_in("anna").session_token)
        bed.clock.pass_time(1)
    assert [bed.people.session(token) is not None for token in tokens] == [False, False, True, True, True]


def test_a_token_has_the_lower_role_and_both_scopes(bed: PeopleBed) -> None:
    bed.add("anna", Role.OPERATOR, "site=hall")
    own = bed.session("anna")
    text, token = bed.people.create_token("anna", "ci", role=Role.OPERATOR, scope="rack=3", by=own.access)
    assert text.startswith("egt_")
    session = bed.people.api_token(text)
    assert session is not None
    assert (session.by, session.role, session.csrf, session.id) == ("anna/ci", Role.OPERATOR, "", token.id)
    assert [session.access.sees(labels) for labels in ({"site": "hall", "rack": "3"}, {"site": "hall"})] == [
        True,
        False,
    ]
    bed.people.set_role("anna", Role.VIEWER, by=LOCAL)
    lower = bed.people.api_token(text)
    assert lower is not None
    assert lower.role is Role.VIEWER
    assert not lower.access.may(Permission.CHANGE)


def test_a_token_ends_with_its_time_its_revocation_and_its_owner(bed: PeopleBed) -> None:
    bed.add("anna")
    bed.add("bea", Role.VIEWER)
    short, _ = bed.people.create_token("bea", "short", role=Role.VIEWER, days=1, by=LOCAL)
    long, token = bed.people.create_token("bea", "long", role=Role.VIEWER, days=300, by=LOCAL)
    bed.clock.pass_time(DAY_S)
    assert bed.people.api_token(short) is None
    assert bed.people.api_token(long) is not None
    assert [one.used_at_s for one in bed.people.tokens("bea", by=LOCAL)] == [NOW_S + DAY_S, 0]
    bed.people.disable("bea", by=LOCAL)
    assert bed.people.api_token(long) is None
    bed.people.enable("bea", by=LOCAL)
    assert bed.people.api_token(long) is not None
    bed.people.revoke_token("bea", token.id, by=LOCAL)
    assert bed.people.api_token(long) is None
    again, _ = bed.people.create_token("bea", "long", role=Role.VIEWER, by=LOCAL)
    bed.people.delete("bea", by=LOCAL)
    assert bed.people.api_token(again) is None


def test_a_sessions_token_is_no_api_token_and_the_reverse(bed: PeopleBed) -> None:
    bed.add("anna")
    text, _ = bed.people.create_token("anna", "ci", role=Role.VIEWER, by=LOCAL)
    token = bed.sign_in("anna").session_token
    assert bed.people.session(text) is None
    assert bed.people.api_token(token) is None
    assert bed.people.api_token("egt_") is None


def test_tokens_are_refused_with_the_reason(bed: PeopleBed) -> None:
    bed.add("anna", Role.OPERATOR)
    bed.add("bea", Role.VIEWER)
    own, bea = bed.session("anna").access, bed.session("bea").access
    with pytest.raises(CloudError, match="has the role operator"):
        bed.people.create_token("anna", "ci", role=Role.ADMIN, by=own)
    with pytest.raises(CloudError, match="for 0 days"):
        bed.people.create_token("anna", "ci", role=Role.VIEWER, days=0, by=own)
    with pytest.raises(CloudError, match="cannot call a token"):
        bed.people.create_token("anna", "a/b", role=Role.VIEWER, by=own)
    with pytest.raises(CloudError, match="cannot select boxes"):
        bed.people.create_token("anna", "ci", role=Role.VIEWER, scope="=", by=own)
    with pytest.raises(ForbiddenError):
        bed.people.create_token("anna", "ci", role=Role.VIEWER, by=bea)
    with pytest.raises(ForbiddenError):
        bed.people.tokens(by=own)
    bed.people.create_token("anna", "ci", role=Role.VIEWER, by=own)
    with pytest.raises(ConflictError, match="there is one"):
        bed.people.create_token("anna", "ci", role=Role.VIEWER, by=own)
    with pytest.raises(NotFoundError, match="0 are called so"):
        bed.people.revoke_token("anna", "other", by=own)
    for number in range(1, MOST_TOKENS):
        bed.people.create_token("anna", f"ci-{number}", role=Role.VIEWER, by=own)
    with pytest.raises(CloudError, match="has 100"):
        bed.people.create_token("anna", "one-more", role=Role.VIEWER, by=own)


def test_a_token_makes_no_other_token_and_no_password_unless_it_may_manage_people(bed: PeopleBed) -> None:
    bed.add("anna", Role.OPERATOR)
    text, _ = bed.people.create_token("anna", "ci", role=Role.OPERATOR, by=LOCAL)
    session = bed.people.api_token(text)
    assert session is not None
    with pytest.raises(ForbiddenError):
        bed.people.create_token("anna", "more", role=Role.OPERATOR, by=session.access)
    with pytest.raises(ForbiddenError):
        bed.people.set_password("anna", "another good one", by=session.access, current="four boxes in a hall")
