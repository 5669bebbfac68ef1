"""The controller beside the box under fire: what it believes, before and after it was lied to as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.site import Site

_UNFORESEEN = ("cannot read what came", "cannot take what came", "Traceback")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudStand:
    """What the controller holds, and how its process is."""

    starts: int
    unforeseen: int
    alarms: int
    boxes: Mapping[str, tuple[str, int, bool, bool]]
    """Of each box: state, enrolment, whether it was found ahead, whether it is online."""
    orphans: frozenset[str]


def look(here: Site) -> CloudStand:
    """Read the store, the log, and how often the process was started."""
    log = here.controller.log.read_text(errors="replace")
    return CloudStand(
        starts=here.controller.starts,
        unforeseen=sum(log.count(words) for words in _UNFORESEEN),
        alarms=len(here.fleet.alarms(unseen=False)),
        boxes={box.name: (str(box.state), box.enrolment, box.restored, box.online) for box in here.fleet.boxes()},
        orphans=frozenset(one.id for box in here.boxes for one in here.fleet.details(box.device).orphans),
    )


def changed(before: CloudStand, after: CloudStand) -> list[str]:
    """Say what forged messages have done to the controller."""
    found = []
    if after.starts != before.starts:
        found.append("the controller's process is another one")
    if after.unforeseen > before.unforeseen:
        found.append(f"{after.unforeseen - before.unforeseen} messages failed in the controller as nobody had foreseen")
    if after.alarms != before.alarms:
        found.append(f"the controller has raised {after.alarms - before.alarms} alarms")
    for name, was in before.boxes.items():
        if after.boxes.get(name) != was:
            found.append(f"the controller's box {name} was {was} and is {after.boxes.get(name)}")
    return [
        *found,
        *(f"the controller has a result of {id_}, which nobody gave" for id_ in after.orphans - before.orphans),
    ]
