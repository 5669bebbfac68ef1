"""`edgegpu pods`: list the GPU containers of this node with their cards."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgegpu_agent.cli.clients import completing
from edgegpu_agent.cli.clients.document import CardRef, PodRow, StatusDocument
from edgegpu_agent.cli.clients.plugin import fetch_status, find_socket
from edgegpu_agent.cli.common import (
    EXIT_WRONG,
    CliError,
    ConfigOption,
    JsonOption,
    SocketOption,
    WatchOption,
    print_json,
    reporting,
)
from edgegpu_agent.cli.views.isolation import full_reason, held_words, holds_any
from edgegpu_agent.cli.views.memory_use import other_words, others, use_of
from edgegpu_agent.cli.views.silence import silence_lines
from edgegpu_base.cli.output import counted, is_wide, make_console, print_table, width_of

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

JSON_VERSION = 1

NamespaceOption = Annotated[
    str,
    typer.Option(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help="Only this namespace.",
        autocompletion=completing.namespaces,
    ),
]
AllOption = Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces, as without -n.")]
PodArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[POD]...", help="Only these; the beginning of a name will do.", autocompletion=completing.pods
    ),
]

HELP = """\
List the containers of this node that ask for GPU shares, with the card that each has, and those that no node has yet.

\b
States:
  pending    its pod has no node yet; REASON has the numbers of each card. Seen on the cluster's servers alone
  allocated  it has its card
  waiting    its card is chosen or about to be, kubelet has not given it yet
  refused    it fits on no card; REASON has the numbers
  lost       its card is gone from this machine; REASON says what happens next
  cardless   it runs, and its card did not come into the container; REASON says why
  unrecorded it runs, and kubelet has no record of its devices; REASON says what to do
  unknown    kubelet has booked it for a pod of which the API server has shown nothing: it is silent, or not read yet
  held       its pod is gone, kubelet has not freed its units yet, or is silent

USES is the card's memory that its processes use, of what it was given, as the driver lists them twice a minute; `over`:
it uses more than it was given.

A source that does not answer is named below the list, with when it was heard last: what came from it is as it was then.

\b
HELD says what holds the container to its memory, where a container of the node is held or the node is told to hold
them: `enforced` its programs get no more, with what they have counted of their limit and their share of the card's
time (`core 30`), `2 of 4 units (live)` where `edgegpu limit` or an app limit of the cloud holds it to less than its
share, and `3 refused` where its programs were told so often since its start that there is no memory; `degraded` not
all of its programs are held, REASON says why; `off` it was given its share without.

\b
Examples:
  edgegpu pods
  edgegpu pods -n baetyl-edge
  edgegpu pods asr -o wide
  edgegpu pods -w
  edgegpu pods --json | jq -r '.pods[] | select(.state == "refused") | .reason'
  sudo edgegpu pods --evidence

\b
--evidence runs `nvidia-smi -L` in each container that holds cards, by the container runtime, and compares: `own` it
sees exactly its cards, `more` others too, `other` not all of its own, `none` no card, `unknown` it could not be asked.
What is printed there is the container's word. Exit status: 1 if one of them is more, other or none.

\b
--json: {"v": 1, "node": TEXT, "pods": [{"namespace", "pod", "uid", "container": TEXT, "units", "core": NUMBER,
  "cards": [{"index", "uuid": TEXT, "given_mib", "used_mib", "processes": NUMBER or null}], "phase", "state",
  "reason": TEXT, "isolation": {"state", "reason": TEXT, "cards": [{"card": UUID, "limit_mib", "counted_mib",
  "limit_units", "held_units", "core_percent", "refusals": NUMBER}], "limiter": TEXT, "private_tables": [UUID],
  "notes": [TEXT]} or null}],
  "measured_at": NUMBER or null,
  "others": [{"index", "uuid", "uid", "container": TEXT, "used_mib": NUMBER or null, "processes": NUMBER}]}
  "silent": [{"source", "why": TEXT, "heard_at": NUMBER or null}], the sources that do not answer
  "others" use a card without a share of it; without "uid" they are processes of no pod.
  With --evidence each has "evidence": {"verdict", "lines", "text": TEXT, "seen": [UUID]}
"""

EvidenceOption = Annotated[
    bool, typer.Option("--evidence", help="Run nvidia-smi -L in the containers, and compare what they see.")
]
UidOption = Annotated[
    list[str] | None,
    typer.Option("--uid", metavar="UID", help="Only the pod with this UID; may be given several times."),
]


def pods(  # noqa: PLR0913  (one for each option)
    pod: PodArgument = None,
    *,
    json: JsonOption = False,
    namespace: NamespaceOption = "",
    all_namespaces: AllOption = False,
    uid: UidOption = None,
    evidence: EvidenceOption = False,
    watch: WatchOption = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """List the containers of this node that ask for GPU shares, with the card that each has."""
    if namespace and all_namespaces:
        raise typer.BadParameter("-n and -A exclude each other", param_hint="-A")
    if evidence and watch:
        raise typer.BadParameter("--evidence looks once: it runs a program in each container", param_hint="--evidence")
    with reporting(as_json=json):
        chosen = _Chosen(namespace, tuple(pod or ()), frozenset(uid or ()))
        path = find_socket(socket, config)
        if evidence:
            _look_inside(path, chosen, as_json=json)
            return
        if watch:
            from edgegpu_agent.cli.views.watching import watch as again  # noqa: PLC0415  (only for it)

            again(lambda: _look(path, chosen, as_json=json))
        _look(path, chosen, as_json=json)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The filter of pods: a namespace (empty: all), beginnings of names (none: all), and UIDs (none: all)."""

    namespace: str
    names: tuple[str, ...]
    uids: frozenset[str] = frozenset()

    def __contains__(self, row: PodRow) -> bool:
        named = not self.names or row.pod.startswith(self.names)
        return named and self.namespace in {"", row.namespace} and (not self.uids or row.uid in self.uids)

    @property
    def words(self) -> str:
        """The filter as part of a sentence."""
        named = f" called {', '.join(self.names)}" if self.names else ""
        named += f" with the UID {', '.join(sorted(self.uids))}" if self.uids else ""
        return f"{named} in namespace {self.namespace}" if self.namespace else named


def _look(path: Path, chosen: _Chosen, *, as_json: bool) -> None:
    document = fetch_status(path)
    rows = [row for row in (*document.pods, *document.pending) if row in chosen]
    if as_json:
        print_json(_whole_json(document, [_as_json(row, document) for row in rows]))
    elif chosen.names and not rows:
        raise CliError(f"cannot find a pod{chosen.words} on {document.node}", remedy="edgegpu pods lists all of them")
    elif not rows:
        typer.echo(f"no pod on {document.node}{chosen.words} asks for a share of a card")
    else:
        _print(rows, document)
        if document.pending_more:
            typer.echo(f"and {counted(document.pending_more, 'more Pending pod')}", err=True)
    if not as_json:
        _print_others(document)
        for line in silence_lines(document):
            typer.echo(line)


def _print_others(document: StatusDocument) -> None:
    """Print what uses cards without a share of them, and when the use was measured."""
    if document.use.at is None:
        return
    typer.echo()
    for number, row in others(document):
        typer.echo(other_words(number, row, document))
    typer.echo(f"USES as measured at {time.strftime('%H:%M:%S', time.localtime(document.use.at))}, twice a minute")


def _look_inside(path: Path, chosen: _Chosen, *, as_json: bool) -> None:
    """Print what the containers that hold cards see; exit with 1 where one sees other cards than its own."""
    from edgegpu_agent.cli.clients.evidence import check_evidence, find_runtime  # noqa: PLC0415  (only for it)
    from edgegpu_agent.cli.views.evidence import WRONG, print_evidence  # noqa: PLC0415

    document = fetch_status(path)
    rows = [row for row in document.pods if row in chosen and row.cards and row.pod]
    found = check_evidence(rows, find_runtime()) if rows else []
    if as_json:
        fields = ("verdict", "lines", "text", "seen")
        told = [
            {**_as_json(row, document), "evidence": one.model_dump(mode="json", include=set(fields))}
            for row, one in zip(rows, found, strict=True)
        ]
        print_json(_whole_json(document, told))
    elif not rows:
        typer.echo(f"no pod on {document.node}{chosen.words} holds a share of a card")
    else:
        print_evidence(found)
    if any(one.verdict in WRONG for one in found):
        raise typer.Exit(EXIT_WRONG)


def _whole_json(document: StatusDocument, pods: list[dict[str, Any]]) -> dict[str, Any]:
    named = [
        {
            "index": number,
            "uuid": row.card,
            "uid": row.uid,
            "container": row.container,
            "used_mib": row.used_mib,
            "processes": row.processes,
        }
        for number, row in others(document)
    ]
    head = {"v": JSON_VERSION, "node": document.node, "pods": pods}
    silent = [{"source": one.name, "why": one.why, "heard_at": one.heard_at} for one in document.silent]
    return {**head, "measured_at": document.use.at, "others": named, "silent": silent}


def _as_json(row: PodRow, document: StatusDocument) -> dict[str, Any]:
    cards = [{"index": ref.index, "uuid": ref.uuid, **use_of(row, ref, document).to_json()} for ref in row.cards]
    return {**asdict(row), "cards": cards}


def _print(rows: Sequence[PodRow], document: StatusDocument) -> None:
    """Print a table; on a terminal too narrow for it, a few lines for each container."""
    from rich.padding import Padding  # noqa: PLC0415  (only text output needs it)

    console, table = make_console(), _table(rows, document)
    if is_wide() or not console.is_terminal or width_of(table, console) <= console.width:
        print_table(table, console)
        return
    for row in rows:
        console.print(f"{row.full_name}  {row.container}", style="bold")
        details = [f"{counted(row.units, 'unit')}, core {row.core}: {row.state}", full_reason(row)]
        details += [f"held: {held_words(row)}"] if holds_any(document) else []
        details += [f"card {ref.index}  {ref.uuid}{_uses_words(row, ref, document)}" for ref in row.cards]
        for detail in filter(None, details):
            console.print(Padding(detail, (0, 0, 0, 2)))


def _uses_words(row: PodRow, ref: CardRef, document: StatusDocument) -> str:
    return f"  uses {use_of(row, ref, document)}" if document.use.at is not None else ""


def _uses(row: PodRow, document: StatusDocument) -> "Text":
    """Return the cell of what a container uses of each of its cards."""
    from rich.text import Text  # noqa: PLC0415  (only text output needs it)

    found = [use_of(row, ref, document) for ref in row.cards]
    return Text("\n").join(Text(str(one), style="red" if one.is_over else "") for one in found) if found else Text("-")


_BAD = {"refused", "lost", "cardless", "unrecorded"}


def _table(rows: Sequence[PodRow], document: StatusDocument) -> "Table":
    from rich.table import Table  # noqa: PLC0415  (only text output needs it)
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("NAMESPACE", "POD", "CONTAINER", "CARD", "UUID"):
        table.add_column(name, no_wrap=True)
    for name in ("UNITS", "CORE"):
        table.add_column(name, no_wrap=True, justify="right")
    measured = document.use.at is not None
    wide = is_wide()
    held = holds_any(document)
    more_names = (*(("USES",) if measured else ()), *(("HELD",) if held else ()), *(("PHASE", "UID") if wide else ()))
    for name in (*more_names, "STATE", "REASON"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        indexes = "\n".join(card.index for card in row.cards) or "-"
        uuids = "\n".join(card.uuid for card in row.cards) or "-"
        style = "red" if row.state in _BAD else "" if row.state == "allocated" else "yellow"
        cells = (row.namespace or "-", row.pod or row.uid, row.container, indexes, uuids, str(row.units), str(row.core))
        uses = (_uses(row, document),) if measured else ()
        more = ((held_words(row),) if held else ()) + ((row.phase, row.uid) if wide else ())
        table.add_row(*cells, *uses, *more, Text(row.state, style=style), Text(full_reason(row)))
    return table
