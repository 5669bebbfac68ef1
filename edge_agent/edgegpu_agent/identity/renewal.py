"""Renewal: exchange the certificate for a new one with a new key; the box's sign.key signs the request."""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from edgegpu_agent.identity import identity_files
from edgegpu_agent.identity.enrolment_client import CloudClient, RenewedAnswer, body_of
from edgegpu_agent.identity.errors import DeniedError, UnreachableError
from edgegpu_agent.identity.identity_files import (
    BoxIdentity,
    CloudAddress,
    IdentityModel,
    read_certificate,
)
from edgegpu_agent.identity.keys import certificate_request, new_tls_key, public_of
from edgegpu_sync.wire import to_base64

DOMAIN = b"edgegpu renew 1\n"
"""The prefix of the body in the signed bytes."""

_FOLDER, _REQUEST, _DONE = "renewal", "request.json", "renewed.json"


class _Request(IdentityModel):
    version: Literal[1] = 1
    cause: str
    body: str


class _Done(IdentityModel):
    version: Literal[1] = 1
    cause: str
    not_after_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The renewal of one identity's certificate; any thread may call it, and a lock admits one at a time."""

    identity: BoxIdentity
    instance: str
    cloud: CloudAddress
    client: Callable[[bytes], CloudClient]
    random_hex: Callable[[int], str] = secrets.token_hex
    lock: threading.Lock = field(default_factory=threading.Lock)

    def renew(self, cause: str) -> int:
        """Get a new certificate and put it in place; a cause that was served before needs no new request.

        The result is the cloud's time, in seconds since 1970; 0 where there was no request.

        Args:
            cause: `life`, or the id of a command.

        Raises:
            DeniedError: the cloud refuses.
            UnreachableError: there is no answer, or none that can be used: try again.
            IdentityError: this box's files cannot be used.
        """
        with self.lock:
            settle(self.identity.folder)
            if cause != LIFE and self._served(cause):
                return 0
            request = self._request(cause)
            answer = self._ask(request)
            self._keep(answer, request)
            settle(self.identity.folder)
            return answer.server_time

    @property
    def _new(self) -> Path:
        return self.identity.folder / _FOLDER

    def _served(self, cause: str) -> bool:
        try:
            return _Done.model_validate_json((self.identity.folder / _DONE).read_bytes()).cause == cause
        except (OSError, ValidationError):
            return False

    def _request(self, cause: str) -> _Request:
        """Return the request; one without an answer stays unchanged, so that the cloud gives the same certificate."""
        path = self._new / _REQUEST
        try:
            known = _Request.model_validate_json(path.read_bytes())
            if known.cause == cause:
                return known
        except (OSError, ValidationError):
            pass  # no request, or a half written one, which was never sent
        path.unlink(missing_ok=True)  # a request must never lie beside another one's key
        identity_files.make_folder(self._new)
        tls_key = new_tls_key()
        identity_files.write(self._new / "tls.key", tls_key)
        box = self.identity.device
        body = body_of(
            {
                "device": box.device,
                "enrolment": box.enrolment,
                "csr": certificate_request(tls_key, box.device),
                "instance": self.instance,
                "nonce": self.random_hex(16),
            }
        )
        request = _Request(cause=cause, body=body.decode())
        identity_files.write(path, request.model_dump_json().encode())
        return request

    def _ask(self, request: _Request) -> RenewedAnswer:
        """Send the request once; one that was denied is not sent with the same key again."""
        body = request.body.encode()
        signature = to_base64(self.identity.sign_key().sign(DOMAIN + body))
        try:
            return self.client(self._cloud_ca()).renew(body, signature)
        except DeniedError:
            (self._new / _REQUEST).unlink(missing_ok=True)
            raise

    def _cloud_ca(self) -> bytes:
        """Return the CA of the enrolment, or another one if the configuration names it now."""
        pin = self.cloud.ca_sha256
        if pin == self.identity.device.cloud.ca_sha256:
            return self.identity.cloud_ca()
        return self.client(b"").fetch_ca(pin) if pin else b""

    def _keep(self, answer: RenewedAnswer, request: _Request) -> None:
        certificate = read_certificate(answer.certificate.encode())
        ours = certificate.public == public_of((self._new / "tls.key").read_bytes())
        if not ours or certificate.name != self.identity.device.device:
            raise UnreachableError(
                "cannot use the renewed certificate: the certificate is not for this box's key and name",
                "the agent asks again",
            )
        done = _Done(cause=request.cause, not_after_s=certificate.not_after_s)
        identity_files.write(self._new / _DONE, done.model_dump_json().encode())
        identity_files.write(self._new / "tls.crt", answer.certificate.encode())


LIFE = "life"
"""The cause of a renewal by the certificate's age."""


def settle(folder: Path) -> None:
    """Move the files of an answered renewal into place; called at every start, before anything is read.

    Raises:
        IdentityError: a file cannot be moved.
    """
    new = folder / _FOLDER
    if not (new / "tls.crt").is_file():
        return
    identity_files.move(new / "tls.key", folder / "tls.key")
    identity_files.move(new / _DONE, folder / _DONE)
    forget(folder)
    identity_files.move(new / "tls.crt", folder / "tls.crt")


def forget(folder: Path) -> None:
    """Remove a request that was not answered; the next one is made anew."""
    (folder / _FOLDER / _REQUEST).unlink(missing_ok=True)
