"""`edgegpu-cloud apps`: apps by the values of their limits, and the boxes that have one."""

from typing import Annotated, Any

import typer

from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.arguments import SelectorOption
from edgegpu_cloud.cli.common import DEFAULT, FolderOption, JsonOption, print_json, print_table, reached, reporting, say
from edgegpu_cloud.fleet.limits.app_page import BoxValue
from edgegpu_cloud.fleet.limits.app_values import AppValue, AppValues, CountedValue
from edgegpu_core.model import size_text
from edgegpu_core.request import RequestedAmounts

HELP = """\
List the apps with the values of their limits, and on how many boxes each is; --boxes names the boxes.

\b
WANTED is what was requested, REPORTED what the pods have, as the boxes report it. `no pod`: limits are wanted, and the
box reports no pod of the app.

\b
Examples:
  edgegpu-cloud apps
  edgegpu-cloud apps asr -l site=hall
  edgegpu-cloud apps default/asr --boxes

\b
--json prints [{"namespace", "app", "container": TEXT, "boxes": NUMBER, "values": [{"key": TEXT, "wanted":
  {"memory_units", "core"} or null, "reported": [{"memory_units", "core"}], "unit_mib", "differs", "boxes": NUMBER}]}];
  with --boxes "on": [{"device", "box": TEXT, "connected": BOOL, "value": KEY}] of each beside it.
"""

WordsArgument = Annotated[
    str, typer.Argument(metavar="[WORDS]", help="Only apps whose NAMESPACE/APP has this in it.", show_default=False)
]
BoxesOption = Annotated[bool, typer.Option("--boxes", help="Name the boxes of each value.")]

_HEADS = ("APP", "CONTAINER", "BOXES", "WANTED", "REPORTED")


def apps(
    words: WordsArgument = "",
    *,
    selector: SelectorOption = "",
    boxes: BoxesOption = False,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """List the apps by the values of their limits."""
    with reporting(as_json=json), reached(folder) as cloud:
        found = cloud.fleet.apps.all(words, selector)
        on = [cloud.fleet.apps.all_boxes(one.key, selector=selector) if boxes else [] for one in found]
        if json:
            print_json([_as_json(one, there if boxes else None) for one, there in zip(found, on, strict=True)])
        elif not found:
            say("no app has limits, or a share of a card")
        else:
            print_table(_HEADS, [row for one, there in zip(found, on, strict=True) for row in _rows(one, there)])


def _rows(app: AppValues, there: list[BoxValue]) -> list[tuple[str, ...]]:
    name = f"{app.key.namespace}/{app.key.app}"
    return [
        (name, app.key.container, _boxes(one, there), _wanted(one.value), _reported(one.value)) for one in app.values
    ]


def _boxes(counted_value: CountedValue, there: list[BoxValue]) -> str:
    """Return how many boxes have a value, and which, where they are known."""
    names = ", ".join(one.box for one in there if one.value == counted_value.value)
    return ": ".join(filter(None, (counted(counted_value.boxes, "box"), names)))


def _wanted(value: AppValue) -> str:
    return "-" if value.wanted is None else _text(value.wanted, value.unit_mib)


def _reported(value: AppValue) -> str:
    return ", ".join(_text(one, value.unit_mib) for one in value.reported) or "no pod"


def _text(amounts: RequestedAmounts, unit_mib: int) -> str:
    size = f" ({size_text(amounts.memory_units * unit_mib)})" if unit_mib else ""
    return f"{counted(amounts.memory_units, 'unit')}{size} core {amounts.core}"


def _as_json(app: AppValues, there: list[BoxValue] | None) -> dict[str, Any]:
    key = app.key
    found: dict[str, Any] = {
        "namespace": key.namespace,
        "app": key.app,
        "container": key.container,
        "boxes": app.boxes,
        "values": [_value(one.value) | {"boxes": one.boxes} for one in app.values],
    }
    if there is None:
        return found
    rows = [{"device": one.device, "box": one.box, "connected": one.connected, "value": one.value.key} for one in there]
    return {**found, "on": rows}


def _value(value: AppValue) -> dict[str, Any]:
    return {
        "key": value.key,
        "wanted": None if value.wanted is None else _amounts(value.wanted),
        "reported": [_amounts(one) for one in value.reported],
        "unit_mib": value.unit_mib,
        "differs": value.differs,
    }


def _amounts(amounts: RequestedAmounts) -> dict[str, int]:
    return {"memory_units": amounts.memory_units, "core": amounts.core}
