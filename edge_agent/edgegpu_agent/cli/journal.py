"""`edgegpu journal`: show which commands and settings this box got, when, from whom, and their outcome."""

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from edgegpu_agent.cli.agent import AgentSocketOption, RootOption
from edgegpu_agent.cli.common import CliError, JsonOption, need_root, print_json, reporting
from edgegpu_base.cli.durations import seconds

_MOST = 2_000
_EVERY_S = 1.0
_INTERRUPTED = 130

HELP = """\
Show what this box was asked, when, by whom, and what came of it: commands, settings, keys.

The newest line is the last. Times are those of this box's clock. It is the running agent that answers.

\b
Examples:
  sudo edgegpu journal
  sudo edgegpu journal --limit 500 | grep k3s.restart
  sudo edgegpu journal -f
  sudo edgegpu journal --since 2h
  edgegpu journal --json | jq -r '.lines[] | select(.kind == "command")'

\b
--json, the newest first:
  {"version": 1, "lines": [{"n", "at": NUMBER, "kind", "about", "state", "text", "by": TEXT}]}
"""

FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until ctrl-C.")]
SinceOption = Annotated[str, typer.Option("--since", metavar="TIME", help="Only what is younger: 90s, 2h, 7d.")]
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=2000, help="How many lines.")]


def journal(
    *,
    limit: LimitOption = 50,
    since: SinceOption = "",
    follow: FollowOption = False,
    socket: AgentSocketOption = None,
    root: RootOption = Path("/"),
    json: JsonOption = False,
) -> None:
    """Show what this box was asked, when, by whom, and what came of it."""
    age_s = seconds(since, option="--since") if since else 0
    if follow and json:
        raise typer.BadParameter("it is for people; ask again for a document", param_hint="--follow")
    with reporting(as_json=json):
        if socket is None:
            need_root("cannot show the journal", root=root)
        from edgegpu_agent.cli.clients.agent import SOCKET_NAME, fetch  # noqa: PLC0415  (with yaml)
        from edgegpu_agent.cli.views.agent import journal_lines  # noqa: PLC0415
        from edgegpu_installer.layout import Layout  # noqa: PLC0415

        path = socket or Layout(root).run / SOCKET_NAME
        answer = fetch(path, f"/v1/journal?limit={_MOST if since else limit}")
        if since:
            youngest = time.time() - age_s
            answer["lines"] = [line for line in answer.get("lines") or () if int(line.get("at") or 0) >= youngest]
        if json:
            print_json(answer)
            return
        for line in journal_lines(answer):
            typer.echo(line)
        if follow:
            _follow(path, answer)


def _follow(path: Path, answer: dict[str, Any]) -> None:
    """Print the lines that come after an answer; wait while the agent restarts."""
    from edgegpu_agent.cli.clients.agent import fetch  # noqa: PLC0415  (with yaml)
    from edgegpu_agent.cli.views.agent import journal_lines  # noqa: PLC0415

    last = _newest(answer)
    try:
        while True:
            sys.stdout.flush()
            time.sleep(_EVERY_S)
            with contextlib.suppress(CliError):
                answer = fetch(path, f"/v1/journal?limit={_MOST}")
                for line in journal_lines({"lines": [one for one in answer.get("lines") or () if one["n"] > last]}):
                    typer.echo(line)
                last = _newest(answer)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _newest(answer: dict[str, Any]) -> int:
    return max((int(line.get("n") or 0) for line in answer.get("lines") or ()), default=0)
