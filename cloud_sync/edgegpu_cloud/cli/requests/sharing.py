"""`edgegpu-cloud sharing set`, `show`, `forget`: how a box shares its cards, as requested and as reported."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import typer

from edgegpu_base.cli.durations import waiting_s
from edgegpu_base.cli.helptext import command_group, put
from edgegpu_cloud.cli.arguments import (
    BoxArgument,
    ExpectOption,
    OptionalBoxArgument,
    PreviewOption,
    SelectorOption,
    TimeoutOption,
    WaitOption,
    complete_items,
    expected_by,
)
from edgegpu_cloud.cli.box_selection import SELECTED, chosen, print_token
from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    Cloud,
    FolderOption,
    JsonOption,
    YesOption,
    answer,
    moment,
    print_connection_problem,
    print_json,
    print_table,
    reached,
    reporting,
    say,
)
from edgegpu_cloud.cli.requests.confirmation import CONFIRMED
from edgegpu_cloud.cli.requests.operation_progress import askable, operate
from edgegpu_cloud.cli.requests.settlements import (
    SETTING_FIELDS,
    TIME_HEADS,
    Request,
    RequestViews,
    first_line,
    fix,
    follow_one,
    needs_person,
    reports,
    requested,
    setting_text,
    time_cells,
    times_document,
    words,
)
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.sharing_preview import BoxSharingPreview
from edgegpu_cloud.fleet.preview.reported_sharing import ReportedSharing, reported_sharing_of
from edgegpu_cloud.fleet.preview.sharing import ItemPreview, check_settings, preview_named, setting_names
from edgegpu_cloud.fleet.specs import SharingSettings, desired_items
from edgegpu_cloud.fleet.views import BoxDetails, BoxView
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_sync.messages.spec import AnyItem
from edgegpu_sync.messages.uplink import ItemReport

_PREVIEWED = 200
"""Boxes whose preview one request asks for."""

app = command_group("Set and show how a box shares its cards: policy, excluded cards, unit of memory, isolation.")

SET_HELP = f"""\
Set how a box shares its cards, in the words of `edgegpu install` there. What is left out stays as it is.

Where GPU sharing is not installed, the request waits for it. Each setting is one change of its own on the box, which is
put back where the plugin does not come up with it; no running pod loses its card. A setting that stands so already is
tried again. Whether sharing is installed at all is said by `install` and `uninstall`.

{CONFIRMED}

{SELECTED}

\b
Examples:
  edgegpu-cloud sharing set asr-hall --policy spread --wait
  edgegpu-cloud sharing set asr-hall --exclude 0 --exclude GPU-7d2f0c1e-3a44-4b6e-9d55-0a1b2c3d4e5f
  edgegpu-cloud sharing set asr-hall --exclude none

\b
--preview changes nothing: what the box would make of it by what it reported last; exit status 1 where it would not do
it. --json prints {{NAME: {{"answer": "as_it_is", "changed", "rejected" or "unsupported", "text"}}}} then, with -l
[{{"box", "items": THAT}}]. With -l it prints a token last, with --json on stderr: --expect TOKEN changes the boxes that
were shown, and none where some have joined or left since, which are named.
A card that the box does not have is refused.
--unit-mib is rejected by a box where pods hold shares: their amounts would be others.
--isolation limiter and mps are refused where the box's agent is older.
Exit status for one box: 0 requested, 1 refused. With --wait: 0 all Applied, 1 one is Rejected, Failed, Unsupported or
waits for GPU sharing, 3 not ended within --timeout.
--json for one box prints {{"box", "rev", "items": {{NAME: {{"state", "code", "text", ...}} or null}}}}, NAME being
policy, exclusions, unit_size or isolation; null: the box has not told of it yet.
"""
SHOW_HELP = """\
Show how a box shares its cards, item by item: what was requested, what became of it and why, and what the box reported
to be so last. An item that nobody has requested is as it is on the box.

\b
--json prints {"box", "rev", "observed_rev", "applied_rev", "as_of_s", "items": [{"item", "desired": {...} or null,
"report": {"state", "code", "text", ...} or null, "now": VALUE or null, "requested_at_s", "requested_by",
"settled_at_s"}]}
"""

FORGET_HELP = """\
Take back what was requested of a box's sharing: a request that was refused, or one that a person on the box shall
decide about. What stands on the box stays as it is. ITEM is policy, exclusions, unit_size, isolation or sharing
(whether it is installed), as `sharing show` has them.

\b
Example:
  edgegpu-cloud sharing forget asr-hall isolation

\b
--json prints {"box", "items": [TEXT], "rev"}
"""

PolicyOption = Annotated[str | None, typer.Option("--policy", metavar="POLICY", help="first-fit, best-fit or spread.")]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="CARD", help="A card not to share: 0, 0:1, GPU-…; several times. none: share all."
    ),
]
UnitOption = Annotated[
    int | None, typer.Option("--unit-mib", metavar="MIB", min=1, max=1_048_576, help="MiB of a unit of memory.")
]
IsolationOption = Annotated[str | None, typer.Option("--isolation", metavar="MODE", help="none, limiter or mps.")]

ItemsArgument = Annotated[
    list[str], typer.Argument(metavar="ITEM...", help="As `sharing show` has it.", autocompletion=complete_items)
]


def set_(  # noqa: PLR0913  (one for each option)
    name: OptionalBoxArgument = "",
    *,
    folder: FolderOption = DEFAULT,
    selector: SelectorOption = "",
    policy: PolicyOption = None,
    exclude: ExcludeOption = None,
    unit_mib: UnitOption = None,
    isolation: IsolationOption = None,
    show_preview: PreviewOption = False,
    expect: ExpectOption = "",
    yes: YesOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Set how a box shares its cards."""
    wait_s = waiting_s(timeout, wait=wait, default="10m")
    expected = expected_by(expect, selector=selector, preview=show_preview)
    settings = SharingSettings(
        isolation=isolation, policy=policy, exclude=None if exclude is None else tuple(exclude), unit_mib=unit_mib
    )
    with reporting(as_json=json), reached(folder) as cloud:
        if selector and not name:
            where = askable(selector)
            if show_preview:
                _print_previews(*_previews(cloud, settings, where), as_json=json)
            else:
                args = asdict(settings)
                operate(
                    cloud, where, OperationKind.SHARING, args, expect=expected, yes=yes, wait_s=wait_s, as_json=json
                )
            return
        [view] = chosen(cloud, name, selector)
        if show_preview:
            _print_preview(preview_named(cloud.fleet.details(view.device), settings), as_json=json)
        else:
            screens = RequestViews(tell=partial(_print_request, waited=wait), document=_shown)
            follow_one(cloud, _requested(cloud, view, settings), screens, wait_s=wait_s, as_json=json)


def _previews(cloud: Cloud, settings: SharingSettings, where: BoxFilter) -> tuple[Sequence[BoxSharingPreview], str]:
    """Return what each box of a filter would make of settings, by name, and the token of these boxes.

    The controller finds the boxes, page by page.
    """
    found, after, seen = list[BoxSharingPreview](), "", ""
    while True:
        page = cloud.operations.preview_sharing(settings, where, after=after, limit=_PREVIEWED)
        found += page.boxes
        after, seen = page.next, seen or page.seen
        if not after:
            return found, seen


def _print_previews(boxes: Sequence[BoxSharingPreview], seen: str, *, as_json: bool) -> None:
    """Print previews with the token of their boxes, and exit with their status."""
    found = {one.name: one.items for one in boxes if one.items is not None}
    for left in boxes:
        if left.items is None:
            say(f"edgegpu-cloud: {left.text}")
    if as_json:
        print_json([{"box": box, "items": items} for box, items in found.items()])
    else:
        rows = [
            (box, item, _answer(one), one.text or "-") for box, items in found.items() for item, one in items.items()
        ]
        print_table(("BOX", "ITEM", "PREVIEW", "WHY"), rows)
    print_token(seen, as_json=as_json)
    if not all(one.items is not None and all(each.good for each in one.items.values()) for one in boxes):
        raise typer.Exit(EXIT_FAILED)


def _print_preview(items: Mapping[str, ItemPreview], *, as_json: bool) -> None:
    if as_json:
        print_json(items)
    else:
        for item, one in items.items():
            typer.echo(f"{item}: {_answer(one)}{f': {one.text}' if one.text else ''}")
    if not all(one.good for one in items.values()):
        raise typer.Exit(EXIT_FAILED)


def _answer(one: ItemPreview) -> str:
    return one.answer.value.replace("_", " ")


def _requested(cloud: Cloud, view: BoxView, settings: SharingSettings) -> Request:
    check_settings(cloud.fleet.details(view.device), settings)
    return Request(
        view=view,
        looks=f"edgegpu-cloud sharing show {view.name}",
        rev=cloud.fleet.set_settings(view.device, settings),
        items=dict.fromkeys(setting_names(settings)),
    )


def _print_request(one: Request, *, waited: bool) -> None:
    for name, report in one.items.items():
        if waited or report is not None:
            typer.echo(f"{name}: {words(report)}")
        if report is not None and needs_person(report):
            typer.echo(f"  {fix(one.view.name, name, report)}")
    if not waited and None in one.items.values():
        typer.echo(f"{words(None)}: {one.looks}")


def _shown(one: Request) -> dict[str, object]:
    return {"box": one.view.name, "rev": one.rev, "items": one.items}


def forget(
    name: BoxArgument, items: ItemsArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False
) -> None:
    """Take back what was requested of a box's sharing."""
    with reporting(as_json=json), reached(folder) as cloud:
        view = cloud.fleet.box(name)
        rev = cloud.fleet.forget_items(view.device, items)
        print_connection_problem(cloud, view)
        text = f"{', '.join(items)} on {view.name}: taken back, revision {rev}; what stands there stays"
        answer({"box": view.name, "items": items, "rev": rev}, text, as_json=json)


@dataclass(frozen=True, slots=True)
class _Row:
    item: str
    desired: AnyItem | None
    report: ItemReport | None
    now: object
    request: RequestedItem | None

    @property
    def requested(self) -> object:
        """The value that was requested; None: none."""
        return None if self.desired is None else getattr(self.desired, SETTING_FIELDS[self.item])


def show(name: BoxArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Show how a box shares its cards."""
    with reporting(as_json=json), reached(folder) as cloud:
        details = cloud.fleet.details(name)
        now = reported_sharing_of(details)
        rows = _rows(details, now, {one.name: one for one in cloud.fleet.requests(details.box.device)})
        if json:
            print_json(_document(details, now, rows))
            return
        view = details.box
        typer.echo(f"{view.name}: {requested(view)}")
        seen = f"NOW, {moment(now.as_of_s)}" if now is not None else "NOW"
        table = [
            (
                row.item,
                setting_text(row.item, row.requested),
                *time_cells(row.request),
                _settlement(row),
                setting_text(row.item, row.now),
            )
            for row in rows
        ]
        print_table(("ITEM", "REQUESTED", *TIME_HEADS, "STATE", seen), table)
        for row in rows:
            if row.desired is not None and row.report is not None and needs_person(row.report):
                typer.echo(fix(view.name, row.item, row.report))


def _rows(details: BoxDetails, now: ReportedSharing | None, requests: Mapping[str, RequestedItem]) -> list[_Row]:
    desired, told = desired_items(details.spec), reports(details, SETTING_FIELDS)
    so: Mapping[str, object] = {} if now is None else asdict(now)
    return [_Row(name, desired.get(name), told[name], so.get(name), requests.get(name)) for name in SETTING_FIELDS]


def _document(details: BoxDetails, now: ReportedSharing | None, rows: list[_Row]) -> dict[str, Any]:
    view = details.box
    return {
        "box": view.name,
        "rev": view.rev,
        "observed_rev": view.observed_rev,
        "applied_rev": view.applied_rev,
        "as_of_s": None if now is None else now.as_of_s,
        "items": [
            {
                "item": row.item,
                "desired": None if row.desired is None else row.desired.model_dump(mode="json"),
                "report": row.report,
                "now": row.now,
                **times_document(row.request),
            }
            for row in rows
        ],
    }


def _settlement(row: _Row) -> str:
    return "-" if row.desired is None else first_line(row.report)


put(app, "set", set_, SET_HELP, "Set policy, excluded cards, unit, isolation.")
put(app, "show", show, SHOW_HELP, "Show what was requested, and what became of it.")
put(app, "forget", forget, FORGET_HELP, "Take back what was requested.")
