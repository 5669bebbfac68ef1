"""Certificates made on the fly, for all tests: an authority that signs any name, as ours never would."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

DAY, YEAR = dt.timedelta(days=1), dt.timedelta(days=365)
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM."""

    cert: str
    key: str = field(repr=False)


class Authority:
    """A CA with a key of its own, good from a year ago for twenty years."""

    def __init__(self, name: str) -> None:
        self._key = _new_key()
        self._name, public = _subject(name), self._key.public_key()
        self._cert = (
            _builder(self._name, issuer=self._name, public=public, start=NOW - YEAR, life=21 * YEAR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = _pem(self._cert)

    @property
    def sha256(self) -> str:
        """Of the certificate as DER."""
        return hashlib.sha256(self._cert.public_bytes(Encoding.DER)).hexdigest()

    def sign(
        self,
        public: CertificatePublicKeyTypes,
        name: str,
        *,
        hosts: Sequence[str] = (),
        start: dt.datetime = NOW - DAY,
        life: dt.timedelta = YEAR,
        has_purpose: bool = True,
    ) -> str:
        """Return a certificate for a key, PEM: a server's where it has `hosts`, else a client's.

        `has_purpose`: False makes one that is good for both.
        """
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _builder(_subject(name), issuer=self._name, public=public, start=start, life=life)
        builder = builder.add_extension(identifier, critical=False)
        if has_purpose:
            purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256()))

    def pair(
        self,
        name: str,
        *,
        hosts: Sequence[str] = (),
        start: dt.datetime = NOW - DAY,
        life: dt.timedelta = YEAR,
        has_purpose: bool = True,
    ) -> Pair:
        """Return such a certificate with a new key."""
        key = _new_key()
        cert = self.sign(key.public_key(), name, hosts=hosts, start=start, life=life, has_purpose=has_purpose)
        return Pair(cert, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())

    def crl(self, *revoked: str) -> str:
        """Return the list of these revoked certificates, PEM."""
        builder = x509.CertificateRevocationListBuilder(self._name, last_update=NOW - DAY, next_update=NOW + YEAR)
        for one in revoked:
            serial = x509.load_pem_x509_certificate(one.encode()).serial_number
            entry = x509.RevokedCertificateBuilder(serial, NOW - dt.timedelta(hours=1)).build()
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def server_context(pair: Pair, *, clients: str = "") -> ssl.SSLContext:
    """Return a server's context; with `clients`, PEM, it takes only who shows a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    descriptor = os.memfd_create("pair")  # the ssl module takes files only
    try:
        os.write(descriptor, (pair.cert + pair.key).encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    if clients:
        context.load_verify_locations(cadata=clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass(frozen=True, slots=True)
class Certs:
    """What the extender and the scheduler need of each other, as the installer makes it."""

    ca: str
    server: Pair
    client: Pair


def make_certs(server_name: str = "edgegpu-extender") -> Certs:
    """Make all of it anew."""
    authority = Authority("edgegpu-extender-ca")
    return Certs(
        ca=authority.pem,
        server=authority.pair(server_name, hosts=(server_name, "127.0.0.1"), life=20 * YEAR),
        client=authority.pair("kube-scheduler", life=20 * YEAR),
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)


def _builder(
    subject: x509.Name,
    *,
    issuer: x509.Name,
    public: CertificatePublicKeyTypes,
    start: dt.datetime,
    life: dt.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + life)
    )


def _pem(cert: x509.Certificate) -> str:
    return cert.public_bytes(Encoding.PEM).decode()
