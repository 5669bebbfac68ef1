"""What the commands share: options, the open controller, output, and how an error ends a command."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, Protocol, TypeVar

import typer
from pydantic_core import to_jsonable_python

from edgegpu_base.cli import output
from edgegpu_base.cli.commandline import is_output_fault
from edgegpu_base.cli.durations import seconds
from edgegpu_base.cli.output import dumped, dumped_one_of_many, one_line, plain, plain_json
from edgegpu_base.process.user import invoking_user
from edgegpu_cloud.cli.local_cloud import LocalCloud
from edgegpu_cloud.cli.remote.client import CA_FILE, ApiClient, read_token
from edgegpu_cloud.cli.remote.cloud import RemoteCloud
from edgegpu_cloud.cli.remote.server import SERVER
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import DEFAULT_FOLDER, CloudConfig, CloudLayout, load, store_url
from edgegpu_cloud.ownership import account, become_owner, remedy_for
from edgegpu_cloud.store.records import UNINSTALLED, BoxState, Json
from edgegpu_sync.errors import SyncError

if TYPE_CHECKING:  # slow to load
    from edgegpu_cloud.cli.remote.ports import (
        AlertsPort,
        EnrolmentPort,
        EvidencePort,
        FleetPort,
        OperationsPort,
        RolloutsPort,
    )
    from edgegpu_cloud.fleet.audit.kinds import AuditKind
    from edgegpu_cloud.fleet.views import BoxView
    from edgegpu_cloud.store.records import AuditEntry

EXIT_FAILED, EXIT_WAITING, EXIT_INTERRUPTED = 1, 3, 130
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_EVERY_S = 1.0
T = TypeVar("T")

FolderOption = Annotated[
    Path,
    typer.Option(
        "--folder",
        metavar="FOLDER",
        envvar="EDGEGPU_CLOUD",
        readable=False,  # an unreadable folder is reported with the user who can read it
        help="Where the controller's files are.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DEFAULT = DEFAULT_FOLDER


class Cloud(Protocol):
    """A controller on this machine or on another one: its services, each imported when it is used."""

    @property
    def by(self) -> str:
        """Return the name of who asks."""

    @property
    def fleet(self) -> "FleetPort": ...  # noqa: D102  (the services say what they are)
    @property
    def rollouts(self) -> "RolloutsPort": ...  # noqa: D102
    @property
    def operations(self) -> "OperationsPort": ...  # noqa: D102
    @property
    def alerts(self) -> "AlertsPort": ...  # noqa: D102
    @property
    def evidence(self) -> "EvidencePort": ...  # noqa: D102
    @property
    def enrolment(self) -> "EnrolmentPort": ...  # noqa: D102


def operator() -> str:
    """Return the name of the operator who runs this command, for the audit and the boxes' journals."""
    return f"operator {invoking_user()}"


def store_entry(what: "AuditKind", before: Json, after: Json) -> "AuditEntry":
    """Return the audit's entry of a change of the whole store, by the operator who runs this command."""
    from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, entry_of  # noqa: PLC0415  (slow to load)

    return entry_of(Author(operator(), time.time()), what, AuditedChange(before, after))


@contextmanager
def reached(folder: Path) -> Iterator[Cloud]:
    """Reach the controller that `--server` names, by its API; without it open the one of this machine.

    Raises:
        CloudError: no token, or as `opened`.
    """
    if url := SERVER.get():
        client = ApiClient(url, read_token(), ca=os.environ.get(CA_FILE, ""))
        with closing(client):
            yield RemoteCloud(client, operator())
        return
    with opened(folder) as cloud:
        yield cloud


@contextmanager
def opened(folder: Path, *, why: str = "", instead: str = "") -> Iterator[LocalCloud]:
    """Open a controller as the owner of its folder; a process of root's gives root up.

    `why` and `instead` are as `refuse_server` takes them.

    Raises:
        CloudError: `--server` is given, there is none in that folder, or its store cannot be used.
    """
    refuse_server(why, instead)
    by = operator()
    become_owner(folder)
    layout = CloudLayout(folder)
    config = load(layout.config)
    check_database(layout, config)
    from edgegpu_cloud.store.store import ControllerStore  # noqa: PLC0415  (slow to load)

    store = ControllerStore.open(store_url(layout, config.database), create=False)
    try:
        yield LocalCloud(layout, config, store, by)
    finally:
        store.close()


def refuse_server(why: str = "", instead: str = "") -> None:
    """Refuse `--server` for a command that the API has not.

    Args:
        why: the reason; empty: it works with the controller's own files.
        instead: another remedy than to run it on the controller's machine; empty: none.

    Raises:
        CloudError: it is given.
    """
    if SERVER.get():
        reason = why or "the command works with the controller's own files"
        text = f"cannot do this with --server: {reason}"
        here = "run it on the controller's machine, without --server"
        raise CloudError(text, remedy=f"{instead}, or {here}" if instead else here)


def check_database(layout: CloudLayout, config: CloudConfig) -> None:
    """Refuse a SQLite store that is not there, which would be created empty, or that is another user's.

    Raises:
        CloudError: with who may read it, or how it comes back.
    """
    if config.database.url:
        return
    if not layout.database.exists():
        remedy = "bring it back from a backup: docs/cloud/backup.md says how"
        raise CloudError(f"cannot open {layout.database}: it is not there", remedy=remedy)
    if not os.access(layout.database, os.R_OK | os.W_OK):
        raise CloudError(f"cannot open {layout.database}: permission denied", remedy=remedy_for(layout.database))


@contextmanager
def reporting(*, as_json: bool) -> Iterator[None]:
    """Run a command's body: an error is printed as a sentence (or as JSON on stdout) and ends it with status 1."""
    try:
        yield
    except CloudError as error:
        _fail(error.text, error.remedy, as_json=as_json)
    except SyncError as error:
        _fail(str(error), "put it right and try again", as_json=as_json)
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except OSError as error:
        if is_output_fault(error):
            raise
        _fail(f"cannot go on: {error}", "see what stands in its way there", as_json=as_json)
    except ImportError as error:
        remedy = f"is this program where {account(os.geteuid())} can read it? Install it there (below /opt, say)"
        _fail(f"cannot load a part of this program: {error}", remedy, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except Exception as error:  # noqa: BLE001  (the border of a command)
        if os.environ.get("EDGEGPU_DEBUG"):
            traceback.print_exc()
        remedy = "this is a fault of edgegpu: run it again with EDGEGPU_DEBUG=1 and report what it prints"
        _fail(f"cannot go on: {type(error).__name__}: {error}", remedy, as_json=as_json)


def _fail(text: str, remedy: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"error": text, "remedy": remedy})
    else:
        say(f"edgegpu-cloud: {text}")
        if remedy:
            say(f"  {remedy}")
    raise typer.Exit(EXIT_FAILED)


def confirm(question: str, *, cannot: str, yes: bool, as_json: bool) -> None:
    """Ask a person whether to go on; with `yes` nobody is asked.

    Args:
        question: for a terminal.
        cannot: the beginning of the error where nobody can be asked.
        yes: whether it is confirmed already.
        as_json: nobody is asked beside a document.

    Raises:
        CloudError: nobody has confirmed.
        typer.Abort: the person does not want it.
    """
    if yes:
        return
    refused = CloudError(f"{cannot}: nobody has confirmed", remedy="pass --yes")
    if as_json:
        raise refused
    try:
        confirmed = typer.confirm(question, err=True)
    except typer.Abort:  # nobody can be asked
        raise refused from None
    if not confirmed:
        raise typer.Abort


def say(text: str) -> None:
    """Print a line on stderr for people who watch, beside a command's answer."""
    typer.echo(plain(text), err=True)


def link_trouble(cloud: Cloud) -> str:
    """Return what keeps the controller of this machine from its boxes; empty: nothing, or it is elsewhere."""
    if not isinstance(cloud, LocalCloud):
        return ""
    from edgegpu_cloud.controller.status import trouble  # noqa: PLC0415  (not for a controller elsewhere)

    return trouble(cloud.layout, cloud.config.broker)


def print_connection_problem(cloud: Cloud, of: "BoxView | None" = None) -> None:
    """Print what keeps this controller from its boxes, or from one box, if anything does."""
    if found := link_trouble(cloud):
        say(f"edgegpu-cloud: {found}")
    if of is not None and of.state is BoxState.SET_ASIDE:
        say(f"edgegpu-cloud: {of.name} is SET_ASIDE and ignored: `edgegpu-cloud boxes forget {of.name}`, enrol it anew")
    elif of is not None and of.state is BoxState.BLOCKED:
        say(f"edgegpu-cloud: {of.name} is BLOCKED and ignored: look at it, `edgegpu-cloud boxes unblock {of.name}`")
    elif of is not None and of.restored:
        say(f"edgegpu-cloud: {of.name} is RESTORED, nothing is sent to it: `edgegpu-cloud confirm {of.name}` first")


def print_json(value: object) -> None:
    """Print a document, as JSON or as `-o` says; dataclasses, models and enumerations as their values."""
    typer.echo(plain_json(dumped(to_jsonable_python(value))))


def answer(document: object, text: str, *, as_json: bool) -> None:
    """Print a command's answer: a document, or lines for people."""
    if as_json:
        print_json(document)
    else:
        typer.echo(text)


def print_json_line(value: object) -> None:
    """Print one of many documents at once, as JSON in one line."""
    typer.echo(plain_json(dumped_one_of_many(to_jsonable_python(value))))
    sys.stdout.flush()


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; in a pipe each row is one whole line, however long."""
    from rich.table import Table  # noqa: PLC0415  (only text output needs it)

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(one_line, row))
    output.print_table(table, output.make_console())


def print_list(
    found: Sequence[T],
    heads: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    none: str,
    as_json: bool,
    shown: Callable[[T], object] = lambda one: one,
) -> None:
    """Print a list: the document that is `shown` of each, or a table of rows, or that there is none."""
    if as_json:
        print_json([shown(one) for one in found])
    elif found:
        print_table(heads, [row(one) for one in found])
    else:
        typer.echo(none)


def standing(view: "BoxView") -> str:
    """Return a box's state in a word."""
    if view.state is not BoxState.ENROLLED:
        return view.state.value
    if view.restored:
        return "RESTORED"
    if view.left == UNINSTALLED:
        return "uninstalled"
    return "online" if view.online else "offline"


def since_of(text: str) -> float:
    """Return the time from which on something is shown, seconds since 1970; 0 where `--since` is not given.

    Raises:
        typer.BadParameter: no length of time.
    """
    return time.time() - seconds(text, option="--since") if text else 0.0


def ago(then_s: float, now_s: float) -> str:
    """Return how long ago something was, for people; "never" for 0."""
    if not then_s:
        return "never"
    past = max(0, int(now_s - then_s))
    for unit, name in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if past >= unit:
            return f"{past // unit} {name} ago"
    return f"{past} s ago"


def moment(at_s: float) -> str:
    """Return a moment in local time, for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s)) if at_s else "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRows(Generic[T]):
    """A watched list: its heads, each element's row, the key that identifies it, and the mark that changes with it."""

    heads: Sequence[str]
    row: Callable[[T], Sequence[str]]
    key: Callable[[T], str]
    mark: Callable[[T], object]


def follow(
    look: Callable[[], Sequence[T]], rows: WatchedRows[T], *, as_json: bool, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Print all elements, then each that is new or has changed, until ctrl-C."""
    shown: dict[str, object] = {}
    widths = [len(head) for head in rows.heads]
    first = True
    while True:
        changed = [one for one in look() if shown.get(rows.key(one)) != rows.mark(one)]
        shown.update({rows.key(one): rows.mark(one) for one in changed})
        if as_json:
            for one in changed:
                print_json_line(one)
        else:
            lines = [[one_line(cell) for cell in rows.row(one)] for one in changed]
            lines = [list(rows.heads), *lines] if first else lines
            widths = [max([width, *(len(line[at]) for line in lines)]) for at, width in enumerate(widths)]
            for line in lines:
                typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        first = False
        sleep(_EVERY_S)
