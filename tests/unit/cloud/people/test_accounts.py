"""Accounts: who may change them, one-time links, the last admin, and what the audit says."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kits.people import LOCAL, PASSWORD, PeopleBed

from edgegpu_cloud.errors import CloudError, ConflictError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.access import Access, read_scope
from edgegpu_cloud.people.errors import (
    LastAdminError,
    LinkRefusedError,
    LockedOutError,
    SignInRefusedError,
    WeakPasswordError,
)
from edgegpu_cloud.people.people import FIRST_ADMIN_S, PASSWORD_LINK_S
from edgegpu_cloud.store.people.records import LinkKind, Role

OTHER = "rain on a tin roof"


def test_the_first_admin_comes_by_a_link_that_works_once(bed: PeopleBed) -> None:
    link = bed.people.first_admin_link(by=LOCAL)
    assert bed.people.link(link).kind is LinkKind.FIRST_ADMIN
    account = bed.people.redeem(link, "Anna", PASSWORD)
    assert (account.name, account.role, account.scope) == ("anna", Role.ADMIN, "")
    with pytest.raises(LinkRefusedError):
        bed.people.redeem(link, "mallory", PASSWORD)
    with pytest.raises(ConflictError, match="there is an admin, anna"):
        bed.people.first_admin_link(by=LOCAL)
    assert bed.sign_in("anna")


def test_a_new_link_for_the_first_admin_voids_the_earlier_and_each_ends_after_a_day(bed: PeopleBed) -> None:
    old = bed.people.first_admin_link(by=LOCAL)
    new = bed.people.first_admin_link(by=LOCAL)
    with pytest.raises(LinkRefusedError):
        bed.people.redeem(old, "anna", PASSWORD)
    bed.clock.pass_time(FIRST_ADMIN_S - 1)
    assert bed.people.link(new)
    bed.clock.pass_time(1)
    with pytest.raises(LinkRefusedError):
        bed.people.redeem(new, "anna", PASSWORD)


def test_a_link_stays_good_after_a_password_or_a_name_that_is_refused(bed: PeopleBed) -> None:
    bed.add("bea", Role.VIEWER)
    link = bed.people.first_admin_link(by=LOCAL)
    with pytest.raises(WeakPasswordError):
        bed.people.redeem(link, "anna", "short")
    with pytest.raises(CloudError, match="cannot call a person"):
        bed.people.redeem(link, "no name!", PASSWORD)
    with pytest.raises(ConflictError, match="there is an account of this name"):
        bed.people.redeem(link, "bea", PASSWORD)
    assert bed.people.redeem(link, "anna", PASSWORD)


def test_of_two_who_use_a_link_at_once_one_comes_in(bed: PeopleBed) -> None:
    link, start = bed.people.first_admin_link(by=LOCAL), threading.Barrier(4)

    def use(name: str) -> str:
        start.wait(60)
        try:
            return bed.people.redeem(link, name, PASSWORD).name
        except LinkRefusedError:
            return "refused"

    names = ["anna", "bea", "cleo", "dora"]
    with ThreadPoolExecutor(4) as pool:
        came = list(pool.map(use, names))
    assert came.count("refused") == 3
    assert [one.name for one in bed.people.all(by=LOCAL)] == [one for one in came if one != "refused"]


def test_a_person_sets_the_password_by_a_link_and_nobody_else_ever_knows_it(bed: PeopleBed) -> None:
    bed.add("anna")
    link = bed.people.create("bea@example.com", role=Role.OPERATOR, scope="site=hall", language="zh", by=LOCAL)
    with pytest.raises(SignInRefusedError):
        bed.sign_in("bea@example.com", "")
    assert bed.people.redeem(link, "", PASSWORD).language == "zh"
    assert bed.sign_in("bea@example.com")
    reset = bed.people.reset_password("bea@example.com", by=LOCAL)
    assert bed.sign_in("bea@example.com"), "the present password is valid until the link is used"
    token = bed.sign_in("bea@example.com").session_token
    bed.people.redeem(reset, "ignored", OTHER)
    assert bed.people.session(token) is None
    with pytest.raises(SignInRefusedError):
        bed.sign_in("bea@example.com", PASSWORD)
    assert bed.sign_in("bea@example.com", OTHER)


def test_a_link_is_void_when_it_is_old_or_its_account_is_disabled_or_gone(bed: PeopleBed) -> None:
    bed.add("anna")
    links = [bed.people.create(name, role=Role.VIEWER, by=LOCAL) for name in ("bea", "cleo", "dora")]
    bed.people.disable("bea", by=LOCAL)
    bed.people.delete("cleo", by=LOCAL)
    with pytest.raises(ConflictError, match="disabled"):
        bed.people.reset_password("bea", by=LOCAL)
    bed.clock.pass_time(PASSWORD_LINK_S)
    for link in (*links, "", "x" * 10_000):
        with pytest.raises(LinkRefusedError) as caught:
            bed.people.redeem(link, "", PASSWORD)
        assert str(caught.value) == str(LinkRefusedError())


def test_ones_own_password_needs_the_present_one_and_tries_are_few(bed: PeopleBed) -> None:
    bed.add("anna")
    own = bed.session("anna").access
    for _ in range(5):
        with pytest.raises(SignInRefusedError):
            bed.people.set_password("anna", OTHER, by=own, current="wrong")
    with pytest.raises(LockedOutError):
        bed.people.set_password("anna", OTHER, by=own, current=PASSWORD)
    bed.clock.pass_time(2)
    bed.people.set_password("anna", OTHER, by=own, current=PASSWORD)
    assert bed.sign_in("anna", OTHER)
    with pytest.raises(WeakPasswordError):
        bed.people.set_password("anna", "anna" * 5, by=own, current=OTHER)


def test_the_command_line_sets_a_password_and_lifts_a_lock(bed: PeopleBed) -> None:
    bed.add("anna")
    for _ in range(6):
        with pytest.raises((SignInRefusedError, LockedOutError)):
            bed.sign_in("anna", "wrong")
    bed.people.set_password("anna", OTHER, by=LOCAL)
    assert bed.sign_in("anna", OTHER)


@pytest.mark.parametrize("what", ["delete", "disable", "demote", "scope"])
def test_the_last_admin_stays(bed: PeopleBed, what: str) -> None:
    bed.add("anna")
    bed.add("bea", Role.ADMIN, "site=hall")
    bed.add("cleo", Role.OPERATOR)
    bed.people.create("dora", role=Role.ADMIN, by=LOCAL)
    anna = bed.session("anna").access

    def attempt() -> None:
        match what:
            case "delete":
                bed.people.delete("anna", by=anna)
            case "disable":
                bed.people.disable("anna", by=anna)
            case "demote":
                bed.people.set_role("anna", Role.OPERATOR, by=anna)
            case _:
                bed.people.set_scope("anna", "site=hall", by=anna)

    with pytest.raises(LastAdminError, match="no enabled admin"):
        attempt()
    assert bed.people.account("anna", by=LOCAL).role is Role.ADMIN
    assert str(bed.audit()[-1][2]["result"]).startswith("refused: cannot change anna so")
    bed.add("edda")
    attempt()


def test_two_admins_who_take_each_other_away_at_once_leave_one(bed: PeopleBed) -> None:
    start = threading.Barrier(2)

    def take(other: str) -> bool:
        start.wait(60)
        try:
            bed.people.delete(other, by=LOCAL)
        except LastAdminError:
            return False
        return True

    for number in range(5):
        names = [f"anna-{number}", f"bea-{number}"]
        for name in names:
            bed.add(name)
        for one in bed.people.all(by=LOCAL):
            if one.name not in names:
                bed.people.delete(one.name, by=LOCAL)
        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(take, names)) == [False, True]
        assert len(bed.people.all(by=LOCAL)) == 1


def test_people_are_managed_by_an_admin_of_all_boxes_alone(bed: PeopleBed) -> None:
    bed.add("anna")
    bed.add("cleo", Role.VIEWER)
    others = [Access("x", role) for role in (Role.VIEWER, Role.OPERATOR)]
    others.append(Access("x", Role.ADMIN, read_scope("site=hall")))
    for by in others:
        for attempt in (
            lambda by: bed.people.all(by=by),
            lambda by: bed.people.account("cleo", by=by),
            lambda by: bed.people.create("zoe", role=Role.VIEWER, by=by),
            lambda by: bed.people.set_role("cleo", Role.ADMIN, by=by),
            lambda by: bed.people.set_scope("cleo", "", by=by),
            lambda by: bed.people.set_language("cleo", "zh", by=by),
            lambda by: bed.people.disable("cleo", by=by),
            lambda by: bed.people.enable("cleo", by=by),
            lambda by: bed.people.delete("cleo", by=by),
            lambda by: bed.people.set_password("cleo", OTHER, by=by),
            lambda by: bed.people.reset_password("cleo", by=by),
            lambda by: bed.people.first_admin_link(by=by),
            lambda by: bed.people.revoke_sessions("cleo", by=by),
        ):
            with pytest.raises(ForbiddenError):
                attempt(by)
    assert [one.name for one in bed.people.all(by=LOCAL)] == ["anna", "cleo"]


def test_what_does_not_exist_or_cannot_be_is_refused(bed: PeopleBed) -> None:
    bed.add("anna")
    for name in ("", "nobody", "Anna Berlin", "a/b", "ä", "x" * 65, "-a"):
        with pytest.raises(NotFoundError):
            bed.people.account(name, by=LOCAL)
    for name in ("", "Anna Berlin", "a/b", "ä", "x" * 65, "-a"):
        with pytest.raises(CloudError, match="cannot call a person"):
            bed.people.create(name, role=Role.VIEWER, by=LOCAL)
    with pytest.raises(ConflictError):
        bed.people.create("ANNA", role=Role.VIEWER, by=LOCAL)
    with pytest.raises(CloudError, match="cannot select"):
        bed.people.create("bea", role=Role.VIEWER, scope="a b", by=LOCAL)
    with pytest.raises(CloudError, match="cannot select"):
        bed.people.set_scope("anna", "a b", by=LOCAL)
    with pytest.raises(CloudError, match="cannot set the language"):
        bed.people.set_language("anna", "fr", by=LOCAL)


def test_each_change_is_in_the_audit_with_before_and_after(bed: PeopleBed) -> None:
    bed.add("anna")
    bed.add("bea", Role.VIEWER)
    anna = bed.session("anna").access
    before = len(bed.audit())
    bed.people.set_role("bea", Role.OPERATOR, by=anna)
    bed.people.set_role("bea", Role.OPERATOR, by=anna)
    bed.people.set_scope("bea", " site=hall ", by=anna)
    bed.people.disable("bea", by=anna)
    bed.people.delete("bea", by=anna)
    gone = {"role": "operator", "scope": "site=hall", "disabled": True, "language": ""}
    assert bed.audit()[before:] == [
        ("anna", "person.role", _detail({"role": "viewer"}, {"role": "operator"})),
        ("anna", "person.scope", _detail({"scope": ""}, {"scope": "site=hall"})),
        ("anna", "person.disabled", _detail({"disabled": False}, {"disabled": True})),
        ("anna", "person.removed", _detail(gone, {})),
    ]


def _detail(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    return {"person": "bea", "before": before, "after": after, "result": "done"}
