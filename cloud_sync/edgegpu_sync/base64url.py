"""Base64 as it stands in lines and names: the URL alphabet, no padding, one text for each value."""

import base64


def to_text(data: bytes) -> str:
    """Write bytes."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Read bytes.

    Raises:
        ValueError: for another alphabet, padding, or a text that `to_text` would not have written.
    """
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if to_text(data) != text:
        raise ValueError("not the one text of these bytes")
    return data
