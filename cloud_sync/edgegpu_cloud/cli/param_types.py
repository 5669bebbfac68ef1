"""Words of a command line that have a form: keys, names."""

import typer

from edgegpu_sync.base64url import from_text

_KEY_BYTES = 32


def check_public(text: str, *, option: str) -> None:
    """Refuse what is no public key.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        good = len(from_text(text)) == _KEY_BYTES
    except ValueError:
        good = False
    if not good:
        raise typer.BadParameter("not the 43 characters that `keys make-root` prints", param_hint=option)
