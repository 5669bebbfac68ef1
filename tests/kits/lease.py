"""What the kernel says of leases on files."""

from pathlib import Path

_LOCKS = Path("/proc/locks")


def keeps_waiting(path: Path) -> bool:
    """Return whether somebody waits in open() for the lease on a file; a link is not followed (see proc_locks(5))."""
    return any("BREAKING" in line for line in _leases(path))


def is_leased(path: Path) -> bool:
    """Return whether somebody has a lease on a file; a link is not followed."""
    return path.exists() and bool(_leases(path))


def _leases(path: Path) -> list[str]:
    mark = f":{path.lstat().st_ino} "
    return [line for line in _LOCKS.read_text().splitlines() if " LEASE " in line and mark in line]
