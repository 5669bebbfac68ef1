"""Arguments and options that commands share: boxes, apps, commands; each completed by the shell."""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_cloud.cli.common import DEFAULT, Cloud, reached
from edgegpu_cloud.cli.remote.server import SERVER
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.apps import apps_of
from edgegpu_cloud.fleet.operations.box_set import BoxSet
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


def expected_of(token: str) -> BoxSet | None:
    """Return the boxes that a preview has shown, by its token; None where none is given.

    Raises:
        typer.BadParameter: it is no token.
    """
    if not token:
        return None
    try:
        return BoxSet.read(token)
    except CloudError as error:
        raise typer.BadParameter("it is no token that --preview prints", param_hint="--expect") from error


def check_expected(expect: object | None, *, preview: bool) -> None:
    """Refuse a token beside `--preview`, which prints one.

    Raises:
        typer.BadParameter: both are given.
    """
    if preview and expect is not None:
        text = "it prints a token, and --expect takes one: give one of the two"
        raise typer.BadParameter(text, param_hint="--preview")


def expected_by(token: str, *, selector: str, preview: bool) -> BoxSet | None:
    """Return the boxes that the preview of a change by labels has shown, by its token; None where none is given.

    Raises:
        typer.BadParameter: it is no token, a preview is asked for too, or one box is named.
    """
    expect = expected_of(token)
    check_expected(expect, preview=preview)
    if expect is not None and not selector:
        raise typer.BadParameter("it is for boxes by their labels: give -l too", param_hint="--expect")
    return expect


@dataclass(frozen=True, slots=True)
class SeenBox:
    """A box as the preview of one box has shown it: its device id, and the revision of what is requested of it."""

    rev: int
    device: str

    @property
    def token(self) -> str:
        """What `--preview` prints, and `--expect` takes."""
        return f"{self.rev}@{self.device}"


_SEEN_BOX = re.compile("([0-9]{1,15})@([a-z0-9]{16})")


def seen_box_of(token: str, *, preview: bool) -> SeenBox | None:
    """Return the box that the preview of one box has shown, by its token; None where none is given.

    Raises:
        typer.BadParameter: it is no such token, or a preview is asked for too.
    """
    if not token:
        return None
    found = _SEEN_BOX.fullmatch(token)
    if found is None:
        text = "it is no token that --preview prints for one box; one for boxes by their labels needs -l too"
        raise typer.BadParameter(text, param_hint="--expect")
    check_expected(found, preview=preview)
    return SeenBox(int(found[1]), found[2])


def complete_boxes(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of boxes that begin with the incomplete word."""
    return _found(context, incomplete, lambda cloud: cloud.fleet.names(incomplete))


def complete_box_or_app(context: typer.Context, incomplete: str) -> list[str]:
    """Return boxes for the first word and apps for the second; with a selector the first word is an app."""
    words = list(context.params.get("words") or ())
    if context.params.get("selector"):
        return _apps(context, incomplete, "")
    return _apps(context, incomplete, words[0]) if words else complete_boxes(context, incomplete)


def complete_items(context: typer.Context, incomplete: str) -> list[str]:
    """Return the requested items of sharing of the box that is named before."""
    name = str(context.params.get("name") or "")
    if not name:
        return []

    def look(cloud: Cloud) -> Iterable[str]:
        return (item for item in desired_items(cloud.fleet.spec(name)) if "/" not in item)

    return _found(context, incomplete, look)


def complete_command_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the last commands."""
    return _found(context, incomplete, lambda cloud: (one.id for one in cloud.fleet.commands(limit=_MOST)))


def complete_box_or_op(context: typer.Context, incomplete: str) -> list[str]:
    """Return boxes for the first word of `command`, and ops for the second."""
    if not context.params.get("selector") and not context.params.get("words"):
        return complete_boxes(context, incomplete)
    return _begin(incomplete, (op for op in OPS if not op.startswith("sharing.")))


def _apps(context: typer.Context, incomplete: str, box: str) -> list[str]:
    def look(cloud: Cloud) -> Iterable[str]:
        names = [box] if box else cloud.fleet.names(limit=_MOST)
        return sorted({app.name for name in names for app in apps_of([cloud.fleet.details(name)])})

    return _found(context, incomplete, look)


def _found(context: typer.Context, incomplete: str, look: Callable[[Cloud], Iterable[str]]) -> list[str]:
    """Return what a controller has that begins so; nothing where none can be reached: the shell shows no errors."""
    folder = context.params.get("folder") or os.environ.get("EDGEGPU_CLOUD") or DEFAULT
    SERVER.set(str(context.find_root().params.get("server") or ""))  # no command runs while the shell completes
    try:
        with reached(Path(str(folder))) as cloud:
            return _begin(incomplete, look(cloud))
    except (CloudError, OSError):
        return []


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
FilterBoxArgument = Annotated[
    str,
    typer.Argument(
        metavar="[BOX]",
        help="Those of this box: its name or device id; the beginning of it will do. Left out: of all boxes.",
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
ExpectOption = Annotated[
    str, typer.Option("--expect", metavar="TOKEN", help="As --preview prints it: change what was shown alone.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the box has applied or refused it.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long --wait waits: 90s, 10m.  [default: 10m]")
]
