"""A CA and a certificate for the test's web server, as a private cloud would have them."""

import base64
import datetime as dt
import hashlib
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_YEAR = dt.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class WebCert:
    """The server's files, and the two pins that users get with the line."""

    ca: str
    ca_sha256: str
    key_pin: str
    cert_file: Path
    key_file: Path


def make_web_cert(folder: Path, address: str) -> WebCert:
    """Make them for a server at an IP address."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _name("test web CA")
    ca = (
        _builder(authority, authority, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    cert = _builder(_name(address), authority, key).add_extension(names, critical=False).sign(ca_key, hashes.SHA256())
    ca_pem = ca.public_bytes(serialization.Encoding.PEM)
    cert_file, key_file = folder / "web.crt", folder / "web.key"
    cert_file.write_bytes(cert.public_bytes(serialization.Encoding.PEM) + ca_pem)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return WebCert(
        ca=ca_pem.decode(),
        ca_sha256=hashlib.sha256(ca_pem).hexdigest(),
        key_pin=base64.b64encode(hashlib.sha256(der).digest()).decode(),
        cert_file=cert_file,
        key_file=key_file,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _YEAR)
        .not_valid_after(now + _YEAR)
    )
