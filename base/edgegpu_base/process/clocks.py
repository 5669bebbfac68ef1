"""Which boot of the machine this is, and how long it lasts."""

import time
from pathlib import Path


def boot_id(root: Path = Path("/")) -> str:
    """Return the id of this boot, 36 characters; `root` is where `proc` is. Raises OSError."""
    return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def boot_s() -> float:
    """Return CLOCK_BOOTTIME: the seconds since the boot, those of suspension counted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
