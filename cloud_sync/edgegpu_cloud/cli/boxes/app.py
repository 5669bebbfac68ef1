"""`edgegpu-cloud boxes` with the commands below it."""

import typer

from edgegpu_base.cli.helptext import put
from edgegpu_base.cli.output import with_output
from edgegpu_cloud.cli.boxes import block, boxes, cluster, revoke

app = typer.Typer(help=boxes.BOXES_HELP, rich_markup_mode=None)
app.callback(invoke_without_command=True)(with_output(boxes.boxes))
put(app, "forget", revoke.forget, revoke.FORGET_HELP, "Drop all that is known of a box.")
put(app, "block", block.block, block.BLOCK_HELP, "Refuse a box until it is unblocked.")
put(app, "unblock", block.unblock, block.UNBLOCK_HELP, "Let a blocked box go on.")
put(app, "cluster", cluster.cluster, cluster.HELP, "Say whether the cluster counts that a box reports.")
