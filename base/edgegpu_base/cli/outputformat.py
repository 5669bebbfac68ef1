"""`-o json|yaml|wide` beside `--json`, for each command line of ours."""

import inspect
import json
import re
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any

import typer


class Format(StrEnum):
    """What `-o` takes. `wide` is the text with more columns, where a command has more."""

    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"


_ODD = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What moves a terminal's cursor or turns its writing around, and YAML would print as it is."""

_CHOSEN: ContextVar[Format | None] = ContextVar("format", default=None)

OutputOption = Annotated[
    Format | None,
    typer.Option("--output", "-o", metavar="json|yaml|wide", help="A document, or the text with more columns."),
]


def with_output(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that has `json` the option `-o`: with `json` and `yaml` it is called as with `--json`.

    Others come back as they are.
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
    """Say whether the text has all columns."""
    return _CHOSEN.get() is Format.WIDE


def dumped(value: object) -> str:
    """Return a document as `-o` wants it, JSON where nothing else was asked for."""
    if _CHOSEN.get() is Format.YAML:
        import yaml  # noqa: PLC0415  (only this needs it)

        text = str(yaml.safe_dump(value, allow_unicode=True, sort_keys=False))
        if _ODD.search(text):
            text = str(yaml.safe_dump(value, allow_unicode=False, sort_keys=False))
        return text.rstrip("\n")
    return json.dumps(value, indent=2, ensure_ascii=False)


def dumped_one_of_many(value: object) -> str:
    """Return one document of a stream: JSON in a line of its own, or YAML after its mark."""
    if _CHOSEN.get() is Format.YAML:
        return f"---\n{dumped(value)}"
    return json.dumps(value, ensure_ascii=False)
