"""The tokens of service accounts, as the controller manager puts them into Secrets."""

import base64
import secrets
from collections.abc import MutableMapping

from edgegpu_sim.api.registry import Registry

_TYPE = "kubernetes.io/service-account-token"
_ACCOUNT = "kubernetes.io/service-account.name"


def issue_tokens(registry: Registry, tokens: MutableMapping[str, str], *, ca_pem: str = "") -> int:
    """Fill the token Secrets that are empty, and let the server know their users; return how many were filled.

    Args:
        registry: where the Secrets are.
        tokens: the server's (`Settings.tokens`): token to user.
        ca_pem: what `ca.crt` in them says.
    """
    filled = 0
    for secret in registry.items("secrets"):
        metadata = secret["metadata"]
        if secret.get("type") != _TYPE or secret.get("data"):
            continue
        token = secrets.token_hex(16)
        tokens[token] = f"system:serviceaccount:{metadata['namespace']}:{metadata['annotations'][_ACCOUNT]}"
        texts = {"token": token, "ca.crt": ca_pem, "namespace": metadata["namespace"]}
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        registry.patch("secrets", metadata["namespace"], metadata["name"], {"data": data})
        filled += 1
    return filled
