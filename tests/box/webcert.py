"""A CA and a certificate for the test's web server, as a private cloud would have them."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from kits.cert import Authority


@dataclass(frozen=True, slots=True)
class WebCert:
    """The server's files, and the two pins that users get with the line."""

    ca: str
    ca_sha256: str
    """Of the file, as `sha256sum ca.crt` says it."""
    key_pin: str
    cert_file: Path
    key_file: Path


def make_web_cert(folder: Path, address: str) -> WebCert:
    """Make them for a server at an IP address; the certificate is good for a client's too."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority("test web CA")
    pair = authority.pair(address, hosts=[address], has_purpose=False)
    cert_file, key_file = folder / "web.crt", folder / "web.key"
    cert_file.write_text(pair.cert + authority.pem)
    key_file.write_text(pair.key)
    public = x509.load_pem_x509_certificate(pair.cert.encode()).public_key()
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return WebCert(
        ca=authority.pem,
        ca_sha256=hashlib.sha256(authority.pem.encode()).hexdigest(),
        key_pin=base64.b64encode(hashlib.sha256(der).digest()).decode(),
        cert_file=cert_file,
        key_file=key_file,
    )
