"""The commands of `edgegpu-cloud` by name."""

from importlib import metadata
from typing import Annotated

import typer

from edgegpu_cloud.cli import (
    backup,
    boxes,
    broker,
    commands,
    enrol,
    following,
    init,
    keys,
    limits,
    revoke,
    serve,
    sharing,
    tokens,
)
from edgegpu_sync.helptext import by_names
from edgegpu_sync.outputformat import with_output

_HELP = """Run a controller for edgegpu boxes, and say what they shall be.

\b
  edgegpu-cloud init --name HOST        make a controller: keys, authorities, configuration
  edgegpu-cloud serve --bundle FOLDER   run it
  edgegpu-cloud enrol                   print the line to paste on a box
  edgegpu-cloud boxes                   the fleet; `box NAME` for one
  edgegpu-cloud limits set BOX NAMESPACE/APP --memory 4 --core 1 --preview
  edgegpu-cloud sharing set BOX --policy spread --exclude 0
  edgegpu-cloud install BOX --wait      GPU sharing on, `uninstall` off, `command` for the rest

Exit status: 0 done, 1 failed or rejected (said), 2 a usage error, 3 not ended in the time given.
"""

app = typer.Typer(
    name="edgegpu-cloud",
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_boxes = typer.Typer(rich_markup_mode=None)
_boxes.callback(invoke_without_command=True)(with_output(boxes.boxes))
_boxes.command("forget", help=revoke.FORGET_HELP, short_help="Drop all that is known of a box.")(
    with_output(revoke.forget)
)


def _tell_version(wanted: bool) -> None:  # noqa: FBT001  (as typer calls it)
    if not wanted:
        return
    try:
        found = metadata.version("edgegpu")
    except metadata.PackageNotFoundError:  # run from a source folder
        found = "unknown"
    typer.echo(f"edgegpu-cloud {found}")
    raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_tell_version)
]


@app.callback()
def _options(*, version: VersionOption = False) -> None:
    del version


app.command("init", help=init.HELP, short_help="Make a controller in an empty folder.")(with_output(init.init))
app.command("serve", help=serve.HELP, short_help="Run the controller.")(with_output(serve.serve))
app.command("enrol", help=enrol.ENROL_HELP, short_help="Print the line to paste on a box.")(with_output(enrol.enrol))
app.command("tokens", help=tokens.HELP, short_help="List the tokens, or take one back.")(with_output(tokens.tokens))
app.command("pending", help=enrol.PENDING_HELP, short_help="Boxes that wait for a yes.")(with_output(enrol.pending))
app.command("approve", help=enrol.APPROVE_HELP, short_help="Take in a box that waits.")(with_output(enrol.approve))
app.command("refuse", help=enrol.REFUSE_HELP, short_help="Refuse a box that waits.")(with_output(enrol.refuse))
app.add_typer(_boxes, name="boxes", help=boxes.BOXES_HELP, short_help="List the boxes, or forget one.")
app.command("box", help=boxes.BOX_HELP, short_help="Show one box.")(with_output(boxes.box))
app.command("label", help=boxes.LABEL_HELP, short_help="Set labels of boxes, by which -l selects them.")(
    with_output(boxes.label)
)
app.command("rename", help=boxes.RENAME_HELP, short_help="Give a box another name.")(with_output(boxes.rename))
app.command("revoke", help=revoke.REVOKE_HELP, short_help="Revoke a box.")(with_output(revoke.revoke))
app.command("kick", help=revoke.KICK_HELP, short_help="Cut the connection of a revoked box.")(with_output(revoke.kick))
app.command("confirm", help=boxes.CONFIRM_HELP, short_help="Go on with a box that is RESTORED.")(
    with_output(boxes.confirm)
)
app.command("alarms", help=boxes.ALARMS_HELP, short_help="What a person has to look at.")(with_output(boxes.alarms))
app.add_typer(limits.app, name="limits")
app.add_typer(sharing.app, name="sharing")
app.command("install", help=commands.INSTALL_HELP, short_help="GPU sharing on a box.")(with_output(commands.install))
app.command("uninstall", help=commands.UNINSTALL_HELP, short_help="GPU sharing off a box.")(
    with_output(commands.uninstall)
)
app.command("command", help=commands.COMMAND_HELP, short_help="Ask a box to do something once.")(
    with_output(commands.command)
)
app.command("commands", help=commands.COMMANDS_HELP, short_help="List the last commands.")(
    with_output(commands.commands)
)
app.command("cancel", help=commands.CANCEL_HELP, short_help="Give a command no time left.")(
    with_output(commands.cancel)
)
app.command("watch", help=following.WATCH_HELP, short_help="Follow commands.")(with_output(following.watch))
app.add_typer(keys.app, name="keys")
app.command("broker", help=broker.HELP, short_help="Write the broker's files anew.")(with_output(broker.broker))
app.command("backup", help=backup.HELP, short_help="Everything that a controller is, in one file.")(
    with_output(backup.backup)
)
by_names(app)
