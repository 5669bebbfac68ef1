"""`edgegpu journal`: what this box was asked, when, by whom, and what came of it."""

from pathlib import Path
from typing import Annotated

import typer

from edgegpu_agent.cli.agent import AgentSocketOption, RootOption
from edgegpu_agent.cli.common import JsonOption, need_root, print_json, reporting

HELP = """\
Show what this box was asked, when, by whom, and what came of it: commands, settings, keys.

The newest line is the last. Times are those of this box's clock. It is the running agent that answers.

\b
Examples:
  sudo edgegpu journal
  sudo edgegpu journal --limit 500 | grep k3s.restart
  edgegpu journal --json | jq -r '.lines[] | select(.kind == "command")'

\b
--json, the newest first:
  {"version": 1, "lines": [{"n", "at": NUMBER, "kind", "about", "state", "text", "by": TEXT}]}
"""

LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=2000, help="How many lines.")]


def journal(
    *,
    limit: LimitOption = 50,
    socket: AgentSocketOption = None,
    root: RootOption = Path("/"),
    json: JsonOption = False,
) -> None:
    """Show what this box was asked, when, by whom, and what came of it."""
    with reporting(as_json=json):
        if socket is None:
            need_root("cannot show the journal", root=root)
        from edgegpu_agent.cli.agentclient import SOCKET_NAME, fetch  # noqa: PLC0415  (with yaml)
        from edgegpu_agent.cli.agentview import journal_lines  # noqa: PLC0415
        from edgegpu_installer.layout import Layout  # noqa: PLC0415

        answer = fetch(socket or Layout(root).run / SOCKET_NAME, f"/v1/journal?limit={limit}")
        if json:
            print_json(answer)
            return
        for line in journal_lines(answer):
            typer.echo(line)
