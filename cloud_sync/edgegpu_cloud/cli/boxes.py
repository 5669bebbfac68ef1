"""`edgegpu-cloud boxes`, `box`, `confirm`, `rename`, `alarms`: the fleet as it stands."""

import time
from typing import Annotated

import typer

from edgegpu_cloud.cli.boxshow import show_box
from edgegpu_cloud.cli.common import (
    DEFAULT,
    BoxArgument,
    Cloud,
    FolderOption,
    JsonOption,
    ago,
    moment,
    opened,
    print_json,
    print_table,
    reporting,
    say_trouble,
    standing,
)
from edgegpu_cloud.cli.plain import one_line
from edgegpu_cloud.fleet.views import BoxView
from edgegpu_sync.up import Settled

_EVENTS = 10

BOXES_HELP = """\
List the boxes: whether they are there, and how they stand against what is desired.

\b
STATE is online, offline, RESTORED (see `confirm`) or REVOKED. REV is the revision that is desired; "12 (11)" means
that the box has settled 11. NOT SETTLED counts items that are not Applied.
--json prints a list of what `box --json` calls "box".
`boxes forget BOX` takes a box off the list.
"""
BOX_HELP = """\
Show one box: who it is, each item that is desired and what became of it, its cards, its last events.

\b
--json prints {"box": {...}, "spec": {...}, "latest": {KIND: {...}}, "events": [...], "orphans": [...]}
"""
CONFIRM_HELP = """\
Go on with a box that is RESTORED: it knows more than this store, which came from a backup.

What is held here as desired becomes the truth again, under a new revision. Look at `edgegpu-cloud box` first: what was
changed after the backup was taken is lost. --all confirms every box that is RESTORED.

\b
--json prints a list of what `box --json` calls "box", of each that was confirmed.
"""
RENAME_HELP = """\
Give a box another name; its device id stays. A name has 1 to 63 letters, digits, `.`, `-` and `_`.

\b
--json prints what `box --json` calls "box".
"""
ALARMS_HELP = """\
List what a person has to look at, such as a token that was used twice. --seen NUMBER takes one off the list.

\b
--json prints [{"number", "kind", "device", "text", "at_s", "times", "seen_by"}]
"""

AllOption = Annotated[bool, typer.Option("--all", help="Every box that is RESTORED.")]
OptionalBox = Annotated[str, typer.Argument(metavar="[BOX]", help="Its name or device id; the beginning will do.")]
SeenOption = Annotated[int | None, typer.Option("--seen", metavar="NUMBER", help="Say that it was looked at.")]


def boxes(context: typer.Context, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """List the boxes."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    with reporting(as_json=json), opened(folder) as cloud:
        say_trouble(cloud)
        views = cloud.fleet.boxes()
        if json:
            print_json(views)
            return
        if not views:
            typer.echo("no boxes yet: `edgegpu-cloud enrol` prints the line that takes one in")
            return
        now_s = time.time()
        heads = ("NAME", "DEVICE", "STATE", "SEEN", "REV", "NOT SETTLED", "OPEN", "AGENT")
        print_table(heads, [_row(view, now_s) for view in views])


def _refuse_options(context: typer.Context) -> None:
    """Refuse options of the list before a command: they would be passed over."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"put {parameter.opts[0]} behind `{context.invoked_subcommand}`")


def _row(view: BoxView, now_s: float) -> tuple[str, ...]:
    rev = str(view.rev) if view.applied_rev == view.rev else f"{view.rev} ({view.applied_rev})"
    unsettled = sum(item.state is not Settled.APPLIED for item in view.items.values())
    return (
        view.name,
        view.device,
        standing(view),
        ago(view.seen_at_s, now_s),
        rev,
        str(unsettled or "-"),
        str(view.open_commands or "-"),
        view.versions.get("agent", "-"),
    )


def box(name: BoxArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Show one box."""
    with reporting(as_json=json), opened(folder) as cloud:
        say_trouble(cloud)
        details = cloud.fleet.details(name)
        events = cloud.fleet.events(details.box.device, _EVENTS)
        if json:
            print_json(
                {
                    "box": details.box,
                    "spec": details.spec.to_json(),
                    "latest": {kind.value: one.body for kind, one in details.latest.items()},
                    "events": events,
                    "orphans": details.orphans,
                }
            )
            return
        show_box(details)
        for event in events:
            typer.echo(f"  {moment(event.at_s)}  {event.level:7}  {event.kind}: {one_line(event.text)}")


def confirm(
    name: OptionalBox = "", *, folder: FolderOption = DEFAULT, every: AllOption = False, json: JsonOption = False
) -> None:
    """Go on with a box that is RESTORED."""
    if bool(name) == every:
        raise typer.BadParameter("name one BOX, or --all")
    with reporting(as_json=json), opened(folder) as cloud:
        views = [one for one in cloud.fleet.boxes() if one.restored] if every else [cloud.fleet.box(name)]
        for view in views:
            cloud.fleet.confirm_restored(view.device)
        if json:
            print_json([cloud.fleet.box(view.device) for view in views])
            return
        for view in views:
            typer.echo(f"confirmed {view.name}: what is desired has revision {cloud.fleet.box(view.device).rev} now")
        if not views:
            typer.echo("no box is RESTORED")


def rename(
    name: BoxArgument,
    new: Annotated[str, typer.Argument(metavar="NAME")],
    *,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Give a box another name."""
    with reporting(as_json=json), opened(folder) as cloud:
        device = cloud.fleet.box(name).device
        cloud.fleet.rename(device, new)
        if json:
            print_json(cloud.fleet.box(device))
        else:
            typer.echo(f"{device} is called {new} now")


def alarms(*, folder: FolderOption = DEFAULT, seen: SeenOption = None, json: JsonOption = False) -> None:
    """List what a person has to look at."""
    with reporting(as_json=json), opened(folder) as cloud:
        if seen is not None:
            cloud.fleet.alarm_seen(seen)
        found = cloud.fleet.alarms()
        if json:
            print_json(found)
            return
        names = _names(cloud)
        rows = [
            (str(one.number), moment(one.at_s), str(one.times), one.kind, names.get(one.device, "-"), one.text)
            for one in found
        ]
        if rows:
            print_table(("NUMBER", "LAST", "TIMES", "KIND", "BOX", "WHAT"), rows)
        else:
            typer.echo("no alarms")


def _names(cloud: Cloud) -> dict[str, str]:
    return {view.device: view.name for view in cloud.fleet.boxes()}
