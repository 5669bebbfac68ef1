"""Parts of our certificates: keys, names, key usage, dates. Import it late, since it needs cryptography."""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""The start of a clock without a battery: authorities' and servers' certificates begin here, before any box's clock."""
_BUILT = dt.datetime(2025, 6, 1, tzinfo=dt.UTC)
"""A day before this was written: no correct clock shows an earlier one."""


def until(now: dt.datetime, life: dt.timedelta) -> dt.datetime:
    """Return the end of a validity period, counted from `_BUILT` if the clock shows an earlier time."""
    return max(now, _BUILT) + life


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key for TLS or an authority, EC P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> str:
    """Return a private key as PEM (PKCS #8)."""
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


def cert_pem(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def distinguished_name(common: str, unit: str = "") -> x509.Name:
    """Return a distinguished name: the CN, after an OU if there is one."""
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if unit:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name(parts)


def builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, *, since: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    """Return a certificate builder with subject, issuer, public key, validity and a random serial number."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(end)
    )


def usage(*, authority: bool, lists: bool = False) -> x509.KeyUsage:
    """Return a key usage: for an authority to sign certificates, with `lists` also revocation lists; else for TLS."""
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=lists,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
