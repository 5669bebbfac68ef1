"""The person at whose word a command runs."""

import getpass
import os


def invoking_user() -> str:
    """Return the name of the user who runs this command: behind sudo the one who has called it."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        return str(os.getuid())
