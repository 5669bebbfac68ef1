"""`edgegpu-cloud boxes` with the commands below it, each of which is imported when it is used."""

import typer

from edgegpu_base.cli.lazy_commands import CommandSource, put_lazy
from edgegpu_base.cli.output import with_output
from edgegpu_cloud.cli.boxes import boxes

app = typer.Typer(help=boxes.BOXES_HELP, rich_markup_mode=None)
app.callback(invoke_without_command=True)(with_output(boxes.boxes))


def _put(name: str, module: str, text: str, short: str) -> None:
    put_lazy(app, name, CommandSource(f"edgegpu_cloud.cli.boxes.{module}", name, text), short)


_put("forget", "revoke", "FORGET_HELP", "Drop all that is known of a box.")
_put("block", "block", "BLOCK_HELP", "Refuse a box until it is unblocked.")
_put("unblock", "block", "UNBLOCK_HELP", "Let a blocked box go on.")
_put("cluster", "cluster", "HELP", "Say whether the cluster counts that a box reports.")
