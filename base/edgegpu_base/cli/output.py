"""Output of every command line: documents by `-o json|yaml|wide`, tables, text that is safe for a terminal."""

import inspect
import json
import os
import re
import sys
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class Format(StrEnum):
    """The values of `-o`. `wide` is the text with more columns, where a command has more."""

    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"


_IN_DOCUMENTS = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor or reverse its text, and that JSON or YAML would print unchanged."""

_IN_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BREAKS = re.compile("[\t\n]")

_CHOSEN: ContextVar[Format | None] = ContextVar("format", default=None)

OutputOption = Annotated[
    Format | None,
    typer.Option("--output", "-o", metavar="json|yaml|wide", help="A document, or the text with more columns."),
]


def with_output(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has `json` with the option `-o`: `json` and `yaml` call it as with `--json`.

    Other commands are returned unchanged.
    """
    signature = inspect.signature(command)
    if "json" not in signature.parameters:
        return command

    @wraps(command)
    def run(*args: Any, output: Format | None = None, **options: Any) -> None:  # noqa: ANN401  (the command's own)
        if output in {Format.JSON, Format.YAML}:
            options["json"] = True
        before = _CHOSEN.set(output)
        try:
            command(*args, **options)
        finally:
            _CHOSEN.reset(before)

    more = inspect.Parameter("output", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OutputOption)
    run.__annotations__ = {**command.__annotations__, "output": OutputOption}
    vars(run)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), more])
    return run


def is_wide() -> bool:
    """Return whether the text shall have all columns."""
    return _CHOSEN.get() is Format.WIDE


def dumped(value: object) -> str:
    """Return a document in the format of `-o`, by default JSON."""
    if _CHOSEN.get() is Format.YAML:
        import yaml  # noqa: PLC0415  (only this needs it)

        text = str(yaml.safe_dump(value, allow_unicode=True, sort_keys=False))
        if _IN_DOCUMENTS.search(text):
            text = str(yaml.safe_dump(value, allow_unicode=False, sort_keys=False))
        return text.rstrip("\n")
    return json.dumps(value, indent=2, ensure_ascii=False)


def dumped_one_of_many(value: object) -> str:
    """Return one document of a stream: JSON on one line, or YAML after its separator."""
    if _CHOSEN.get() is Format.YAML:
        return f"---\n{dumped(value)}"
    return json.dumps(value, ensure_ascii=False)


_PIPE_WIDTH = 100
_WIDEST = 100_000


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 unit, 2 units, 2 boxes, 2 processes."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x')) else 's'}"


def make_console() -> "Console":
    """Return a console on stdout: colours on terminals only, by NO_COLOR, and no cut lines in a pipe."""
    from rich.console import Console  # noqa: PLC0415  (only text output needs it)

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)


def print_table(table: "Table", console: "Console") -> None:
    """Print a table; in a pipe each row is one line, however long."""
    if console.is_terminal:
        console.print(table)
        return
    console.width = max(console.width, width_of(table, console))
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def width_of(table: "Table", console: "Console") -> int:
    """Return how many characters wide a table is when no cell is folded."""
    from rich.measure import Measurement  # noqa: PLC0415  (only text output needs it)

    return Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum


def plain(text: str) -> str:
    """Return a text, possibly of several lines, with its control characters escaped."""
    return _IN_TEXT.sub(_named, text)


def one_line(text: str) -> str:
    """Return a text as one line, with line breaks escaped as well."""
    return _BREAKS.sub(_named, plain(text))


def plain_json(text: str) -> str:
    """Return an equal JSON document with control characters escaped."""
    return _IN_DOCUMENTS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _named(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
