"""Paths on this host, and numbers in them."""

from typing import Annotated

from fastapi import Path

PathNumber = Annotated[int, Path(ge=1, le=2**53)]
"""The number of an alert, an alarm or a rollout in a path: what JSON has exactly, and both databases too."""


def own_path(text: str) -> str:
    """Return a path on this host, whatever was sent: never another host's address."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"
