"""The command line `edgegpu`: what ends all commands the same way; light, so that ctrl-C finds it."""

import os
import sys

_FAILED, _INTERRUPTED = 1, 130


def main() -> None:
    """Run one command and exit with its status."""
    try:
        from edgegpu_agent.cli.tree import app  # noqa: PLC0415  (slow to load)

        app(prog_name="edgegpu")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:  # `edgegpu pods | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_FAILED)


if __name__ == "__main__":
    main()
