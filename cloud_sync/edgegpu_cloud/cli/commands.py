"""`edgegpu-cloud command`, `install`, `uninstall`, `commands`, `cancel`, `watch`: verbs, and what became of them."""

import json as jsonlib
import time
from typing import Annotated

import typer

from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    EXIT_WAITING,
    BoxArgument,
    Cloud,
    FolderOption,
    JsonOption,
    ago,
    opened,
    print_json,
    print_json_line,
    print_table,
    reporting,
    say,
    say_trouble,
)
from edgegpu_cloud.cli.durations import seconds
from edgegpu_cloud.cli.plain import plain
from edgegpu_cloud.fleet_views import CommandView
from edgegpu_sync.ids import CommandId
from edgegpu_sync.states import State
from edgegpu_sync.wire import Json

_NEW_S = 0.5

_EXITS = """
Exit status with --wait: 0 SUCCEEDED, 1 any other end (its code and text are printed), 3 it has not ended within
--timeout (it goes on; `watch` looks again). Without --wait: 0, it is queued.
"""
COMMAND_HELP = f"""\
Ask a box to do something once: k3s.restart, plugin.restart, inventory.refresh, logs.collect, doctor.run, agent.upgrade,
identity.rotate. A box that is away does it when it is back, if that is within --valid.

\b
Examples:
  edgegpu-cloud command asr-hall doctor.run --wait
  edgegpu-cloud command asr-hall logs.collect --arg url=https://logs.example.com/put --arg since_s=3600 --wait
{_EXITS}
--json prints the command as it stands last: {{"id", "device", "box", "op", "state", "code", "text", "data", ...}}
"""
INSTALL_HELP = f"""\
Let GPU sharing be installed on a box: a revision of what is desired, and the command to settle it.
{_EXITS}"""
UNINSTALL_HELP = f"""\
Let GPU sharing be taken off a box; the agent stays, so that it can be installed again from here.
{_EXITS}"""
COMMANDS_HELP = "List the last commands, newest first: to one box, or to all."
CANCEL_HELP = "Give a command no time left: it ends EXPIRED on a box that has not begun it."
WATCH_HELP = """\
Follow one command to its end, or show what comes in of all: commands as they change, until ctrl-C or --timeout is over.

\b
Exit status for one command: 0 SUCCEEDED, 1 another end, 3 not ended in that time.
--json prints one document per line.
"""

ArgOption = Annotated[list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="An argument; JSON or text.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Show its progress until it has ended.")]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long --wait waits: 90s, 10m.")]
ValidOption = Annotated[str, typer.Option("--valid", metavar="TIME", help="Until when it may begin: 90s, 10m, 7d.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")]
OptionalBox = Annotated[str | None, typer.Argument(metavar="[BOX]", help="Its name or device id.")]
OpArgument = Annotated[str, typer.Argument(metavar="OP", help="What it shall do.")]
CommandArgument = Annotated[str, typer.Argument(metavar="ID", help="As `commands` shows it; the beginning will do.")]


def command(
    name: BoxArgument,
    op: OpArgument,
    *,
    folder: FolderOption = DEFAULT,
    arg: ArgOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = "30m",
    valid: ValidOption = "1h",
    json: JsonOption = False,
) -> None:
    """Ask a box to do something once."""
    wait_s, valid_s, args = _wait_s(timeout, wait=wait), seconds(valid, option="--valid"), _args(arg or [])
    with reporting(as_json=json), opened(folder) as cloud:
        id_ = cloud.fleet.command(name, op, args, wait_s=valid_s)
        _finish(cloud, id_, wait_s, as_json=json)


def install(
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    wait: WaitOption = False,
    timeout: TimeoutOption = "30m",
    valid: ValidOption = "1h",
    json: JsonOption = False,
) -> None:
    """Let GPU sharing be installed on a box."""
    wait_s, valid_s = _wait_s(timeout, wait=wait), seconds(valid, option="--valid")
    with reporting(as_json=json), opened(folder) as cloud:
        _finish(cloud, cloud.fleet.install(name, wait_s=valid_s), wait_s, as_json=json)


def uninstall(
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    wait: WaitOption = False,
    timeout: TimeoutOption = "30m",
    valid: ValidOption = "1h",
    json: JsonOption = False,
) -> None:
    """Let GPU sharing be taken off a box."""
    wait_s, valid_s = _wait_s(timeout, wait=wait), seconds(valid, option="--valid")
    with reporting(as_json=json), opened(folder) as cloud:
        _finish(cloud, cloud.fleet.uninstall(name, wait_s=valid_s), wait_s, as_json=json)


def _wait_s(timeout: str, *, wait: bool) -> int:
    wait_s = seconds(timeout, option="--timeout")
    return wait_s if wait else 0


def _args(words: list[str]) -> Json:
    found: Json = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"no KEY=VALUE: {word}", param_hint="--arg")
        try:
            found[key] = jsonlib.loads(value)
        except ValueError:
            found[key] = value
    return found


def _finish(cloud: Cloud, id_: CommandId, wait_s: int, *, as_json: bool) -> None:
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
    view = _followed(cloud, id_, wait_s, as_json=as_json)
    if as_json:
        print_json(view)
    _exit_by(view)


def _followed(cloud: Cloud, id_: str, wait_s: float, *, as_json: bool) -> CommandView:
    view = cloud.fleet.one_command(id_)
    if not as_json:
        away = "" if cloud.fleet.box(view.device).online else ", which is not online"
        say(f"{view.op} for {view.box}{away}: {view.id}")
    shown = ""
    for view in cloud.fleet.follow(id_, timeout_s=wait_s):
        line = _line(view)
        if not as_json and line != shown:
            say(f"  {time.strftime('%H:%M:%S')}  {line}")
            shown = line
    return view


def _line(view: CommandView) -> str:
    why = ": ".join(word for word in (view.code, view.text) if word)
    return plain(f"{_state(view)}  {why}".rstrip())


def _state(view: CommandView) -> str:
    if view.state is not None:
        return view.state.value
    return "waiting for the box" if view.seq is None else "sent"


def _exit_by(view: CommandView) -> None:
    if not view.ended:
        say(f"not ended yet; it goes on: edgegpu-cloud watch {view.id}")
        raise typer.Exit(EXIT_WAITING)
    if view.state is not State.SUCCEEDED:
        raise typer.Exit(EXIT_FAILED)


def commands(
    name: OptionalBox = None, *, folder: FolderOption = DEFAULT, limit: LimitOption = 20, json: JsonOption = False
) -> None:
    """List the last commands."""
    with reporting(as_json=json), opened(folder) as cloud:
        views = cloud.fleet.commands(name, limit)
        if json:
            print_json(views)
            return
        if not views:
            typer.echo("no commands yet")
            return
        now_s = time.time()
        rows = [(one.id, one.box, one.op, ago(one.at_s, now_s), _line(one), one.by) for one in views]
        print_table(("ID", "BOX", "OP", "ASKED", "STATE", "BY"), rows)


def cancel(id_: CommandArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Give a command no time left."""
    with reporting(as_json=json), opened(folder) as cloud:
        cloud.fleet.cancel(id_)
        view = cloud.fleet.one_command(id_)
        if json:
            print_json(view)
        else:
            typer.echo(f"{view.id} has no time left to begin; if it has begun it goes on")


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
            _watch_all(cloud, wait_s, as_json=json)
            return
        if json:
            view = cloud.fleet.one_command(id_)
            for view in cloud.fleet.follow(id_, timeout_s=wait_s):
                print_json_line(view)
        else:
            view = _followed(cloud, id_, wait_s, as_json=False)
        _exit_by(view)


def _watch_all(cloud: Cloud, wait_s: float, *, as_json: bool) -> None:
    end_s, shown = time.monotonic() + wait_s, dict[str, str]()
    first = True
    while time.monotonic() < end_s:
        for view in reversed(cloud.fleet.commands(limit=200)):
            line = _line(view)
            if shown.get(view.id) != line and not (first and view.ended):
                if as_json:
                    print_json_line(view)
                else:
                    typer.echo(f"{time.strftime('%H:%M:%S')}  {view.box}  {view.op}  {view.id}  {line}")
            shown[view.id] = line
        first = False
        time.sleep(_NEW_S)
