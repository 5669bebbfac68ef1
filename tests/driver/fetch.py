"""Fetches the newest branch of NVIDIA's user-space driver into the cache, for tests that use its nvidia-smi."""

import sys

from driver.archive import ArchiveError
from driver.cache import fetched
from driver.pins import read_pins


def main() -> int:
    """Fetch the newest branch that the archive still has; return 1 where it has none."""
    for branch in reversed(read_pins().branches):
        try:
            fetched(branch)
        except ArchiveError as error:
            sys.stderr.write(f"branch {branch.name}: {error}\n")
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
