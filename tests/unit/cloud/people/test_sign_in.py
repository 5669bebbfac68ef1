"""Sign-in: who comes in, what a refusal says, and what ten thousand tries come to."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kits.mqtt import wait_for
from kits.people import LOCAL, PASSWORD, CheapHasher, PeopleBed, StillClock
from kits.stores import open_store

from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.people.errors import HashQueueFullError, LockedOutError, SignInRefusedError
from edgegpu_cloud.people.passwords import HashGate
from edgegpu_cloud.people.sign_in_audit import KEPT, REFUSED
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.store import ControllerStore

HOME, ELSEWHERE = "10.0.0.1", "203.0.113.9"


def wrong(bed: PeopleBed, name: str = "anna", address: str = ELSEWHERE) -> str:
    """Try a wrong password; return what came of it."""
    try:
        bed.sign_in(name, "not her password", address)
    except (SignInRefusedError, LockedOutError) as error:
        return type(error).__name__
    raise AssertionError("a wrong password came in")


def test_name_and_password_begin_a_session(bed: PeopleBed) -> None:
    bed.add("anna", Role.OPERATOR, "site=hall")
    done = bed.sign_in(" Anna ")
    session = bed.people.session(done.session_token)
    assert session is not None
    assert (session.account, session.by, session.role, session.scope_text) == (
        "anna",
        "anna",
        Role.OPERATOR,
        "site=hall",
    )
    assert session.access.sees({"site": "hall"})
    assert not session.access.sees({"site": "yard"})
    assert [one.agent for one in bed.people.sessions("anna", by=LOCAL)] == ["Firefox"]


@pytest.mark.parametrize("name", ["anna", "nobody", "", "not a name!", "a" * 500, "bea", "cleo"])
def test_a_refusal_has_one_text_and_one_cost_whatever_is_wrong(store: ControllerStore, name: str) -> None:
    hasher = CheapHasher()
    bed = PeopleBed(store, hasher=hasher)
    bed.add("anna")
    bed.people.create("bea", role=Role.VIEWER, by=LOCAL)
    bed.add("cleo")
    bed.people.disable("cleo", by=LOCAL)
    password = PASSWORD if name == "cleo" else "not her password"
    before = hasher.work
    with pytest.raises(SignInRefusedError) as caught:
        bed.sign_in(name, password)
    assert str(caught.value) == str(SignInRefusedError())
    assert hasher.work == before + 1


def test_an_account_is_locked_after_five_tries_and_each_lock_is_twice_as_long(bed: PeopleBed) -> None:
    bed.add("anna")
    assert [wrong(bed) for _ in range(5)] == ["SignInRefusedError"] * 5
    waits = []
    for _ in range(12):
        with pytest.raises(LockedOutError) as caught:
            bed.sign_in("anna", PASSWORD, ELSEWHERE)
        waits.append(caught.value.retry_after_s)
        bed.clock.pass_time(caught.value.retry_after_s)
        assert wrong(bed) == "SignInRefusedError"
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]
    bed.clock.pass_time(900)
    assert bed.sign_in("anna", PASSWORD, ELSEWHERE), "the lock ends by itself, and the right password comes in"
    assert wrong(bed) == "SignInRefusedError", "and a success begins the count anew"


def test_a_name_that_nobody_has_is_locked_as_one_that_somebody_has(bed: PeopleBed) -> None:
    bed.add("anna")
    for _ in range(8):
        assert wrong(bed, "anna", "198.51.100.1") == wrong(bed, "nobody", "198.51.100.2")


def test_whoever_signs_in_from_where_they_did_before_is_not_shut_out_by_an_attack_from_elsewhere(
    bed: PeopleBed,
) -> None:
    bed.add("anna")
    bed.sign_in("anna", address=HOME)
    for _ in range(30):
        wrong(bed, "anna", ELSEWHERE)
    assert bed.sign_in("anna", address=HOME)
    with pytest.raises(LockedOutError):
        bed.sign_in("anna", address="192.0.2.77")
    assert [wrong(bed, "anna", HOME) for _ in range(6)] == ["SignInRefusedError"] * 5 + ["LockedOutError"]


def test_an_address_is_locked_after_twenty_tries_whatever_the_names(bed: PeopleBed) -> None:
    bed.add("anna")
    came = [wrong(bed, f"name-{number}", ELSEWHERE) for number in range(22)]
    assert came == ["SignInRefusedError"] * 20 + ["LockedOutError"] * 2
    with pytest.raises(LockedOutError):
        bed.sign_in("anna", PASSWORD, ELSEWHERE)
    assert bed.sign_in("anna", PASSWORD, "192.0.2.1")


def test_the_addresses_of_one_ipv6_host_count_as_one(bed: PeopleBed) -> None:
    bed.add("anna")
    came = [wrong(bed, f"name-{number}", f"2001:db8:1:2::{number:x}") for number in range(21)]
    assert came[-1] == "LockedOutError"
    assert wrong(bed, "anna", "2001:db8:1:3::1") == "SignInRefusedError"


def test_an_attacker_with_an_account_of_their_own_does_not_free_the_address_by_signing_in(bed: PeopleBed) -> None:
    bed.add("anna")
    bed.add("mallory", Role.VIEWER)
    came = []
    for number in range(40):
        came.append(wrong(bed, f"name-{number}", ELSEWHERE))
        if came[-1] == "SignInRefusedError" and number < 19:
            bed.sign_in("mallory", address=ELSEWHERE)
    assert came.count("SignInRefusedError") == 20


@pytest.mark.cloud
def test_ten_thousand_tries_let_nobody_in_and_are_hardly_looked_at(tmp_path: Path) -> None:
    store = open_store(tmp_path / "controller.db")
    hasher, clock = CheapHasher(), StillClock()
    bed = PeopleBed(store, hasher=hasher, clock=clock)
    bed.add("anna")
    bed.sign_in("anna", address=HOME)
    before, came = hasher.work, set[str]()
    for number in range(10_000):
        came.add(wrong(bed, "anna", ELSEWHERE))
        if number % 100 == 99:
            clock.pass_time(36)  # an hour in all
    assert came == {"SignInRefusedError", "LockedOutError"}
    assert hasher.work - before <= 20, "argon2 runs for a handful of them"
    assert bed.sign_in("anna", address=HOME), "the owner comes in meanwhile"
    clock.pass_time(900)
    assert bed.sign_in("anna", address="192.0.2.1"), "and from a new place a quarter of an hour later"
    with store.read() as tx:
        assert len([one for one in tx.notes.audits(limit=99_999) if one.what == REFUSED]) <= 20
    store.close()


def test_tries_at_one_moment_are_no_more_than_tries_one_after_the_other(store: ControllerStore) -> None:
    hasher = CheapHasher()
    bed = PeopleBed(store, hasher=hasher, gate=HashGate(at_once=2, waiting=100, patience_s=60))
    bed.add("anna")
    before, start = hasher.work, threading.Barrier(16)

    def attack(_: int) -> list[str]:
        start.wait(60)
        return [wrong(bed) for _ in range(4)]

    with ThreadPoolExecutor(16) as pool:
        came = [one for some in pool.map(attack, range(16)) for one in some]
    assert came.count("SignInRefusedError") == hasher.work - before == 5
    assert hasher.most_at_once <= 2


def test_two_web_processes_on_one_store_agree_on_a_lock(store_url: str) -> None:
    clock = StillClock()
    stores = [open_store(store_url) for _ in range(2)]
    one, two = (PeopleBed(store, clock=clock) for store in stores)
    one.add("anna")
    assert [wrong((one, two)[number % 2]) for number in range(5)] == ["SignInRefusedError"] * 5
    assert [wrong(bed) for bed in (one, two)] == ["LockedOutError"] * 2
    two.people.reset_password("anna", by=LOCAL)
    assert wrong(one) == "SignInRefusedError", "the lock is lifted for both"
    for store in stores:
        store.close()


def test_a_full_gate_is_told_and_counts_as_no_try(store: ControllerStore) -> None:
    gate = HashGate(at_once=1, waiting=0)
    bed = PeopleBed(store, gate=gate)
    bed.add("anna")
    with gate.passing():
        for _ in range(30):
            with pytest.raises(HashQueueFullError, match="too many sign-ins at once"):
                bed.sign_in("anna", address=ELSEWHERE)
    assert bed.sign_in("anna", address=ELSEWHERE)


def test_a_queue_that_strangers_fill_has_a_place_for_who_is_known(store: ControllerStore) -> None:
    """An account's person from where they signed in before, and one who has a one-time link."""
    gate = HashGate(at_once=1, waiting=2, patience_s=60)
    bed = PeopleBed(store, gate=gate)
    bed.add("anna")
    bed.sign_in("anna", address=HOME)
    link = bed.people.create("bea", role=Role.VIEWER, by=LOCAL)
    new = "another four boxes here"
    with ThreadPoolExecutor(5) as pool:
        with gate.passing():
            strangers = [pool.submit(wrong, bed, f"name-{number}", f"192.0.2.{number}") for number in range(2)]
            wait_for(lambda: gate.waiting == 2, what="they wait")
            for address in (ELSEWHERE, "192.0.2.77"):
                with pytest.raises(HashQueueFullError):
                    bed.sign_in("anna", address=address)
            known = pool.submit(bed.sign_in, "anna", PASSWORD, HOME)
            invited = pool.submit(bed.people.redeem, link, "", new)
            wait_for(lambda: gate.waiting == 4, what="they wait")
        assert known.result(60).account.name == "anna"
        assert invited.result(60).name == "bea"
        assert [one.result(60) for one in strangers] == ["SignInRefusedError"] * 2


def test_a_password_is_hashed_anew_when_the_cost_has_changed(store: ControllerStore) -> None:
    old = PeopleBed(store, hasher=CheapHasher(time_cost=1))
    old.add("anna")
    new = PeopleBed(store, hasher=CheapHasher(time_cost=2))
    new.sign_in("anna")
    with store.read() as tx:
        account = tx.people.account("anna")
    assert account is not None
    assert "t=2" in account.password
    assert old.sign_in("anna")


def test_sign_ins_are_audited_without_what_was_typed_as_a_name(bed: PeopleBed) -> None:
    bed.add("anna")
    token = bed.sign_in("anna").session_token
    wrong(bed, "anna", ELSEWHERE)
    wrong(bed, "hunter2hunter2", ELSEWHERE)
    bed.people.sign_out(token)
    rows = [(by, what, detail["person"]) for by, what, detail in bed.audit() if what.startswith("sign_")]
    assert rows == [
        ("anna", "sign_in", "anna"),
        ("nobody", "sign_in.refused", "anna"),
        ("nobody", "sign_in.refused", ""),
        ("anna", "sign_out", "anna"),
    ]


def test_refused_sign_ins_never_fill_the_audit(bed: PeopleBed) -> None:
    most = KEPT[REFUSED]
    with bed.store.write() as tx:
        for number in range(3):
            tx.notes.trim_audit(REFUSED, keep=number + 1)
    bed.add("anna")
    for number in range(40):
        wrong(bed, f"name-{number}", f"203.0.113.{number}")
    with bed.store.write() as tx:
        tx.notes.trim_audit(REFUSED, keep=10)
        left = [one.detail["address"] for one in tx.notes.audits(limit=1_000) if one.what == REFUSED]
    assert left == [f"203.0.113.{number}" for number in range(39, 29, -1)], "the newest stay"
    assert most < KEPT[AuditKind.SIGN_IN]


def test_no_secret_is_in_the_store_the_audit_a_repr_or_the_log(
    bed: PeopleBed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        link = bed.people.first_admin_link(by=LOCAL)
        bed.people.redeem(link, "anna", PASSWORD)
        done = bed.sign_in("anna")
        text, token = bed.people.create_token("anna", "ci", role=Role.VIEWER, by=LOCAL)
        session, by_token = bed.people.session(done.session_token), bed.people.api_token(text)
        wrong(bed, "hunter2hunter2")
    assert session is not None
    secrets = [link, PASSWORD, done.session_token, text, session.csrf, "hunter2hunter2", "not her password"]
    with bed.store.read() as tx:
        account = tx.people.account("anna")
        stored = tx.people.sessions("anna")
        assert account is not None
        hidden = [account.password, token.digest, *(one.digest for one in stored)]
        seen = [repr(one) for one in (done, session, by_token, token, account, *stored, *tx.notes.audits(limit=1_000))]
    for text_ in (*seen, caplog.text):
        assert not any(secret in text_ for secret in (*secrets, *hidden))
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert bed.sign_in("anna"), "what is looked for was there"
    assert not any(secret.encode() in raw for secret in secrets)


def test_an_address_and_a_browser_that_no_database_takes_sign_in_all_the_same(bed: PeopleBed) -> None:
    bed.add("anna")
    bed.people.sign_in("anna", PASSWORD, address="a\0 b\n", agent="x\0y\ud800")
    (session,) = bed.people.sessions("anna", by=LOCAL)
    assert (session.address, session.agent) == ("a  b ", "x y ")
