"""Where the API server is and how to prove who we are, as a value and as a TLS context."""

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """One way into one API server; keys and certificates are PEM text. Secrets stay out of its repr."""

    server: str
    ca_pem: str | None = None
    verify: bool = True
    server_name: str | None = None
    cert_pem: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """Read again while running: kubelet and others renew such tokens. It wins over `token`, as in client-go."""
    files: tuple[Path, ...] = ()
    """What it was read from, the kubeconfig first: read again when one of them changes."""


def tls_context(access: ApiAccess) -> ssl.SSLContext:
    """Return the client's TLS context.

    Raises:
        ssl.SSLError: certificate or key are not what they should be.
    """
    context = ssl.create_default_context(cadata=access.ca_pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Python 3.13 turns strict checks on, which the CAs of many clusters fail (no authority key identifier).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.cert_pem and access.key_pem:
        _load_chain(context, f"{access.cert_pem}\n{access.key_pem}\n".encode())
    return context


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """Load certificate and key through memory: the ssl module takes files only, and a key does not belong in /tmp."""
    descriptor = os.memfd_create("edgegpu-client-key")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
