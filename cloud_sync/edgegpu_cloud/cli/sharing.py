"""`edgegpu-cloud sharing set`, `show`: how a box shares its cards, what is desired and what is so."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, assert_never

import typer

from edgegpu_cloud.cli.arguments import BoxArgument
from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    Cloud,
    FolderOption,
    JsonOption,
    moment,
    opened,
    print_json,
    print_table,
    reporting,
    say_trouble,
)
from edgegpu_cloud.cli.settlements import exit_by, first_line, reports, settled, words
from edgegpu_cloud.fleet.now import Now, now_of
from edgegpu_cloud.fleet.specs import Settings, desired_items, with_settings
from edgegpu_cloud.fleet.views import Details
from edgegpu_cloud.preview_sharing import outlook
from edgegpu_sync.durations import waiting_s
from edgegpu_sync.outputformat import with_output
from edgegpu_sync.spec import AnyItem, AppLimits, Exclusions, Isolation, PolicyItem, Sharing, UnitSize
from edgegpu_sync.up import ItemReport

app = typer.Typer(
    name="sharing",
    help="Set and show how a box shares its cards: policy, excluded cards, unit of memory, isolation.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SET_HELP = """\
Set how a box shares its cards, in the words of `edgegpu install` there. What is left out stays as it is.

GPU sharing has to be installed: else the box rejects it. Each setting is one change of its own on the box, which is put
back where the plugin does not come up with it; no running pod loses its card. A setting that stands so already is tried
again. Whether sharing is installed at all is said by `install` and `uninstall`.

\b
Examples:
  edgegpu-cloud sharing set asr-hall --policy spread --wait
  edgegpu-cloud sharing set asr-hall --exclude 0 --exclude GPU-7d2f0c1e-3a44-4b6e-9d55-0a1b2c3d4e5f
  edgegpu-cloud sharing set asr-hall --exclude none

\b
--preview changes nothing: what the box would make of it by what it reported last; exit status 1 where it would not do
it. --json prints {NAME: {"answer": "as_it_is", "changed", "rejected" or "unsupported", "text"}} then.
--unit-mib is rejected by a box where pods hold shares: their amounts would be others.
--isolation limiter and mps are Unsupported by boxes of this version: services are placed, not held to their limits.
Exit status with --wait: 0 all Applied, 1 one is Rejected, Failed or Unsupported, 3 not settled within --timeout.
--json prints {"box", "rev", "items": {NAME: {"state", "code", "text", ...} or null}}, NAME being policy, exclusions,
unit_size or isolation; null: the box has not told of it yet.
"""
SHOW_HELP = """\
Show how a box shares its cards, item by item: what is desired, what became of it and why, and what the box reported to
be so last. An item that nobody has set is as it is on the box.

\b
--json prints {"box", "rev", "observed_rev", "applied_rev", "as_of_s", "items": [{"item", "desired": {...} or null,
"report": {"state", "code", "text", ...} or null, "now": VALUE or null}]}
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
PreviewOption = Annotated[bool, typer.Option("--preview", help="Change nothing: say what would come of it.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Until the box has settled it.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long --wait waits: 90s, 10m.  [default: 10m]")
]

_NAMES = ("sharing", "isolation", "policy", "exclusions", "unit_size")


def set_(  # noqa: PLR0913  (one for each option)
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    policy: PolicyOption = None,
    exclude: ExcludeOption = None,
    unit_mib: UnitOption = None,
    isolation: IsolationOption = None,
    show_preview: PreviewOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Set how a box shares its cards."""
    wait_s = waiting_s(timeout, wait=wait, default="10m")
    settings = Settings(
        isolation=isolation, policy=policy, exclude=None if exclude is None else tuple(exclude), unit_mib=unit_mib
    )
    with reporting(as_json=json), opened(folder) as cloud:
        details = cloud.fleet.details(name)
        if show_preview:
            _tell_outlook(details, settings, as_json=json)
            return
        device = details.box.device
        rev = cloud.fleet.set_settings(device, settings)
        _follow(cloud, device, _named(settings), rev=rev, wait_s=wait_s if wait else None, as_json=json)


def _tell_outlook(details: Details, settings: Settings, *, as_json: bool) -> None:
    items = desired_items(with_settings(details.spec, settings))
    found = outlook(details, {name: items[name] for name in _named(settings)})
    if as_json:
        print_json(found)
    else:
        for name, one in found.items():
            typer.echo(f"{name}: {one.answer.value.replace('_', ' ')}{f': {one.text}' if one.text else ''}")
    if not all(one.good for one in found.values()):
        raise typer.Exit(EXIT_FAILED)


def _named(settings: Settings) -> list[str]:
    given = {
        "isolation": settings.isolation,
        "policy": settings.policy,
        "exclusions": settings.exclude,
        "unit_size": settings.unit_mib,
    }
    return [name for name, value in given.items() if value is not None]


def _follow(cloud: Cloud, device: str, names: list[str], *, rev: int, wait_s: float | None, as_json: bool) -> None:
    """Say that it is desired, and what came of it where that is waited for."""
    view = cloud.fleet.box(device)
    box, looks = view.name, f"edgegpu-cloud sharing show {view.name}"
    say_trouble(cloud, view)
    if not as_json:
        typer.echo(f"{', '.join(names)} on {box}: desired, revision {rev}")
    if wait_s is None:
        found = reports(cloud.fleet.details(device), names)
    else:
        found = dict(settled(cloud, device, names, rev=rev, wait_s=wait_s, looks=looks))
    if as_json:
        print_json({"box": box, "rev": rev, "items": found})
    elif wait_s is not None:
        for name, report in found.items():
            typer.echo(f"{name}: {words(report)}")
    if wait_s is not None:
        exit_by(found, looks=looks)
    elif not as_json:
        typer.echo(f"then: {looks}")


@dataclass(frozen=True, slots=True)
class _Row:
    item: str
    desired: AnyItem | None
    report: ItemReport | None
    now: object


def show(name: BoxArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Show how a box shares its cards."""
    with reporting(as_json=json), opened(folder) as cloud:
        details = cloud.fleet.details(name)
        now = now_of(details)
        rows = _rows(details, now)
        if json:
            print_json(_document(details, now, rows))
            return
        view = details.box
        typer.echo(f"{view.name}: revision {view.rev}, observed {view.observed_rev}, settled {view.applied_rev}")
        seen = f"NOW, {moment(now.as_of_s)}" if now is not None else "NOW"
        table = [
            (row.item, _desired(row.desired), _rev(row.desired), _settlement(row), _plain(row.item, row.now))
            for row in rows
        ]
        print_table(("ITEM", "DESIRED", "REV", "SETTLED", seen), table)


def _rows(details: Details, now: Now | None) -> list[_Row]:
    desired, told = desired_items(details.spec), reports(details, _NAMES)
    so: Mapping[str, object] = {} if now is None else asdict(now)
    return [_Row(name, desired.get(name), told[name], so.get(name)) for name in _NAMES]


def _document(details: Details, now: Now | None, rows: list[_Row]) -> dict[str, Any]:
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
            }
            for row in rows
        ],
    }


def _rev(item: AnyItem | None) -> str:
    return "-" if item is None else str(item.rev)


def _settlement(row: _Row) -> str:
    return "-" if row.desired is None else first_line(row.report)


def _desired(item: AnyItem | None) -> str:
    match item:
        case None | AppLimits():
            return "-"
        case Sharing(installed=installed):
            return _plain("sharing", installed)
        case Isolation(mode=mode):
            return mode.value
        case PolicyItem(policy=policy):
            return policy
        case Exclusions(cards=cards):
            return _plain("exclusions", cards)
        case UnitSize(mib=mib):
            return _plain("unit_size", mib)
        case _:
            assert_never(item)


def _plain(name: str, value: object) -> str:
    """Return a value for people: what the box says of itself, or what is desired."""
    match name, value:
        case _, None:
            return "-"
        case "sharing", bool():
            return "installed" if value else "not installed"
        case "exclusions", tuple():
            return ", ".join(map(str, value)) or "none"
        case "unit_size", int():
            return f"{value} MiB"
        case _:
            return str(value)


app.command("set", help=SET_HELP, short_help="Set policy, excluded cards, unit, isolation.")(with_output(set_))
app.command("show", help=SHOW_HELP, short_help="Show what is desired, and what became of it.")(with_output(show))
