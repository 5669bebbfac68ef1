"""Paths on this host, and numbers in them."""

from typing import Annotated

from fastapi import Path

from edgegpu_cloud.numbers import LARGEST

PathNumber = Annotated[int, Path(ge=1, le=LARGEST)]
"""The number of an alert, an alarm or a rollout in a path."""


def own_path(text: str) -> str:
    """Return a path on this host, whatever was sent: never another host's address."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"
