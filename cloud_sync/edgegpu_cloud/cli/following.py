"""`edgegpu-cloud watch`, and what `--wait` does: a command followed to its end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WAITING,
    Cloud,
    FolderOption,
    JsonOption,
    opened,
    print_json,
    print_json_line,
    reporting,
    say,
    say_trouble,
)
from edgegpu_cloud.cli.plain import plain
from edgegpu_cloud.fleet.views import CommandView
from edgegpu_sync.durations import seconds
from edgegpu_sync.ids import CommandId
from edgegpu_sync.states import State

_NEW_S = 0.5

WATCH_HELP = """\
Follow one command to its end, or show what comes in of all: commands as they change, until ctrl-C or --timeout is over.

\b
Exit status for one command: 0 SUCCEEDED, 1 another end, 3 not ended in that time.
--json prints one document per line.
"""

CommandArgument = Annotated[str, typer.Argument(metavar="ID", help="As `commands` shows it; the beginning will do.")]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long it is followed: 90s, 10m.")]


def finish(cloud: Cloud, id_: CommandId, wait_s: int, *, as_json: bool) -> None:
    """Show a command's way to its end, and exit by it."""
    view = cloud.fleet.one_command(id_)
    say_trouble(cloud, cloud.fleet.box(view.device))
    if not wait_s:
        if as_json:
            print_json(view)
        else:
            typer.echo(f"{view.op} for {view.box} is queued as {view.id}")
            typer.echo(f"edgegpu-cloud watch {view.id} follows it")
        return
    with _told_if_cut(id_, as_json=as_json):
        view = _followed(cloud, id_, wait_s, as_json=as_json)
    if as_json:
        print_json(view)
    _exit_by(view, as_json=as_json)


@contextmanager
def _told_if_cut(id_: str, *, as_json: bool) -> Iterator[None]:
    """Say on ctrl-C that only the waiting ends."""
    try:
        yield
    except KeyboardInterrupt:
        if as_json:
            print_json({"id": id_, "state": None, "ended": False})
        say(f"it goes on: edgegpu-cloud watch {id_}")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _followed(cloud: Cloud, id_: str, wait_s: float, *, as_json: bool) -> CommandView:
    view = cloud.fleet.one_command(id_)
    if not as_json:
        away = "" if cloud.fleet.box(view.device).online else ", which is not online"
        say(f"{view.op} for {view.box}{away}: {view.id}")
    shown = ""
    for view in cloud.fleet.follow(id_, timeout_s=wait_s):
        line = line_of(view)
        if not (as_json or view.ended) and line != shown:
            say(f"  {time.strftime('%H:%M:%S')}  {line}")
            shown = line
    return view


def line_of(view: CommandView) -> str:
    """Return how a command stands, in a line."""
    why = ": ".join(word for word in (view.code, view.text) if word)
    return plain(f"{_state(view)}  {why}".rstrip())


def _state(view: CommandView) -> str:
    if view.state is not None:
        return view.state.value
    return "waiting for the box" if view.seq is None else "sent"


def _exit_by(view: CommandView, *, as_json: bool) -> None:
    """Say the end on standard output, where what a command answers belongs; its way there was said beside it."""
    if not view.ended:
        say(f"not ended yet; it goes on: edgegpu-cloud watch {view.id}")
        raise typer.Exit(EXIT_WAITING)
    if not as_json:
        typer.echo(line_of(view))
    if view.state is not State.SUCCEEDED:
        raise typer.Exit(EXIT_FAILED)


def watch(
    id_: Annotated[str, typer.Argument(metavar="[ID]", help="One command; the beginning of its id will do.")] = "",
    *,
    folder: FolderOption = DEFAULT,
    timeout: TimeoutOption = "1h",
    json: JsonOption = False,
) -> None:
    """Follow one command to its end, or show what comes in of all."""
    wait_s = seconds(timeout, option="--timeout")
    with reporting(as_json=json), opened(folder) as cloud:
        say_trouble(cloud)
        if not id_:
            say(f"what comes in of all commands, for {timeout} or until ctrl-C:")
            _watch_all(cloud, wait_s, as_json=json)
            return
        view = cloud.fleet.one_command(id_)
        with _told_if_cut(view.id, as_json=False):
            if json:
                for view in cloud.fleet.follow(id_, timeout_s=wait_s):
                    print_json_line(view)
            else:
                view = _followed(cloud, id_, wait_s, as_json=False)
        _exit_by(view, as_json=json)


def _watch_all(cloud: Cloud, wait_s: float, *, as_json: bool) -> None:
    end_s, shown = time.monotonic() + wait_s, dict[str, str]()
    first = True
    while time.monotonic() < end_s:
        for view in reversed(cloud.fleet.commands(limit=200)):
            line = line_of(view)
            if shown.get(view.id) != line and not (first and view.ended):
                if as_json:
                    print_json_line(view)
                else:
                    typer.echo(f"{time.strftime('%H:%M:%S')}  {view.box}  {view.op}  {view.id}  {line}")
            shown[view.id] = line
        first = False
        time.sleep(_NEW_S)
