"""What the commands share: their options, where they print, and how an error ends them."""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgegpu_agent.cli.errors import CliError
from edgegpu_sync.commandline import is_output_fault

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EXIT_WRONG = 1
_PIPE_WIDTH = 100
_WIDEST = 100_000

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
SocketOption = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="The plugin's Unix socket  [default: plugin.sock in the configuration's paths.run, "
        "so /run/edgegpu/plugin.sock]",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Read paths.run from this configuration instead of the box's own."),
]


def make_console() -> "Console":
    """Return a console on stdout: colours on terminals only, NO_COLOR obeyed, nothing cut off in a pipe."""
    from rich.console import Console  # noqa: PLC0415  (only text output needs it)

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)


def print_table(table: "Table", console: "Console") -> None:
    """Print a table; in a pipe each row is one whole line, however long."""
    if console.is_terminal:
        console.print(table)
        return
    console.width = max(console.width, width_of(table, console))
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def width_of(table: "Table", console: "Console") -> int:
    """Return how many characters a table takes when nothing is folded."""
    from rich.measure import Measurement  # noqa: PLC0415  (only text output needs it)

    return Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum


def print_json(value: object) -> None:
    """Print a JSON document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


@contextmanager
def reporting(*, as_json: bool) -> Iterator[None]:
    """Run a command's body: an error is said in a sentence (or as JSON on stdout) and ends it with status 1."""
    try:
        yield
    except CliError as error:
        if as_json:
            print_json(error.document())
        else:
            typer.echo(f"edgegpu: {error.text}", err=True)
            if error.remedy:
                typer.echo(f"  {error.remedy}", err=True)
        raise typer.Exit(EXIT_WRONG) from error
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if is_output_fault(error):
            raise
        if os.environ.get("EDGEGPU_DEBUG"):
            traceback.print_exc()
        text = f"cannot go on: {type(error).__name__}: {error}"
        remedy = "this is a fault of edgegpu: run it again with EDGEGPU_DEBUG=1 and report what it prints"
        if as_json:
            print_json(CliError(text, remedy=remedy).document())
        else:
            typer.echo(f"edgegpu: {text}\n  {remedy}", err=True)
        raise typer.Exit(EXIT_WRONG) from error
