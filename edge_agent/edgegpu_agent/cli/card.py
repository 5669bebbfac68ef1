"""`edgegpu card`: let go of a card so that it can be reset, and take it back."""

from pathlib import Path
from typing import Annotated

import typer

from edgegpu_agent.cli.clients.document import CardRow, StatusDocument
from edgegpu_agent.cli.clients.plugin import change_card, fetch_status, find_socket
from edgegpu_agent.cli.common import CliError, ConfigOption, JsonOption, SocketOption, print_json, reporting
from edgegpu_base.cli.helptext import command_line, put

JSON_VERSION = 1

HELP = """\
Let go of a card that has to be reset, and take it back afterwards.

A card that reported an error which ends with a reset alone (docs/box/xid.md) is out of order until the card was reset,
the driver loaded anew, or the machine restarted.
"""

RELEASE_HELP = """\
Stop offering a card, have the plugin close it, and name the pods that still hold a share.

Then it can be reset: end those pods, then `sudo nvidia-smi --gpu-reset -i N`. Nothing new comes onto the card until
`edgegpu card accept`, a restart of the plugin, or one of the driver or the machine. Of a card in MIG mode all
instances are let go of.

\b
Examples:
  sudo edgegpu card release 0
  sudo edgegpu card release GPU-5f2a9c1e-0000-0000-0000-000000000000

\b
--json: {"v": 1, "card": UUID, "pods": [TEXT, namespace/name of who holds a share]}
"""

ACCEPT_HELP = """\
Offer a card again that was released, or that is out of order until a reset: its errors so far count no more.

Where the error comes again, it is out of order again.

\b
Examples:
  sudo edgegpu card accept 0

\b
--json: as of `edgegpu card release`
"""

app = command_line("card", HELP)

CardArgument = Annotated[str, typer.Argument(metavar="CARD", help="Its number as edgegpu status has it, or its UUID.")]


def release(
    card: CardArgument, *, json: JsonOption = False, socket: SocketOption = None, config: ConfigOption = None
) -> None:
    """Stop offering a card, and close what is open of it."""
    with reporting(as_json=json):
        found, gpu, pods = _change(find_socket(socket, config), card, "release")
        if json:
            print_json({"v": JSON_VERSION, "card": gpu, "pods": pods})
            return
        typer.echo(f"card {found.index} ({gpu}) is let go of: nothing new comes onto it")
        if pods:
            typer.echo(f"these pods still hold it, and a reset waits for their end: {', '.join(pods)}")
        typer.echo(f"reset it (sudo nvidia-smi --gpu-reset -i {found.gpu}), then: sudo edgegpu card accept {found.gpu}")


def accept(
    card: CardArgument, *, json: JsonOption = False, socket: SocketOption = None, config: ConfigOption = None
) -> None:
    """Offer a card again, whose errors so far count no more."""
    with reporting(as_json=json):
        found, gpu, pods = _change(find_socket(socket, config), card, "accept")
        if json:
            print_json({"v": JSON_VERSION, "card": gpu, "pods": pods})
            return
        typer.echo(f"card {found.index} ({gpu}) is offered again, if it answers: edgegpu status")


put(app, "release", release, RELEASE_HELP, "Let go of a card, so that it can be reset.")
put(app, "accept", accept, ACCEPT_HELP, "Offer a card again whose errors are mended.")


def _change(path: Path, name: str, action: str) -> tuple[CardRow, str, list[str]]:
    """Have the plugin release or accept a card; return the card, its GPU's UUID, and the pods that hold a share."""
    document = fetch_status(path)
    card = _find(document, name)
    return card, change_card(path, uuid=card.uuid, action=action), _holders(document, card)


def _find(document: StatusDocument, name: str) -> CardRow:
    """Return the card of this name: a UUID, a card's number, or that of the GPU of MIG devices."""
    found = [card for card in document.cards if name in {card.uuid, card.index, card.gpu}]
    if found:
        return found[0]
    there = ", ".join(card.index for card in document.cards) or "none"
    raise CliError(f"cannot find card {name} on {document.node}: it offers {there}", remedy="edgegpu status names them")


def _holders(document: StatusDocument, card: CardRow) -> list[str]:
    """Return the pods that hold a share of a card, or of another instance of its GPU."""
    parts = {row.uuid for row in document.cards if row.gpu == card.gpu}
    held = [row.full_name for row in document.pods if any(ref.uuid in parts for ref in row.cards)]
    return list(dict.fromkeys(held))
