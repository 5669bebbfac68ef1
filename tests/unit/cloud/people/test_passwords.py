"""Passwords: what is refused, that hashes are argon2's and renewed, and that few are worked on at once."""

import queue
import threading

import pytest
from argon2 import PasswordHasher
from kits.mqtt import wait_for
from kits.people import PASSWORD, CheapHasher

from edgegpu_cloud.people.errors import HashQueueFullError, WeakPasswordError
from edgegpu_cloud.people.passwords import MOST_LENGTH, HashGate, Passwords, check_password


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("eleven char", "fewer than 12"),
        ("a b c d e f " * 30, f"more than {MOST_LENGTH}"),
        ("anna.berlin.", "little more than the name"),
        ("Anna.Berlin1234", "little more than the name"),
        ("anna.berlinanna.berlin", "little more than the name"),
        ("PassWord1234", "first that are tried"),
        ("correcthorsebatterystaple", "first that are tried"),
        ("abababababababab", "first that are tried"),
        ("                ", "first that are tried"),
    ],
)
def test_a_password_that_is_guessed_early_is_refused_with_the_reason(password: str, why: str) -> None:
    with pytest.raises(WeakPasswordError, match=why) as caught:
        check_password(password, name="anna.berlin")
    assert password.strip() == "" or password not in str(caught.value), "the text of an error never has the password"


@pytest.mark.parametrize(
    "password", [PASSWORD, "盒子里的四张显卡是我们共享的", "anna-likes-rainy-mondays", "x7#Kq9!mZ2pL"]
)
def test_words_of_any_language_are_taken(password: str) -> None:
    check_password(password, name="anna")


def test_twelve_chinese_characters_are_enough_and_both_ways_to_type_an_umlaut_are_one() -> None:
    check_password("四张显卡在大厅里共享着用", name="anna")
    passwords = Passwords(CheapHasher())
    assert passwords.matches(passwords.hash("für die Halle!"), "für die Halle!")


def test_a_hash_is_argon2id_and_no_other_password_matches() -> None:
    passwords = Passwords(CheapHasher())
    hash_ = passwords.hash(PASSWORD)
    assert hash_.startswith("$argon2id$")
    assert passwords.matches(hash_, PASSWORD)
    assert not passwords.matches(hash_, PASSWORD + " ")
    assert not passwords.matches("no hash at all", PASSWORD)


def test_the_default_cost_is_that_of_rfc_9106() -> None:
    assert PasswordHasher().memory_cost == 64 * 1024
    assert PasswordHasher().time_cost == 3
    assert not Passwords().is_outdated(PasswordHasher().hash(PASSWORD))
    assert Passwords().is_outdated(CheapHasher().hash(PASSWORD))


def test_without_a_hash_the_work_is_the_same_and_the_answer_no() -> None:
    hasher = CheapHasher()
    passwords = Passwords(hasher)
    assert not passwords.matches("", PASSWORD)
    assert not passwords.matches("", "nobody has this password"), "not even the decoy's own password comes in"
    assert hasher.work == 2


def test_few_pass_the_gate_at_once_and_those_above_the_queue_are_told_so() -> None:
    gate, came, refused = HashGate(at_once=1, waiting=1, patience_s=60), queue.Queue[str](), threading.Event()

    def enter() -> None:
        try:
            with gate.passing():
                came.put("passed")
        except HashQueueFullError:
            came.put("refused")
            refused.set()

    threads = [threading.Thread(target=enter) for _ in range(2)]
    with gate.passing():
        for thread in threads:
            thread.start()
        assert refused.wait(60)
        assert came.get(timeout=60) == "refused"
        assert came.empty(), "the other one waits"
    assert came.get(timeout=60) == "passed"
    for thread in threads:
        thread.join(60)


def test_who_is_known_passes_before_strangers_that_wait_longer() -> None:
    gate, came = HashGate(at_once=1, waiting=3, patience_s=60), queue.Queue[bool]()

    def enter(*, known: bool) -> None:
        with gate.passing(known=known):
            came.put(known)

    threads = [threading.Thread(target=enter, kwargs={"known": known}) for known in (False, False, True, True)]
    with gate.passing():
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_for(lambda: gate.waiting == number, what="it waits")  # noqa: B023  (it ends within this turn)
    assert [came.get(timeout=60) for _ in threads] == [True, True, False, False]
    for thread in threads:
        thread.join(60)
    assert gate.waiting == 0


def test_strangers_go_on_when_the_known_ones_have_lost_patience() -> None:
    gate = HashGate(at_once=1, waiting=3, patience_s=0.01)
    with gate.passing(), pytest.raises(HashQueueFullError), gate.passing(known=True):
        raise AssertionError
    with gate.passing():
        assert gate.waiting == 0


def test_a_wait_at_the_gate_ends() -> None:
    gate = HashGate(at_once=1, waiting=5, patience_s=0.01)
    with gate.passing(), pytest.raises(HashQueueFullError, match="too many"), gate.passing():
        raise AssertionError
    with gate.passing():
        pass
