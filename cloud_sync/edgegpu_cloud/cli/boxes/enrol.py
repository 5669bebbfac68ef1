"""`edgegpu-cloud enrol`, `pending`, `approve`, `refuse`: the line to paste on a box, and boxes that wait."""

import time
from typing import Annotated

import typer

from edgegpu_base.cli.durations import seconds
from edgegpu_base.cli.output import one_line
from edgegpu_cloud.cli.arguments import complete_boxes
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    ago,
    answer,
    moment,
    print_connection_problem,
    print_json,
    print_list,
    reached,
    reporting,
    say,
)
from edgegpu_cloud.cli.local_cloud import LocalCloud
from edgegpu_cloud.controller.status import no_bundle
from edgegpu_cloud.enrolment.install_lines import EnrolLine, line_problems
from edgegpu_cloud.enrolment.manager import MOST_LISTED, MOST_USES, AttemptView, TokenRequest
from edgegpu_cloud.fleet.selectors import read_labels
from edgegpu_cloud.store.records import RequestState

ENROL_HELP = """\
Make a one-time token and print the line to paste on a box. The line is a secret until it was used.

Without options: what `tokens` in controller.yaml has, else one box, within the hour. The console takes the same.
A second use is refused, and raises an alarm (`edgegpu-cloud alarms`).
A machine that is a box already needs a token for that box (--for); any other one makes new boxes only.

\b
Examples:
  edgegpu-cloud enrol --name asr-hall --label site=hall
  edgegpu-cloud enrol --count 200 --expires 7d --approve --name plant-3
  edgegpu-cloud enrol --for asr-hall      # that very box, set up anew, on whatever machine

\b
--json prints {"token", "line", "line_sudo", "expires_at": SECONDS, "uses", "approval", "url", "ca_sha256", "pin"}
"""
PENDING_HELP = """\
List the boxes that wait for `approve`.

\b
--json prints [{"id", "host", "name", "instance", "address", "versions", "at_s", "by"}]
"""
APPROVE_HELP = """\
Take in a box that waits: it asks again within a quarter of a minute.

\b
--json prints {"id", "state": "APPROVED"}
"""
REFUSE_HELP = """\
Refuse a box that waits, for good. The use of its token is spent.

\b
--json prints {"id", "state": "REFUSED"}
"""

_DEFAULT = "[default: tokens.%s]"

CountOption = Annotated[
    int | None,
    typer.Option(
        "--count", metavar="NUMBER", min=1, max=MOST_USES, help=f"How many boxes may use it.  {_DEFAULT % 'uses, one'}"
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option(
        "--expires", metavar="TIME", help=f"How long it lasts: 30m, 12h, 7d.  {_DEFAULT % 'lasts_s, an hour'}"
    ),
]
ApproveOption = Annotated[
    bool | None,
    typer.Option("--approve/--no-approve", help=f"A person says yes to each box.  {_DEFAULT % 'approval, no'}"),
]
NameOption = Annotated[
    str, typer.Option("--name", metavar="NAME", help="What the box shall be called; for several, how they begin.")
]
ForOption = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="BOX",
        help="For this box alone, which is set up anew.",
        autocompletion=complete_boxes,
    ),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A label of the box, by which -l selects it; several times."),
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As `pending` shows it; the beginning will do.")]


def enrol(
    *,
    folder: FolderOption = DEFAULT,
    name: NameOption = "",
    count: CountOption = None,
    expires: ExpiresOption = None,
    approve: ApproveOption = None,
    only_for: ForOption = "",
    label: LabelOption = None,
    json: JsonOption = False,
) -> None:
    """Make a one-time token and print the line to paste on a box."""
    if only_for and (count or 1) > 1:
        raise typer.BadParameter("--for names one box, so leave --count out", param_hint="--count")
    with reporting(as_json=json), reached(folder) as cloud:
        wanted = TokenRequest(
            lasts_s=seconds(expires, option="--expires") if expires else None,
            uses=count,
            approval=approve,
            name=name,
            labels={key: value for key, value in read_labels(label or []).items() if value},
            only_for=only_for,
        )
        line = cloud.enrolment.make_line(wanted)
        if json:
            print_json(line)
            return
        _tell(line)
        print_connection_problem(cloud)
        if not only_for and cloud.fleet.is_name(name):
            say(
                f"edgegpu-cloud: there is a box {name}: another machine gets a longer name; that one anew: --for {name}"
            )
        if isinstance(cloud, LocalCloud):
            for why in line_problems(line.url, has_bundle=not no_bundle(cloud.layout)):
                say(f"edgegpu-cloud: {why[0].lower()}{why[1:]}")


def _tell(line: EnrolLine) -> None:
    boxes = "one box" if line.uses == 1 else f"{line.uses} boxes"
    typer.echo(f"For {boxes}, until {moment(line.expires_at)}. Paste on the box, as root:\n")
    typer.echo(f"{line.line}\n")
    typer.echo(f"or with sudo:\n\n{line.line_sudo}\n")
    typer.echo(f"On a box that has edgegpu already: edgegpu agent enrol --url {line.url} --ca-sha256 {line.ca_sha256}")
    typer.echo(f"asks for the token: {line.token}")
    if line.approval:
        typer.echo("\nEach box waits for a yes: edgegpu-cloud pending, edgegpu-cloud approve ID")


def pending(*, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """List the boxes that wait for `approve`."""
    with reporting(as_json=json), reached(folder) as cloud:
        now_s = time.time()

        def shown(view: AttemptView) -> dict[str, object]:
            one = view.attempt
            asked = {name: one.asked.get(name, "") for name in ("host", "name", "instance", "address", "versions")}
            return {"id": one.id, **asked, "at_s": one.at_s, "by": view.made_by}

        def row(view: AttemptView) -> tuple[str, ...]:
            cells = (str(shown(view)[name])[:24] for name in ("host", "name", "instance", "address", "by"))
            return (view.attempt.id[:8], ago(view.attempt.at_s, now_s), *cells)

        waiting = cloud.enrolment.attempts(RequestState.WAITING, limit=MOST_LISTED)
        print_list(waiting, _PENDING, row, none="no box waits", as_json=json, shown=shown)


_PENDING = ("ID", "ASKED", "HOST", "NAME", "INSTANCE", "ADDRESS", "TOKEN BY")


def approve(id_: IdArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Take in a box that waits."""
    _decide(id_, RequestState.APPROVED, folder=folder, json=json)


def refuse(id_: IdArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Refuse a box that waits."""
    _decide(id_, RequestState.REFUSED, folder=folder, json=json)


def _decide(id_: str, state: RequestState, *, folder: FolderOption, json: bool) -> None:
    with reporting(as_json=json), reached(folder) as cloud:
        request = cloud.enrolment.decide(id_, state).attempt
        names = dict.fromkeys(str(request.asked.get(one) or "") for one in ("name", "host"))
        called = ", host ".join(filter(None, map(one_line, names))) or request.id[:8]
        answer({"id": request.id, "state": state}, f"{state.value.lower()}: {called}", as_json=json)
