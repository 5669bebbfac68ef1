"""Where the API server is and how to prove who we are, as a value and as a TLS context."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_base.tls import client_context


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
        ssl.SSLError, ValueError: CA, certificate or key are not what they should be.
    """
    return client_context(ca_pem=access.ca_pem, cert_pem=access.cert_pem, key_pem=access.key_pem, verify=access.verify)
