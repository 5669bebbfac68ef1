"""The files that a scheduler's configuration refers to: kubeconfig and certificates; pure, given `read_file`."""

import base64
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from edgegpu_installer.scheduler import yaml as scheduleryaml
from edgegpu_installer.scheduler.rules import decoded
from edgegpu_installer.scheduler.yaml import Problem

ReadFile = Callable[[str], bytes | None]
"""A function that returns the content of a file of the box, None when it cannot be read."""

_CURVES = ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1
_KEYS = (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)
_Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_LEAST_RSA_BITS = 1024
_PEM_CERTIFICATE = re.compile(
    rb"^-----BEGIN CERTIFICATE-----\r?\n([A-Za-z0-9+/=\r\n]+)\n-----END CERTIFICATE-----\r?$", re.MULTILINE
)


def kubeconfig(path: str, where: str, read_file: ReadFile) -> Iterator[Problem]:
    """Check the scheduler's kubeconfig and the files that it names."""
    if not path.startswith("/"):
        yield Problem(where, f"{path!r} is not an absolute path")
        return
    content = read_file(path)
    if content is None:
        yield Problem(where, f"{path} cannot be read")
        return
    try:
        document, problems = scheduleryaml.load(content.decode())
    except UnicodeDecodeError:
        document, problems = None, [Problem("", "it is not text")]
    if problems or not isinstance(document, dict):
        yield Problem(where, f"{path} is not a kubeconfig: {problems[0] if problems else 'no table of fields'}")
        return
    context = _named(document, "contexts", document.get("current-context"), "context")
    cluster = _named(document, "clusters", context.get("cluster"), "cluster")
    user = _named(document, "users", context.get("user"), "user")
    if not (context and user and str(cluster.get("server", "")).startswith(("http://", "https://"))):
        yield Problem(where, f"{path} has no current context with a cluster's server and a user")
        return
    if document.get("kind", "Config") != "Config" or document.get("apiVersion", "v1") != "v1":
        yield Problem(where, f"{path} is not a kubeconfig")
    beside = PurePosixPath(path).parent
    for part, name in ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key")):
        named = part.get(name)
        if named and not part.get(f"{name}-data") and read_file(str(beside / str(named))) is None:
            yield Problem(where, f"{path} names {named}, which cannot be read")


def tls(config: dict[str, Any], where: str, read_file: ReadFile) -> Iterator[Problem]:
    """Check an extender's `tlsConfig`: its files can be read, and certificate and key belong together."""
    problems: list[Problem] = []
    ca, cert, key = (_pem(config, name, where, read_file, problems) for name in ("ca", "cert", "key"))
    yield from problems
    if problems:
        return
    if config.get("insecure") and ca:
        yield Problem(f"{where}.insecure", "cannot be true beside a CA")
    if (cert is None) != (key is None):
        yield Problem(where, "a certificate needs its key, and a key its certificate")
    authorities = _certificates(ca or b"")
    if ca is not None and (not authorities or any(_is_damaged(one, authorities) for one in authorities)):
        yield Problem(f"{where}.caData", "has no certificate in PEM, or a damaged one")
    if cert is not None and key is not None:
        yield from _pair(cert, key, where, authorities)


def _named(document: dict[str, Any], plural: str, name: object, singular: str) -> dict[str, Any]:
    entries = document.get(plural)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and name and entry.get("name") == name and isinstance(entry.get(singular), dict):
            found: dict[str, Any] = entry[singular]
            return found
    return {}


def _pem(
    config: dict[str, Any],
    name: str,
    where: str,
    read_file: ReadFile,
    problems: list[Problem],
) -> bytes | None:
    """Return a PEM text that is given inline, else by file; None when it is not given."""
    inline, file = config.get(f"{name}Data"), config.get("caFile" if name == "ca" else f"{name}File")
    if inline:
        return decoded(inline)
    if not file:
        return None
    content = read_file(file) if file.startswith("/") else None
    if not content:
        problems.append(Problem(f"{where}.{name}File", f"{file} cannot be read"))
    return content


def _certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates of a PEM text; empty when one is malformed, because Go reads them more strictly."""
    found = []
    for body in _PEM_CERTIFICATE.findall(pem):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # what cryptography deprecates, Go refuses already
                certificate = x509.load_der_x509_certificate(base64.b64decode(body))
                _read_whole(certificate)
        except (ValueError, TypeError, Warning, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension):
            return []
        found.append(certificate)
    return found


def _read_whole(certificate: x509.Certificate) -> None:
    """Read every part of a certificate, because each is parsed only at its first use. Raises ValueError."""
    list(certificate.extensions)
    certificate.public_key()
    for part in (certificate.issuer, certificate.subject, certificate.version, certificate.signature_algorithm_oid):
        str(part)
    str((certificate.not_valid_before_utc, certificate.not_valid_after_utc, certificate.serial_number))


def _is_damaged(certificate: x509.Certificate, authorities: list[x509.Certificate]) -> bool:
    """Return whether a CA with the issuer's name is given, and none of that name has signed the certificate."""
    issuers = [one for one in authorities if one.subject == certificate.issuer]
    return bool(issuers) and not any(_has_issued(issuer, certificate) for issuer in issuers)


def _has_issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _pair(cert: bytes, key: bytes, where: str, authorities: list[x509.Certificate]) -> Iterator[Problem]:
    certificates = _certificates(cert)
    if not certificates or _is_damaged(certificates[0], authorities):
        yield Problem(f"{where}.certData", "has no certificate in PEM, or a damaged one")
        return
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        yield Problem(f"{where}.keyData", "has no private key in PEM that opens without a password")
        return
    if not isinstance(private, _KEYS) or not _is_known(private) or not _is_canonical(private, key):
        yield Problem(f"{where}.keyData", "is a key of a kind that the scheduler does not take")
        return
    if private.public_key() != certificates[0].public_key():
        yield Problem(f"{where}.keyData", "is not the key of the certificate")


def _is_known(private: _Key) -> bool:
    """Return whether Go accepts a key of that size or curve."""
    match private:
        case rsa.RSAPrivateKey():
            return private.key_size >= _LEAST_RSA_BITS
        case ec.EllipticCurvePrivateKey():
            return isinstance(private.curve, _CURVES)
        case _:
            return True


def _is_canonical(private: _Key, pem: bytes) -> bool:
    """Return whether a key is in its canonical encoding: OpenSSL reads others too, Go may not."""
    forms = [serialization.PrivateFormat.PKCS8]
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        forms.append(serialization.PrivateFormat.TraditionalOpenSSL)
    plain = serialization.NoEncryption()
    return any(private.private_bytes(serialization.Encoding.PEM, form, plain).split() == pem.split() for form in forms)
