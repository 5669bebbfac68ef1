"""TLS contexts of clients without a key in a file: for the API server, the scheduler, the extender, the cloud."""

import os
import ssl

NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which Python has no name: it checks everything but the dates."""


def client_context(
    *, ca_pem: str | None = None, cert_pem: str | None = None, key_pem: str | None = None, verify: bool = True
) -> ssl.SSLContext:
    """Return a client's TLS context from PEM texts, each of them optional; without a CA the system's CAs count.

    Raises:
        ssl.SSLError, ValueError: CA, certificate or key are invalid.
    """
    context = ssl.create_default_context(cadata=ca_pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Python 3.13's strict checks refuse the CAs of many clusters, which name no authority key.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_pem and key_pem:
        both = dict.fromkeys((cert_pem, key_pem))  # one file may hold both, as kubelet's does
        _load_chain(context, "\n".join([*both, ""]).encode())
    return context


def empty_context(*, check_dates: bool = True) -> ssl.SSLContext:
    """Return a client's TLS context that verifies chain and host name, without CAs: the caller loads its own.

    Args:
        check_dates: False on a machine whose clock cannot be trusted yet.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not check_dates:
        context.verify_flags = ssl.VerifyFlags(context.verify_flags | NO_CHECK_TIME)
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
