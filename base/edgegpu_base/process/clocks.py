"""The id of the machine's boot, and the time since it."""

import time
from pathlib import Path


def boot_id(root: Path = Path("/")) -> str:
    """Return the id of this boot, 36 characters; `root` is the folder of `proc`. Raises OSError."""
    return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def boot_s() -> float:
    """Return CLOCK_BOOTTIME: the seconds since the boot, including suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
