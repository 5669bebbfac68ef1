"""The command edgegpu-agent: installs its signal handlers before it loads the rest."""

import signal
import sys
from collections.abc import Sequence

from edgegpu_base.process.tasks import TaskGroup


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process and return its exit status: 0 after SIGTERM or SIGINT at any moment."""
    group = TaskGroup()
    group.end_on(signal.SIGTERM, signal.SIGINT)
    from edgegpu_agent.main import run  # noqa: PLC0415  (after the signal handlers are installed)

    return run(argv, group)


if __name__ == "__main__":
    sys.exit(main())
