"""Certificates made on the fly, for the tests of the link: names, dates and revocations as a test wants them."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SERVER_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate and its key, in files."""

    cert: Path
    key: Path


class TestCa:
    """An authority of a test's own; it signs any name, as ours never would."""

    __test__ = False

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name)
        self.cert = (
            _builder(self._name, self._name, self._key, _LONG)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def write(self, path: Path) -> Path:
        """Write the authority's own certificate."""
        path.write_bytes(self.cert.public_bytes(serialization.Encoding.PEM))
        return path

    def issue(
        self, folder: Path, name: str, *, names: Sequence[str] = (), days: tuple[float, float] = (-1, 365)
    ) -> Shown:
        """Write a certificate for `name` with a new key: a server's where it has host `names`.

        `days`: from when until when, counted from now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _builder(_subject(name), self._name, key, days).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in names]), critical=False)
        cert = builder.sign(self._key, hashes.SHA256())
        stem = f"{cert.serial_number:x}"
        shown = Shown(folder / f"{stem}.crt", folder / f"{stem}.key")
        shown.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        _write_key(shown.key, key)
        return shown

    def crl(self, path: Path, *revoked: Path) -> Path:
        """Write the list of revoked certificates."""
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateRevocationListBuilder(
            self._name, last_update=now - dt.timedelta(days=1), next_update=now + dt.timedelta(days=365)
        )
        for one in revoked:
            serial = x509.load_pem_x509_certificate(one.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder(serial, now - dt.timedelta(hours=1)).build()
            builder = builder.add_revoked_certificate(entry)
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path


_LONG = (-365.0, 3650.0)


def _host(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[float, float]
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    first, last = (now + dt.timedelta(days=each) for each in days)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(first).not_valid_after(last)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(pem)
    path.chmod(0o600)
