"""`edgegpu-cloud limits set`, `show`, `history`, `forget`: the limits of apps, on one box or on many."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, TypedDict

import typer

from edgegpu_base.cli.durations import waiting_s
from edgegpu_base.cli.helptext import command_group, put
from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.arguments import (
    ContainerOption,
    ExpectOption,
    OptionalBoxArgument,
    PreviewOption,
    SeenBox,
    SelectorOption,
    TimeoutOption,
    WaitOption,
    app_of,
    complete_box_or_app,
    expected_by,
    seen_box_of,
)
from edgegpu_cloud.cli.box_selection import RefusedBox, chosen, end_by, tried
from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    Cloud,
    FolderOption,
    JsonOption,
    YesOption,
    moment,
    print_connection_problem,
    print_json,
    print_table,
    reached,
    reporting,
)
from edgegpu_cloud.cli.requests.limits_history import HISTORY_HELP, history
from edgegpu_cloud.cli.requests.limits_preview import previews_of, print_preview, print_previews
from edgegpu_cloud.cli.requests.limits_target import (
    LimitsTarget,
    box_and_others,
    container_of,
    say_if_unknown,
    target_of,
)
from edgegpu_cloud.cli.requests.operation_progress import operate
from edgegpu_cloud.cli.requests.settlements import (
    GOOD,
    TIME_HEADS,
    Request,
    RequestViews,
    first_line,
    fix,
    follow_one,
    needs_person,
    time_cells,
    times_document,
    words,
)
from edgegpu_cloud.errors import ConflictError, NotFoundError
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.present.amounts import whole_in
from edgegpu_cloud.fleet.preview.limits import Preview, preview
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.fleet.views import BoxView
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_sync.messages.spec import AppLimits, OnDrift, item_name
from edgegpu_sync.messages.uplink import ItemState

app = command_group("Set, show and forget the limits of apps.")

SET_HELP = """\
Set the limits of one container of an app on the cluster of a box. --memory 0 takes them away. Of --memory and --core
what is not given stays as it is on each box; a box where that is not known is refused.

The box decides: it changes nothing where the new limits do not fit, and says why. Without --wait its answer is printed
where it comes at once, so a wrong name is told. The same limits once more are tried once more.

-l SELECTOR in the place of BOX: all boxes with these labels (`edgegpu-cloud label`), of each cluster the one that
applies its app limits. That is one operation (`edgegpu-cloud operations`): the controller stores it for 500 boxes at a
time, and goes on whatever becomes of this command. Its outcome on each box is printed, with --wait its progress too.
Before several boxes are changed you are asked, with the steps from which limits to which; the answer is for the boxes
shown. --yes does not ask. Where nobody can be asked, in a script or with --json, --yes or --expect is needed.

\b
Examples:
  edgegpu-cloud limits set asr-hall default/asr --memory 10 --preview
  edgegpu-cloud limits set asr-hall default/asr --container main --memory 10 --core 1 --wait
  edgegpu-cloud limits set -l site=hall default/asr --memory 10 --preview
  edgegpu-cloud limits set -l site=hall default/asr --memory 10 --wait --expect TOKEN

\b
--container is needed only where the app has several that are known to use cards, or none yet and its container is not
called like the app.
--preview changes nothing: what would come of it by what the box has reported last. Exit status 1 where it does not fit.
With -l it also counts from which limits to which they lead, on all boxes: 12/10 -> 10/10 is 12 units and core 10, then
10 units.
It prints a token last, with --json on stderr: --expect TOKEN sets the limits where nobody has set these limits since it
was shown. One box is refused then, with who has set what; of those of -l each such box is REFUSED, and where some have
joined or left since, nothing is changed, and they are named. Without --expect the last one to set limits wins, and is
told whose it has replaced.
--force: apply it though it does not fit; the pod waits Pending.  --interrupt: stop the app where it fits only then.
--live: change memory without a new pod, within what the pods hold, where the limiter holds all of them on the box that
applies the limits; else as without it.
--on-drift: when somebody else writes the limits back, `report` it, or `enforce` them, three times.
Exit status: 0 requested, 1 refused (at once or, with --wait, later). With --wait: 0 Applied (with --force also
Pending), 1 Rejected, Failed, Unsupported, or it waits for GPU sharing, 3 not ended in time.
--json prints {"box", "item", "rev", "report": {...} or null, "replaced": null or {"by", "at_s", "limits": {...}}, the
limits that another person had set before}, with --preview {"answer": "fits", "fits_after_stop" or
"never_fits", "text", "need_units", "need_core", "replicas", "cards": [...], "notes": [TEXT], "as_of_s",
"pods_as_of_s", "pods": "new", "held" (they stay, with other memory at once) or "none" (they hold just that), "live":
whether --live needs no new pod, "not_live": why it does, "before": {"memory_units", "core"}, what the app has now, null
where that is not known}; what is judged is "need_units" and "need_core". With -l it prints what `operations show
--json` prints, of all boxes, and with --preview a list.
"""
SHOW_HELP = """\
Show the limits that were requested on a box, and what became of them; with -l SELECTOR of all boxes with these labels.

\b
--preview: also what would come of each if it were set now (see `limits set`): what was refused may have room meanwhile.
--json prints [{"namespace", "app", "container", "memory_units", "core", ..., "report": {...} or null, "requested_at_s",
"requested_by", "settled_at_s"}], with --preview also "preview" in each; with -l also "box".
"""

FORGET_HELP = """\
Take back what was requested of an app's limits: for apps that are gone, and requests that were refused. What stands on
the cluster stays as it is; to take limits away there, `limits set ... --memory 0` first. Without --container: of all
its containers. With -l SELECTOR in the place of BOX: on all boxes with these labels.

\b
Example:
  edgegpu-cloud limits forget asr-hall default/asr

\b
--json prints {"box", "items": [TEXT], "rev"}; with -l a list of it.
"""

WordsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[BOX] NAMESPACE/APP",
        help="The app; without NAMESPACE/ in default. BOX is left out with -l.",
        autocompletion=complete_box_or_app,
    ),
]
ForgetOption = Annotated[
    str | None, typer.Option("--container", metavar="NAME", help="Which of its containers  [default: all of them]")
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory",
        metavar="UNITS",
        min=0,
        max=1_000_000,
        help="Units of memory.  [default: as it is on each box]",
        show_default=False,
    ),
]
CoreOption = Annotated[
    int | None,
    typer.Option(
        "--core",
        metavar="HUNDREDTHS",
        min=0,
        max=6_400,
        help="Hundredths of a card.  [default: as it is on each box; 0 with --memory 0]",
        show_default=False,
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Apply them though they do not fit.")]
InterruptOption = Annotated[bool, typer.Option("--interrupt", help="Stop the app where it fits only then.")]
LiveOption = Annotated[bool, typer.Option("--live", help="Without a new pod where its pods are held and hold enough.")]
DriftOption = Annotated[
    OnDrift | None,
    typer.Option(
        "--on-drift",
        metavar="report|enforce",
        help="When somebody else writes them back.  [default: as it was, else report]",
    ),
]
NowOption = Annotated[bool, typer.Option("--preview", help="Also say what would come of each if it were set now.")]


def set_(  # noqa: PLR0913  (one for each option)
    words: WordsArgument,
    *,
    memory: MemoryOption = None,
    core: CoreOption = None,
    folder: FolderOption = DEFAULT,
    selector: SelectorOption = "",
    container: ContainerOption = None,
    force: ForceOption = False,
    interrupt: InterruptOption = False,
    live: LiveOption = False,
    on_drift: DriftOption = None,
    show_preview: PreviewOption = False,
    expect: ExpectOption = "",
    yes: YesOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Set the limits of one container of an app."""
    wait_s = waiting_s(timeout, wait=wait, default="10m")
    expected = expected_by(expect, selector=selector, preview=show_preview) if selector else None
    seen = None if selector else seen_box_of(expect, preview=show_preview)
    name, namespace, app_ = _names(words, selector)
    limits = LimitsPatch(
        namespace=namespace,
        app=app_,
        container=container or "",
        memory_units=memory,
        core=core,
        force=force,
        interrupt=interrupt,
        live=live,
        on_drift=on_drift,
    )
    with reporting(as_json=json), reached(folder) as cloud:
        if selector:
            where = BoxFilter(selector=selector, askable=True, one_of_each_cluster=True)
            if show_preview:
                print_previews(previews_of(cloud, limits, where), as_json=json)
            else:
                args = asdict(limits)
                operate(cloud, where, OperationKind.LIMITS, args, expect=expected, yes=yes, wait_s=wait_s, as_json=json)
            return
        target = target_of(cloud, cloud.fleet.box(name))
        if show_preview:
            print_preview(_previewed(target, limits, container), _seen(target).token, as_json=json)
        else:
            asked = _requested(cloud, target, _meant(target, limits, container), seen)
            follow_one(cloud, asked, _SCREENS, wait_s=wait_s, as_json=json)


def _names(words: Sequence[str], selector: str) -> tuple[str, str, str]:
    """Return box, namespace and app; the box is empty where boxes are selected by labels."""
    expected = 1 if selector else 2
    if len(words) != expected:
        raise typer.BadParameter(f"name {'the app alone, with -l' if selector else 'a BOX (or -l) and an app'}")
    return "" if selector else words[0], *app_of(words[-1])


def _meant(target: LimitsTarget, limits: LimitsPatch, container: str | None) -> LimitsPatch:
    """Return the limits with the container that is meant on this box."""
    found = replace(limits, container=container_of(target, limits.namespace, limits.app, container))
    say_if_unknown(target, limits.namespace, limits.app)
    return found


def _previewed(target: LimitsTarget, limits: LimitsPatch, container: str | None) -> Preview:
    wanted = _meant(target, limits, container)
    return preview(target.details, target.others, whole_in(wanted, target.details, target.others))


# set


def _seen(target: LimitsTarget) -> SeenBox:
    return SeenBox(target.details.box.rev, target.details.box.device)


def _check_target(target: LimitsTarget, seen: SeenBox | None) -> None:
    """Refuse limits for another box than the preview has shown: another one may apply the cluster's limits by now."""
    if seen is not None and seen.device != target.details.box.device:
        text = f"cannot set limits on {target.name}: --expect is the token of another box, {seen.device}"
        raise ConflictError(text, remedy="look at the preview again, then decide")


def _requested(cloud: Cloud, target: LimitsTarget, mine: LimitsPatch, seen: SeenBox | None) -> Request:
    _check_target(target, seen)
    device = target.details.box.device
    done = cloud.fleet.set_limits(device, mine, expect_rev=None if seen is None else seen.rev)
    return Request(
        view=target.details.box,
        looks=f"edgegpu-cloud limits show {target.name}",
        rev=done.rev,
        replaced=done.replaced,
        items={f"app_limits/{mine.namespace}/{mine.app}/{mine.container}": None},
        good=GOOD | {ItemState.PENDING} if mine.force else GOOD,
    )


def _print_request(one: Request) -> None:
    if (theirs := one.replaced) is not None:
        was = theirs.limits
        typer.echo(
            f"  replaced what {theirs.by} had set at {moment(theirs.at_s)}: "
            f"{counted(was.memory_units, 'unit')}, core {was.core}"
        )
    for item, report in one.items.items():
        if report is None:
            typer.echo(f"{words(None)}: {one.looks}")
            continue
        typer.echo(words(report))
        if report.state not in one.good:
            typer.echo(f"  {fix(one.view.name, item, report)}")


def _shown(one: Request) -> dict[str, object]:
    ((item, report),) = one.items.items()
    return {"box": one.view.name, "item": item, "rev": one.rev, "report": report, "replaced": one.replaced}


_SCREENS = RequestViews(tell=_print_request, document=_shown)

# show


@dataclass(frozen=True, slots=True)
class _Row:
    target: LimitsTarget
    item: AppLimits
    request: RequestedItem
    now: Preview | None


def show(
    name: OptionalBoxArgument = "",
    *,
    folder: FolderOption = DEFAULT,
    selector: SelectorOption = "",
    show_preview: NowOption = False,
    json: JsonOption = False,
) -> None:
    """Show the limits that were requested on a box."""
    with reporting(as_json=json), reached(folder) as cloud:
        views = chosen(cloud, name, selector)
        rows = [row for view in views for row in _rows(cloud, view, show_preview=show_preview)]
        if json:
            print_json([_row_document(row, many=bool(selector)) for row in rows])
            return
        if not rows:
            typer.echo(f"no limits of apps were requested on {', '.join(view.name for view in views)}")
            return
        _print_rows(rows, many=bool(selector), now=show_preview)


def _rows(cloud: Cloud, view: BoxView, *, show_preview: bool) -> list[_Row]:
    target = box_and_others(cloud, view)
    return [
        _Row(target, one.item, one, preview(target.details, target.others, one.item) if show_preview else None)
        for one in cloud.fleet.requests(view.device)
        if isinstance(one.item, AppLimits)
    ]


def _row_document(row: _Row, *, many: bool) -> dict[str, object]:
    box: dict[str, object] = {"box": row.target.name} if many else {}
    now: dict[str, object] = {"preview": row.now} if row.now else {}
    return {
        **box,
        **row.item.model_dump(mode="json"),
        "report": row.request.report,
        **times_document(row.request),
        **now,
    }


def _print_rows(rows: Sequence[_Row], *, many: bool, now: bool) -> None:
    heads = (
        *(["BOX"] if many else []),
        "APP",
        "CONTAINER",
        "UNITS",
        "CORE",
        *(["NOW IT"] if now else []),
        *TIME_HEADS,
        "STATE",
    )
    table = [
        (
            *([row.target.name] if many else []),
            f"{row.item.namespace}/{row.item.app}",
            row.item.container,
            str(row.item.memory_units),
            str(row.item.core),
            *([row.now.words().partition(":")[0] if row.now else "-"] if now else []),
            *time_cells(row.request),
            first_line(row.request.report),
        )
        for row in rows
    ]
    print_table(heads, table)
    for row in rows:
        if row.request.report is not None and needs_person(row.request.report):
            typer.echo(fix(row.target.name, item_name(row.item), row.request.report))


# forget


class ForgottenLimits(TypedDict):
    """The JSON document of `limits forget` for one box."""

    box: str
    items: list[str]
    rev: int


def forget(
    words: WordsArgument,
    *,
    folder: FolderOption = DEFAULT,
    selector: SelectorOption = "",
    container: ForgetOption = None,
    json: JsonOption = False,
) -> None:
    """Take back what was requested of an app's limits."""
    name, namespace, app_ = _names(words, selector)
    with reporting(as_json=json), reached(folder) as cloud:
        views = chosen(cloud, name, selector)
        print_connection_problem(cloud, views[0] if name else None)
        which = (namespace, app_, container)
        done = [tried(view.name, partial(_forgotten, cloud, view, which), many=not name) for view in views]
        gone = [one for one in done if not isinstance(one, RefusedBox)]
        left = [one for one in done if isinstance(one, RefusedBox)]
        refused = [one for one in left if not isinstance(one.error, NotFoundError)]  # the others have no such limits
        if not gone and not refused:
            where = name or f"-l {selector}"
            remedy = f"`edgegpu-cloud limits show {where}` lists them"
            raise NotFoundError(f"cannot forget limits of {namespace}/{app_}: none were requested there", remedy=remedy)
        if json:
            print_json(gone[0] if name else [*gone, *(one.document for one in refused)])
        else:
            for one in gone:
                for item in one["items"]:
                    typer.echo(f"{item} on {one['box']}: taken back, revision {one['rev']}; what stands there stays")
            for box in refused:
                typer.echo(f"{box.box}: not taken back: {box.error.text}\n  {box.error.remedy}")
        end_by([EXIT_FAILED] if refused else [])


def _forgotten(cloud: Cloud, view: BoxView, which: tuple[str, str, str | None]) -> ForgottenLimits:
    before = cloud.fleet.details(view.device)
    rev = cloud.fleet.forget_limits(view.device, *which)
    left = {item_name(item) for item in cloud.fleet.details(view.device).spec.app_limits}
    gone = [item_name(item) for item in before.spec.app_limits if item_name(item) not in left]
    return {"box": view.name, "items": gone, "rev": rev}


put(app, "set", set_, SET_HELP, "Set the limits of one container.")
put(app, "show", show, SHOW_HELP, "Show what was requested, and what became of it.")
put(app, "history", history, HISTORY_HELP, "Show each change of an app's limits, and what became of it.")
put(app, "forget", forget, FORGET_HELP, "Take back what was requested of an app.")
