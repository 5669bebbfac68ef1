"""Paths on this host."""


def own_path(text: str) -> str:
    """Return a path on this host, whatever was sent: never another host's address."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"
