"""The command edgegpu-plugin: installs signal handlers before it loads the rest, which takes a second on a slow box."""

import signal
import sys
from collections.abc import Sequence

from edgegpu_base.process.tasks import TaskGroup


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process and return its exit status: 0 after SIGTERM or SIGINT at any moment."""
    group = TaskGroup()
    group.end_on(signal.SIGTERM, signal.SIGINT)
    from edgegpu_plugin.main import run  # noqa: PLC0415  (this import takes the second)

    return run(argv, group)


if __name__ == "__main__":
    sys.exit(main())
