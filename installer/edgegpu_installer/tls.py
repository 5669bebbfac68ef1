"""The TLS context of a client of the API server, with no key in a file."""

import os
import ssl

import urllib3
from urllib3.exceptions import InsecureRequestWarning

from edgegpu_installer.kubeconfig import Access


def client_context(access: Access) -> ssl.SSLContext:
    """Return the context; the official client would put the administrator's key into a file in /tmp, and leave it.

    Raises:
        ssl.SSLError, ValueError: certificate or key are not what they should be.
    """
    context = ssl.create_default_context(cadata=access.ca_pem)
    # Python 3.13's strict checks refuse the CAs of many clusters, which name no authority key.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.verify:
        urllib3.disable_warnings(InsecureRequestWarning)  # the file's owner has chosen so
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.cert_pem and access.key_pem:
        both = dict.fromkeys((access.cert_pem, access.key_pem))  # one file may hold both, as kubelet's does
        _load_chain(context, "\n".join([*both, ""]).encode())
    return context


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    memory = os.memfd_create("edgegpu-client-key")
    try:
        os.write(memory, pem)
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
