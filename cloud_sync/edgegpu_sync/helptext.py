"""How the help of each command line of ours looks: arguments by their names alone, without a program's types."""

import re
from typing import Any

import typer
from typer.core import TyperCommand

_TYPED = re.compile(r"^(  \S+) <[^>]+>", re.MULTILINE)
"""An argument's line as typer writes it: `  BOX <str>  Its name`."""


class Command(TyperCommand):
    """A command whose help shows names for values."""

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401  (typer keeps the class of its contexts to itself)
        """Return the help text."""
        return _TYPED.sub(lambda found: found[1].ljust(len(found[0])), super().get_help(ctx))


def by_names(app: typer.Typer) -> typer.Typer:
    """Let each command of an application, those of its groups too, show names for values; returns the application."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            by_names(group.typer_instance)
    return app
