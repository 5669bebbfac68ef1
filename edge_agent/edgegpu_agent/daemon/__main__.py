"""The command edgegpu-agent: minds signals before it loads the rest."""

import signal
import sys
from collections.abc import Sequence

from edgegpu_plugin.tasks import TaskGroup


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process; returns its exit status: 0 after SIGTERM or SIGINT at whatever moment."""
    group = TaskGroup()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: group.end())
    from edgegpu_agent.daemon.process import run  # noqa: PLC0415  (after the signals are minded)

    return run(argv, group)


if __name__ == "__main__":
    sys.exit(main())
