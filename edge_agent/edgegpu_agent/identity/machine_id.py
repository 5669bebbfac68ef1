"""The hash that identifies this machine; a copied disk in another machine gets another hash."""

import hashlib
from pathlib import Path

from edgegpu_agent.identity.errors import IdentityError

_MACHINE_ID = "etc/machine-id"
_DMI_UUID = "sys/class/dmi/id/product_uuid"
_DOMAIN = "edgegpu instance 1"
_DIGITS = frozenset("0123456789abcdef")


def instance(root: Path) -> str:
    """Return the SHA-256 over machine id and DMI UUID, as hexadecimal digits; it reveals neither.

    Containers and some boards have no DMI UUID, and many cheap boards share one; there only the machine id differs.

    Args:
        root: the machine's `/`.

    Raises:
        IdentityError: there is no machine id, or one of the two cannot be read: that must not pass for another machine.
    """
    machine = _read(root / _MACHINE_ID).replace("-", "").lower()
    if len(machine) != 32 or not _DIGITS.issuperset(machine):  # noqa: PLR2004  (machine-id(5))
        raise IdentityError(
            f"cannot tell which machine this is: /{_MACHINE_ID} holds no machine id", "systemd-machine-id-setup"
        )
    board = _read(root / _DMI_UUID).lower()
    return hashlib.sha256(f"{_DOMAIN}\n{machine}\n{board}\n".encode()).hexdigest()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise IdentityError(f"cannot tell which machine this is: {path}: {error.strerror}", "run it as root") from error
