"""`edgegpu-cloud watch`, and `--wait`: a command followed to its end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from edgegpu_base.cli.durations import seconds
from edgegpu_base.cli.output import plain
from edgegpu_cloud.cli.arguments import complete_command_ids
from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WAITING,
    Cloud,
    FolderOption,
    JsonOption,
    answer,
    print_connection_problem,
    print_json,
    print_json_line,
    reached,
    reporting,
    say,
)
from edgegpu_cloud.cli.requests.brought_back import is_well, lines
from edgegpu_cloud.fleet.views import CommandView
from edgegpu_sync.ids import CommandId
from edgegpu_sync.states import CommandState

_NEW_S = 0.5

WATCH_HELP = """\
Follow one command to its end, or show what comes in of all: commands as they change, until ctrl-C or --timeout is over.

\b
Exit status for one command: 0 SUCCEEDED (doctor.run: all is well), 1 another end, 3 not ended in that time.
--json prints one document per line.
"""

CommandArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="As `commands` shows it; the beginning will do.", autocompletion=complete_command_ids
    ),
]
OptionalId = Annotated[
    str,
    typer.Argument(
        metavar="[ID]", help="One command; the beginning of its id will do.", autocompletion=complete_command_ids
    ),
]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long it is followed: 90s, 10m.")]


def finish(cloud: Cloud, id_: CommandId, wait_s: int, *, as_json: bool) -> None:
    """Show the progress of a command to its end, and exit with its status."""
    view = cloud.fleet.one_command(id_)
    print_connection_problem(cloud, cloud.fleet.box(view.device))
    if not wait_s:
        queued = f"{view.op} for {view.box} is queued as {view.id}\nedgegpu-cloud watch {view.id} follows it"
        answer(view, queued, as_json=as_json)
        return
    with _note_on_interrupt(id_, as_json=as_json):
        view = _followed(cloud, id_, wait_s, as_json=as_json)
    if as_json:
        print_json(view)
    _exit_with_status(view, as_json=as_json)


def status_of(view: CommandView) -> int:
    """Return the exit status of a command that was waited for; that of the doctor depends on its findings."""
    if not view.ended:
        return EXIT_WAITING
    well = view.state is CommandState.SUCCEEDED and is_well(view.op, view.data or {})
    return 0 if well else EXIT_FAILED


def findings(view: CommandView) -> str:
    """Return what a command has brought back, as lines for people; empty where it is nothing."""
    if not view.data or view.state is not CommandState.SUCCEEDED:
        return ""
    return "\n".join(f"  {line}" for line in lines(view.op, view.data))


@contextmanager
def _note_on_interrupt(id_: str, *, as_json: bool) -> Iterator[None]:
    """Print on ctrl-C that only the waiting ends."""
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
    """Return a command's state in one line."""
    why = ": ".join(word for word in (view.code, view.text) if word)
    return plain(f"{_state(view)}  {why}".rstrip())


def _state(view: CommandView) -> str:
    if view.state is not None:
        return view.state.value
    return "waiting for the box" if view.seq is None else "sent"


def _exit_with_status(view: CommandView, *, as_json: bool) -> None:
    """Print the end of a command on standard output, as its answer, and exit; its progress went to standard error."""
    if not view.ended:
        say(f"not ended yet; it goes on: edgegpu-cloud watch {view.id}")
        raise typer.Exit(EXIT_WAITING)
    if not as_json:
        typer.echo(line_of(view))
        if found := findings(view):
            typer.echo(found)
    if status := status_of(view):
        raise typer.Exit(status)


def watch(
    id_: OptionalId = "",
    *,
    folder: FolderOption = DEFAULT,
    timeout: TimeoutOption = "1h",
    json: JsonOption = False,
) -> None:
    """Follow one command to its end, or show what comes in of all."""
    wait_s = seconds(timeout, option="--timeout")
    with reporting(as_json=json), reached(folder) as cloud:
        print_connection_problem(cloud)
        if not id_:
            say(f"what comes in of all commands, for {timeout} or until ctrl-C:")
            _watch_all(cloud, wait_s, as_json=json)
            return
        view = cloud.fleet.one_command(id_)
        with _note_on_interrupt(view.id, as_json=False):
            if json:
                for view in cloud.fleet.follow(id_, timeout_s=wait_s):
                    print_json_line(view)
            else:
                view = _followed(cloud, id_, wait_s, as_json=False)
        _exit_with_status(view, as_json=json)


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
