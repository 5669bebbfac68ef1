"""Certificate authorities: one for boxes, one for controllers, one for the servers that both connect to."""

import datetime as dt
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from edgegpu_base.x509 import EPOCH, builder, cert_pem, distinguished_name, new_key, usage
from edgegpu_base.x509 import until as until_after
from edgegpu_cloud.enrolment.key_files import PrivateKey, PublicKey, load_key
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.records import CertificateRecord
from edgegpu_sync.ids import DeviceId

_BOX_SINCE = dt.timedelta(days=30)
"""How far back a box's certificate begins: a broker whose clock fell back by less accepts it.

It is no more, since a box renews at two thirds of the time between the two dates.
"""
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_REQUEST_MAX = 8_192


class RequestError(CloudError):
    """A certificate signing request that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A certificate signing request. Only its public key counts; the names in it are never read."""

    public: PublicKey
    digest: str
    """The SHA-256 of the request in DER, 64 hexadecimal digits, by which the same request is recognised."""


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority: EC P-256; it may sign certificates and revocation lists, but no authority below it."""

    certificate: x509.Certificate
    key: PrivateKey = field(repr=False)

    @property
    def cert_pem(self) -> str:
        """The certificate, PEM."""
        return cert_pem(self.certificate)

    def server(self, public: PublicKey, names: Sequence[str], *, now_s: float, days: int) -> str:
        """Return a server's certificate, PEM: valid from 1970 on for these host names and addresses.

        Raises:
            CloudError: without a name.
        """
        if not names:
            raise CloudError("cannot make a server's certificate: it has no host name", remedy="give a host name")
        alternative = x509.SubjectAlternativeName([_general(name) for name in names])
        subject = distinguished_name(names[0][:64])
        since, until = EPOCH, self._until(now_s, days)
        builder = self._leaf(public, subject, ExtendedKeyUsageOID.SERVER_AUTH, since=since, until=until)
        return self._sign(builder.add_extension(alternative, critical=False))

    def client(self, public: PublicKey, common: str, *, now_s: float, days: int) -> str:
        """Return a controller's certificate, PEM."""
        since, until = EPOCH, self._until(now_s, days)
        return self._sign(
            self._leaf(public, distinguished_name(common), ExtendedKeyUsageOID.CLIENT_AUTH, since=since, until=until)
        )

    def box(
        self, request: CertificateRequest, *, device: DeviceId, enrolment: int, now_s: float, days: int
    ) -> CertificateRecord:
        """Return a box's certificate: CN is its device id, OU `e{enrolment}`, whatever the request says."""
        now, until = _moment(now_s), self._until(now_s, days)
        subject = distinguished_name(device, unit=f"e{enrolment}")
        since = max(now - _BOX_SINCE, EPOCH)
        builder = self._leaf(request.public, subject, ExtendedKeyUsageOID.CLIENT_AUTH, since=since, until=until)
        certificate = builder.sign(self.key, hashes.SHA256())
        return CertificateRecord(
            serial=f"{certificate.serial_number:x}",
            device=device,
            enrolment=enrolment,
            csr_sha256=request.digest,
            pem=cert_pem(certificate),
            not_before_s=now_s,
            not_after_s=until.timestamp(),
        )

    def revoke(self, serials: Sequence[str], *, number: int, now_s: float) -> str:
        """Return the revocation list, PEM, with these serials.

        The list is valid as long as the authority: a broker refuses every box when its list is out of date.

        Args:
            serials: hexadecimal digits, as in `CertificateRecord`.
            number: that of the list; only rises.
            now_s: the clock.
        """
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(EPOCH)
            .next_update(self.certificate.not_valid_after_utc)
            .add_extension(x509.CRLNumber(number), critical=False)
            .add_extension(_key_of(self.certificate), critical=False)
        )
        when = _moment(now_s)
        for serial in serials:
            one = x509.RevokedCertificateBuilder().serial_number(int(serial, 16)).revocation_date(when)
            builder = builder.add_revoked_certificate(one.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def _until(self, now_s: float, days: int) -> dt.datetime:
        end = until_after(_moment(now_s), dt.timedelta(days=days))
        return min(end, self.certificate.not_valid_after_utc)

    def _leaf(
        self,
        public: PublicKey,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        *,
        since: dt.datetime,
        until: dt.datetime,
    ) -> x509.CertificateBuilder:
        return (
            _builder(subject, self.certificate.subject, public, since=since, until=until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(_key_of(self.certificate), critical=False)
        )

    def _sign(self, builder: x509.CertificateBuilder) -> str:
        return cert_pem(builder.sign(self.key, hashes.SHA256()))


def make_authority(name: str, *, now_s: float, days: int) -> Authority:
    """Return a new authority, valid from 1970 until `days` after now."""
    key = new_key()
    subject = distinguished_name(name)
    until = until_after(_moment(now_s), dt.timedelta(days=days))
    certificate = (
        _builder(subject, subject, key.public_key(), since=EPOCH, until=until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(authority=True, lists=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def load_authority(cert_pem: str, key_pem: str) -> Authority:
    """Return the authority that these two texts hold.

    Raises:
        CloudError: they cannot be read, or do not belong together.
    """
    try:
        certificate = x509.load_pem_x509_certificate(cert_pem.encode())
        key = load_key(key_pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CloudError(f"cannot read an authority: {_words(error)}", remedy="restore it from a backup") from error
    if key.public_key() != certificate.public_key():
        raise CloudError("cannot use an authority: its key does not fit its certificate", remedy="restore both")
    return Authority(certificate, key)


def read_request(pem: str) -> CertificateRequest:
    """Read a certificate signing request and check that its author has the key.

    Raises:
        RequestError: no request, another kind of key than EC P-256 or P-384, or a wrong signature.
    """
    if len(pem) > _REQUEST_MAX:
        raise RequestError(f"cannot read the request: it has more than {_REQUEST_MAX} characters")
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        public, valid = request.public_key(), request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion) as error:
        raise RequestError(f"cannot read the request: {_words(error)}") from error
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, _CURVES):
        raise RequestError("cannot take the request: its key is neither EC P-256 nor EC P-384")
    if not valid:
        raise RequestError("cannot take the request: its signature is wrong")
    return CertificateRequest(public, hashlib.sha256(request.public_bytes(serialization.Encoding.DER)).hexdigest())


def lacks_name(pem: str, names: Sequence[str]) -> bool:
    """Whether a server's certificate is for fewer than these host names and addresses."""
    found = x509.load_pem_x509_certificate(pem.encode()).extensions
    held = found.get_extension_for_class(x509.SubjectAlternativeName).value
    return not {_general(name) for name in names} <= set(held)


def days_left(pem: str, *, now_s: float) -> float:
    """Return for how many more days the first certificate of a file is valid."""
    until = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    return (until.timestamp() - now_s) / 86_400


def _builder(
    subject: x509.Name, issuer: x509.Name, public: PublicKey, *, since: dt.datetime, until: dt.datetime
) -> x509.CertificateBuilder:
    found = builder(subject, issuer, public, since=since, end=until)
    return found.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _key_of(certificate: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _moment(now_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(now_s), tz=dt.UTC)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
