"""The HTTPS client for the cloud: enrolment, and renewal of the certificate."""

import hashlib
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import urllib3
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import BaseModel, Field, ValidationError
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from edgegpu_agent import proxied
from edgegpu_agent.identity.errors import DeniedError, IdentityError, UnreachableError
from edgegpu_agent.identity.identity_files import Broker, IdentityModel
from edgegpu_base.tls import empty_context
from edgegpu_sync.keys import PublicKey
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.wire import Count, Line

_MOST_BYTES = 1_048_576
_TIMEOUT_S = 30.0
_OK, _WAIT, _CLIENT, _SERVER = 200, 202, 400, 500
_BUSY = frozenset({408, 425, 429})

T = TypeVar("T", bound=BaseModel)


class EnrolmentAnswer(IdentityModel):
    """The box was taken in."""

    device: Annotated[str, Field(pattern=r"^[a-z0-9]{16}$")]
    name: Line = ""
    enrolment: Annotated[Count, Field(ge=1)]
    certificate: str
    broker: Broker
    broker_ca: str
    root: PublicKey
    keys: tuple[KeySetLink, ...] = ()
    server_time: Count


class PendingAnswer(IdentityModel):
    """A person has to approve it; the same request is sent again."""

    state: str = "waiting"
    retry_s: Annotated[float, Field(gt=0)] = 15.0


class RenewedAnswer(IdentityModel):
    """Another certificate for the same box."""

    certificate: str
    server_time: Count


class _Denied(IdentityModel):
    code: str = "REFUSED"
    text: str = "the cloud gives no reason"
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudClient:
    """The HTTPS client for the cloud at one address.

    `ca_pem` is the cloud's own CA, empty for the public ones. While `check_dates` returns False, the chain is verified
    without its dates, because the clock is known to be wrong.
    """

    url: str
    ca_pem: bytes
    check_dates: Callable[[], bool]
    proxy: str = ""
    timeout_s: float = _TIMEOUT_S

    def enrol(self, body: bytes) -> EnrolmentAnswer | PendingAnswer:
        """Exchange a token for an identity; the same body gets the same answer.

        Raises:
            DeniedError: the cloud refuses.
            UnreachableError: there is no answer, or none that can be read.
        """
        status, answer = self._post("/v1/enrol", body, {})
        return _read(PendingAnswer, answer) if status == _WAIT else _read(EnrolmentAnswer, answer)

    def renew(self, body: bytes, signature: str) -> RenewedAnswer:
        """Exchange a certificate for a new one; `signature` is that of sign.key over `renewal.DOMAIN` and the body.

        Raises:
            DeniedError: the cloud refuses.
            UnreachableError: there is no answer, or none that can be read.
        """
        return _read(RenewedAnswer, self._post("/v1/renew", body, {"Edgegpu-Signature": signature})[1])

    def check(self) -> None:
        """Check that the cloud answers.

        Raises:
            UnreachableError: there is no answer, none that can be trusted, or not one of an edgegpu cloud.
        """
        status, _ = _call("GET", f"{self.url}/healthz", _context(self.ca_pem, dates=self.check_dates()), self)
        if status != _OK:
            raise UnreachableError(f"cannot use {self.url}: it answered {status}", "check the address")

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        context = _context(self.ca_pem, dates=self.check_dates())
        headers = {**headers, "Content-Type": "application/json", "Accept": "application/json"}
        status, answer = _call("POST", self.url + path, context, self, body=body, headers=headers)
        if _CLIENT <= status < _SERVER and status not in _BUSY:
            raise _denied(self.url, status, answer)
        if status not in {_OK, _WAIT}:
            said = _denied(self.url, status, answer)
            raise UnreachableError(f"cannot use {self.url}{path}: {said.text}", said.remedy or "the agent asks again")
        return status, answer

    def fetch_ca(self, sha256: str) -> bytes:
        """Return the cloud's own CA as PEM, if its SHA-256 is right: that of the file, or of the certificate in DER.

        Raises:
            IdentityError: the cloud has another CA.
            UnreachableError: there is no answer.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the answer is not trusted, but compared with the checksum
        urllib3.disable_warnings(InsecureRequestWarning)
        status, answer = _call("GET", f"{self.url}/ca.crt", context, self)
        if status != _OK:
            raise UnreachableError(f"cannot fetch {self.url}/ca.crt: it answered {status}", "check the address")
        return checked_ca(self.url, answer, sha256)


def checked_ca(url: str, pem: bytes, sha256: str) -> bytes:
    """Return a CA's PEM if it has this SHA-256.

    Raises:
        IdentityError: it has another one.
    """
    try:
        der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    except ValueError as error:
        raise IdentityError(
            f"cannot trust {url}: its ca.crt is not a certificate: {error}", "check the address"
        ) from error
    mine = hashlib.sha256(pem).hexdigest()  # as `sha256sum ca.crt` and the cloud's install line have it
    if sha256.lower() not in {mine, hashlib.sha256(der).hexdigest()}:
        raise IdentityError(
            f"cannot trust {url}: its ca.crt has sha256 {mine} and not {sha256}",
            "take the line from your cloud anew, or put cloud.ca_sha256 in /etc/edgegpu/agent.yaml right",
        )
    return pem


def _context(ca_pem: bytes, *, dates: bool) -> ssl.SSLContext:
    context = empty_context(check_dates=dates)
    if ca_pem:
        context.load_verify_locations(cadata=ca_pem.decode("ascii", "replace"))
    else:
        context.load_default_certs()
    return context


def _call(
    method: str,
    url: str,
    context: ssl.SSLContext,
    client: CloudClient,
    *,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    options: dict[str, Any] = {
        "ssl_context": context,
        "retries": False,
        "timeout": urllib3.Timeout(connect=client.timeout_s, read=client.timeout_s),
    }
    try:
        with proxied.pool(client.proxy, **options) as pool:
            response = pool.request(method, url, body=body, headers=headers, redirect=False, preload_content=False)
            answer = response.read(_MOST_BYTES + 1)
            response.close()
    except (HTTPError, OSError, ValueError) as error:
        raise _unreachable(client.url, error) from error
    if len(answer) > _MOST_BYTES:
        raise UnreachableError(f"cannot use {url}: its answer is too long", "check the address")
    return response.status, answer


def _unreachable(url: str, error: Exception) -> UnreachableError:
    """Return the error with a remedy for its cause, which is the last in a chain of wrappers."""
    chain = [error, *_causes(error)]
    verify = next((one for one in chain if isinstance(one, ssl.SSLCertVerificationError)), None)
    if verify is not None:
        words = verify.verify_message
        dates = "expired" in words or "not yet" in words
        remedy = "is this box's clock right (`date`)?" if dates else "cloud.ca_sha256 must be that of its CA"
        return UnreachableError(f"cannot trust {url}: {words}", remedy)
    words = str(chain[-1]).strip() or type(chain[-1]).__name__
    return UnreachableError(
        f"cannot reach {url}: {words}", "check that this box reaches that host; cloud.proxy names a proxy"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors wrapped in an error, from the outside in; urllib3 has them in `reason`, or as first argument."""
    inner = getattr(error, "reason", None) or next(iter(error.args), None)
    if isinstance(inner, BaseException):
        yield inner
        yield from _causes(inner)


def _denied(url: str, status: int, answer: bytes) -> DeniedError:
    try:
        said = _Denied.model_validate_json(answer)
    except ValidationError:
        return DeniedError(
            "REFUSED", f"cannot use {url}: it answered {status}", "check that it is the address of your cloud"
        )
    return DeniedError(said.code, said.text, said.remedy)


def _read(model: type[T], answer: bytes) -> T:
    try:
        return model.model_validate_json(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise UnreachableError(
            f"cannot understand the cloud's answer: {where}: {first['msg']}",
            "check that the cloud has this version of edgegpu",
        ) from error


def body_of(value: dict[str, Any]) -> bytes:
    """Return a request's body as JSON; exactly these bytes are signed, and sent again."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
