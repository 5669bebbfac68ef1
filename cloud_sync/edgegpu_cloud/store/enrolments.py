"""Tokens, enrolment attempts, and the certificates that came of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Table,
    Text,
    and_,
    case,
    cast,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.labels import in_scope
from edgegpu_cloud.store.records import ONLY_FOR, CertificateRecord, EnrolmentAttempt, LabelTerm, RequestState, Token
from edgegpu_cloud.store.schema import BoxRow, CertificateRow, RequestRow, TokenRow, table
from edgegpu_sync.ids import DeviceId

_TOKENS, _REQUESTS, _CERTIFICATES = table(TokenRow), table(RequestRow), table(CertificateRow)
_BOXES = table(BoxRow)

_NO_BOX = DeviceId("")
"""The device of a certificate of which only the serial is known, from a list of the revoked."""

AT_ONCE = 50
"""Tokens or attempts that are read together, where nothing else is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFilter:
    """The tokens that are asked for; fields that are empty or None do not count.

    `scope`: the terms of the boxes that a person sees; they hold for the box that a token is for, else for the labels
    that it gives. `begins`: the beginning of the hash. `search` is looked for in hashes, names, labels and people, in
    small and capital letters. `valid_at_s`: those with which a box may still come then.
    """

    scope: Sequence[LabelTerm] = ()
    begins: str = ""
    search: str = ""
    valid_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFilter:
    """The attempts of boxes to enrol that are asked for; fields that are empty or None do not count.

    `scope`: as in `TokenFilter`, of the tokens with which they came. `begins`: the beginning of the id. `token`: the
    beginning of a token's hash. `search` is looked for in ids, in the name, the host and the address of the box, and in
    the hash and the maker of its token.
    """

    scope: Sequence[LabelTerm] = ()
    begins: str = ""
    token: str = ""
    search: str = ""
    state: RequestState | None = None


@dataclass(frozen=True, slots=True)
class RevokedSerials:
    """What was revoked by serials: the certificates that are known and were not revoked, and the number of others."""

    certificates: Sequence[CertificateRecord]
    unknown: int


EVERY_TOKEN, EVERY_ATTEMPT = TokenFilter(), AttemptFilter()


@dataclass(frozen=True, slots=True)
class EnrolmentPlace:
    """A place in a list of tokens or attempts: behind the one of this time and key, which need not exist any more."""

    at_s: float
    key: str


def _request(row: RowMapping) -> EnrolmentAttempt:
    return record_of(EnrolmentAttempt, row, state=RequestState(row["state"]))


class Enrolments:
    """The tokens, enrolment attempts and certificates of one transaction."""

    def __init__(self, connection: Connection, *, hold: bool) -> None:
        """Use a connection; `hold`: rows that are read here are locked, because they are to be written."""
        self._connection, self._hold = connection, hold

    def _rows(self, table_: Table, *where: Any, order: str) -> list[RowMapping]:  # noqa: ANN401  (SQL conditions)
        query = select(table_).where(*where).order_by(table_.c[order])
        if self._hold:
            query = query.with_for_update()
        return list(self._connection.execute(query).mappings().all())

    def _part(
        self,
        table_: Table,
        where: Iterator[ColumnElement[bool]],
        *,
        after: EnrolmentPlace | None,
        limit: int,
        downwards: bool = False,
    ) -> list[RowMapping]:
        """Return rows by time, and by key where the time is the same."""
        at_s, (key,) = table_.c.at_s, table_.primary_key.columns
        query = select(table_).where(*where).limit(limit)
        query = query.order_by(*(each.desc() if downwards else each for each in (at_s, key)))
        if after is not None:
            further = at_s < after.at_s if downwards else at_s > after.at_s
            beside = key < after.key if downwards else key > after.key
            query = query.where(further | ((at_s == after.at_s) & beside))
        if self._hold:
            query = query.with_for_update()
        return list(self._connection.execute(query).mappings().all())

    def _number(self, table_: Table, where: Iterator[ColumnElement[bool]]) -> int:
        query = select(func.count()).select_from(table_).where(*where)
        return int(self._connection.execute(query).scalar_one())

    def _certificates(self, *where: Any, order: str) -> list[CertificateRecord]:  # noqa: ANN401  (SQL conditions)
        return [record_of(CertificateRecord, row) for row in self._rows(_CERTIFICATES, *where, order=order)]

    def _put(self, table_: Table, values: Mapping[str, Any], *, key: str) -> None:
        self._connection.execute(update(table_).where(table_.c[key] == values[key]).values(dict(values)))

    def token(self, digest: str) -> Token | None:
        """Return a token by the SHA-256 of its text."""
        rows = self._rows(_TOKENS, _TOKENS.c.digest == digest, order="digest")
        return record_of(Token, rows[0]) if rows else None

    def tokens(
        self, where: TokenFilter = EVERY_TOKEN, *, after: EnrolmentPlace | None = None, limit: int = AT_ONCE
    ) -> list[Token]:
        """Return tokens, oldest first, those behind a place."""
        found = self._part(_TOKENS, _of_tokens(where), after=after, limit=limit)
        return [record_of(Token, row) for row in found]

    def token_count(self, where: TokenFilter = EVERY_TOKEN) -> int:
        """Return how many tokens there are."""
        return self._number(_TOKENS, _of_tokens(where))

    def tokens_of(self, digests: Collection[str]) -> dict[str, Token]:
        """Return tokens by their hashes."""
        rows = self._rows(_TOKENS, _TOKENS.c.digest.in_(digests), order="digest") if digests else []
        return {row["digest"]: record_of(Token, row) for row in rows}

    def add_token(self, token: Token) -> None:
        """Write a new token."""
        self._connection.execute(insert(_TOKENS).values(asdict(token)))

    def put_token(self, token: Token) -> None:
        """Update a token."""
        self._put(_TOKENS, asdict(token), key="digest")

    def request(self, id_: str) -> EnrolmentAttempt | None:
        """Return an enrolment attempt."""
        return next(map(_request, self._rows(_REQUESTS, _REQUESTS.c.id == id_, order="id")), None)

    def requests(
        self,
        where: AttemptFilter = EVERY_ATTEMPT,
        *,
        after: EnrolmentPlace | None = None,
        newest_first: bool = False,
        limit: int = AT_ONCE,
    ) -> list[EnrolmentAttempt]:
        """Return enrolment attempts, oldest or newest first, those behind a place."""
        found = self._part(_REQUESTS, _of_attempts(where), after=after, downwards=newest_first, limit=limit)
        return [_request(row) for row in found]

    def request_count(self, where: AttemptFilter = EVERY_ATTEMPT) -> int:
        """Return how many enrolment attempts there are."""
        return self._number(_REQUESTS, _of_attempts(where))

    def add_request(self, request: EnrolmentAttempt) -> None:
        """Write a new attempt."""
        self._connection.execute(insert(_REQUESTS).values(asdict(request) | {"state": request.state.value}))

    def put_request(self, request: EnrolmentAttempt) -> None:
        """Update an attempt."""
        self._put(_REQUESTS, asdict(request) | {"state": request.state.value}, key="id")

    def mark(self) -> str:
        """Return a text that is another one after each change of a token or an attempt."""
        tokens, requests = _TOKENS.c, _REQUESTS.c
        of_tokens = select(func.count(), func.sum(tokens.used), func.sum(case((tokens.revoked, 1), else_=0)))
        of_requests = select(requests.state, func.count()).group_by(requests.state).order_by(requests.state)
        found = [self._connection.execute(query).all() for query in (of_tokens, of_requests)]
        return repr([[tuple(map(str, row)) for row in rows] for rows in found])

    def add_certificate(self, certificate: CertificateRecord) -> None:
        """Write a certificate that was issued."""
        self._connection.execute(insert(_CERTIFICATES).values(asdict(certificate)))

    def certificate_for(self, device: DeviceId, enrolment: int, csr_sha256: str) -> CertificateRecord | None:
        """Return the last certificate that was issued for this very CSR."""
        c = _CERTIFICATES.c
        where = (c.device == device, c.enrolment == enrolment, c.csr_sha256 == csr_sha256)
        found = self._certificates(*where, order="not_after_s")
        return found[-1] if found else None

    def certificates(self, device: DeviceId) -> list[CertificateRecord]:
        """Return all certificates of a box, the one that ends first at the beginning."""
        return self._certificates(_CERTIFICATES.c.device == device, order="not_after_s")

    def revoke_certificates(self, device: DeviceId, *, now_s: float, below_enrolment: int | None = None) -> None:
        """Revoke the certificates of a box, all or those of earlier enrolments; those that are revoked stay so."""
        c = _CERTIFICATES.c
        where = (c.device == device) & c.revoked_at_s.is_(None)
        if below_enrolment is not None:
            where &= c.enrolment < below_enrolment
        self._connection.execute(update(_CERTIFICATES).where(where).values(revoked_at_s=now_s))

    def revoke_serials(self, serials: Collection[str], *, now_s: float, until_s: float) -> RevokedSerials:
        """Revoke certificates by their serials.

        One that is not known gets a record without a box, which ends at `until_s`: it stays on the list of the revoked.
        """
        c = _CERTIFICATES.c
        rows = self._connection.execute(select(_CERTIFICATES)).mappings()
        known = {row["serial"]: row for row in rows if row["serial"] in serials}
        found = [record_of(CertificateRecord, row) for row in known.values() if row["revoked_at_s"] is None]
        for record in found:
            self._connection.execute(update(_CERTIFICATES).where(c.serial == record.serial).values(revoked_at_s=now_s))
        unknown = sorted(set(serials) - set(known))
        for serial in unknown:
            self.add_certificate(
                CertificateRecord(
                    serial=serial,
                    device=_NO_BOX,
                    enrolment=0,
                    csr_sha256="",
                    pem="",
                    not_before_s=now_s,
                    not_after_s=until_s,
                    revoked_at_s=now_s,
                )
            )
        return RevokedSerials(found, len(unknown))

    def revoked(self) -> list[CertificateRecord]:
        """Return all revoked certificates, for the CRL."""
        return self._certificates(_CERTIFICATES.c.revoked_at_s.is_not(None), order="serial")

    def revoked_mark(self) -> str:
        """Return a text that is another one after each certificate that is revoked, also where others were purged."""
        c = _CERTIFICATES.c
        query = select(func.count(), func.max(c.revoked_at_s), func.sum(c.revoked_at_s))
        found = self._connection.execute(query.where(c.revoked_at_s.is_not(None))).one()
        return repr(tuple(map(str, found)))


def _of_tokens(where: TokenFilter) -> Iterator[ColumnElement[bool]]:
    c = _TOKENS.c
    yield from _seen(where.scope)
    if where.begins:
        yield c.digest.startswith(where.begins, autoescape=True)
    if where.search:
        labels: ColumnElement[Any] = cast(c.labels, Text)
        for old, new in ((" ", ""), ('":"', "="), ('"', "")):  # neither key nor value of a label has any of these
            labels = func.replace(labels, old, new)
        yield or_(
            c.digest.startswith(where.search.lower(), autoescape=True),
            *(text.icontains(where.search, autoescape=True) for text in (c.name, c.by, labels)),
        )
    if where.valid_at_s is not None:
        yield and_(not_(c.revoked), c.used < c.uses, c.expires_at_s > where.valid_at_s)


def _of_attempts(where: AttemptFilter) -> Iterator[ColumnElement[bool]]:
    c = _REQUESTS.c
    if where.scope:
        yield c.token.in_(select(_TOKENS.c.digest).where(*_seen(where.scope)))
    if where.begins:
        yield c.id.startswith(where.begins, autoescape=True)
    if where.token:
        yield c.token.startswith(where.token, autoescape=True)
    if where.state is not None:
        yield c.state == where.state.value
    if where.search:
        texts = (c.asked[name].as_string() for name in ("name", "host", "address"))
        made_by = select(_TOKENS.c.digest).where(_TOKENS.c.by.icontains(where.search, autoescape=True))
        yield or_(
            *(column.startswith(where.search.lower(), autoescape=True) for column in (c.id, c.token)),
            *(text.icontains(where.search, autoescape=True) for text in texts),
            c.token.in_(made_by),
        )


def _seen(scope: Sequence[LabelTerm]) -> Iterator[ColumnElement[bool]]:
    """Yield the condition that the box of a token is, or would be, in a scope; none where there are no terms."""
    if not scope:
        return
    only_for = _TOKENS.c.labels[ONLY_FOR].as_string()
    any_box = or_(only_for.is_(None), only_for.not_in(select(_BOXES.c.device)))
    yield or_(*in_scope(only_for, scope), and_(any_box, *map(_gives, scope)))


def _gives(term: LabelTerm) -> ColumnElement[bool]:
    """Return the condition that a term holds for the labels that a token gives."""
    value = _TOKENS.c.labels[term.key].as_string()
    found: ColumnElement[bool] = value.is_not(None)
    if term.values is not None:
        found = and_(found, value.in_(sorted(term.values)))
    return found if term.wanted else not_(found)
