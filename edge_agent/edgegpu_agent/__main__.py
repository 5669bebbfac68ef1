"""The command edgegpu-agent: minds signals before it loads the rest."""

import signal
import sys
from collections.abc import Sequence

from edgegpu_base.process.tasks import TaskGroup


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process; returns its exit status: 0 after SIGTERM or SIGINT at whatever moment."""
    group = TaskGroup()
    group.end_on(signal.SIGTERM, signal.SIGINT)
    from edgegpu_agent.main import run  # noqa: PLC0415  (after the signals are minded)

    return run(argv, group)


if __name__ == "__main__":
    sys.exit(main())
