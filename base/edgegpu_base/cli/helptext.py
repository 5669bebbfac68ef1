"""Parts of a command line: the program, its commands, and help that shows values by their names."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edgegpu_base.cli.commandline import installed_version
from edgegpu_base.cli.output import with_output

_TYPED = re.compile(r"^(  \S.*?) <[^>|]+>", re.MULTILINE)
"""An argument's line as typer writes it: `  BOX <str>  Its name`."""

_BRACES = re.compile(r"\{([^{}]+)\}(?:\.\.\.)?")
_BRACKETS = re.compile(r"\[(\[[^\[\]]+\])\]")
"""Marks in a usage line: `{BOX}` for a required value, `[[BOX]]` for an optional one whose name has brackets itself."""


def named(text: str) -> str:
    """Return a help text or usage line with names for values; the text behind a name keeps its column."""
    text = _TYPED.sub(lambda found: found[1].ljust(len(found[0])), text)
    head, usage, rest = text.partition("Usage:")
    line, blank, after = rest.partition("\n\n")
    line = _BRACKETS.sub(r"\1", _BRACES.sub(r"\1", line))
    return f"{head}{usage}{line}{blank}{after}"


_USAGE = 2
_PREFIX = "Value error, "
"""What typer puts before the text of a value that it cannot take."""


class HelpCommand(TyperCommand):
    """A command whose help shows names for values, and whose usage errors are in words for people."""

    usage_status = _USAGE
    """The exit status of a usage error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (as below)
        """Parse the arguments; a usage error gets this command's exit status."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if isinstance(error, typer.BadParameter):
                error.message = error.message.removeprefix(_PREFIX)
            if getattr(error, "exit_code", None) == _USAGE:  # typer keeps their common class to itself
                vars(error)["exit_code"] = self.usage_status
            raise

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401  (typer keeps the class of its contexts to itself)
        """Return the command's help text."""
        return named(super().get_help(ctx))

    def get_usage(self, ctx: Any) -> str:  # noqa: ANN401  (as above)
        """Return the usage line, which errors show too."""
        return named(super().get_usage(ctx))


def version_option(name: str) -> Any:  # noqa: ANN401  (typer's own)
    """Return the option by which a program prints its version and exits."""

    def tell_version(wanted: bool) -> None:  # noqa: FBT001  (as typer calls it)
        if wanted:
            typer.echo(f"{name} {installed_version()}")
            raise typer.Exit

    return typer.Option("--version", help="Print the version.", is_eager=True, callback=tell_version)


def command_line(name: str, text: str) -> typer.Typer:
    """Return a program's application with its help and `--version`, without commands."""
    app = typer.Typer(
        name=name,
        help=text,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def _options(*, version: Annotated[bool, version_option(name)] = False) -> None:
        del version

    return app


def command_group(text: str) -> typer.Typer:
    """Return a group of commands with its help, without commands."""
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None)


def put(
    app: typer.Typer,
    name: str,
    command: Callable[..., None],
    text: str,
    short: str,
    *,
    cls: type[HelpCommand] = HelpCommand,
) -> None:
    """Add a command to an application or a group, with its help and its line in the list.

    The help shows names for values; a command with `json` gets `-o`.
    """
    app.command(name, cls=cls, help=text, short_help=short)(with_output(command))
