"""`edgegpu limit`: hold a running container to less card memory than it holds."""

from dataclasses import asdict
from typing import Annotated

import typer

from edgegpu_agent.cli.clients import completing
from edgegpu_agent.cli.clients.document import PodRow, StatusDocument
from edgegpu_agent.cli.clients.plugin import change_live_limit, fetch_status, find_socket
from edgegpu_agent.cli.common import CliError, ConfigOption, JsonOption, SocketOption, print_json, reporting
from edgegpu_agent.cli.views.isolation import full_reason, held_words

JSON_VERSION = 1

HELP = """\
Hold a running container to fewer units of card memory than it holds, or to all of them again, at once and without a new
pod.

It is for containers that `edgegpu pods` shows as `enforced`. Nothing is taken from the container's programs: over the
limit they get no more until they have freed enough. The units stay the pod's: no other pod gets them. The limit stays
over restarts of the container, of the plugin and of the machine, and ends with the pod.

Where the cloud has live limits of the app, they are set again within a minute.

\b
Examples:
  sudo edgegpu limit asr-7d9c main --memory 2
  sudo edgegpu limit asr-7d9c main --memory 2 -n baetyl-edge
  sudo edgegpu limit asr-7d9c main --reset

\b
--json: {"v": 1, "namespace", "pod", "uid", "container": TEXT, "isolation": as in `edgegpu pods --json`}
"""

PodArgument = Annotated[str, typer.Argument(metavar="POD", help="Its name.", autocompletion=completing.pods)]
ContainerArgument = Annotated[str, typer.Argument(metavar="CONTAINER", help="The container's name.")]
MemoryOption = Annotated[
    int | None, typer.Option("--memory", metavar="UNITS", min=1, help="The units that it may use of each of its cards.")
]
ResetOption = Annotated[bool, typer.Option("--reset", help="All that it holds again.")]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "-n", "--namespace", metavar="NAMESPACE", help="The pod's namespace.", autocompletion=completing.namespaces
    ),
]


def limit(
    pod: PodArgument,
    container: ContainerArgument,
    *,
    memory: MemoryOption = None,
    reset: ResetOption = False,
    namespace: NamespaceOption = "",
    json: JsonOption = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """Hold a running container to less card memory than it holds."""
    if (memory is None) != reset:
        raise typer.BadParameter("give either --memory or --reset", param_hint="--memory")
    with reporting(as_json=json):
        path = find_socket(socket, config)
        row = _find(fetch_status(path), pod, container, namespace)
        cards = row.isolation.cards if row.isolation is not None else ()
        if memory is not None and not cards:
            raise CliError(
                f"cannot limit {row.full_name}: nothing holds {container} to its memory",
                remedy="edgegpu pods says why, in HELD and REASON",
            )
        units = {} if memory is None else {one.card: memory for one in cards}
        change_live_limit(path, uid=row.uid, container=container, memory_units=units)
        now = _find(fetch_status(path), pod, container, row.namespace)
        if json:
            names = {"namespace": now.namespace, "pod": now.pod, "uid": now.uid, "container": now.container}
            held = None if now.isolation is None else asdict(now.isolation)
            print_json({"v": JSON_VERSION, **names, "isolation": held})
        else:
            why = full_reason(now)
            typer.echo(f"{now.full_name} {container}: {held_words(now)}{f': {why}' if why else ''}")


def _find(document: StatusDocument, pod: str, container: str, namespace: str) -> PodRow:
    rows = [row for row in document.pods if row.pod == pod and namespace in {"", row.namespace}]
    found = [row for row in rows if row.container == container]
    if len(found) == 1:
        return found[0]
    if found:
        raise CliError(
            f"cannot tell which pod {pod} is meant: there is one in {', '.join(row.namespace for row in found)}",
            remedy="name its namespace with -n",
        )
    there = f"its containers with shares are {', '.join(row.container for row in rows)}" if rows else "no such pod"
    raise CliError(
        f"cannot find container {container} of pod {pod} on {document.node}: {there}",
        remedy="edgegpu pods lists all of them",
    )
