"""`edgegpu-cloud command`, `install`, `uninstall`, `commands`, `cancel`: send, list and cancel commands."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from edgegpu_base.cli.durations import seconds, waiting_s
from edgegpu_cloud.cli.arguments import (
    OptionalBoxArgument,
    SelectorOption,
    SinceOption,
    WatchOption,
    complete_box_or_op,
    complete_boxes,
)
from edgegpu_cloud.cli.box_selection import SELECTED, chosen
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    WatchedRows,
    YesOption,
    ago,
    answer,
    follow,
    moment,
    print_list,
    reached,
    reporting,
    since_of,
)
from edgegpu_cloud.cli.requests.confirmation import CONFIRMED, confirm_op
from edgegpu_cloud.cli.requests.following import CommandArgument, finish, line_of
from edgegpu_cloud.cli.requests.operation_progress import askable, operate
from edgegpu_cloud.fleet.views import CommandView
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_sync.ids import OpName
from edgegpu_sync.rules.ops import OPS, Args
from edgegpu_sync.wire import Json

ARGS_HELP = """\
Arguments, each --arg KEY=VALUE:
  logs.collect   url=https://... (PUT with the box's certificate; ends with /: a folder), since_s=86400, max_mib=64
  evidence.check pods='["UID"]' (JSON, 10 at most; left out: those that hold shares); better: evidence BOX --check
  agent.upgrade  version=1.2.3 url=https://... sha256=HEX signature=TEXT, all of them, as the release says
  all others     none
"""
_OWN = {"sharing.install": "install", "sharing.uninstall": "uninstall"}


def read_args(op: str, box: str, words: Sequence[str]) -> Json:
    """Return the arguments of an op; those of an unknown op are read as JSON, or else as text.

    Raises:
        typer.BadParameter: an argument that the op does not take, or lacks; an op that has a command of its own.
    """
    if op in _OWN:
        raise typer.BadParameter(f"say: edgegpu-cloud {_OWN[op]} {box}", param_hint="OP")
    model = OPS[OpName(op)].args if op in OPS else None
    found: Json = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise _wrong(f"no KEY=VALUE: {word}")
        if key in found:
            raise _wrong(f"{key} is given twice")
        found[key] = value if model is not None and _is_text(model, key) else _value(value)
    if model is not None:
        _check(op, model, found)
    return found


def _check(op: str, model: type[Args], found: Json) -> None:
    known = [name for name in model.model_fields if name != "critical"]
    unknown = [key for key in found if key not in model.model_fields]
    if unknown:
        takes = f"takes {', '.join(known)}" if known else "takes no arguments"
        raise _wrong(f"{op} {takes}, not {', '.join(unknown)}")
    missing = [name for name in known if model.model_fields[name].is_required() and name not in found]
    if missing:
        raise _wrong(f"{op} needs {', '.join(missing)}: --arg {missing[0]}=...")
    url = found.get("url")
    if isinstance(url, str) and not url.startswith("https://"):
        raise _wrong(f"url: https:// only, not {url}")


def _is_text(model: type[Args], key: str) -> bool:
    return key in model.model_fields and model.model_fields[key].annotation is str


def _value(text: str) -> "Json | str":
    try:
        return json.loads(text)  # type: ignore[no-any-return]  # whatever JSON has
    except ValueError:
        return text


def _wrong(text: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint="--arg")


_WAIT = "30m"

_EXITS = f"""
Exit status for one box with --wait: 0 SUCCEEDED, 1 any other end (its code and text are printed), 3 it has not ended
within --timeout (it goes on; `watch` looks again). Without --wait: 0, it is queued.

{CONFIRMED}

{SELECTED}
"""
COMMAND_HELP = f"""\
Ask a box to do something once: k3s.restart, plugin.restart, inventory.refresh, logs.collect, doctor.run,
evidence.check, agent.upgrade, identity.rotate. A box that is away does it when it is back, if that is within --valid.

\b
{ARGS_HELP}
\b
Examples:
  edgegpu-cloud command asr-hall doctor.run --wait
  edgegpu-cloud command -l site=hall inventory.refresh
  edgegpu-cloud command asr-hall logs.collect --arg url=https://logs.example.com/put --arg since_s=3600 --wait
{_EXITS}
doctor.run --wait prints what is not well on the box, and what mends it: status 0 then means that all is well, 1 that
something is not, with -l on one of the boxes. inventory.refresh, evidence.check and the others print what they have
brought back too. With -l that is the column WHY, and below the table what has no room there;
`edgegpu-cloud operations show ID` prints it again, page by page.

\b
--json for one box prints the command as it stands last: {{"id", "device", "box", "op", "state", "code", "text", "data",
...}}
"""
INSTALL_HELP = f"""\
Let GPU sharing be installed on a box.
{_EXITS}
--json for one box prints what `command --json` does.
"""
UNINSTALL_HELP = f"""\
Let GPU sharing be taken off a box; the agent stays, so that it can be installed again from here.
{_EXITS}
--json for one box prints what `command --json` does.
"""
COMMANDS_HELP = """\
List the last commands, newest first: to one box, or to all. -w goes on, oldest first, until ctrl-C.

\b
--json prints a list of what `command --json` does.
"""
CANCEL_HELP = """\
Cancel a command: it ends EXPIRED on a box that has not begun it.

\b
--json prints what `command --json` does.
"""
ArgOption = Annotated[list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="An argument; JSON or text.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Show its progress until it has ended.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long --wait waits: 90s, 10m.  [default: 30m]")
]
ValidOption = Annotated[
    str, typer.Option("--valid", metavar="TIME", help="How long it may wait to begin: 90s, 10m, 7d.")
]
LimitOption = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, max=10_000, help="How many.")]
OptionalBox = Annotated[
    str | None, typer.Argument(metavar="[BOX]", help="Its name or device id.", autocompletion=complete_boxes)
]
WordsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[BOX] OP",
        help="What it shall do. BOX is left out with -l.",
        autocompletion=complete_box_or_op,
    ),
]


def command(  # noqa: PLR0913  (one for each option)
    words: WordsArgument,
    *,
    folder: FolderOption = DEFAULT,
    selector: SelectorOption = "",
    arg: ArgOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    valid: ValidOption = "1h",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Ask a box to do something once."""
    wait_s, valid_s = waiting_s(timeout, wait=wait, default=_WAIT), seconds(valid, option="--valid")
    if len(words) != (1 if selector else 2):
        raise typer.BadParameter(f"name {'the OP alone, with -l' if selector else 'a BOX (or -l) and an OP'}")
    name, op = "" if selector else words[0], words[-1]
    args = read_args(op, name or "BOX", arg or [])
    with reporting(as_json=json), reached(folder) as cloud:
        if selector:
            asked: Json = {"op": op, "args": args, "wait_s": valid_s}
            operate(cloud, askable(selector), OperationKind.COMMAND, asked, yes=yes, wait_s=wait_s, as_json=json)
        else:
            [view] = chosen(cloud, name, selector)
            device = view.device
            confirm_op(op, view, cloud, yes=yes, as_json=json)
            finish(cloud, cloud.fleet.command(device, op, args, wait_s=valid_s), wait_s, as_json=json)


def _asking(*, installs: bool) -> Callable[..., None]:
    """Return the command that asks boxes for GPU sharing, or for none."""

    def ask(
        name: OptionalBoxArgument = "",
        *,
        folder: FolderOption = DEFAULT,
        selector: SelectorOption = "",
        wait: WaitOption = False,
        timeout: TimeoutOption = None,
        valid: ValidOption = "1h",
        yes: YesOption = False,
        json: JsonOption = False,
    ) -> None:
        wait_s, valid_s = waiting_s(timeout, wait=wait, default=_WAIT), seconds(valid, option="--valid")
        with reporting(as_json=json), reached(folder) as cloud:
            if selector and not name:
                kind = OperationKind.INSTALL if installs else OperationKind.UNINSTALL
                args: Json = {"wait_s": valid_s}
                operate(cloud, askable(selector), kind, args, yes=yes, wait_s=wait_s, as_json=json)
            else:
                verb = cloud.fleet.install if installs else cloud.fleet.uninstall
                [view] = chosen(cloud, name, selector)
                if not installs:
                    confirm_op("sharing.uninstall", view, cloud, yes=yes, as_json=json)
                finish(cloud, verb(view.device, wait_s=valid_s), wait_s, as_json=json)

    return ask


install, uninstall = _asking(installs=True), _asking(installs=False)


def commands(
    name: OptionalBox = None,
    *,
    folder: FolderOption = DEFAULT,
    limit: LimitOption = 20,
    since: SinceOption = "",
    watch: WatchOption = False,
    json: JsonOption = False,
) -> None:
    """List the last commands."""
    since_s = since_of(since)
    with reporting(as_json=json), reached(folder) as cloud:

        def look() -> list[CommandView]:
            return [one for one in cloud.fleet.commands(name, limit) if one.at_s >= since_s]

        rows = WatchedRows(heads=_HEADS, row=_row, key=lambda one: str(one.id), mark=line_of)
        if watch:
            follow(lambda: look()[::-1], rows, as_json=json)
        none = "no commands yet" if not since else f"no commands since {moment(since_s)}"
        print_list(look(), rows.heads, rows.row, none=none, as_json=json)


_HEADS = ("ID", "BOX", "OP", "ASKED", "STATE", "BY")


def _row(one: CommandView) -> tuple[str, ...]:
    return (one.id, one.box, one.op, ago(one.at_s, time.time()), line_of(one), one.by)


def cancel(id_: CommandArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Cancel a command that its box has not begun."""
    with reporting(as_json=json), reached(folder) as cloud:
        cloud.fleet.cancel(id_)
        view = cloud.fleet.one_command(id_)
        answer(view, f"{view.id} has no time left to begin; if it has begun it goes on", as_json=json)
