"""`edgegpu-cloud command`, `install`, `uninstall`, `commands`, `cancel`: verbs, and those that were asked for."""

import time
from typing import Annotated

import typer

from edgegpu_cloud.cli import opargs
from edgegpu_cloud.cli.arguments import BoxArgument
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    ago,
    opened,
    print_json,
    print_table,
    reporting,
)
from edgegpu_cloud.cli.following import CommandArgument, finish, line_of
from edgegpu_sync.durations import seconds, waiting_s

_WAIT = "30m"

_EXITS = """
Exit status with --wait: 0 SUCCEEDED, 1 any other end (its code and text are printed), 3 it has not ended within
--timeout (it goes on; `watch` looks again). Without --wait: 0, it is queued.
"""
COMMAND_HELP = f"""\
Ask a box to do something once: k3s.restart, plugin.restart, inventory.refresh, logs.collect, doctor.run, agent.upgrade,
identity.rotate. A box that is away does it when it is back, if that is within --valid.

\b
{opargs.HELP}
\b
Examples:
  edgegpu-cloud command asr-hall doctor.run --wait
  edgegpu-cloud command asr-hall logs.collect --arg url=https://logs.example.com/put --arg since_s=3600 --wait
{_EXITS}
--json prints the command as it stands last: {{"id", "device", "box", "op", "state", "code", "text", "data", ...}}
"""
INSTALL_HELP = f"""\
Let GPU sharing be installed on a box: a revision of what is desired, and the command to settle it.
{_EXITS}
--json prints what `command --json` does.
"""
UNINSTALL_HELP = f"""\
Let GPU sharing be taken off a box; the agent stays, so that it can be installed again from here.
{_EXITS}
--json prints what `command --json` does.
"""
COMMANDS_HELP = """\
List the last commands, newest first: to one box, or to all.

\b
--json prints a list of what `command --json` does.
"""
CANCEL_HELP = """\
Give a command no time left: it ends EXPIRED on a box that has not begun it.

\b
--json prints what `command --json` does.
"""
ArgOption = Annotated[list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="An argument; JSON or text.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Show its progress until it has ended.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long --wait waits: 90s, 10m.  [default: 30m]")
]
ValidOption = Annotated[str, typer.Option("--valid", metavar="TIME", help="Until when it may begin: 90s, 10m, 7d.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")]
OptionalBox = Annotated[str | None, typer.Argument(metavar="[BOX]", help="Its name or device id.")]
OpArgument = Annotated[str, typer.Argument(metavar="OP", help="What it shall do.")]


def command(
    name: BoxArgument,
    op: OpArgument,
    *,
    folder: FolderOption = DEFAULT,
    arg: ArgOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    valid: ValidOption = "1h",
    json: JsonOption = False,
) -> None:
    """Ask a box to do something once."""
    wait_s, valid_s = waiting_s(timeout, wait=wait, default=_WAIT), seconds(valid, option="--valid")
    args = opargs.read(op, name, arg or [])
    with reporting(as_json=json), opened(folder) as cloud:
        id_ = cloud.fleet.command(name, op, args, wait_s=valid_s)
        finish(cloud, id_, wait_s, as_json=json)


def install(
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    valid: ValidOption = "1h",
    json: JsonOption = False,
) -> None:
    """Let GPU sharing be installed on a box."""
    wait_s, valid_s = waiting_s(timeout, wait=wait, default=_WAIT), seconds(valid, option="--valid")
    with reporting(as_json=json), opened(folder) as cloud:
        finish(cloud, cloud.fleet.install(name, wait_s=valid_s), wait_s, as_json=json)


def uninstall(
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    valid: ValidOption = "1h",
    json: JsonOption = False,
) -> None:
    """Let GPU sharing be taken off a box."""
    wait_s, valid_s = waiting_s(timeout, wait=wait, default=_WAIT), seconds(valid, option="--valid")
    with reporting(as_json=json), opened(folder) as cloud:
        finish(cloud, cloud.fleet.uninstall(name, wait_s=valid_s), wait_s, as_json=json)


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
        rows = [(one.id, one.box, one.op, ago(one.at_s, now_s), line_of(one), one.by) for one in views]
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
