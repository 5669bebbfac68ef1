"""`edgegpu-cloud enrol`, `pending`, `approve`, `refuse`: the line to paste on a box, and boxes that wait."""

import time
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from edgegpu_base.cli.durations import seconds
from edgegpu_base.cli.output import one_line
from edgegpu_cloud.cli.arguments import complete_boxes
from edgegpu_cloud.cli.common import (
    DEFAULT,
    Cloud,
    FolderOption,
    JsonOption,
    ago,
    answer,
    moment,
    opened,
    operator,
    print_connection_problem,
    print_json,
    print_list,
    reporting,
    say,
)
from edgegpu_cloud.controller.status import no_bundle
from edgegpu_cloud.enrolment import tokens
from edgegpu_cloud.enrolment.bootstrap import read_key
from edgegpu_cloud.enrolment.key_files import file_sha256, pin, read_file
from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.names import check_name
from edgegpu_cloud.fleet.selectors import read_labels
from edgegpu_cloud.http.urls import url_of
from edgegpu_cloud.store.records import AuditEntry, EnrolmentAttempt, RequestState, Token

_MOST_COUNT = 100_000

ENROL_HELP = """\
Make a one-time token and print the line to paste on a box. The line is a secret until it was used.

Without options: one box, within the hour. A second use is refused, and raises an alarm (`edgegpu-cloud alarms`).

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

CountOption = Annotated[
    int | None, typer.Option("--count", metavar="NUMBER", min=1, max=_MOST_COUNT, help="How many boxes may use it.")
]
ExpiresOption = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="How long it lasts: 30m, 12h, 7d  [default: an hour]")
]
ApproveOption = Annotated[bool | None, typer.Option("--approve/--no-approve", help="A person says yes to each box.")]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolLine:
    """The line that a person pastes, and its parts."""

    token: str
    line: str
    line_sudo: str
    expires_at: int
    uses: int
    approval: bool
    url: str
    ca_sha256: str
    pin: str


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
    with reporting(as_json=json), opened(folder) as cloud:
        labels = {key: value for key, value in read_labels(label or []).items() if value}
        settings, now_s = cloud.config.tokens, time.time()
        lasts_s = seconds(expires, option="--expires") if expires else settings.lasts_s
        text = tokens.mint()
        token = Token(
            digest=tokens.digest(text),
            by=operator(),
            at_s=now_s,
            expires_at_s=now_s + lasts_s,
            uses=1 if only_for else count or settings.uses,
            approval=settings.approval if approve is None else approve,
            name=name,
            labels=labels | ({tokens.ONLY_FOR: cloud.fleet.box(only_for).device} if only_for else {}),
        )
        if name:
            check_name(name)
        _keep(cloud, token)
        line = _line(cloud, token, text)
        if json:
            print_json(line)
            return
        _tell(line, lasts_s)
        print_connection_problem(cloud)
        if not only_for and any(one.name == name for one in cloud.fleet.boxes()):
            say(
                f"edgegpu-cloud: there is a box {name}: another machine gets a longer name; that one anew: --for {name}"
            )
        if why := no_bundle(cloud.layout):
            say(f"edgegpu-cloud: {why}: the line fails until `serve --bundle FOLDER` has one")


def _keep(cloud: Cloud, token: Token) -> None:
    detail = {"uses": token.uses, "approval": token.approval, "name": token.name, "token": token.digest[:12]}
    with cloud.store.write() as tx:
        tx.enrolments.add_token(token)
        tx.notes.audit(AuditEntry(at_s=token.at_s, by=token.by, what="token.made", detail=detail))


def _line(cloud: Cloud, token: Token, text: str) -> EnrolLine:
    url = url_of(cloud.config)
    sha256, key = (
        file_sha256(read_file(cloud.layout.ca_cert("servers"))),
        pin(read_key(cloud.layout, "https").public_key()),
    )
    fetch = f"curl -fsSLk --pinnedpubkey 'sha256//{key}' {url}/install.sh"
    options = f"sh -s -- --url {url} --ca-sha256 {sha256}"
    return EnrolLine(
        token=text,
        line=f"{fetch} | EDGEGPU_TOKEN={text} {options}",
        line_sudo=f"{fetch} | EDGEGPU_TOKEN={text} sudo --preserve-env=EDGEGPU_TOKEN {options}",
        expires_at=int(token.expires_at_s),
        uses=token.uses,
        approval=token.approval,
        url=url,
        ca_sha256=sha256,
        pin=key,
    )


def _tell(line: EnrolLine, lasts_s: int) -> None:
    boxes = "one box" if line.uses == 1 else f"{line.uses} boxes"
    typer.echo(f"For {boxes}, until {moment(line.expires_at)}. Paste on the box, as root:\n")
    typer.echo(f"{line.line}\n")
    typer.echo(f"or with sudo:\n\n{line.line_sudo}\n")
    typer.echo(f"On a box that has edgegpu already: edgegpu agent enrol --url {line.url} --ca-sha256 {line.ca_sha256}")
    typer.echo(f"asks for the token: {line.token}")
    if line.approval:
        typer.echo(
            f"\nEach box waits for a yes: edgegpu-cloud pending, edgegpu-cloud approve ID (within {lasts_s} s or later)"
        )


def pending(*, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """List the boxes that wait for `approve`."""
    with reporting(as_json=json), opened(folder) as cloud:
        with cloud.store.read() as tx:
            waiting = tx.enrolments.requests(RequestState.WAITING)
            tokens_by = {token.digest: token.by for token in tx.enrolments.tokens()}
        now_s = time.time()

        def shown(one: EnrolmentAttempt) -> dict[str, object]:
            asked = {name: one.asked.get(name, "") for name in ("host", "name", "instance", "address", "versions")}
            return {"id": one.id, **asked, "at_s": one.at_s, "by": tokens_by.get(one.token, "")}

        def row(one: EnrolmentAttempt) -> tuple[str, ...]:
            cells = (str(shown(one)[name])[:24] for name in ("host", "name", "instance", "address", "by"))
            return (one.id[:8], ago(one.at_s, now_s), *cells)

        print_list(waiting, _PENDING, row, none="no box waits", as_json=json, shown=shown)


_PENDING = ("ID", "ASKED", "HOST", "NAME", "INSTANCE", "ADDRESS", "TOKEN BY")


def approve(id_: IdArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Take in a box that waits."""
    _decide(id_, RequestState.APPROVED, folder=folder, json=json)


def refuse(id_: IdArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Refuse a box that waits."""
    _decide(id_, RequestState.REFUSED, folder=folder, json=json)


def _decide(id_: str, state: RequestState, *, folder: FolderOption, json: bool) -> None:
    with reporting(as_json=json), opened(folder) as cloud:
        with cloud.store.write() as tx:
            request = _the_one(tx.enrolments.requests(), id_)
            if request.state is not RequestState.WAITING:
                text = f"cannot decide about {request.id[:8]}: it is {request.state.value} already"
                raise ConflictError(text, remedy="`edgegpu-cloud pending` lists those that wait")
            tx.enrolments.put_request(replace(request, state=state))
            detail = {"request": request.id, "host": request.asked.get("host", "")}
            what = f"enrolment.{state.value.lower()}"
            tx.notes.audit(AuditEntry(at_s=time.time(), by=operator(), what=what, detail=detail))
        names = dict.fromkeys(str(request.asked.get(one) or "") for one in ("name", "host"))
        called = ", host ".join(filter(None, map(one_line, names))) or request.id[:8]
        answer({"id": request.id, "state": state}, f"{state.value.lower()}: {called}", as_json=json)


def _the_one(requests: list[EnrolmentAttempt], id_: str) -> EnrolmentAttempt:
    found = [one for one in requests if one.id.startswith(id_)]
    if not found or not id_:
        raise NotFoundError(f"cannot find a box that waits as {id_!r}", remedy="`edgegpu-cloud pending` lists them")
    if len(found) > 1:
        raise CloudError(
            f"cannot tell which box {id_!r} is: {len(found)} begin so", remedy="give more letters of its id"
        )
    return found[0]
