"""`edgegpu-cloud broker`: writes the broker's files anew, here or for a broker elsewhere."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_cloud.broker.config import guard_source
from edgegpu_cloud.broker.folder import broker_elsewhere, write_broker, write_broker_elsewhere
from edgegpu_cloud.broker.guard import load_problem, mosquitto_here
from edgegpu_cloud.cli.common import DEFAULT, FolderOption, JsonOption, answer, opened, reporting
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.ownership import outside

_NAMED = 5
_USER = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,31}\$?")

HELP = """\
Write the broker's configuration anew, after controller.yaml was changed. `init` has written it the first time.

With --out all that a broker needs which cannot read this folder: configuration, certificates, its key, the list of the
revoked. That list has to be brought there after each `revoke`. A folder with anything else in it is left alone.

While a box has an agent of a version before results had one topic, the access list lets boxes write topics without
number. The command names such boxes; after their upgrade it writes the narrow list.

\b
Examples:
  edgegpu-cloud broker
  edgegpu-cloud broker --guard | cc -shared -fPIC -O2 -x c -o /usr/local/lib/mosquitto_guard.so -
  edgegpu-cloud broker --out /tmp/edgegpu-broker --place /etc/mosquitto/edgegpu --user mosquitto

\b
--json prints {"folder": PATH, "start": TEXT, "older_boxes": [NAME, ...]}
"""

OutOption = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Write everything there.")]
PlaceOption = Annotated[
    Path | None, typer.Option("--place", metavar="FOLDER", help="Where that will be on the broker  [default: --out]")
]
UserOption = Annotated[
    str,
    typer.Option(
        "--user",
        metavar="USER",
        help="The user that the broker runs as  [default: the owner of the controller's folder]",
    ),
]
GuardOption = Annotated[
    bool, typer.Option("--guard", help="Print the source of mosquitto's plugin against rooted boxes, write nothing.")
]


def broker(
    *,
    folder: FolderOption = DEFAULT,
    out: OutOption = None,
    place: PlaceOption = None,
    user: UserOption = "",
    guard: GuardOption = False,
    json: JsonOption = False,
) -> None:
    """Write the broker's configuration anew."""
    if guard:
        typer.echo(guard_source(), nl=False)
        return
    if place is not None and out is None:
        raise typer.BadParameter("--place needs --out")
    if place is not None and not place.is_absolute():
        raise typer.BadParameter("an absolute path, as the broker finds it", param_hint="--place")
    if user and not _USER.fullmatch(user):
        raise typer.BadParameter(f"no name of a user: {user!r}", param_hint="--user")
    target = (out or folder / "broker").absolute()
    with (
        reporting(as_json=json),
        outside(folder, write=lambda files: write_broker_elsewhere(target, files)) as caller,
        opened(folder) as cloud,
    ):
        guard_text = ""
        if out is None:
            _check_guard(cloud.config.broker.guard)
        with cloud.store.read() as tx:
            older = tx.conditions.without_one_result_topic()
            blocked = tx.boxes.blocked()
        if out is None:
            write_broker(cloud.layout, cloud.config, into=target, older_boxes=bool(older), blocked=blocked)
        else:
            guard_text = _elsewhere_text(cloud.config.broker.guard)
            files = broker_elsewhere(
                cloud.layout,
                cloud.config,
                place=place or target,
                user=user,
                older_boxes=bool(older),
                blocked=blocked,
            )
            caller.do("write", files)
        configuration = (place or target) / "mosquitto.conf"
        start = f"mosquitto -c {configuration}"
        text = f"wrote {target}; start the broker with: {start}{guard_text}{_older_text(older)}"
        answer({"folder": str(target), "start": start, "older_boxes": older}, text, as_json=json)


def _check_guard(guard: str) -> None:
    """Refuse a guard that this machine's mosquitto cannot load: it would not start with it.

    Raises:
        CloudError: saying why.
    """
    mosquitto = mosquitto_here()
    if not guard or mosquitto is None:
        return
    if problem := load_problem(Path(guard), mosquitto):
        text = f"cannot use broker.guard: mosquitto would not start with it: {problem}"
        raise CloudError(text, remedy="compile it anew (docs/broker.md), or take broker.guard out of controller.yaml")


def _elsewhere_text(guard: str) -> str:
    """Return what is to be done with the guard of a broker elsewhere; empty where it has none."""
    return f"\ncompile {guard} anew there first: `edgegpu-cloud broker --help`" if guard else ""


def _older_text(names: Sequence[str]) -> str:
    """Return what is to be said of boxes for which the access list stays wide; empty where there is none."""
    if not names:
        return ""
    some = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    boxes = "1 box has" if len(names) == 1 else f"{len(names)} boxes have"
    return (
        f"\n{boxes} an older agent ({some}): the access list allows topics that can fill the broker\n"
        "upgrade the agents (`edgegpu-cloud rollouts start upgrade --help`), "
        "then run this command again and reload the broker"
    )
