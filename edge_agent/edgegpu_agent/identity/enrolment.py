"""Enrolment: exchange a one-time token for an identity; after a crash the same request is sent again."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from edgegpu_agent.identity import identity_files, renewal
from edgegpu_agent.identity.enrolment_client import CloudClient, EnrolmentAnswer, PendingAnswer, body_of
from edgegpu_agent.identity.errors import IdentityError, UnreachableError
from edgegpu_agent.identity.identity_files import (
    BoxIdentity,
    CloudAddress,
    DeviceFile,
    IdentityModel,
    load_identity,
    load_sign_key,
    read_certificate,
)
from edgegpu_agent.identity.keys import certificate_request, new_sign_key, new_tls_key, public_of
from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.keys import KeyRing, public_text
from edgegpu_sync.wire import clipped

_NEW, _REQUEST = "new", "request.json"
_FILES = ("sign.key", "tls.key", "tls.crt", "broker-ca.crt", "cloud-ca.crt")
"""The files of an enrolment, in the order in which they are moved into place; device.json follows."""


class _Request(IdentityModel):
    version: Literal[1] = 1
    request: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    token_sha256: str
    csr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxEnrolment:
    """The enrolment into one folder; it first fetches the cloud's own CA where there is one.

    It sends `instance`, the machine's hash, and for people the host name and the agent's version.
    """

    folder: Path
    cloud: CloudAddress
    instance: str
    host: str
    agent: str
    client: Callable[[bytes], CloudClient]
    random_hex: Callable[[int], str] = secrets.token_hex

    def attempt(self, token: str) -> BoxIdentity | PendingAnswer:
        """Send the request once; one that has no answer yet is sent again unchanged, so that no token is used twice.

        Raises:
            DeniedError: the cloud refuses.
            UnreachableError: there is no answer: try again.
            IdentityError: the answer, the cloud's CA or this box's disk cannot be used.
        """
        request = self._request(token)
        ca = self._cloud_ca()
        answer = self.client(ca).enrol(self._body(token, request))
        if isinstance(answer, PendingAnswer):
            return answer
        self._keep(answer, request, ca)
        settle(self.folder)
        identity = load_identity(self.folder)
        if identity is None:
            raise IdentityError(f"cannot find the identity in {self.folder} that was just written", "check the disk")
        return identity

    @property
    def _new(self) -> Path:
        return self.folder / _NEW

    def _request(self, token: str) -> _Request:
        """Return the request for this token: the one made before, else a new one with new keys."""
        path = self._new / _REQUEST
        try:
            known = _Request.model_validate_json(path.read_bytes())
            if known.token_sha256 == token_hash(token):
                return known
        except (OSError, ValidationError):
            pass  # no request, or a half written one, which was never sent
        path.unlink(missing_ok=True)  # a request must never lie beside another one's keys
        identity_files.make_folder(self.folder)
        identity_files.make_folder(self._new)
        tls_key = new_tls_key()
        identity_files.write(self._new / "tls.key", tls_key)
        identity_files.write(self._new / "sign.key", new_sign_key())
        request = _Request(
            request=self.random_hex(8),
            token_sha256=token_hash(token),
            csr=certificate_request(tls_key, "edgegpu box"),
        )
        identity_files.write(path, request.model_dump_json().encode())
        return request

    def _cloud_ca(self) -> bytes:
        return self.client(b"").fetch_ca(self.cloud.ca_sha256) if self.cloud.ca_sha256 else b""

    def _body(self, token: str, request: _Request) -> bytes:
        sign_key = load_sign_key(self._new / "sign.key")
        return body_of(
            {
                "token": token,
                "request": request.request,
                "csr": request.csr,
                "sign_key": public_text(sign_key),
                "instance": self.instance,
                "host": clipped(self.host, 253),
                "versions": {"agent": self.agent},
            }
        )

    def _keep(self, answer: EnrolmentAnswer, request: _Request, ca: bytes) -> None:
        """Write the answer beside the keys; device.json comes last, so that its presence means that all is there."""
        self._check(answer)
        made = DeviceFile(
            device=answer.device,
            name=answer.name,
            enrolment=answer.enrolment,
            instance=self.instance,
            broker=answer.broker,
            cloud=self.cloud,
            root=answer.root,
            keys=answer.keys,
            host=clipped(self.host, 253),
            token_sha256=request.token_sha256,
            enrolled_s=answer.server_time,
        )
        identity_files.write(self._new / "tls.crt", answer.certificate.encode())
        identity_files.write(self._new / "broker-ca.crt", answer.broker_ca.encode())
        if ca:
            identity_files.write(self._new / "cloud-ca.crt", ca)
        identity_files.write(self._new / "device.json", made.model_dump_json(indent=1).encode())

    def _check(self, answer: EnrolmentAnswer) -> None:
        certificate = read_certificate(answer.certificate.encode())
        if certificate.public != public_of((self._new / "tls.key").read_bytes()) or certificate.name != answer.device:
            raise UnreachableError(
                f"cannot use the certificate from {self.cloud.url}: the certificate is not for this box's key and name",
                "the agent asks again; see the cloud's log",
            )
        read_certificate(answer.broker_ca.encode())
        try:
            if answer.keys:
                KeyRing.pinned(answer.root).follow(answer.keys)
        except MessageRefusedError as error:
            raise UnreachableError(
                f"cannot use the keys from {self.cloud.url}: {error}", "the cloud's root key must sign its key sets"
            ) from error


def settle(folder: Path) -> None:
    """Move the files of an answered enrolment into place; called at every start, before anything is read.

    Raises:
        IdentityError: a file cannot be moved.
    """
    new = folder / _NEW
    if not (new / "device.json").is_file():
        return
    for name in _FILES:
        identity_files.move(new / name, folder / name)
    renewal.forget(folder)
    identity_files.move(new / "device.json", folder / "device.json")
    forget(folder)


def forget(folder: Path) -> None:
    """Remove a request that was not answered, or the rest of one that was."""
    new = folder / _NEW
    if new.is_dir():
        for path in new.iterdir():
            path.unlink(missing_ok=True)
        new.rmdir()


def token_hash(token: str) -> str:
    """Return the SHA-256 of a token, which tells tokens apart without keeping them."""
    return hashlib.sha256(token.encode()).hexdigest()
