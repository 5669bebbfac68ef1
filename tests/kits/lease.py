"""What the kernel says of leases on files."""

from pathlib import Path

_LOCKS = Path("/proc/locks")


def keeps_waiting(path: Path) -> bool:
    """Return whether somebody waits in open() for the lease on a file; a link is not followed (see proc_locks(5))."""
    mark = f":{path.lstat().st_ino} "
    return any("BREAKING" in line and mark in line for line in _LOCKS.read_text().splitlines())
