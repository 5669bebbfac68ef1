"""Passwords: the rules for new ones, and argon2 behind a gate that few pass at one time."""

import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from edgegpu_cloud.people.errors import HashQueueFullError, WeakPasswordError
from edgegpu_cloud.phrases import phrase

LEAST_LENGTH, MOST_LENGTH = 12, 256
_LEAST_DIFFERENT = 5
_LEAST_BESIDE_NAME = 8

_FIRST_TRIED = """
000000000000 111111111111 123123123123 123456123456 123456789000 123456789012 1234567890123 12345678901234
123456789abc 1234567890ab 1234567890qwerty 123qweasdzxc 1q2w3e4r5t6y 1q2w3e4r5t6y7u 1qaz2wsx3edc 1qaz2wsx3edc4rfv
abcdefghijkl abcdefghijklm abc123456789 adminadminadmin adminpassword administrator administrator1 administration
changemechangeme changeme12345 changeme123456 changeyourpassword correcthorsebatterystaple defaultpassword
edgegpuedgegpu footballfootball iloveyou1234 iloveyouiloveyou letmeinletmein letmein123456 monkeymonkey12
nopassword123 operatoroperator passw0rd1234 passw0rdpassw0rd password1234 password12345 password123456
passwordpassword password!234 p@ssw0rd1234 p@ssword1234 p@ssw0rdp@ssw0rd qwertyuiop12 qwertyuiop123 qwertyuiop1234
qwerty123456 qwerty1234567 qwertyqwerty qwertyuiopasdf qazwsxedcrfv q1w2e3r4t5y6 rootrootroot secretsecret
superadministrator temporarypassword trustno1trustno1 welcome12345 welcome123456 welcomewelcome
woaini1314520 woaini520520 zaq12wsxcde3 zxcvbnm12345 zxcvbnmasdfghjkl
"""
"""Passwords of twelve characters and more that lists of leaked passwords begin with."""

_COMMON = frozenset(_FIRST_TRIED.split())


class HashGate:
    """A gate before work that takes memory and time: few pass at once, few wait, the others are told so.

    Those who are known wait in a queue of their own, and go first: no number of strangers keeps them out.
    """

    def __init__(self, *, at_once: int = 2, waiting: int = 16, patience_s: float = 10.0) -> None:
        """Take the bounds: `at_once` threads pass, `waiting` more wait in each queue, for `patience_s` at most."""
        self._changed = threading.Condition()
        self._at_once, self._most_waiting, self._patience_s = at_once, waiting, patience_s
        self._inside, self._waiting = 0, {True: 0, False: 0}

    @contextmanager
    def passing(self, *, known: bool = False) -> Iterator[None]:
        """Wait for a place, and hold it for the block; `known`: in the queue that goes first.

        Raises:
            HashQueueFullError: too many wait, or the wait was too long.
        """
        with self._changed:
            if not self._is_free(known=known):
                self._wait(known=known)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """How many wait, in both queues."""
        with self._changed:
            return sum(self._waiting.values())

    def _is_free(self, *, known: bool) -> bool:
        return self._inside < self._at_once and (known or not self._waiting[True])

    def _wait(self, *, known: bool) -> None:
        if self._waiting[known] >= self._most_waiting:
            raise HashQueueFullError
        self._waiting[known] += 1
        try:
            if not self._changed.wait_for(lambda: self._is_free(known=known), self._patience_s):
                raise HashQueueFullError
        finally:
            self._waiting[known] -= 1
            self._changed.notify_all()  # strangers go on where nobody of the first queue waits any more


class Passwords:
    """Hashes and checks passwords. The cost is argon2-cffi's default: RFC 9106, 64 MiB for each at work."""

    def __init__(self, hasher: PasswordHasher | None = None, gate: HashGate | None = None) -> None:
        """Take a hasher, whose cost new hashes have, and a gate."""
        self._hasher = hasher or PasswordHasher()
        self._gate = gate or HashGate()
        self._decoy = _once(lambda: self._hasher.hash("nobody has this password"))

    def hash(self, password: str, *, known: bool = False) -> str:
        """Return the argon2 hash of a password; `known`: as `HashGate.passing` has it.

        Raises:
            HashQueueFullError: too many at once.
        """
        with self._gate.passing(known=known):
            return self._hasher.hash(_normal(password))

    def matches(self, hash_: str, password: str, *, known: bool = False) -> bool:
        """Whether a password belongs to a hash; without a hash the work is the same, and the answer no.

        `known`: as `HashGate.passing` has it.

        Raises:
            HashQueueFullError: too many at once.
        """
        with self._gate.passing(known=known):
            try:
                return self._hasher.verify(hash_ or self._decoy(), _normal(password)) and bool(hash_)
            except (VerificationError, InvalidHashError):
                return False

    def is_outdated(self, hash_: str) -> bool:
        """Whether a hash has another cost than new ones."""
        return self._hasher.check_needs_rehash(hash_)


def check_password(password: str, *, name: str) -> None:
    """Refuse a password that is guessed early.

    Raises:
        WeakPasswordError: it is too short or too long, the account's name, common, or of few different characters.
    """
    text = _normal(password)
    folded = text.casefold()
    beside = folded.replace(name.casefold(), "") if name else folded
    if len(text) < LEAST_LENGTH:
        raise _weak(phrase("it has fewer than %(least)s characters", least=LEAST_LENGTH))
    if len(text) > MOST_LENGTH:
        raise _weak(phrase("it has more than %(most)s characters", most=MOST_LENGTH))
    if len(beside) < _LEAST_BESIDE_NAME:
        raise _weak(phrase("it is little more than the name"))
    if folded in _COMMON or len(set(folded)) < _LEAST_DIFFERENT:
        raise _weak(phrase("it is one of the first that are tried"))


def _weak(why: str) -> WeakPasswordError:
    return WeakPasswordError(
        phrase("cannot take this password: %(why)s", why=why), remedy=phrase("a few words that nobody else would join")
    )


def _normal(password: str) -> str:
    """Return a text as every keyboard writes it: Unicode's NFKC, as NIST SP 800-63B wants."""
    return unicodedata.normalize("NFKC", password[: MOST_LENGTH * 4])


def _once(make: Callable[[], str]) -> Callable[[], str]:
    """Return a function that makes a value at its first call, and returns the same ever after."""
    made: list[str] = []
    lock = threading.Lock()

    def value() -> str:
        with lock:
            if not made:
                made.append(make())
        return made[0]

    return value
