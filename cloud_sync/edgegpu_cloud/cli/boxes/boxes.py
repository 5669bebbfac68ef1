"""`edgegpu-cloud boxes`, `box`, `label`, `confirm`, `rename`, `alarms`: the fleet as it is."""

import time
from typing import Annotated

import typer

from edgegpu_base.cli.output import is_wide, one_line
from edgegpu_cloud.cli.arguments import (
    BoxArgument,
    SelectorOption,
    SinceOption,
    WatchOption,
    complete_box_or_app,
    complete_boxes,
)
from edgegpu_cloud.cli.box_selection import chosen
from edgegpu_cloud.cli.boxes.show import labels_of, show_box, show_changes
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    WatchedRows,
    ago,
    answer,
    follow,
    moment,
    print_connection_problem,
    print_json,
    print_list,
    reached,
    reporting,
    since_of,
    standing,
)
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.preview.capacity import BoxCapacity
from edgegpu_cloud.fleet.selectors import read_labels
from edgegpu_cloud.fleet.views import BoxView
from edgegpu_cloud.numbers import LARGEST
from edgegpu_cloud.store.records import Alarm
from edgegpu_cloud.store.summaries.box_list import shown_health

_EVENTS, _CHANGES, _MOST = 10, 10, 10_000

BOXES_HELP = """\
List the boxes: whether they are there, what is free on them, and whether anything is the matter.

\b
STATE     online, offline, uninstalled (edgegpu was taken off it: `boxes forget`), RESTORED (see `confirm`), SET_ASIDE
          (see `alarms`), BLOCKED (it flooded: `boxes unblock`) or REVOKED
SEEN      when it was heard last; one that was not heard for a quarter of an hour is offline
FREE      units of memory that no pod holds, of those that are shared
PROBLEMS  what the box refused or failed at: `box NAME` says what, why, and what to do
WAITING   changes and commands that it has not done yet
\b
-o wide has more columns, labels among them. -w goes on, with a line for each change, until ctrl-C.
--json prints a list of what `box --json` calls "box".
`boxes forget BOX` takes a box off the list.

\b
Examples:
  edgegpu-cloud boxes -l site=hall
  edgegpu-cloud boxes -o wide -w
"""
BOX_HELP = """\
Show one box: who it is, what was asked of it and what became of that, its problems, its cards, the last changes of its
machine (also those that were made on the box itself), its last events.

\b
--since shows all changes and events that are younger: 2h, 7d. Without it the last ten of each.
--json prints {"box": {...}, "spec": {...}, "latest": {KIND: {...}}, "events": [...], "changes": [...],
"orphans": [...]}
"""
CONFIRM_HELP = """\
Go on with a box that is RESTORED: it knows more than this store, which came from a backup.

What was requested here becomes the truth again, under a new revision. Look at `edgegpu-cloud box` first: what was
changed after the backup was taken is lost. --all confirms every box that is RESTORED.

\b
--json prints a list of what `box --json` calls "box", of each that was confirmed.
"""
RENAME_HELP = """\
Give a box another name; its device id stays. A name has 1 to 63 letters, digits, `.`, `-` and `_`.

\b
--json prints what `box --json` calls "box".
"""
LABEL_HELP = """\
Set labels of a box, by which -l selects boxes: `site=hall`; `site-` takes one away. With -l SELECTOR in the place of
BOX: of all boxes with these labels.

\b
Examples:
  edgegpu-cloud label asr-hall site=hall rack=3
  edgegpu-cloud label -l site=hall rack-
  edgegpu-cloud boxes -l site=hall

\b
A selector is `site=hall`, `site!=hall`, `site in (hall,yard)`, `site notin (hall)`, `site` or `!site`; with commas
between several have to hold. `enrol --label site=hall` gives boxes their labels at once.
--json prints what `box --json` calls "box"; with -l a list of it.
"""
ALARMS_HELP = """\
List what a person has to look at, such as a token that was used twice. --seen NUMBER takes one off the list.

\b
--json prints [{"number", "kind", "device", "text", "at_s", "times", "seen_by"}]
"""

AllOption = Annotated[bool, typer.Option("--all", help="Every box that is RESTORED.")]
OptionalBox = Annotated[
    str,
    typer.Argument(
        metavar="[BOX]", help="Its name or device id; the beginning will do.", autocompletion=complete_boxes
    ),
]
WordsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[BOX] LABEL...", help="site=hall; site- takes it away.", autocompletion=complete_box_or_app
    ),
]
SeenOption = Annotated[
    int | None, typer.Option("--seen", metavar="NUMBER", min=1, max=LARGEST, help="Say that it was looked at.")
]


def boxes(
    context: typer.Context,
    *,
    folder: FolderOption = DEFAULT,
    selector: SelectorOption = "",
    watch: WatchOption = False,
    json: JsonOption = False,
) -> None:
    """List the boxes."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    with reporting(as_json=json), reached(folder) as cloud:
        print_connection_problem(cloud)
        rows = _rows(wide=is_wide())
        if watch:
            follow(lambda: cloud.fleet.boxes(selector), rows, as_json=json)
        none = "no boxes yet: `edgegpu-cloud enrol` prints the line that takes one in"
        if selector:
            none = f"no box has the labels {selector}: `edgegpu-cloud boxes -o wide` shows what labels there are"
        print_list(cloud.fleet.boxes(selector), rows.heads, rows.row, none=none, as_json=json)


def _rows(*, wide: bool) -> WatchedRows[BoxView]:
    heads = ("NAME", "STATE", "SEEN", "CARDS", "FREE", "HEALTH", "PROBLEMS", "WAITING", "CLUSTER")
    more = ("LABELS", "DEVICE", "HOST", "AGENT", "K3S", "DRIVER")

    def row(view: BoxView) -> tuple[str, ...]:
        return (*_row(view), *(_more(view) if wide else ()))

    def mark(view: BoxView) -> object:
        cells = row(view)
        return (*cells[:_SEEN], *cells[_SEEN + 1 :])

    return WatchedRows(heads=(*heads, *(more if wide else ())), row=row, key=lambda view: view.device, mark=mark)


_SEEN = 2
"""The column that changes each second."""


def _refuse_options(context: typer.Context) -> None:
    """Refuse options of the list before a command, where they would be ignored."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"put {parameter.opts[0]} behind `{context.invoked_subcommand}`")


def _row(view: BoxView) -> tuple[str, ...]:
    return (
        view.name,
        standing(view),
        ago(view.seen_at_s, time.time()),
        *_capacity(view.capacity, online=view.online),
        shown_health(view.health, connected=view.online) if view.health else "-",
        str(view.problems or "-"),
        str(view.waiting or "-"),
        view.cluster[:_SHORT] or "-",
    )


_SHORT = 8
"""How much of a cluster's id is shown: enough to tell clusters apart."""


def _capacity(capacity: BoxCapacity | None, *, online: bool) -> tuple[str, str]:
    """Return how many cards there are, and how much of them is free; of a box that is offline nothing is."""
    if capacity is None:
        return "-", "-"
    if not capacity.sharing:
        return str(capacity.cards), "not shared"
    all_ = capacity.shared_cards == capacity.cards
    cards = str(capacity.cards) if all_ else f"{capacity.shared_cards} of {capacity.cards}"
    return cards, f"{capacity.free_units} of {capacity.units}" if online else f"- of {capacity.units}"


def _more(view: BoxView) -> tuple[str, ...]:
    versions = (view.versions.get(name) or "-" for name in ("agent", "k3s", "driver"))
    return (labels_of(view), view.device, view.host or "-", *versions)


def label(
    words: WordsArgument, *, folder: FolderOption = DEFAULT, selector: SelectorOption = "", json: JsonOption = False
) -> None:
    """Set labels of boxes."""
    name, labels = ("", words) if selector else (words[0], words[1:])
    if not labels:
        raise typer.BadParameter("name a BOX (or -l SELECTOR), and one label at least: site=hall", param_hint="LABEL")
    with reporting(as_json=json), reached(folder) as cloud:
        wanted = read_labels(labels)
        views = chosen(cloud, name, selector)
        for view in views:
            cloud.fleet.label(view.device, wanted)
        after = [cloud.fleet.box(view.device) for view in views]
        if json:
            print_json(after if selector else after[0])
            return
        for view in after:
            typer.echo(f"{view.name}: {labels_of(view)}")


def box(
    name: BoxArgument, *, folder: FolderOption = DEFAULT, since: SinceOption = "", json: JsonOption = False
) -> None:
    """Show one box."""
    since_s = since_of(since)
    with reporting(as_json=json), reached(folder) as cloud:
        print_connection_problem(cloud)
        details = cloud.fleet.details(name)
        found = cloud.fleet.events(details.box.device, _MOST if since else _EVENTS)
        events = [event for event in found if event.at_s >= since_s]
        made = cloud.fleet.changes(details.box.device, _MOST if since else _CHANGES)
        changes = [change for change in made if change.at_s >= since_s]
        if json:
            print_json(
                {
                    "box": details.box,
                    "spec": details.spec.to_json(),
                    "latest": {kind.value: one.body for kind, one in details.latest.items()},
                    "events": events,
                    "changes": changes,
                    "orphans": details.orphans,
                }
            )
            return
        show_box(details)
        show_changes(changes)
        for event in events:
            if event.transaction is None:
                typer.echo(f"  {moment(event.at_s)}  {event.level:7}  {event.kind}: {one_line(event.text)}")


def confirm(
    name: OptionalBox = "", *, folder: FolderOption = DEFAULT, every: AllOption = False, json: JsonOption = False
) -> None:
    """Go on with a box that is RESTORED."""
    if bool(name) == every:
        raise typer.BadParameter("name one BOX, or --all")
    with reporting(as_json=json), reached(folder) as cloud:
        views = cloud.fleet.matching(BoxFilter(restored=True)) if every else [cloud.fleet.box(name)]
        for view in views:
            cloud.fleet.confirm_restored(view.device)
        if json:
            print_json([cloud.fleet.box(view.device) for view in views])
            return
        for view in views:
            rev = cloud.fleet.box(view.device).rev
            typer.echo(f"confirmed {view.name}: what was requested of it is sent again, as revision {rev}")
        if not views:
            typer.echo("no box is RESTORED")


def rename(
    name: BoxArgument,
    new: Annotated[str, typer.Argument(metavar="NAME", help="What it shall be called.")],
    *,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Give a box another name."""
    with reporting(as_json=json), reached(folder) as cloud:
        device = cloud.fleet.box(name).device
        cloud.fleet.rename(device, new)
        answer(cloud.fleet.box(device), f"{device} is called {new} now", as_json=json)


def alarms(
    *, folder: FolderOption = DEFAULT, seen: SeenOption = None, since: SinceOption = "", json: JsonOption = False
) -> None:
    """List what a person has to look at."""
    since_s = since_of(since)
    with reporting(as_json=json), reached(folder) as cloud:
        if seen is not None:
            cloud.fleet.alarm_seen(seen)
        found = [alarm for alarm in cloud.fleet.alarms() if alarm.at_s >= since_s]
        names = {} if json else cloud.fleet.names_of({alarm.device for alarm in found})

        def row(one: Alarm) -> tuple[str, ...]:
            return str(one.number), moment(one.at_s), str(one.times), one.kind, names.get(one.device, "-"), one.text

        print_list(found, ("NUMBER", "LAST", "TIMES", "KIND", "BOX", "WHAT"), row, none="no alarms", as_json=json)
