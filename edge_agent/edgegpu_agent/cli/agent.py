"""`edgegpu agent`: show the box's enrolment and connection, and enrol it in a cloud."""

from pathlib import Path
from typing import Annotated

import typer

from edgegpu_agent.cli.common import EXIT_WRONG, JsonOption, need_root, print_json, reporting
from edgegpu_base.cli.helptext import command_group, put

STATUS_HELP = """\
Show whether this box is enrolled in its cloud and connected, its certificate, what was requested and what is applied.

Exits 1 when something is wrong, and says what to do. That a box belongs to no cloud is no error.

\b
Examples:
  sudo edgegpu agent status
  edgegpu agent status --json | jq -r '.problems[]'

\b
--json: {"v": 1, "cloud": null or {"url", "ca_sha256": TEXT},
  "identity": null or {"stand", "text", "remedy", "code", "device", "warning": TEXT, "enrolment", "not_after_s",
                       "failures": NUMBER},
  "agent": null or what edgegpu-agent says of the connection, of settings and of what waits to be sent,
  "problems": [TEXT]}
"""

ENROL_HELP = """\
Put this box into a cloud, or into another one: exchanges a one-time token for an identity of its own.

Needs edgegpu on this box (edgegpu install). Writes /etc/edgegpu/agent.yaml and the token, restarts edgegpu-agent, and
waits for what comes of it. The token is removed when it was used. The keys are made here and never leave this box.
What else stands in agent.yaml stays. On a server run `edgegpu install` once afterwards: it makes the account by which
the cloud may change apps' limits.

\b
Examples:
  sudo edgegpu agent enrol --url https://cloud.example:8443 --ca-sha256 HEX --token-file token
  sudo EDGEGPU_TOKEN=... edgegpu agent enrol --url https://cloud.example

\b
--json: {"v": 1, "stand", "text", "remedy", "code", "device": TEXT, "enrolment": NUMBER}

Exits 0 when the box is enrolled, or waits for a person's approval; else 1, with the reason.
"""

app = command_group("This box and its cloud.")

AgentSocketOption = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help="The agent's Unix socket  [default: /run/edgegpu/agent.sock]"),
]
RootOption = Annotated[Path, typer.Option("--root", metavar="FOLDER", help="The machine below this.", hidden=True)]
UrlOption = Annotated[str, typer.Option("--url", metavar="URL", help="The cloud's address, https://HOST[:PORT].")]
PinOption = Annotated[
    str, typer.Option("--ca-sha256", metavar="HEX", help="The SHA-256 of the cloud's own CA, if it has one.")
]
FileOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="A file with the token; or EDGEGPU_TOKEN.")
]
WaitOption = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the end.")]


def status(*, socket: AgentSocketOption = None, root: RootOption = Path("/"), json: JsonOption = False) -> None:
    """Show how this box stands with its cloud."""
    with reporting(as_json=json):
        if socket is None:
            need_root("cannot show how this box stands with its cloud", root=root)
        from edgegpu_agent.cli.clients.agent import read_agent  # noqa: PLC0415  (with yaml)
        from edgegpu_agent.cli.views.agent import lines  # noqa: PLC0415

        seen = read_agent(root, socket)
        if json:
            print_json(seen.document())
        else:
            for line in lines(seen):
                typer.echo(line)
        if seen.problems:
            raise typer.Exit(EXIT_WRONG)


def enrol(
    *,
    url: UrlOption,
    ca_sha256: PinOption = "",
    token_file: FileOption = None,
    wait: WaitOption = 60.0,
    root: RootOption = Path("/"),
    json: JsonOption = False,
) -> None:
    """Put this box into a cloud, or into another one."""
    with reporting(as_json=json):
        need_root("cannot enrol", root=root)
        from edgegpu_agent.cli.setup.enrolment import EnrolmentRun, read_token  # noqa: PLC0415  (slow to load)

        told = EnrolmentRun(root=root, wait_s=wait).run(url, ca_sha256, read_token(token_file))
        if json:
            print_json({"v": 1, **told.document()})
        else:
            typer.echo(told.sentence)
            if told.remedy:
                typer.echo(f"  {told.remedy}")
        if not told.well:
            raise typer.Exit(EXIT_WRONG)


put(app, "status", status, STATUS_HELP, "Enrolment, connection, certificate, settings.")
put(app, "enrol", enrol, ENROL_HELP, "Put this box into a cloud.")
