"""Sign-in: a try is counted before it is looked at, so that no number of processes and threads gives more of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from edgegpu_cloud.people import sessions
from edgegpu_cloud.people.errors import HashQueueFullError, LockedOutError, SignInRefusedError
from edgegpu_cloud.people.lockout import account_key, address_block, address_key, locked_for_s, rule_of
from edgegpu_cloud.people.names import normal_name
from edgegpu_cloud.people.passwords import Passwords
from edgegpu_cloud.people.sessions import SessionRules, SignedIn
from edgegpu_cloud.people.sign_in_audit import note_refused, note_signed_in
from edgegpu_cloud.store.people.records import UserAccount
from edgegpu_cloud.store.store import ControllerStore, Transaction

KNOWN_ADDRESSES = 50
"""Addresses that are remembered for each account."""

KNOWN_FOR_S = 90 * 86_400.0
"""For so long an address is remembered after the last sign-in from it."""


class SignIns:
    """Signs people in by name and password."""

    def __init__(
        self, store: ControllerStore, *, clock: Callable[[], float], passwords: Passwords, rules: SessionRules
    ) -> None:
        self._store, self._clock, self._passwords, self._rules = store, clock, passwords, rules

    def sign_in(self, name: str, password: str, *, address: str, agent: str) -> SignedIn:
        """Begin a session.

        Raises:
            SignInRefusedError: no such account, a wrong password, or a disabled account.
            LockedOutError: too many failed tries; nothing was looked at.
            HashQueueFullError: too many sign-ins at once; nothing was looked at, and no try counts. Where somebody has
                signed in to the account from the address before, strangers do not count there.
        """
        name, block = normal_name(name), address_block(address)
        keys, account, is_known = self._count(name, block)
        hash_ = "" if account is None or account.disabled else account.password
        try:
            is_right = self._passwords.matches(hash_, password, known=is_known)
            fresh = (
                self._passwords.hash(password, known=is_known)
                if is_right and self._passwords.is_outdated(hash_)
                else ""
            )
        except HashQueueFullError:
            self._give_back(keys)
            raise
        if account is None or not is_right:
            self._refused("" if account is None else name, address, keys)
            raise SignInRefusedError
        return self._begin(account, keys, address=address, agent=agent, fresh=fresh)

    def _count(self, name: str, block: str) -> tuple[Sequence[str], UserAccount | None, bool]:
        """Count a try against its keys as if it had failed; return them, the account, whether it knows the address."""
        with self._store.read() as tx:
            is_known = bool(name) and tx.people.is_known(name, block)
            keys = _keys(name, block, is_known=is_known)
            _refuse_locked(locked_for_s(tx.people.failures.get(keys), self._clock()))
        with self._store.write() as tx:
            now_s = self._clock()
            held = tx.people.failures.hold(keys)
            _refuse_locked(locked_for_s(held, now_s))
            tx.people.failures.put(rule_of(key).failed(one, now_s) for key, one in held.items())
        with self._store.read() as tx:
            return keys, tx.people.account(name) if name else None, is_known

    def _give_back(self, keys: Sequence[str]) -> None:
        with self._store.write() as tx:
            held = tx.people.failures.hold(keys)
            tx.people.failures.put(rule_of(key).given_back(one) for key, one in held.items())

    def _refused(self, name: str, address: str, keys: Sequence[str]) -> None:
        with self._store.write() as tx:
            counts = [one.count for one in tx.people.failures.get(keys).values()]
            note_refused(tx, name, address=address, now_s=self._clock(), tries=max(counts))

    def _begin(self, checked: UserAccount, keys: Sequence[str], *, address: str, agent: str, fresh: str) -> SignedIn:
        """Begin the session of an account whose password was right a moment ago."""
        with self._store.write() as tx:
            now_s, block = self._clock(), address_block(address)
            account = tx.people.account(checked.name)
            if account is None or account.disabled or account.password != checked.password:
                raise SignInRefusedError
            if fresh:
                account = replace(account, password=fresh)
                tx.people.put_account(account)
            held = tx.people.failures.hold(keys)
            of_address = [one for key, one in held.items() if key == address_key(block)]
            tx.people.failures.put(rule_of(one.key).given_back(one) for one in of_address)
            tx.people.failures.forget([key for key in keys if key != address_key(block)])
            tx.people.know(account.name, block, now_s, most=KNOWN_ADDRESSES)
            sweep(tx, self._rules, now_s)
            note_signed_in(tx, account.name, address=address, now_s=now_s)
            return sessions.begin(tx, account, self._rules, now_s=now_s, address=address, agent=agent)


def sweep(tx: Transaction, rules: SessionRules, now_s: float) -> None:
    """Drop what is of no use any more: ended sessions, old links, forgotten failures and addresses."""
    tx.people.sweep(now_s=now_s, unused_since_s=now_s - rules.idle_s)
    tx.people.forget_known(now_s - KNOWN_FOR_S)
    tx.people.failures.sweep(now_s - max(rule_of("").forget_s, rule_of("address ").forget_s))


def _keys(name: str, block: str, *, is_known: bool) -> Sequence[str]:
    """Return what a try counts against; a name that no account can have counts against the address alone."""
    if not name:
        return [address_key(block)]
    return [account_key(name, block, is_known=is_known), address_key(block)]


def _refuse_locked(wait_s: float) -> None:
    if wait_s > 0:
        raise LockedOutError(wait_s)
