"""What each command line of ours prints for people: tables, and numbers with their nouns."""

import os
import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 100
_WIDEST = 100_000


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 unit, 2 units, 2 boxes."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith('x') else 's'}"


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
