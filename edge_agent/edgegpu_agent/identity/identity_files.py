"""The files in the identity's folder: the box's names in the cloud, its keys, its certificate."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgegpu_agent.identity.errors import IdentityError
from edgegpu_base.files import sync_folder
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine import atomic
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.keys import PublicKey
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.wire import Count, Line, Sha256

AGAIN = "edgegpu agent enrol, with a new token from your cloud"

_DEVICE, _TLS_KEY, _TLS_CERT, _SIGN_KEY = "device.json", "tls.key", "tls.crt", "sign.key"
_BROKER_CA, _CLOUD_CA = "broker-ca.crt", "cloud-ca.crt"


class IdentityModel(BaseModel):
    """The base of the identity's files, requests and answers; fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Broker(IdentityModel):
    """The address at which the broker listens for boxes."""

    host: Annotated[str, Field(min_length=1, max_length=253)]
    port: Annotated[int, Field(ge=1, le=65_535)]


class CloudAddress(IdentityModel):
    """The address of the cloud for enrolment and renewal."""

    url: str
    ca_sha256: str = ""


class DeviceFile(IdentityModel):
    """device.json: the device id, the enrolment, and the addresses and keys of the cloud."""

    version: Literal[1] = 1
    device: Annotated[str, Field(pattern=r"^[a-z0-9]{16}$")]
    name: Line = ""
    """The box's name in the cloud at its enrolment; empty from a cloud that does not send it."""
    enrolment: Annotated[Count, Field(ge=1)]
    instance: Sha256
    broker: Broker
    cloud: CloudAddress
    root: PublicKey
    keys: tuple[KeySetLink, ...] = ()
    host: Line = ""
    token_sha256: str = ""
    """The hash of the token that was used: the same token, found again, is not sent again."""
    enrolled_s: Count = 0
    """The time of the enrolment by the cloud's clock, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BoxCertificate:
    """The fields of the certificate that the agent needs; times are seconds since 1970."""

    not_before_s: int
    not_after_s: int
    name: str
    public: bytes

    @property
    def renew_at_s(self) -> int:
        """The time of renewal, after two thirds of the certificate's life."""
        return self.not_before_s + (self.not_after_s - self.not_before_s) * 2 // 3


@dataclass(frozen=True, slots=True)
class BoxIdentity:
    """The identity of an enrolled box; a renewal changes its TLS files, but never device, enrolment and sign.key."""

    device: DeviceFile
    folder: Path

    @property
    def id(self) -> DeviceId:
        """The device id, which is also the client id, the certificate's name and the user name."""
        return device_id(self.device.device)

    @property
    def tls_key(self) -> Path:
        """The key of the certificate."""
        return self.folder / _TLS_KEY

    @property
    def tls_cert(self) -> Path:
        """The certificate, with its chain."""
        return self.folder / _TLS_CERT

    @property
    def broker_ca(self) -> Path:
        """The CA of the broker's certificate."""
        return self.folder / _BROKER_CA

    def cloud_ca(self) -> bytes:
        """Return the CA of the cloud's certificate as PEM; empty where it is a public one.

        Raises:
            IdentityError: the file cannot be read.
        """
        return _bytes(self.folder / _CLOUD_CA) if self.device.cloud.ca_sha256 else b""

    def sign_key(self) -> Ed25519PrivateKey:
        """Return the key that signs the box's messages.

        Raises:
            IdentityError: the key cannot be read.
        """
        return load_sign_key(self.folder / _SIGN_KEY)

    def certificate(self) -> BoxCertificate:
        """Return the present certificate.

        Raises:
            IdentityError: the certificate cannot be read.
        """
        return read_certificate(_bytes(self.tls_cert))


def load_identity(folder: Path) -> BoxIdentity | None:
    """Return the identity in a folder, None when the box was never enrolled.

    Raises:
        IdentityError: the identity cannot be read.
    """
    path = folder / _DEVICE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IdentityError(f"cannot read {path}: {error.strerror}", "run it as root") from error
    try:
        found = BoxIdentity(DeviceFile.model_validate_json(text), folder)
    except ValidationError as error:
        raise IdentityError(f"cannot understand {path}: {_first(error)}", AGAIN) from error
    for needed in (found.tls_key, found.tls_cert, found.broker_ca, folder / _SIGN_KEY):
        if not needed.is_file():
            raise IdentityError(f"cannot use the identity in {folder}: {needed.name} is missing", AGAIN)
    return found


def read_certificate(pem: bytes) -> BoxCertificate:
    """Return the fields of the first certificate in a PEM text.

    Raises:
        IdentityError: the text has no certificate.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    try:
        found = x509.load_pem_x509_certificates(pem)[0]
        names = found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return BoxCertificate(
            not_before_s=int(found.not_valid_before_utc.timestamp()),
            not_after_s=int(found.not_valid_after_utc.timestamp()),
            name=str(names[0].value) if names else "",
            public=found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        )
    except ValueError as error:
        raise IdentityError(f"cannot read the certificate: {error}", AGAIN) from error


def load_sign_key(path: Path) -> Ed25519PrivateKey:
    """Return the Ed25519 key in a file.

    Raises:
        IdentityError: the file has no such key.
    """
    try:
        key = load_pem_private_key(_bytes(path), None)
    except (ValueError, TypeError) as error:
        raise IdentityError(f"cannot read {path}: {error}", AGAIN) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"cannot use {path}: it is not an Ed25519 key", AGAIN)
    return key


def write(path: Path, content: bytes) -> None:
    """Write a file atomically, with mode 0600.

    Raises:
        IdentityError: the file cannot be written.
    """
    try:
        atomic.write(path, content)
    except InstallError as error:
        raise IdentityError(error.message, error.remedy) from error


def make_folder(path: Path) -> None:
    """Make a folder with mode 0700, and those above it.

    Raises:
        IdentityError: the folder cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.make_folder(path, mode=0o700)
    except OSError as error:
        raise IdentityError(f"cannot make the folder {path}: {error.strerror}", "make room there") from error
    except InstallError as error:
        raise IdentityError(error.message, error.remedy) from error


def move(source: Path, target: Path) -> None:
    """Move a file over another, durably; do nothing where the source is gone already.

    Raises:
        IdentityError: the file cannot be moved.
    """
    try:
        source.replace(target)
        sync_folder(target.parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise IdentityError(f"cannot replace {target}: {error.strerror}", "make the file system writable") from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IdentityError(f"cannot read {path}: {os.strerror(error.errno or 0)}", AGAIN) from error


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in found['loc']) or 'it'}: {found['msg']}"
