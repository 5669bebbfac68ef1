"""`--watch`: show a command's output again and again, until ctrl-C."""

import contextlib
import io
import sys
import time
from collections.abc import Callable

import typer

from edgegpu_agent.cli.common import CliError

_EVERY_S = 2.0
_CLEAR = "\033[H\033[2J"
_INTERRUPTED = 130


def watch(show: Callable[[], None]) -> None:
    """Show the output until ctrl-C: on a terminal over the previous one, in a pipe each time that it differs.

    An error, for example while a service restarts, is shown, and the command is tried again.

    Raises:
        typer.Exit: with status 130, after ctrl-C.
    """
    before = ""
    try:
        while True:
            said = _captured(show)
            if sys.stdout.isatty():
                typer.echo(f"{_CLEAR}{said}", nl=False)
            elif said != before:
                typer.echo(said, nl=False)
            sys.stdout.flush()
            before = said
            time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _captured(show: Callable[[], None]) -> str:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return real.isatty()

    real, text = sys.stdout, Terminal()
    with contextlib.redirect_stdout(text):
        try:
            show()
        except CliError as error:
            typer.echo(f"edgegpu: {error.text}\n  {error.remedy}")
        except typer.Exit:
            pass
    return text.getvalue()
