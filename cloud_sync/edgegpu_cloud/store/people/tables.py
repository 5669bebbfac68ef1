"""Accounts, web sessions, API tokens and one-time links in one transaction."""

from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, delete, insert, or_, select, update

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.people.failures import SignInFailureTable
from edgegpu_cloud.store.people.records import ApiToken, LinkKind, OneTimeLink, Role, UserAccount, WebSession
from edgegpu_cloud.store.people.schema import AccountRow, ApiTokenRow, KnownAddressRow, OneTimeLinkRow, WebSessionRow
from edgegpu_cloud.store.schema import table

_ACCOUNTS, _SESSIONS, _TOKENS = table(AccountRow), table(WebSessionRow), table(ApiTokenRow)
_LINKS, _KNOWN = table(OneTimeLinkRow), table(KnownAddressRow)

Where = ColumnElement[bool]


def _account(row: RowMapping) -> UserAccount:
    return record_of(UserAccount, row, role=Role(row["role"]))


def _token(row: RowMapping) -> ApiToken:
    return record_of(ApiToken, row, role=Role(row["role"]))


def _link(row: RowMapping) -> OneTimeLink:
    return record_of(OneTimeLink, row, kind=LinkKind(row["kind"]))


class PeopleTable:
    """The people of one transaction. `failures`: the failed sign-ins."""

    def __init__(self, connection: Connection, *, hold: bool) -> None:
        """Use a connection; `hold`: rows that are read here are locked, because they are to be written."""
        self._connection, self._hold = connection, hold
        self.failures = SignInFailureTable(connection)

    def _rows(self, rows: Table, *where: Where, order: str = "created_at_s") -> list[RowMapping]:
        query = select(rows).where(*where).order_by(rows.c[order], *rows.primary_key)
        if self._hold:
            query = query.with_for_update()
        return list(self._connection.execute(query).mappings().all())

    def _delete(self, rows: Table, *where: Where) -> int:
        return self._connection.execute(delete(rows).where(*where)).rowcount

    # accounts

    def account(self, name: str) -> UserAccount | None:
        """Return an account."""
        rows = self._rows(_ACCOUNTS, _ACCOUNTS.c.name == name, order="name")
        return _account(rows[0]) if rows else None

    def accounts(self) -> list[UserAccount]:
        """Return all accounts, by name."""
        return [_account(row) for row in self._rows(_ACCOUNTS, order="name")]

    def page(self, *, search: str, after: str, limit: int) -> list[UserAccount]:
        """Return accounts by name, those after a name; `search` is looked for in names, scopes and roles."""
        c = _ACCOUNTS.c
        found = (one.icontains(search, autoescape=True) for one in (c.name, c.scope, c.role))
        query = select(_ACCOUNTS).where(c.name > after, *([or_(*found)] if search else []))
        return [_account(row) for row in self._connection.execute(query.order_by(c.name).limit(limit)).mappings().all()]

    def hold_accounts(self) -> None:
        """Hold all accounts until the end of the transaction, before one of them: two who hold one each would wait."""
        query = select(_ACCOUNTS.c.name).order_by(_ACCOUNTS.c.name).with_for_update()
        self._connection.execute(query).all()

    def add_account(self, account: UserAccount) -> None:
        """Write a new account."""
        self._connection.execute(insert(_ACCOUNTS).values(asdict(account) | {"role": account.role.value}))

    def put_account(self, account: UserAccount) -> None:
        """Update an account."""
        values = asdict(account) | {"role": account.role.value}
        self._connection.execute(update(_ACCOUNTS).where(_ACCOUNTS.c.name == account.name).values(values))

    def remove_account(self, name: str) -> None:
        """Drop an account with its sessions, tokens, links and known addresses."""
        for rows in (_SESSIONS, _TOKENS, _LINKS, _KNOWN):
            self._delete(rows, rows.c.account == name)
        self._delete(_ACCOUNTS, _ACCOUNTS.c.name == name)

    # web sessions

    def session(self, digest: str) -> WebSession | None:
        """Return a session by the SHA-256 of its token."""
        return next(iter(self._sessions(_SESSIONS.c.digest == digest)), None)

    def sessions(self, account: str) -> list[WebSession]:
        """Return the sessions of an account, oldest first."""
        return self._sessions(_SESSIONS.c.account == account)

    def session_with_id(self, id_: str) -> WebSession | None:
        """Return a session by its `id`."""
        return next(iter(self._sessions(_SESSIONS.c.digest.startswith(id_, autoescape=True))), None)

    def _sessions(self, where: Where) -> list[WebSession]:
        return [record_of(WebSession, row) for row in self._rows(_SESSIONS, where)]

    def add_session(self, session: WebSession) -> None:
        """Write a new session."""
        self._connection.execute(insert(_SESSIONS).values(asdict(session)))

    def touch_session(self, digest: str, used_at_s: float) -> None:
        """Store when a session was used last."""
        where = (_SESSIONS.c.digest == digest) & (_SESSIONS.c.used_at_s < used_at_s)
        self._connection.execute(update(_SESSIONS).where(where).values(used_at_s=used_at_s))

    def end_session(self, digest: str) -> bool:
        """Drop a session; return whether it was there."""
        return bool(self._delete(_SESSIONS, _SESSIONS.c.digest == digest))

    def end_sessions(self, account: str, *, but: str = "") -> int:
        """Drop the sessions of an account, all or all but one; return how many."""
        return self._delete(_SESSIONS, _SESSIONS.c.account == account, _SESSIONS.c.digest != but)

    def end_everything(self) -> tuple[int, int]:
        """Drop all sessions and one-time links; return how many of each."""
        return self._delete(_SESSIONS), self._delete(_LINKS)

    # API tokens

    def token(self, digest: str) -> ApiToken | None:
        """Return a token by the SHA-256 of its text."""
        return next(iter(self._tokens(_TOKENS.c.digest == digest)), None)

    def tokens(self, account: str | None = None) -> list[ApiToken]:
        """Return the tokens of an account, or all, oldest first."""
        return self._tokens(*(() if account is None else (_TOKENS.c.account == account,)))

    def _tokens(self, *where: Where) -> list[ApiToken]:
        rows = self._rows(_TOKENS, *where)
        return sorted(map(_token, rows), key=lambda one: (one.created_at_s, one.account, one.name))

    def add_token(self, token: ApiToken) -> None:
        """Write a new token."""
        self._connection.execute(insert(_TOKENS).values(asdict(token) | {"role": token.role.value}))

    def touch_token(self, digest: str, used_at_s: float) -> None:
        """Store when a token was used last."""
        where = (_TOKENS.c.digest == digest) & (_TOKENS.c.used_at_s < used_at_s)
        self._connection.execute(update(_TOKENS).where(where).values(used_at_s=used_at_s))

    def remove_token(self, digest: str) -> bool:
        """Drop a token; return whether it was there."""
        return bool(self._delete(_TOKENS, _TOKENS.c.digest == digest))

    # one-time links

    def link(self, digest: str) -> OneTimeLink | None:
        """Return a link by the SHA-256 of its secret."""
        rows = self._rows(_LINKS, _LINKS.c.digest == digest, order="digest")
        return _link(rows[0]) if rows else None

    def links(self) -> list[OneTimeLink]:
        """Return all links that were not used, oldest first."""
        return [_link(row) for row in self._rows(_LINKS)]

    def put_link(self, link: OneTimeLink) -> None:
        """Write a link; an earlier one for the same account is void."""
        self._delete(_LINKS, _LINKS.c.account == link.account)
        self._connection.execute(insert(_LINKS).values(asdict(link) | {"kind": link.kind.value}))

    def take_link(self, digest: str) -> bool:
        """Drop a link; return whether it was there: of two who use it at once one alone is told so."""
        return bool(self._delete(_LINKS, _LINKS.c.digest == digest))

    def drop_links(self, account: str) -> None:
        """Drop the links of an account; an empty name drops the first admin's."""
        self._delete(_LINKS, _LINKS.c.account == account)

    # known addresses

    def is_known(self, account: str, address: str) -> bool:
        """Whether somebody has signed in to an account from this address."""
        query = select(_KNOWN.c.at_s).where(_KNOWN.c.account == account, _KNOWN.c.address == address)
        return self._connection.execute(query).first() is not None

    def know(self, account: str, address: str, at_s: float, *, most: int) -> None:
        """Store that somebody has signed in from an address; an account keeps the last `most` of them."""
        mine = _KNOWN.c.account == account
        there = update(_KNOWN).where(mine, _KNOWN.c.address == address).values(at_s=at_s)
        if self._connection.execute(there).rowcount:
            return
        self._connection.execute(insert(_KNOWN).values(account=account, address=address, at_s=at_s))
        newest = select(_KNOWN.c.address).where(mine).order_by(_KNOWN.c.at_s.desc(), _KNOWN.c.address)
        old = list(self._connection.execute(newest.offset(most)).scalars())
        self._delete(_KNOWN, mine, _KNOWN.c.address.in_(old))

    def forget_known(self, before_s: float) -> None:
        """Drop the addresses from which nobody has signed in since then."""
        self._delete(_KNOWN, _KNOWN.c.at_s < before_s)

    def sweep(self, *, now_s: float, unused_since_s: float) -> None:
        """Drop sessions that have ended, or that nobody has used since then, and links that are too old."""
        ended: Where = (_SESSIONS.c.ends_at_s <= now_s) | (_SESSIONS.c.used_at_s <= unused_since_s)
        self._delete(_SESSIONS, ended)
        self._delete(_LINKS, _LINKS.c.expires_at_s <= now_s)
