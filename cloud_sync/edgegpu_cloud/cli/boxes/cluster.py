"""`edgegpu-cloud boxes cluster`: says whether the cluster counts that a box reports."""

from typing import Annotated

import typer

from edgegpu_cloud.cli.arguments import BoxArgument
from edgegpu_cloud.cli.common import DEFAULT, FolderOption, JsonOption, answer, reached, reporting

HELP = """\
Say whether the cluster counts that a box reports.

A box belongs to the cluster that it reports first after its enrolment. If it reports another one later, that does not
count, an alert says so, and no app limits are set on it. Two boxes that say that they apply one cluster's limits raise
an alert that names both, and no limits are set in that cluster. Look at the machines first: whoever is root on a box
can report any cluster.

\b
--accept  the box was really moved: it belongs to the cluster that it reports
--refuse  the box is wrong: it belongs to no cluster, whatever it reports, until one is accepted

\b
Examples:
  edgegpu-cloud boxes cluster asr-hall --accept
  edgegpu-cloud boxes cluster hall-9 --refuse

\b
--json prints what `box --json` calls "box".
"""

DecisionOption = Annotated[
    bool | None, typer.Option("--accept/--refuse", help="Whether it counts.", show_default=False)
]


def cluster(
    name: BoxArgument, *, folder: FolderOption = DEFAULT, accept: DecisionOption = None, json: JsonOption = False
) -> None:
    """Say whether the cluster counts that a box reports."""
    if accept is None:
        raise typer.BadParameter("say --accept or --refuse")
    with reporting(as_json=json), reached(folder) as cloud:
        device = cloud.fleet.box(name).device
        cloud.fleet.set_cluster(device, accept=accept)
        view = cloud.fleet.box(device)
        text = f"{view.name} belongs to the cluster {view.cluster}" if accept else f"{view.name} belongs to no cluster"
        answer(view, text, as_json=json)
