"""Arguments and options that commands share: boxes, apps, commands; each completed by the shell."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_cloud.cli.common import DEFAULT, LocalCloud, opened
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.apps import apps_of
from edgegpu_cloud.fleet.specs import desired_items, read_app
from edgegpu_sync.rules.ops import OPS

_MOST = 200


def app_of(text: str) -> tuple[str, str]:
    """Return namespace and name of an app on the command line.

    Raises:
        typer.BadParameter: it is no app's name.
    """
    try:
        return read_app(text)
    except CloudError as error:
        raise typer.BadParameter(error.text) from error


def complete_boxes(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of boxes that begin with the incomplete word."""
    with _open(context) as cloud:
        return _begin(incomplete, cloud.fleet.names(incomplete)) if cloud else []


def complete_box_or_app(context: typer.Context, incomplete: str) -> list[str]:
    """Return boxes for the first word and apps for the second; with a selector the first word is an app."""
    words = list(context.params.get("words") or ())
    if context.params.get("selector"):
        return _apps(context, incomplete, "")
    return _apps(context, incomplete, words[0]) if words else complete_boxes(context, incomplete)


def complete_items(context: typer.Context, incomplete: str) -> list[str]:
    """Return the requested items of sharing of the box that is named before."""
    name = str(context.params.get("name") or "")
    with _open(context) as cloud:
        if cloud is None or not name:
            return []
        found = desired_items(cloud.fleet.spec(name))
        return _begin(incomplete, (item for item in found if "/" not in item))


def complete_command_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the last commands."""
    with _open(context) as cloud:
        return _begin(incomplete, (one.id for one in cloud.fleet.commands(limit=_MOST))) if cloud else []


def complete_box_or_op(context: typer.Context, incomplete: str) -> list[str]:
    """Return boxes for the first word of `command`, and ops for the second."""
    if not context.params.get("selector") and not context.params.get("words"):
        return complete_boxes(context, incomplete)
    return _begin(incomplete, (op for op in OPS if not op.startswith("sharing.")))


def _apps(context: typer.Context, incomplete: str, box: str) -> list[str]:
    with _open(context) as cloud:
        if cloud is None:
            return []
        names = [box] if box else cloud.fleet.names(limit=_MOST)
        found = {app.name for name in names for app in apps_of([cloud.fleet.details(name)])}
        return _begin(incomplete, sorted(found))


@contextmanager
def _open(context: typer.Context) -> Iterator[LocalCloud | None]:
    folder = context.params.get("folder") or os.environ.get("EDGEGPU_CLOUD") or DEFAULT
    try:
        with opened(Path(str(folder))) as cloud:
            yield cloud
    except (CloudError, OSError):
        yield None


def _begin(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)][:_MOST]


BoxArgument = Annotated[
    str,
    typer.Argument(
        metavar="BOX", help="Its name or device id; the beginning of it will do.", autocompletion=complete_boxes
    ),
]
OptionalBoxArgument = Annotated[
    str,
    typer.Argument(
        metavar="[BOX]",
        help="Its name or device id; the beginning of it will do. Left out with -l.",
        autocompletion=complete_boxes,
        show_default=False,
    ),
]
SelectorOption = Annotated[
    str, typer.Option("--selector", "-l", metavar="SELECTOR", help="Boxes by their labels: site=hall,rack!=3.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Go on, with a line for each change, until ctrl-C.")]
SinceOption = Annotated[str, typer.Option("--since", metavar="TIME", help="Only what is younger: 90s, 2h, 7d.")]
AppArgument = Annotated[str, typer.Argument(metavar="NAMESPACE/APP", help="The app; without NAMESPACE/ in default.")]
ContainerOption = Annotated[
    str | None,
    typer.Option("--container", metavar="NAME", help="Which of its containers  [default: the one that uses cards]"),
]
PreviewOption = Annotated[bool, typer.Option("--preview", help="Change nothing: say what would come of it.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the box has applied or refused it.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long --wait waits: 90s, 10m.  [default: 10m]")
]
