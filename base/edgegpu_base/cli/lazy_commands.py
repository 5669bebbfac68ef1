"""Commands that are imported when they are used, as click's lazy groups are: the list of commands needs their lines."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from edgegpu_base.cli.helptext import put


@dataclass(frozen=True, slots=True)
class CommandSource:
    """Where a command is: its module, the function there, and the name of its help text there."""

    module: str
    function: str
    text: str


class LazyCommand(TyperCommand):
    """The line of a command, or of a group, in the list of commands; whoever uses it gets the command itself."""

    def loaded(self) -> Any:  # noqa: ANN401  (typer keeps the common class of commands and groups to itself)
        """Return the command; its module is imported now."""
        assert self.callback is not None  # noqa: S101  (put_lazy and put_lazy_group give it)
        return self.callback()

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:  # noqa: ANN401
        """Return the context of the command itself, for its arguments."""
        return self.loaded().make_context(info_name, args, parent=parent, **extra)


def put_lazy(app: typer.Typer, name: str, source: CommandSource, short: str) -> None:
    """Add a command, as `put` does, which is imported when it is used."""

    def fill(group: typer.Typer) -> None:
        module = import_module(source.module)
        put(group, name, getattr(module, source.function), getattr(module, source.text), short)

    app.command(name, cls=LazyCommand, short_help=short)(_loader(name, fill))


def put_lazy_group(app: typer.Typer, name: str, module: str, text: str | None = None, short: str | None = None) -> None:
    """Add a module's group of commands, its `app`, which is imported when it is used.

    Its line in the list is `short`, or the first sentence of `text`, cut to the width of the terminal.
    """

    def fill(group: typer.Typer) -> None:
        group.add_typer(import_module(module).app, name=name)

    app.command(name, cls=LazyCommand, help=text, short_help=short)(_loader(name, fill))


def _loader(name: str, fill: Callable[[typer.Typer], None]) -> Callable[[], Any]:
    """Return a function that returns a command, built within a group that `fill` puts it into."""

    def load() -> Any:  # noqa: ANN401  (as above)
        group = typer.Typer(rich_markup_mode=None)
        fill(group)
        return get_group(group).commands[name]

    return load
