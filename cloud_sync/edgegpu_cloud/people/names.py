"""Names of accounts and of API tokens."""

import re

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase

_ACCOUNT = re.compile(r"[a-z0-9]([a-z0-9._@-]{0,62}[a-z0-9])?")
_TOKEN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def normal_name(text: str) -> str:
    """Return the name of an account as it is stored; empty where no account can be called so."""
    name = text.strip().lower()
    return name if _ACCOUNT.fullmatch(name) else ""


def check_account_name(text: str) -> str:
    """Return the name of an account as it is stored.

    Raises:
        CloudError: no account can be called so.
    """
    if name := normal_name(text):
        return name
    remedy = phrase("a name has 1 to 64 letters a to z, digits, `.`, `-`, `_` and `@`, a letter or digit at both ends")
    raise CloudError(phrase("cannot call a person %(text)r", text=text[:80]), remedy=remedy)


def check_token_name(text: str) -> str:
    """Return the name of an API token.

    Raises:
        CloudError: no token can be called so.
    """
    if _TOKEN.fullmatch(text):
        return text
    remedy = phrase("a name has 1 to 64 letters, digits, `.`, `-` and `_`, a letter or digit at both ends")
    raise CloudError(phrase("cannot call a token %(text)r", text=text[:80]), remedy=remedy)
