"""Copies of unit files, by which systemd keeps units as they are while they run on without their file.

A unit whose file is gone at a daemon-reload keeps its watchdog and loses the rest: its notifications are refused
("reception is disabled"), so the watchdog ends it after WatchdogSec=, and nobody starts it again. Seen: systemd 252.
"""

from collections.abc import Sequence

from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import RUN_UNITS, UNITS, Layout
from edgegpu_installer.machine.atomic import read_entry, write


def keep_loaded(layout: Layout, units: Sequence[str]) -> None:
    """Copy the files of units that are stopped last to where a boot forgets them; edgegpu-recover removes the copies.

    Raises:
        InstallError: a file cannot be read, or not copied.
    """
    for unit in units:
        found, copy = read_entry(layout.at(f"{UNITS}/{unit}")), layout.at(f"{RUN_UNITS}/{unit}")
        if found.content is None or copy.is_symlink():  # a link is somebody's, who has masked the unit
            continue
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InstallError(f"cannot write {copy}: {error.strerror}") from error
        write(copy, found.content, mode=found.mode)
