"""The previews of `edgegpu-cloud limits set`: of one box, and of all boxes with some labels."""

from dataclasses import asdict, dataclass, replace

import typer

from edgegpu_cloud.cli.box_selection import RefusedBox, print_token
from edgegpu_cloud.cli.common import EXIT_FAILED, Cloud, print_json, print_table
from edgegpu_cloud.cli.requests.rollout_fit import print_steps
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.present.steps import LimitsSteps
from edgegpu_cloud.fleet.preview.limits import Preview
from edgegpu_cloud.fleet.preview.live import PodChange
from edgegpu_cloud.fleet.specs import LimitsPatch

_PART = 200
"""Boxes whose preview one request asks for."""


def print_preview(one: Preview, token: str, *, as_json: bool) -> None:
    """Print the preview of one box with the token of what was shown, and exit with its status."""
    if as_json:
        print_json(one)
    else:
        typer.echo(one.words())
    print_token(token, as_json=as_json, many=False)
    if not one.fits:
        raise typer.Exit(EXIT_FAILED)


@dataclass(slots=True)
class LimitsPreviews:
    """What each box of a filter would make of limits, by name; the token of these boxes, the steps of all of them."""

    boxes: list[tuple[str, Preview | RefusedBox]]
    seen: str = ""
    steps: LimitsSteps | None = None


def previews_of(cloud: Cloud, limits: LimitsPatch, where: BoxFilter) -> LimitsPreviews:
    """Return what each box of a filter would make of limits; the controller finds the boxes, page by page."""
    found, after = LimitsPreviews([]), ""
    while True:
        page = cloud.operations.preview_limits(limits, where, after=after, limit=_PART)
        for one in page.boxes:
            refused = RefusedBox(one.name, CloudError(one.text, remedy=one.remedy))
            found.boxes.append((one.name, refused if one.preview is None else one.preview))
        found.seen, found.steps = found.seen or page.seen, found.steps or page.steps
        limits, after = replace(limits, container=page.container), page.next
        if not after:
            return found


def print_previews(found: LimitsPreviews, *, as_json: bool) -> None:
    """Print previews of boxes by labels with the token of what was shown, and exit with their status."""
    if as_json:
        each = (
            one.document if isinstance(one, RefusedBox) else {"box": box, **asdict(one)} for box, one in found.boxes
        )
        print_json(list(each))
    else:
        print_table(("BOX", "PREVIEW", "WHY"), [(box, *_verdict(one)) for box, one in found.boxes])
        print_steps(found.steps)
    print_token(found.seen, as_json=as_json)
    if not all(isinstance(one, Preview) and one.fits for _, one in found.boxes):
        raise typer.Exit(EXIT_FAILED)


def _verdict(one: Preview | RefusedBox) -> tuple[str, str]:
    if isinstance(one, RefusedBox):
        return "unknown", one.error.text
    head, _, need = one.words().partition("\n")[0].partition(":")
    why = (one.text if one.pods is PodChange.NEW else "") or need.strip()
    return head, "; ".join(filter(None, (why, one.live_words())))
