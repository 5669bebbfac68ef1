"""`edgegpu status`: show the plugin, the cards as bars of units, which pod holds what, and what is wrong."""

from pathlib import Path

import typer

from edgegpu_agent.cli.clients.document import StatusDocument
from edgegpu_agent.cli.clients.plugin import fetch_status, find_socket
from edgegpu_agent.cli.common import (
    EXIT_WRONG,
    ConfigOption,
    JsonOption,
    SocketOption,
    WatchOption,
    print_json,
    reporting,
)
from edgegpu_base.cli.output import counted, make_console
from edgegpu_core.reasons import node_words

HELP = """\
Show the plugin of this node: its cards, who holds what of them, and what is wrong.

Each card is a bar, one character per unit where the terminal is wide enough. A letter is a pod, which keeps it from
one call to the next, a dot is a free unit,
? is held by somebody that kubelet has not named. Exits 1 when something is wrong, and says what.

\b
Examples:
  sudo edgegpu status
  sudo edgegpu status -w
  edgegpu status --json | jq '.cards[] | {index, units_free}'
  edgegpu status --json | jq -r '.problems[]'

\b
--json prints the plugin's own document and adds "problems":
  {"v": 1, "version", "node", "role", "policy": TEXT, "unit_mib": NUMBER,
   "unit_wanted_mib": NUMBER that is configured and counts when no pod holds a share, or null,
   "resources": {"memory", "core": TEXT}, "injection": {"mode", "why": TEXT}, "driver": {"version", "problem": TEXT,
    "unknown_functions": [TEXT]},
   "isolation": "none", "limiter" or "mps", "isolation_problem": TEXT,
   "kubelet": {"registered": BOOL, "registered_ms": NUMBER or null, "waiting_for": TEXT,
               "start_wait": {"waits": BOOL whether it waited for the devices at its last start, or null, "why": TEXT}},
  "api": {"synced": BOOL, "problem": TEXT, "silent": null or {"why": TEXT, "heard_at": NUMBER or null}},
  "extender": null or {"listen": TEXT, "healthy", "insecure": BOOL},
  "cards": [{"index", "uuid", "name": TEXT, "units", "units_free", "core_free": NUMBER, "healthy": BOOL,
             "problem": TEXT why it is out of order, "watched": BOOL whether the driver reports its errors}],
   "pods": [{"namespace", "pod", "uid", "container": TEXT, "memory_units", "core": NUMBER,
             "cards": [{"index", "uuid": TEXT, "units": NUMBER of this card}], "phase": TEXT,
             "state": "allocated", "waiting", "refused", "lost" (its card is gone),
                       "cardless" (it runs without its card), "unrecorded" (it runs, and kubelet has no record of its
                       devices), "unknown" (the API server was not read yet) or "held", "reason": TEXT,
             "isolation": {"state": "enforced", "degraded" or "off", "reason": TEXT,
                           "cards": [{"card": UUID, "limit_mib", "counted_mib", "limit_units",
                                      "held_units": NUMBER, "core_percent": NUMBER}]}}],
   "other_cards": [{"index", "uuid", "name": TEXT, "gone": BOOL}], cards that are not offered and in use,
   "pending": [as in "pods", of pods that no node has taken, with "state": "pending" and the numbers in "reason"],
   "pending_more": NUMBER of further such pods, both where this node's extender runs,
   "nodes": [{"name": TEXT, "cards", "units", "units_free": NUMBER}], where this node's extender sees several,
   "problems": [TEXT]}
"""


def status(
    *,
    json: JsonOption = False,
    watch: WatchOption = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the plugin of this node: its cards, who holds what of them, and what is wrong."""
    with reporting(as_json=json):
        path = find_socket(socket, config)
        if watch:
            from edgegpu_agent.cli.views.watching import watch as again  # noqa: PLC0415  (only for it)

            again(lambda: _look(path, as_json=json))
        _look(path, as_json=json)


def _look(path: Path, *, as_json: bool) -> None:
    document = fetch_status(path)
    wrong = problems(document)
    if as_json:
        print_json({**document.raw, "problems": wrong})
    else:
        from edgegpu_agent.cli.views.bars import holding  # noqa: PLC0415  (only text output needs it)
        from edgegpu_agent.cli.views.pod_letters import letters_of  # noqa: PLC0415
        from edgegpu_agent.cli.views.status import show  # noqa: PLC0415

        show(document, wrong, make_console(), letters_of(holding(document.pods), path.parent))
    if wrong:
        raise typer.Exit(EXIT_WRONG)


def problems(document: StatusDocument) -> list[str]:
    """Return the problems of this node, one sentence each, causes before their consequences."""
    found: list[str] = []
    if document.has_cards:
        if document.driver_problem:
            found.append(f"driver: {document.driver_problem}")
        if document.isolation_problem:
            found.append(f"isolation: {node_words(document.isolation_problem)}")
        if not document.registered:
            found.append(f"kubelet: not registered, waiting for {document.waiting_for or 'kubelet'}")
        found += [
            f"card {card.index} is out of order ({card.uuid}){f': {card.problem}' if card.problem else ''}"
            for card in document.cards
            if not card.healthy
        ]
    if document.unit_wanted_mib is not None:
        holders = dict.fromkeys(row.full_name for row in document.pods)
        found.append(
            f"units are of {document.unit_mib} MiB until no pod of this node holds a share; then they are of "
            f"{document.unit_wanted_mib} MiB, as resources.unit_mib says: {', '.join(holders)}"
        )
    if document.api_problem or not document.api_synced:
        found.append(f"API: {document.api_problem or 'the cluster has not been read yet'}")
    if document.extender is not None and not document.extender.healthy:
        found.append(f"extender: nothing answers on {document.extender.listen}; new GPU pods wait")
    found += [
        f"{row.full_name} container {row.container} is refused: {row.reason or 'no reason given'}"
        for row in document.pods
        if row.state == "refused"
    ]
    found += [
        f"{row.full_name} container {row.container}: {row.reason or 'its card is gone'}; until it goes, its "
        f"{counted(row.units, 'unit')} count against the cards that are left"
        for row in document.pods
        if row.state == "lost"
    ]
    found += [f"{row.full_name}: {row.reason}" for row in document.pods if row.state in {"cardless", "unrecorded"}]
    return found
