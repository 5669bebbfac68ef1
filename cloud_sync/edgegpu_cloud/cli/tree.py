"""The commands of `edgegpu-cloud` by name."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edgegpu_base.cli.helptext import command_line, version_option
from edgegpu_base.cli.lazy_commands import CommandSource, put_lazy, put_lazy_group
from edgegpu_cloud.cli.remote.server import SERVER

_HELP = """Run a controller for edgegpu boxes, and say what they shall be.

\b
  edgegpu-cloud init --name HOST        make a controller: keys, authorities, configuration
  edgegpu-cloud serve --bundle FOLDER   run it
  edgegpu-cloud enrol                   print the line to paste on a box
  edgegpu-cloud boxes                   the fleet; `box NAME` for one
  edgegpu-cloud limits set BOX NAMESPACE/APP --memory 4 --core 1 --preview
  edgegpu-cloud sharing set BOX --policy spread --exclude 0
  edgegpu-cloud rollouts start sharing --policy spread --all --preview
  edgegpu-cloud install BOX --wait      GPU sharing on, `uninstall` off, `command` for the rest

Exit status: 0 done, 1 failed or rejected (said), 2 a usage error, 3 not ended in the time given.
"""

app = command_line("edgegpu-cloud", _HELP)
ServerOption = Annotated[
    str,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="EDGEGPU_CLOUD_SERVER",
        help="The console of a controller on another machine: https://HOST:8444.",
    ),
]


def _in_our_words(error: typer.BadParameter) -> str:
    from pydantic import ValidationError  # noqa: PLC0415  (slow to load)

    from edgegpu_sync.faults import fault  # noqa: PLC0415

    if isinstance(error.__cause__, ValidationError):
        first = error.__cause__.errors(include_url=False)[0]
        if error.message == first["msg"]:  # else the words are ours already
            return fault(first)
    return error.message


class _PlainErrors(TyperGroup):
    """The commands; what is wrong with a value is said in our words, in the place of the library's."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  (typer keeps the class of its contexts to itself)
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.__cause__ is not None:
                error.message = _in_our_words(error)
            raise


@app.callback(cls=_PlainErrors)
def _options(*, version: Annotated[bool, version_option("edgegpu-cloud")] = False, server: ServerOption = "") -> None:
    del version
    SERVER.set(server)


def _put(name: str, module: str, function: str, text: str, short: str) -> None:
    put_lazy(app, name, CommandSource(f"edgegpu_cloud.cli.{module}", function, text), short)


def _put_group(name: str, module: str, text: str | None = None, *, short: str | None = None) -> None:
    put_lazy_group(app, name, f"edgegpu_cloud.cli.{module}", text, short)


_put("init", "init", "init", "HELP", "Make a controller in an empty folder.")
_put("serve", "serve", "serve", "HELP", "Run the controller.")
_put("enrol", "boxes.enrol", "enrol", "ENROL_HELP", "Print the line to paste on a box.")
_put("tokens", "boxes.tokens", "tokens", "HELP", "List the tokens, or take one back.")
_put("pending", "boxes.enrol", "pending", "PENDING_HELP", "Boxes that wait for a yes.")
_put("approve", "boxes.enrol", "approve", "APPROVE_HELP", "Take in a box that waits.")
_put("refuse", "boxes.enrol", "refuse", "REFUSE_HELP", "Refuse a box that waits.")
_put("box", "boxes.boxes", "box", "BOX_HELP", "Show one box.")
_put("apps", "boxes.apps", "apps", "HELP", "Apps by the values of their limits.")
_put("evidence", "boxes.evidence", "evidence", "HELP", "What a box's containers see of their cards.")
_put("label", "boxes.boxes", "label", "LABEL_HELP", "Set labels of boxes, by which -l selects them.")
_put("rename", "boxes.boxes", "rename", "RENAME_HELP", "Give a box another name.")
_put("revoke", "boxes.revoke", "revoke", "REVOKE_HELP", "Revoke a box.")
_put("kick", "boxes.revoke", "kick", "KICK_HELP", "Cut the connection of a revoked box.")
_put("confirm", "boxes.boxes", "confirm", "CONFIRM_HELP", "Go on with a box that is RESTORED.")
_put("alarms", "boxes.boxes", "alarms", "ALARMS_HELP", "What a person has to look at.")
_put("audit", "audit", "audit", "HELP", "Who changed what, and what came of it.")
_put("install", "requests.commands", "install", "INSTALL_HELP", "GPU sharing on a box.")
_put("uninstall", "requests.commands", "uninstall", "UNINSTALL_HELP", "GPU sharing off a box.")
_put("command", "requests.commands", "command", "COMMAND_HELP", "Ask a box to do something once.")
_put("commands", "requests.commands", "commands", "COMMANDS_HELP", "List the last commands.")
_put("cancel", "requests.commands", "cancel", "CANCEL_HELP", "Cancel a command that its box has not begun.")
_put("watch", "requests.following", "watch", "WATCH_HELP", "Follow commands.")
_put("broker", "broker", "broker", "HELP", "Write the broker's files anew.")
_put("backup", "database.backup", "backup", "HELP", "Everything that a controller is, in one file.")
_put("restore", "database.restore", "restore", "HELP", "Make a controller of a backup.")
_put("migrate", "database.migrate", "migrate", "HELP", "Bring the store's tables to this version.")
_put_group("boxes", "boxes.app", short="List the boxes; forget, block, judge one.")
_put_group(
    "alerts",
    "alerts",
    "Alerts: what is wrong in the fleet for longer than a moment, by itself known and by itself over.",
)
_put_group("limits", "requests.limits", "Set, show and forget the limits of apps.")
_put_group(
    "sharing",
    "requests.sharing",
    "Set and show how a box shares its cards: policy, excluded cards, unit of memory, isolation.",
)
_put_group(
    "rollouts",
    "requests.rollouts",
    "Change many boxes in waves: limits of an app, settings of sharing, or the agent's version.",
)
_put_group("people", "people", "People who may use the console and the API: accounts, their roles and scopes.")
_put_group("operations", "requests.operations", "Changes of many boxes, and what came of each.")
_put_group("keys", "keys", "The keys that boxes obey: show, rotate, and sign with a root key that is kept offline.")
_put_group("controllers", "controllers", "The controllers that share the boxes of one PostgreSQL: show them, add one.")
