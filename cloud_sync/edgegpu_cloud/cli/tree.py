"""The commands of `edgegpu-cloud` by name."""

from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from edgegpu_base.cli.helptext import command_line, put, version_option
from edgegpu_base.cli.output import with_output
from edgegpu_cloud.cli import alerts, audit, broker, controllers, init, keys, people, serve
from edgegpu_cloud.cli.boxes import apps, block, boxes, cluster, enrol, evidence, revoke, tokens
from edgegpu_cloud.cli.common import SERVER
from edgegpu_cloud.cli.database import backup, migrate, restore
from edgegpu_cloud.cli.requests import commands, following, limits, operations, rollouts, sharing
from edgegpu_sync.faults import fault

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


class _PlainErrors(TyperGroup):
    """The commands; what is wrong with a value is said in our words, in the place of the library's."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  (typer keeps the class of its contexts to itself)
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                first = error.__cause__.errors(include_url=False)[0]
                if error.message == first["msg"]:  # else the words are ours already
                    error.message = fault(first)
            raise


@app.callback(cls=_PlainErrors)
def _options(*, version: Annotated[bool, version_option("edgegpu-cloud")] = False, server: ServerOption = "") -> None:
    del version
    SERVER.set(server)


_boxes = typer.Typer(rich_markup_mode=None)
_boxes.callback(invoke_without_command=True)(with_output(boxes.boxes))
put(_boxes, "forget", revoke.forget, revoke.FORGET_HELP, "Drop all that is known of a box.")
put(_boxes, "block", block.block, block.BLOCK_HELP, "Refuse a box until it is unblocked.")
put(_boxes, "unblock", block.unblock, block.UNBLOCK_HELP, "Let a blocked box go on.")
put(_boxes, "cluster", cluster.cluster, cluster.HELP, "Say whether the cluster counts that a box reports.")
put(app, "init", init.init, init.HELP, "Make a controller in an empty folder.")
put(app, "serve", serve.serve, serve.HELP, "Run the controller.")
put(app, "enrol", enrol.enrol, enrol.ENROL_HELP, "Print the line to paste on a box.")
put(app, "tokens", tokens.tokens, tokens.HELP, "List the tokens, or take one back.")
put(app, "pending", enrol.pending, enrol.PENDING_HELP, "Boxes that wait for a yes.")
put(app, "approve", enrol.approve, enrol.APPROVE_HELP, "Take in a box that waits.")
put(app, "refuse", enrol.refuse, enrol.REFUSE_HELP, "Refuse a box that waits.")
app.add_typer(_boxes, name="boxes", help=boxes.BOXES_HELP, short_help="List the boxes; forget, block, judge one.")
put(app, "box", boxes.box, boxes.BOX_HELP, "Show one box.")
put(app, "apps", apps.apps, apps.HELP, "Apps by the values of their limits.")
put(app, "evidence", evidence.evidence, evidence.HELP, "What a box's containers see of their cards.")
put(app, "label", boxes.label, boxes.LABEL_HELP, "Set labels of boxes, by which -l selects them.")
put(app, "rename", boxes.rename, boxes.RENAME_HELP, "Give a box another name.")
put(app, "revoke", revoke.revoke, revoke.REVOKE_HELP, "Revoke a box.")
put(app, "kick", revoke.kick, revoke.KICK_HELP, "Cut the connection of a revoked box.")
put(app, "confirm", boxes.confirm, boxes.CONFIRM_HELP, "Go on with a box that is RESTORED.")
put(app, "alarms", boxes.alarms, boxes.ALARMS_HELP, "What a person has to look at.")
put(app, "audit", audit.audit, audit.HELP, "Who changed what, and what came of it.")
app.add_typer(alerts.app, name="alerts")
app.add_typer(limits.app, name="limits")
app.add_typer(sharing.app, name="sharing")
app.add_typer(rollouts.app, name="rollouts")
put(app, "install", commands.install, commands.INSTALL_HELP, "GPU sharing on a box.")
put(app, "uninstall", commands.uninstall, commands.UNINSTALL_HELP, "GPU sharing off a box.")
put(app, "command", commands.command, commands.COMMAND_HELP, "Ask a box to do something once.")
put(app, "commands", commands.commands, commands.COMMANDS_HELP, "List the last commands.")
put(app, "cancel", commands.cancel, commands.CANCEL_HELP, "Cancel a command that its box has not begun.")
put(app, "watch", following.watch, following.WATCH_HELP, "Follow commands.")
app.add_typer(people.app, name="people")
app.add_typer(operations.app, name="operations")
app.add_typer(keys.app, name="keys")
app.add_typer(controllers.app, name="controllers")
put(app, "broker", broker.broker, broker.HELP, "Write the broker's files anew.")
put(app, "backup", backup.backup, backup.HELP, "Everything that a controller is, in one file.")
put(app, "restore", restore.restore, restore.HELP, "Make a controller of a backup.")
put(app, "migrate", migrate.migrate, migrate.HELP, "Bring the store's tables to this version.")
