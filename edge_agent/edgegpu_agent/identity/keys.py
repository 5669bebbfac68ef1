"""The box's keys for TLS and for signing, which are made here and never sent, and the certificate request."""

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from edgegpu_agent.identity.errors import IdentityError
from edgegpu_base.x509 import distinguished_name, key_pem, new_key


def new_tls_key() -> bytes:
    """Return a new ECDSA P-256 key as PEM."""
    return key_pem(new_key()).encode()


def new_sign_key() -> bytes:
    """Return a new Ed25519 key as PEM."""
    return key_pem(Ed25519PrivateKey.generate()).encode()


def certificate_request(tls_key: bytes, name: str) -> str:
    """Return a certificate request as PEM; its signature differs each time, so keep it where it must not change.

    Args:
        tls_key: a key from `new_tls_key`.
        name: the common name; at enrolment the cloud replaces it.

    Raises:
        IdentityError: `tls_key` is no ECDSA key.
    """
    builder = x509.CertificateSigningRequestBuilder().subject_name(distinguished_name(name))
    request = builder.sign(_private(tls_key), hashes.SHA256())
    return request.public_bytes(Encoding.PEM).decode()


def public_of(tls_key: bytes) -> bytes:
    """Return the public key in the form of `BoxCertificate.public`.

    Raises:
        IdentityError: `tls_key` is no ECDSA key.
    """
    return _private(tls_key).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise IdentityError(f"cannot use the TLS key: {error}", "edgegpu agent enrol") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise IdentityError("cannot use the TLS key: it is not an ECDSA key", "edgegpu agent enrol")
    return key
