"""The lock-out after failed sign-ins: what a try counts against, and how long a lock lasts; pure.

A try counts against its account and against its address. An address from which somebody has signed in to the account
before counts apart: who attacks an account from elsewhere does not shut its owner out. A lock never lasts longer than
`most_s`, and tries during a lock are neither looked at nor counted.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_address

from edgegpu_cloud.store.people.records import SignInFailures

_IPV6_HOST_BITS = 64
_MOST_ADDRESS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LockoutRule:
    """A rule for one key: `free` tries, then a lock of `first_s`, twice as long after each further one.

    `forget_s` after the last failed try all of them are forgotten.
    """

    free: int
    first_s: float = 2.0
    most_s: float = 900.0
    forget_s: float = 86_400.0

    def lock_s(self, count: int) -> float:
        """Return how long the lock after the try with this number lasts; 0 for the free ones."""
        beyond = count - self.free
        if beyond < 0:
            return 0.0
        return min(self.most_s, self.first_s * 2.0 ** min(beyond, 60))

    def failed(self, before: SignInFailures, now_s: float) -> SignInFailures:
        """Return what counts against a key after one more try."""
        count = 1 if now_s - before.last_at_s >= self.forget_s else before.count + 1
        return replace(before, count=count, last_at_s=now_s, locked_until_s=now_s + self.lock_s(count))

    def given_back(self, after: SignInFailures) -> SignInFailures:
        """Return what counts against a key when one of its tries was none: it succeeded, or was not looked at."""
        count = max(0, after.count - 1)
        return replace(after, count=count, locked_until_s=after.locked_until_s if count >= self.free else 0.0)


OF_ACCOUNT = LockoutRule(free=5)
"""Against an account: five tries, then 2 s, 4 s, … 15 min: about a hundred a day."""

OF_ADDRESS = LockoutRule(free=20)
"""Against an address, whatever the account: many people may share one."""


def rule_of(key: str) -> LockoutRule:
    """Return the rule for a key."""
    return OF_ADDRESS if key.startswith("address ") else OF_ACCOUNT


def address_block(address: str) -> str:
    """Return the addresses that count as one: an IPv4 address, or the /64 of an IPv6 address, which one host has."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return re.sub(r"[^!-~]", "_", address)[:_MOST_ADDRESS] or "unknown"
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return f"{IPv6Address(int(parsed) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS)}/64"
    return str(parsed)


def address_key(block: str) -> str:
    """Return the key of an address."""
    return f"address {block}"


def account_key(name: str, block: str, *, is_known: bool) -> str:
    """Return the key of an account: its own for an address from which somebody has signed in to it before."""
    return f"{of_account(name)}{block if is_known else 'anywhere'}"


def change_key(name: str) -> str:
    """Return the key of the tries to change a password from within a session."""
    return f"{of_account(name)}change"


def of_account(name: str) -> str:
    """Return the beginning of all keys of an account. The name is hashed: people type their password there."""
    return f"account {hashlib.sha256(name.encode()).hexdigest()[:32]} "


def locked_for_s(failures: Mapping[str, SignInFailures], now_s: float) -> float:
    """Return for how many more seconds one of these keys is locked; 0 where none is.

    A lock that ends later than any rule allows comes from a clock that was wrong then: it does not count.
    """
    waits = (one.locked_until_s - now_s for one in failures.values() if now_s >= one.last_at_s - _CLOCKS_APART_S)
    return max([0.0, *waits])


_CLOCKS_APART_S = 60.0
"""By how much the clocks of two web processes may differ."""
