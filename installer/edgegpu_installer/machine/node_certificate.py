"""The node's name in kubelet's client certificate: the name by which the API server knows this machine."""

import base64
import binascii
import re
from typing import Any

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from edgegpu_installer.layout import Layout

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
_NODE = "system:node:"


def certified_name(layout: Layout, kubeconfig: str) -> str:
    """Return the node's name in the certificate of kubelet's kubeconfig; empty when it cannot be read."""
    try:
        document = yaml.safe_load(layout.at(kubeconfig).read_text(encoding="utf-8"))
        found = _CERTIFICATE.search(_certificate(layout, document["users"][0]["user"]))
        names = (
            x509.load_pem_x509_certificate(found[0]).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            if found
            else []
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError, yaml.YAMLError, binascii.Error):
        return ""
    return next((str(name.value).removeprefix(_NODE) for name in names if str(name.value).startswith(_NODE)), "")


def _certificate(layout: Layout, user: dict[str, Any]) -> bytes:
    if data := user.get("client-certificate-data"):
        return base64.b64decode(data)
    return layout.at(str(user["client-certificate"])).read_bytes()
