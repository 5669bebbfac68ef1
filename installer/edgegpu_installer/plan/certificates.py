"""The extender's certificates: its own CA, a server certificate, and the scheduler's client certificate."""

import datetime as dt
import ipaddress
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from edgegpu_base.x509 import EPOCH, builder, cert_pem, distinguished_name, key_pem, new_key, until, usage
from edgegpu_installer.scheduler.file import SERVER_NAME

_ADDRESS = ipaddress.ip_address("127.0.0.1")
_VALID = dt.timedelta(days=20 * 365)
_LEAST_LEFT = dt.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, PEM. The key stays out of its repr."""

    cert: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates of the extender (`ca`, `server`) and of the scheduler (`ca`, `client`), PEM."""

    ca: str
    server: KeyPair
    client: KeyPair


def make(now: dt.datetime) -> Certificates:
    """Make new certificates: EC P-256, valid for twenty years. The CA's key is discarded at the end of the call.

    Validity begins in 1970: on a box whose clock falls back by years at a boot, a later date would make them not valid
    yet, and the scheduler would have no extender. Validity ends twenty years after `now`, or after the build when the
    clock is before it, so that a wrong clock does not shorten it.
    """
    since, end = EPOCH, until(now, _VALID)
    authority = new_key()
    issuer = distinguished_name("edgegpu-extender-ca")
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    ca = (
        builder(issuer, issuer, authority.public_key(), since=since, end=end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority, hashes.SHA256())
    )

    def issue(common: str, purpose: x509.ObjectIdentifier, *more: x509.ExtensionType) -> KeyPair:
        key = new_key()
        leaf = (
            builder(distinguished_name(common), issuer, key.public_key(), since=since, end=end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        )
        for extension in more:
            leaf = leaf.add_extension(extension, critical=False)
        return KeyPair(cert_pem(leaf.sign(authority, hashes.SHA256())), key_pem(key))

    names = x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME), x509.IPAddress(_ADDRESS)])
    return Certificates(
        ca=cert_pem(ca),
        server=issue(SERVER_NAME, ExtendedKeyUsageOID.SERVER_AUTH, names),
        client=issue("edgegpu-scheduler", ExtendedKeyUsageOID.CLIENT_AUTH),
    )


def usable(existing: Certificates, now: dt.datetime) -> bool:
    """Return whether existing certificates can be reused, so that nothing has to restart."""
    return not flaw(existing, now)


def flaw(existing: Certificates, now: dt.datetime) -> str:
    """Return why existing certificates cannot be reused; empty when they can.

    They can when each key fits its certificate, one CA has signed both, names and purposes are right, and all are valid
    now and for another year.
    """
    try:
        ca = x509.load_pem_x509_certificate(existing.ca.encode())
        server = x509.load_pem_x509_certificate(existing.server.cert.encode())
        client = x509.load_pem_x509_certificate(existing.client.cert.encode())
        if not (_fits(existing.server, server) and _fits(existing.client, client)):
            return "a key does not fit its certificate"
        for one in (ca, server, client):
            one.verify_directly_issued_by(ca)
        return _unsuited(server, client) or _untimely((ca, server, client), now)
    except InvalidSignature:
        return "they are not of one authority"
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        return f"they cannot be read: {' '.join(str(error).split()) or type(error).__name__}"


def _unsuited(server: x509.Certificate, client: x509.Certificate) -> str:
    if ExtendedKeyUsageOID.SERVER_AUTH not in _purposes(server) or ExtendedKeyUsageOID.CLIENT_AUTH not in _purposes(
        client
    ):
        return "they are for another purpose"
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if SERVER_NAME not in names.get_values_for_type(x509.DNSName):
        return f"the extender's does not name {SERVER_NAME}"
    return ""


def _untimely(certificates: tuple[x509.Certificate, ...], now: dt.datetime) -> str:
    if any(one.not_valid_before_utc > now for one in certificates):
        return "they are not valid yet, by this box's clock"
    if any(one.not_valid_after_utc < now + _LEAST_LEFT for one in certificates):
        return "they are valid for less than a year"
    return ""


def _purposes(certificate: x509.Certificate) -> x509.ExtendedKeyUsage:
    return certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value


def _fits(pair: KeyPair, certificate: x509.Certificate) -> bool:
    key = serialization.load_pem_private_key(pair.key.encode(), password=None)
    return key.public_key() == certificate.public_key()
