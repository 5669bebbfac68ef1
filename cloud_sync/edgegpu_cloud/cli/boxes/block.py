"""`edgegpu-cloud boxes block` and `unblock`: refuse a box until a person lets it go on."""

from edgegpu_cloud.cli.arguments import BoxArgument
from edgegpu_cloud.cli.common import DEFAULT, FolderOption, JsonOption, YesOption, answer, confirm, reached, reporting

BLOCK_HELP = """\
Block a box: nothing it says counts any more, nothing is sent to it, and what was asked of it waits.

The controller blocks a box by itself that goes on flooding (`broker.block_floods` in controller.yaml). A broker with
the guard refuses everything of a blocked box at once; for one without it: `edgegpu-cloud broker`, then reload it. The
box keeps its certificate, its limits and its name.

\b
Examples:
  edgegpu-cloud boxes block asr-hall
  edgegpu-cloud boxes unblock asr-hall

\b
--json needs --yes, and prints what `box --json` calls "box".
"""
UNBLOCK_HELP = """\
Let a blocked box go on as before: it connects again within five minutes, and does what it was asked.

\b
--json prints what `box --json` calls "box".
"""


def block(
    name: BoxArgument, *, folder: FolderOption = DEFAULT, yes: YesOption = False, json: JsonOption = False
) -> None:
    """Block a box."""
    with reporting(as_json=json), reached(folder) as cloud:
        view = cloud.fleet.box(name)
        confirm(f"block {view.name} ({view.device})?", cannot=f"cannot block {view.name}", yes=yes, as_json=json)
        cloud.fleet.set_blocked(view.device, blocked=True)
        answer(cloud.fleet.box(view.device), f"blocked {view.name}: it is refused until `boxes unblock`", as_json=json)


def unblock(name: BoxArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Unblock a box."""
    with reporting(as_json=json), reached(folder) as cloud:
        device = cloud.fleet.box(name).device
        cloud.fleet.set_blocked(device, blocked=False)
        view = cloud.fleet.box(device)
        answer(view, f"unblocked {view.name}: it goes on as before", as_json=json)
