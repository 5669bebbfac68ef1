"""People of a store in a test: a clock that stands still, and password hashes that cost little and are counted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from argon2 import PasswordHasher

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.people.passwords import HashGate, Passwords
from edgegpu_cloud.people.people import People
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from edgegpu_cloud.people.sessions import Session, SessionRules, SignedIn
    from edgegpu_cloud.store.store import ControllerStore

NOW_S = 1_790_000_000.0
PASSWORD = "four boxes in a hall"  # noqa: S105
LOCAL = Access("operator anna")
"""The command line on the controller's own machine."""


class StillClock:
    """A clock that a test sets, seconds since 1970."""

    def __init__(self, now_s: float = NOW_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds


class CheapHasher(PasswordHasher):
    """Argon2 with its least cost; counts the hashes that it works on, and how many at one time."""

    def __init__(self, *, time_cost: int = 1) -> None:
        super().__init__(time_cost=time_cost, memory_cost=8, parallelism=1)
        self.work = 0
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def verify(self, hash: str | bytes, password: str | bytes) -> bool:  # type: ignore[override]  # noqa: A002  (argon2's)
        with self._lock:
            self.work += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return super().verify(hash, password)
        finally:
            with self._lock:
                self._at_once -= 1


class PeopleBed:
    """People on a store."""

    def __init__(
        self,
        store: ControllerStore,
        *,
        clock: StillClock | None = None,
        hasher: PasswordHasher | None = None,
        gate: HashGate | None = None,
        rules: SessionRules | None = None,
    ) -> None:
        self.store = store
        self.clock = clock or StillClock()
        self.hasher = hasher or CheapHasher()
        self.people = People(store, clock=self.clock, passwords=Passwords(self.hasher, gate), rules=rules)

    def add(self, name: str, role: Role = Role.ADMIN, scope: str = "", password: str = PASSWORD) -> None:
        """Add a person who has a password."""
        self.people.redeem(self.people.create(name, role=role, scope=scope, by=LOCAL), "", password)

    def sign_in(self, name: str, password: str = PASSWORD, address: str = "10.0.0.1") -> SignedIn:
        return self.people.sign_in(name, password, address=address, agent="Firefox")

    def session(self, name: str, password: str = PASSWORD) -> Session:
        """Sign a person in; return the session."""
        found = self.people.session(self.sign_in(name, password).session_token)
        assert found is not None
        return found

    def audit(self, what: str | None = None) -> list[tuple[str, str, dict[str, object]]]:
        """Return who, what and details of the audit, oldest first."""
        with self.store.read() as tx:
            entries = tx.notes.audits(limit=100_000)
        return [(one.by, one.what, one.detail) for one in reversed(entries) if what in {None, one.what}]
