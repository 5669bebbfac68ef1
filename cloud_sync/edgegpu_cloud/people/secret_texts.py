"""The secrets of sessions, API tokens and one-time links: how they are made, and what is stored of them."""

import hashlib
import hmac
import secrets

API_TOKEN_BEGIN = "egt_"  # noqa: S105  (every token begins so; secret scanners find it by that)
_BYTES = 32
_LONGEST = 200


def new_secret() -> str:
    """Return a new secret of 256 random bits: 43 characters of base64url."""
    return secrets.token_urlsafe(_BYTES)


def new_api_token() -> str:
    """Return the text of a new API token: `egt_` and a secret."""
    return f"{API_TOKEN_BEGIN}{new_secret()}"


def digest_of(secret: str) -> str:
    """Return what is stored of a secret: its SHA-256, 64 hexadecimal digits.

    There is no salt and no slow hash: a secret has 256 random bits, which nobody tries out.
    """
    return hashlib.sha256(secret[:_LONGEST].encode("utf-8", "replace")).hexdigest()


def csrf_of(token: str) -> str:
    """Return the CSRF token of a session: whoever has it cannot make the session's token of it."""
    return hmac.new(token.encode("utf-8", "replace"), b"edgegpu csrf", hashlib.sha256).hexdigest()
