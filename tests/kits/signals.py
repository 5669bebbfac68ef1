"""How a long run ends where somebody stops it."""

import signal
import sys


def exit_when_stopped() -> None:
    """Let SIGTERM, SIGINT and SIGHUP raise SystemExit, so that what runs is ended and what is mounted is taken off.

    SIGTERM comes at a time limit, SIGHUP when the terminal closes. SIGHUP stays ignored where the caller ignores it, as
    nohup does. SIGINT does not: a shell that starts a command in the background lets it ignore SIGINT.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: sys.exit(1))
