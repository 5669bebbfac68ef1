"""`-w`: a list that goes on, row by row, as `kubectl get -w` does."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import typer

from edgegpu_cloud.cli.common import print_json_line
from edgegpu_cloud.cli.terminal_text import one_line

_EVERY_S = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[T]):
    """A list of things: its heads, the row of each, by what it is known again, and what counts as a change of it."""

    heads: Sequence[str]
    row: Callable[[T], Sequence[str]]
    key: Callable[[T], str]
    mark: Callable[[T], object]


def follow(
    look: Callable[[], Sequence[T]], rows: Rows[T], *, as_json: bool, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Print all, then each that is new or has changed, until ctrl-C."""
    shown: dict[str, object] = {}
    widths = [len(head) for head in rows.heads]
    first = True
    while True:
        changed = [one for one in look() if shown.get(rows.key(one)) != rows.mark(one)]
        shown.update({rows.key(one): rows.mark(one) for one in changed})
        if as_json:
            for one in changed:
                print_json_line(one)
        else:
            lines = [[one_line(cell) for cell in rows.row(one)] for one in changed]
            lines = [list(rows.heads), *lines] if first else lines
            widths = [max([width, *(len(line[at]) for line in lines)]) for at, width in enumerate(widths)]
            for line in lines:
                typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        first = False
        sleep(_EVERY_S)
