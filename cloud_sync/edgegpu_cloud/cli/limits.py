"""`edgegpu-cloud limits set`, `show`, `forget`: what an app may have of a card."""

from typing import Annotated

import typer

from edgegpu_cloud.cli.arguments import BoxArgument
from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    Cloud,
    FolderOption,
    JsonOption,
    opened,
    print_json,
    print_table,
    reporting,
    say_trouble,
)
from edgegpu_cloud.cli.settlements import exit_by, first_line, reports, settled, words
from edgegpu_cloud.fleet.specs import Limits
from edgegpu_cloud.fleet.views import Details
from edgegpu_cloud.preview import Preview, Wanted, preview
from edgegpu_cloud.store import BoxState
from edgegpu_sync.durations import waiting_s
from edgegpu_sync.outputformat import with_output
from edgegpu_sync.spec import OnDrift, item_name
from edgegpu_sync.up import ItemReport, Settled

app = typer.Typer(
    name="limits",
    help="Set, show and forget the limits of apps.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SET_HELP = """\
Set the limits of one container of an app on the cluster of a box. Both amounts 0 take them away.

The box decides: it changes nothing where the new limits do not fit, and says why (`limits show`, or --wait). The same
limits once more are tried once more.

\b
Examples:
  edgegpu-cloud limits set asr-hall default/asr --container main --memory 10 --core 1 --preview
  edgegpu-cloud limits set asr-hall default/asr --container main --memory 10 --core 1 --wait

\b
--preview changes nothing: what would come of it by what the box has reported last. Exit status 1 where it does not fit.
--force: apply it though it does not fit; the pod waits Pending.  --interrupt: stop the app where it fits only then.
--on-drift: when somebody else writes the limits back, `report` it, or `enforce` them, three times.
Exit status with --wait: 0 Applied (with --force also Pending), 1 Rejected, Failed, Unsupported, 3 not settled in time.
--json prints {"box", "item", "rev", "report": {...} or null}, with --preview {"answer": "fits", "fits_after_stop" or
"never_fits", "text", "need_units", "need_core", "replicas", "cards": [...], "notes": [TEXT], "as_of_s"}.
"""
SHOW_HELP = """\
Show the limits that are desired on a box, and what became of them.

\b
--preview: also what would come of each if it were set now (see `limits set`): what was refused may have room meanwhile.
--json prints [{"namespace", "app", "container", "memory_units", "core", ..., "report": {...} or null}], with --preview
also "preview" in each.
"""

FORGET_HELP = """\
Desire nothing of an app's limits any more: for apps that are gone. What stands on the cluster stays as it is; to take
limits away there, `limits set ... --memory 0 --core 0` first. Without --container: of all its containers.

\b
Example:
  edgegpu-cloud limits forget asr-hall default/asr

\b
--json prints {"box", "items": [TEXT], "rev"}
"""

AppArgument = Annotated[str, typer.Argument(metavar="NAMESPACE/APP", help="The app; without NAMESPACE/ in default.")]
ContainerOption = Annotated[
    str | None, typer.Option("--container", help="Which of its containers  [default: the app's name]")
]
ForgetOption = Annotated[
    str | None, typer.Option("--container", help="Which of its containers  [default: all of them]")
]
MemoryOption = Annotated[int, typer.Option("--memory", metavar="UNITS", min=0, max=1_000_000, help="Units of memory.")]
CoreOption = Annotated[int, typer.Option("--core", min=0, max=6_400, help="Hundredths of a card.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Though it does not fit.")]
InterruptOption = Annotated[bool, typer.Option("--interrupt", help="Stop the app where it fits only then.")]
DriftOption = Annotated[
    OnDrift | None,
    typer.Option("--on-drift", help="When somebody else writes them back.  [default: as it was, else report]"),
]
PreviewOption = Annotated[bool, typer.Option("--preview", help="Change nothing: say what would come of it.")]
NowOption = Annotated[bool, typer.Option("--preview", help="Also say what would come of each if it were set now.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Until the box has settled it.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long --wait waits: 90s, 10m.  [default: 10m]")
]


def set_(  # noqa: PLR0913  (one for each option)
    name: BoxArgument,
    app_name: AppArgument,
    *,
    memory: MemoryOption,
    core: CoreOption,
    folder: FolderOption = DEFAULT,
    container: ContainerOption = None,
    force: ForceOption = False,
    interrupt: InterruptOption = False,
    on_drift: DriftOption = None,
    show_preview: PreviewOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Set the limits of one container of an app."""
    wait_s = waiting_s(timeout, wait=wait, default="10m")
    namespace, app_, container = _names(app_name, container)
    with reporting(as_json=json), opened(folder) as cloud:
        details = cloud.fleet.details(name)
        if show_preview:
            wanted = Wanted(namespace=namespace, app=app_, container=container, memory_units=memory, core=core)
            _tell_preview(preview(details, _same_cluster(cloud, details), wanted), as_json=json)
            return
        limits = Limits(
            namespace=namespace,
            app=app_,
            container=container,
            memory_units=memory,
            core=core,
            force=force,
            interrupt=interrupt,
            on_drift=on_drift,
        )
        rev = cloud.fleet.set_limits(details.box.device, limits)
        _tell_set(cloud, details, limits, rev=rev, wait_s=wait_s, as_json=json)


def _tell_set(cloud: Cloud, details: Details, limits: Limits, *, rev: int, wait_s: int, as_json: bool) -> None:
    """Say that it is desired, and what came of it where that is waited for."""
    item, name = f"app_limits/{limits.namespace}/{limits.app}/{limits.container}", details.box.name
    looks, found = f"edgegpu-cloud limits show {name}", dict[str, ItemReport | None]({item: None})
    say_trouble(cloud, details.box)
    if not as_json:
        typer.echo(f"{item} on {name}: desired, revision {rev}")
    if wait_s:
        found = dict(settled(cloud, details.box.device, [item], rev=rev, wait_s=wait_s, looks=looks))
    if as_json:
        print_json({"box": name, "item": item, "rev": rev, "report": found[item]})
    else:
        typer.echo(words(found[item]) if wait_s else f"then: {looks}")
    if wait_s:
        good = {Settled.APPLIED, Settled.PENDING} if limits.force else {Settled.APPLIED}
        exit_by(found, looks=looks, good=good)


def _names(app_name: str, container: str | None) -> tuple[str, str, str]:
    namespace, slash, app_ = app_name.rpartition("/")
    if (slash and not namespace) or not app_ or "/" in namespace:
        raise typer.BadParameter(f"no NAMESPACE/APP: {app_name!r}")
    return namespace or "default", app_, app_ if container is None else container


def _same_cluster(cloud: Cloud, box: Details) -> list[Details]:
    mine = box.box
    return [
        cloud.fleet.details(one.device)
        for one in cloud.fleet.boxes()
        if mine.cluster and one.cluster == mine.cluster and one.device != mine.device and one.state is BoxState.ENROLLED
    ]


def _tell_preview(found: Preview, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo(found.words())
    if not found.fits:
        raise typer.Exit(EXIT_FAILED)


def show(
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    show_preview: NowOption = False,
    json: JsonOption = False,
) -> None:
    """Show the limits that are desired on a box."""
    with reporting(as_json=json), opened(folder) as cloud:
        details = cloud.fleet.details(name)
        items = details.spec.app_limits
        told = reports(details, map(item_name, items))
        now = _now(cloud, details) if show_preview and items else {}
        if json:
            more = {one: {"preview": found} for one, found in now.items()}
            plain = {item_name(one): one.model_dump(mode="json") for one in items}
            print_json([{**one, "report": told[item], **more.get(item, {})} for item, one in plain.items()])
            return
        if not items:
            typer.echo(f"no limits of apps are desired on {details.box.name}")
            return
        rows = [
            (
                f"{one.namespace}/{one.app}",
                one.container,
                str(one.memory_units),
                str(one.core),
                str(one.rev),
                *([now[item_name(one)].words().partition(":")[0]] if now else []),
                first_line(told[item_name(one)]),
            )
            for one in items
        ]
        heads = ("APP", "CONTAINER", "UNITS", "CORE", "REV", *(["NOW IT"] if now else []), "SETTLED")
        print_table(heads, rows)


def _now(cloud: Cloud, details: Details) -> dict[str, Preview]:
    """Return what would come of each item that is desired if it were set now."""
    others = _same_cluster(cloud, details)
    return {
        item_name(one): preview(
            details,
            others,
            Wanted(
                namespace=one.namespace,
                app=one.app,
                container=one.container,
                memory_units=one.memory_units,
                core=one.core,
            ),
        )
        for one in details.spec.app_limits
    }


def forget(
    name: BoxArgument,
    app_name: AppArgument,
    *,
    folder: FolderOption = DEFAULT,
    container: ForgetOption = None,
    json: JsonOption = False,
) -> None:
    """Desire nothing of an app's limits any more."""
    namespace, app_, _ = _names(app_name, None)
    with reporting(as_json=json), opened(folder) as cloud:
        before = cloud.fleet.details(name)
        rev = cloud.fleet.forget_limits(before.box.device, namespace, app_, container)
        say_trouble(cloud, before.box)
        left = cloud.fleet.details(before.box.device).spec.app_limits
        gone = [item_name(item) for item in before.spec.app_limits if item_name(item) not in set(map(item_name, left))]
        if json:
            print_json({"box": before.box.name, "items": gone, "rev": rev})
            return
        for item in gone:
            typer.echo(f"{item} on {before.box.name}: desired no more, revision {rev}; what stands there stays")


app.command("set", help=SET_HELP, short_help="Set the limits of one container.")(with_output(set_))
app.command("show", help=SHOW_HELP, short_help="Show what is desired, and what became of it.")(with_output(show))
app.command("forget", help=FORGET_HELP, short_help="Desire nothing of an app any more.")(with_output(forget))
