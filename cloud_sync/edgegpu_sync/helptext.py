"""How the help of each command line of ours looks: values by their names alone, without a program's types."""

import re
from typing import Any

import typer
from typer.core import TyperCommand

_TYPED = re.compile(r"^(  \S.*?) <[^>|]+>", re.MULTILINE)
"""An argument's line as typer writes it: `  BOX <str>  Its name`."""

_BRACES = re.compile(r"\{([^{}]+)\}(?:\.\.\.)?")
_BRACKETS = re.compile(r"\[(\[[^\[\]]+\])\]")
"""A usage line has `{BOX}` for what is needed, and `[[BOX]]` for what may be left out and says so itself."""


def named(text: str) -> str:
    """Return a help text, or a usage line, with names for values; what stands behind one keeps its column."""
    text = _TYPED.sub(lambda found: found[1].ljust(len(found[0])), text)
    head, usage, rest = text.partition("Usage:")
    line, blank, after = rest.partition("\n\n")
    line = _BRACKETS.sub(r"\1", _BRACES.sub(r"\1", line))
    return f"{head}{usage}{line}{blank}{after}"


class Command(TyperCommand):
    """A command whose help shows names for values."""

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401  (typer keeps the class of its contexts to itself)
        """Return the help text."""
        return named(super().get_help(ctx))

    def get_usage(self, ctx: Any) -> str:  # noqa: ANN401  (as above)
        """Return the usage line, which stands in errors too."""
        return named(super().get_usage(ctx))


def by_names(app: typer.Typer) -> typer.Typer:
    """Let each command of an application, those of its groups too, show names for values; returns the application."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            by_names(group.typer_instance)
    return app
