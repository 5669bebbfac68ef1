"""Tokens, enrolment attempts, and the certificates that came of them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, RowMapping, Table, case, func, insert, select, update

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.records import CertificateRecord, EnrolmentAttempt, RequestState, Token
from edgegpu_cloud.store.schema import CertificateRow, RequestRow, TokenRow, table
from edgegpu_sync.ids import DeviceId

_TOKENS, _REQUESTS, _CERTIFICATES = table(TokenRow), table(RequestRow), table(CertificateRow)


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

    def _certificates(self, *where: Any, order: str) -> list[CertificateRecord]:  # noqa: ANN401  (SQL conditions)
        return [record_of(CertificateRecord, row) for row in self._rows(_CERTIFICATES, *where, order=order)]

    def _put(self, table_: Table, values: Mapping[str, Any], *, key: str) -> None:
        self._connection.execute(update(table_).where(table_.c[key] == values[key]).values(dict(values)))

    def token(self, digest: str) -> Token | None:
        """Return a token by the SHA-256 of its text."""
        rows = self._rows(_TOKENS, _TOKENS.c.digest == digest, order="digest")
        return record_of(Token, rows[0]) if rows else None

    def tokens(self) -> list[Token]:
        """Return all tokens, oldest first."""
        return [record_of(Token, row) for row in self._rows(_TOKENS, order="at_s")]

    def add_token(self, token: Token) -> None:
        """Write a new token."""
        self._connection.execute(insert(_TOKENS).values(asdict(token)))

    def put_token(self, token: Token) -> None:
        """Update a token."""
        self._put(_TOKENS, asdict(token), key="digest")

    def request(self, id_: str) -> EnrolmentAttempt | None:
        """Return an enrolment attempt."""
        return next(map(_request, self._rows(_REQUESTS, _REQUESTS.c.id == id_, order="id")), None)

    def requests(self, state: RequestState | None = None) -> list[EnrolmentAttempt]:
        """Return enrolment attempts, oldest first; those in one state, or all."""
        where = () if state is None else (_REQUESTS.c.state == state.value,)
        return [_request(row) for row in self._rows(_REQUESTS, *where, order="at_s")]

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

    def revoked(self) -> list[CertificateRecord]:
        """Return all revoked certificates, for the CRL."""
        return self._certificates(_CERTIFICATES.c.revoked_at_s.is_not(None), order="serial")

    def revoked_count(self) -> int:
        """Return how many certificates are revoked."""
        query = select(func.count()).where(_CERTIFICATES.c.revoked_at_s.is_not(None))
        return int(self._connection.execute(query).scalar_one())
