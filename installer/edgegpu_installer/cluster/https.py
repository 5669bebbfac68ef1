"""The TLS context of a client, with no key in a file: for the API server, the scheduler, the extender."""

import os
import ssl

import urllib3
from urllib3.exceptions import InsecureRequestWarning

from edgegpu_installer.cluster.kubeconfig import ClusterAccess


def access_context(access: ClusterAccess) -> ssl.SSLContext:
    """Return the context; the official client would put the administrator's key into a file in /tmp, and leave it.

    Raises:
        ssl.SSLError, ValueError: certificate or key are not what they should be.
    """
    if not access.verify:
        urllib3.disable_warnings(InsecureRequestWarning)  # the file's owner has chosen so
    return client_context(ca_pem=access.ca_pem, cert_pem=access.cert_pem, key_pem=access.key_pem, verify=access.verify)


def client_context(
    *, ca_pem: str | None = None, cert_pem: str | None = None, key_pem: str | None = None, verify: bool = True
) -> ssl.SSLContext:
    """Return the context; PEM texts, none where there are none. The system's CAs serve where no CA is named.

    Raises:
        ssl.SSLError, ValueError: CA, certificate or key are not what they should be.
    """
    context = ssl.create_default_context(cadata=ca_pem)
    # Python 3.13's strict checks refuse the CAs of many clusters, which name no authority key.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_pem and key_pem:
        both = dict.fromkeys((cert_pem, key_pem))  # one file may hold both, as kubelet's does
        _load_chain(context, "\n".join([*both, ""]).encode())
    return context


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """Load through memory: the ssl module takes files only, and a key does not belong in /tmp."""
    descriptor = os.memfd_create("edgegpu-client-key")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
