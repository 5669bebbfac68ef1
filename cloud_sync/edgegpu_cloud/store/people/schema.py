"""The tables of people, in SQL that SQLite and PostgreSQL both have."""

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import TableRow


class AccountRow(TableRow):
    """A local account; `password` is an argon2 hash, or empty."""

    __tablename__ = "accounts"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    password: Mapped[str] = mapped_column(String(255))
    role: Mapped[str] = mapped_column(String(16))
    scope: Mapped[str]
    disabled: Mapped[bool]
    language: Mapped[str] = mapped_column(String(8))
    created_at_s: Mapped[float]
    password_at_s: Mapped[float]


class WebSessionRow(TableRow):
    """A session of a browser, by the SHA-256 of its token: the token itself is never kept."""

    __tablename__ = "web_sessions"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    account: Mapped[str] = mapped_column(ForeignKey("accounts.name"), index=True)
    created_at_s: Mapped[float]
    used_at_s: Mapped[float]
    ends_at_s: Mapped[float]
    address: Mapped[str] = mapped_column(String(64))
    agent: Mapped[str] = mapped_column(String(200))


class ApiTokenRow(TableRow):
    """A token for programs, by the SHA-256 of its text: the text itself is shown once and never kept."""

    __tablename__ = "api_tokens"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    account: Mapped[str] = mapped_column(ForeignKey("accounts.name"))
    name: Mapped[str] = mapped_column(String(64))
    role: Mapped[str] = mapped_column(String(16))
    scope: Mapped[str]
    created_at_s: Mapped[float]
    expires_at_s: Mapped[float]
    used_at_s: Mapped[float]
    __table_args__ = (UniqueConstraint("account", "name"),)


class OneTimeLinkRow(TableRow):
    """A link that sets a password once, by the SHA-256 of its secret; `account` is empty for the first admin's."""

    __tablename__ = "one_time_links"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    account: Mapped[str] = mapped_column(String(64), index=True)
    by: Mapped[str]
    created_at_s: Mapped[float]
    expires_at_s: Mapped[float]


class SignInFailureRow(TableRow):
    """Tries to sign in that failed, by what they count against: an account, an address, or both together."""

    __tablename__ = "sign_in_failures"
    key: Mapped[str] = mapped_column(String(160), primary_key=True)
    count: Mapped[int]
    last_at_s: Mapped[float] = mapped_column(index=True)
    locked_until_s: Mapped[float]


class KnownAddressRow(TableRow):
    """An address from which somebody has signed in to an account: a lock of the account does not shut it out."""

    __tablename__ = "known_addresses"
    account: Mapped[str] = mapped_column(ForeignKey("accounts.name"), primary_key=True)
    address: Mapped[str] = mapped_column(String(64), primary_key=True)
    at_s: Mapped[float]
