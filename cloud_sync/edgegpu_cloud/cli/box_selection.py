"""The boxes that a command is for: one by its name, or those that a selector over their labels matches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import typer

from edgegpu_cloud.cli.common import EXIT_FAILED, EXIT_WAITING, Cloud
from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.views import BoxView

T = TypeVar("T")

SELECTED = """\
-l SELECTOR in the place of BOX: all boxes with these labels (`edgegpu-cloud label`), without those that are revoked,
set aside, blocked or uninstalled. That is one operation (`edgegpu-cloud operations`): the controller stores it for 500
boxes at a time, and goes on whatever becomes of this command. Its outcome on each box is printed, with --wait its
progress too. Exit status: 1 where one box has refused it or failed, with --wait 3 where one has not ended it in time,
else 0.
--json prints what `operations show --json` prints, of all boxes."""


def chosen(cloud: Cloud, name: str, selector: str) -> list[BoxView]:
    """Return the boxes that a name or a selector means, those too that cannot be asked for anything.

    Raises:
        typer.BadParameter: neither a name nor a selector, or both.
        CloudError: no box has this name, none has these labels, or the text is no selector.
    """
    if bool(name) == bool(selector):
        raise typer.BadParameter("name one BOX, or select boxes by -l", param_hint="BOX")
    if name:
        return [cloud.fleet.box(name)]
    found = cloud.fleet.boxes(selector)
    if not found:
        remedy = "`edgegpu-cloud boxes -o wide` shows labels, `edgegpu-cloud label BOX site=hall` sets one"
        raise NotFoundError(f"cannot find a box by {selector!r}: none has these labels", remedy=remedy)
    return found


@dataclass(frozen=True, slots=True)
class RefusedBox:
    """A box of several for which nothing was done, and why."""

    box: str
    error: CloudError

    @property
    def document(self) -> dict[str, object]:
        """The JSON document for the box."""
        return {"box": self.box, "error": self.error.text, "remedy": self.error.remedy}


def tried(box: str, ask: Callable[[], T], *, many: bool) -> T | RefusedBox:
    """Return what a box is asked for, or why it is refused; a refusal of the only box is raised."""
    try:
        return ask()
    except CloudError as error:
        if not many:
            raise
        return RefusedBox(box, error)


def print_token(seen: str, *, as_json: bool, many: bool = True) -> None:
    """Print the token of what a preview has shown; on stderr beside JSON. An older server gives none."""
    if seen:
        what = "change these boxes" if many else "set them unless somebody else does first"
        typer.echo(f"to {what}, --expect in the place of --preview:\n  --expect {seen}", err=as_json)


def end_by(statuses: Sequence[int]) -> None:
    """Exit with the worst status of several boxes: a failed one counts before one not ended, that before one done."""
    order = (EXIT_FAILED, EXIT_WAITING, 0)
    if status := min(statuses, key=order.index, default=0):
        raise typer.Exit(status)
