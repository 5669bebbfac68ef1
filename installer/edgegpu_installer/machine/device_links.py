"""The links /dev/char/MAJOR:MINOR to the cards' device nodes, without which a daemon-reload may cut cards off.

With systemd cgroups, a reload works out each container's device rules anew, by these links: a container that got its
card from another tool loses it where they are missing.
"""

import os
import stat
from pathlib import Path

from edgegpu_installer.errors import InstallError

_NODES = ("nvidia*", "nvidia-caps/*")


def make_device_links(root: Path) -> tuple[str, ...]:
    """Make the links that are missing, for every character device of NVIDIA's; return their names.

    Raises:
        InstallError: /dev cannot be written.
    """
    made = []
    for node in _nodes(root / "dev"):
        number = node.stat().st_rdev
        link = root / "dev/char" / f"{os.major(number)}:{os.minor(number)}"
        try:
            link.parent.mkdir(exist_ok=True)
            if not os.path.lexists(link):
                link.symlink_to("/" / node.relative_to(root))
                made.append(link.name)
        except OSError as error:
            raise InstallError(f"cannot link {link} to {node}: {error.strerror}", "make /dev writable") from error
    return tuple(made)


def _nodes(folder: Path) -> list[Path]:
    found = (path for pattern in _NODES for path in sorted(folder.glob(pattern)))
    return [path for path in found if path.exists() and stat.S_ISCHR(path.stat().st_mode)]
