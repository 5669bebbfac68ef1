"""The sign-in page of `serve` under attack: real argon2, HTTPS on loopback.

10 000 tries in CI on the day of this file (TEST_TURNS=3), and with FULL=1; else 300.
"""

from __future__ import annotations

import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from kits.daily import how_many_in_turn
from kits.signinattack import OWNER, PASSWORD, Attack, AttackedConsole, Crowd, attacked_console, p95, times_ms

from edgegpu_cloud.people.lockout import OF_ACCOUNT, OF_ADDRESS, LockoutRule

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(1_800)

ADDRESSES = [f"127.0.0.{number}" for number in range(2, 10)]
LOOKS = 100
"""Requests by which the pages are measured, without the attack and under it."""

HASH_MIB = 64
"""The memory of one argon2 run by argon2-cffi's default."""

PATIENCE_MS = 5_000
BUSY = 503
TAIL = 40
"""Tries in a row that find a lock."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedConsole]:
    with attacked_console(tmp_path_factory.mktemp("attacked")) as found:
        yield found


def most(rule: LockoutRule, lasted_s: float) -> int:
    """Return how many tries a key has at most in so many seconds: the free ones, and one after each lock."""
    return rule.free + 1 + int(math.log2(lasted_s / rule.first_s + 1))


def refused_in_audit(console: AttackedConsole) -> int:
    """Return how many entries the audit has of passwords that were wrong."""
    connection = sqlite3.connect(console.database, timeout=30)
    (found,) = connection.execute("SELECT count(*) FROM audit WHERE what = 'sign_in.refused'").fetchone()
    connection.close()
    return int(found)


def all_locked(console: AttackedConsole, address: str, password: str) -> tuple[bool, float]:
    """Try some times in a row; return whether each was locked out, and by how many MiB the memory rose."""
    browser = console.browser(address)
    with console.peak() as rose:
        came = {browser.sign_in(OWNER, password) for _ in range(TAIL)}
    browser.close()
    return came == {429}, rose[0]


def test_ten_thousand_tries_let_nobody_in_and_keep_nobody_waiting(console: AttackedConsole) -> None:
    looks = {"/healthz": console.browser(), "/": console.owner}
    calm = {path: times_ms(browser, path, least=LOOKS) for path, browser in looks.items()}
    attack = Attack(console, ADDRESSES, tries=how_many_in_turn(300, 10_000))
    memory, cpu_s = console.memory_mib(), console.cpu_s()
    with console.peak() as rose, attack.running(), ThreadPoolExecutor() as pool:
        look = {
            path: pool.submit(times_ms, browser, path, least=LOOKS, done=attack.done) for path, browser in looks.items()
        }
        assert console.browser().sign_in(OWNER, PASSWORD) == 303, "the owner comes in meanwhile"
        under = {path: one.result() for path, one in look.items()}
    grown, cpu_s = console.memory_mib() - memory, console.cpu_s() - cpu_s
    looked_at, locked = attack.answers(401), attack.answers(429)
    print(  # noqa: T201  (the figures of this run)
        f"\n{attack.tries} tries in {attack.took_s:.0f} s: {looked_at} looked at, {locked} locked out; "
        f"the console used {cpu_s:.0f} s of processor time, its memory rose by {rose[0]:.0f} MiB at most "
        f"and has grown by {grown:.0f} MiB from {memory:.0f} MiB"
    )
    for path in looks:
        print(f"p95 of {path}: {p95(calm[path]):.0f} ms, under attack {p95(under[path]):.0f} ms")  # noqa: T201
    assert looked_at + locked == attack.tries, attack.came
    assert 0 < refused_in_audit(console) <= looked_at, "the audit does not grow with the tries"
    assert attack.answers(401, guesses=True) <= most(OF_ACCOUNT, attack.took_s)
    assert all(attack.answers(401, address=one) <= most(OF_ADDRESS, attack.took_s) for one in ADDRESSES)
    assert max(p95(one) for one in under.values()) < PATIENCE_MS
    assert rose[0] < 4 * HASH_MIB, "two passwords are looked at at one time"
    assert grown < HASH_MIB


def test_a_crowd_of_strangers_keeps_nobody_out_who_comes_from_where_they_did_before(console: AttackedConsole) -> None:
    """More tries at one time than the queue before the hashes has places, none of which finds a lock."""
    crowd = Crowd(console, threads=40)
    with crowd.running(BUSY), console.peak() as rose:
        came = [console.browser().sign_in(OWNER, PASSWORD) for _ in range(10)]
    assert (came, set(crowd.answers)) == ([303] * 10, {401, BUSY}), crowd.answers
    assert rose[0] < 4 * HASH_MIB, "two passwords are looked at at one time"


def test_a_try_past_the_lock_costs_no_hash_whatever_the_password(console: AttackedConsole) -> None:
    """A run of argon2 takes 64 MiB for its time, and the kernel keeps the peak: it does not rise by that in a lock."""
    with console.peak() as rose:
        assert console.browser("127.0.0.30").sign_in("somebody", PASSWORD) == 401
    assert rose[0] > HASH_MIB / 2, "a look at a password is seen by its memory"
    for password in ("a wrong guess", PASSWORD):  # each try that is looked at doubles the lock
        tries = (all_locked(console, "127.0.0.31", password) for _ in range(20))
        locked, rose_mib = next(one for one in tries if one[0])
        assert locked
        assert rose_mib < HASH_MIB / 2, password
