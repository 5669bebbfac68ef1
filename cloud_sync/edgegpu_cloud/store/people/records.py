"""The dataclasses of people. Secrets are stored as hashes alone, and no hash is in a `repr`."""

from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """What a person may do, least first; a higher role may do all that a lower one may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Return the role's place in this order, from 0."""
        return list(Role).index(self)


class LinkKind(StrEnum):
    """What a one-time link is for: the first admin's account, or a new password of an account."""

    FIRST_ADMIN = "first-admin"
    PASSWORD = "password"  # noqa: S105  (the name of a kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAccount:
    """A local account. Times are seconds since 1970.

    `password`: an argon2 hash, empty until the person has set one. `scope`: a selector over labels of boxes, empty for
    all boxes. `language`: `en`, `zh`, or empty for the browser's.
    """

    name: str
    password: str = field(default="", repr=False)
    role: Role
    scope: str = ""
    disabled: bool = False
    language: str = ""
    created_at_s: float
    password_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """A session of a browser. `digest`: the SHA-256 of its token. It ends at `ends_at_s` in any case."""

    digest: str = field(repr=False)
    account: str
    created_at_s: float
    used_at_s: float
    ends_at_s: float
    address: str
    agent: str

    @property
    def id(self) -> str:
        """Return the name by which it is listed and revoked: the beginning of the digest, which opens nothing."""
        return self.digest[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A token for programs. `digest`: the SHA-256 of its text. `used_at_s` is 0 before its first use."""

    digest: str = field(repr=False)
    account: str
    name: str
    role: Role
    scope: str
    created_at_s: float
    expires_at_s: float
    used_at_s: float = 0.0

    @property
    def id(self) -> str:
        """Return the name by which it is revoked: the beginning of the digest, which opens nothing."""
        return self.digest[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTimeLink:
    """A link that sets a password once. `account` is empty for the first admin's, who chooses a name."""

    digest: str = field(repr=False)
    kind: LinkKind
    account: str
    by: str
    created_at_s: float
    expires_at_s: float


@dataclass(frozen=True, slots=True)
class SignInFailures:
    """The tries that count against an account or an address, and until when it is locked, seconds since 1970."""

    key: str
    count: int = 0
    last_at_s: float = 0.0
    locked_until_s: float = 0.0
