"""`edgegpu-cloud evidence`: what the containers of a box see of their cards, and a request to check it again."""

import time
from typing import Annotated

import typer

from edgegpu_base.cli.durations import waiting_s
from edgegpu_base.cli.output import one_line, plain
from edgegpu_cloud.cli.arguments import BoxArgument
from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    Cloud,
    FolderOption,
    JsonOption,
    ago,
    print_json,
    reached,
    reporting,
    say,
)
from edgegpu_cloud.cli.requests.following import status_of
from edgegpu_cloud.fleet.history.evidence import BoxEvidence, CheckedContainer
from edgegpu_sync.messages.evidence import words_of

HELP = """\
Show what `nvidia-smi -L` prints in each container of a box that holds cards, and when that was checked.

--check asks the box first: it runs the program in the containers, by its container runtime, and compares. What is
printed there is the container's word.

\b
Exit status: 0 each container that was checked sees its cards, 1 one sees others, or the check has failed, 3 the check
has not ended within --timeout.

\b
Examples:
  edgegpu-cloud evidence asr-hall
  edgegpu-cloud evidence asr-hall --check

\b
--json: {"device", "box": TEXT, "containers": [{"uid", "namespace", "pod", "container": TEXT, "cards": [TEXT],
  "checked": null or {"verdict": "own", "more", "other", "none" or "unknown", "held", "seen": [UUID],
    "lines", "text": TEXT, "at_s": NUMBER}, "stale": BOOLEAN}], "checking": [ID], "cannot", "failed": TEXT}
"""

CheckOption = Annotated[bool, typer.Option("--check", help="Ask the box first.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long --check waits: 90s, 10m.  [default: 5m]")
]


def evidence(
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    check: CheckOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Show what the containers of a box see of their cards."""
    wait_s = waiting_s(timeout, wait=check, default="5m")
    with reporting(as_json=json), reached(folder) as cloud:
        status = _check(cloud, name, wait_s) if check else 0
        found = cloud.evidence.of_box(name)
        if json:
            print_json(found)
        else:
            _show(found)
        if status or found.wrong:
            raise typer.Exit(status or EXIT_FAILED)


def _check(cloud: Cloud, name: str, wait_s: int) -> int:
    """Ask the box, and wait for the end; return the exit status."""
    until_s, statuses = time.monotonic() + wait_s, []
    for id_ in cloud.evidence.check(name):
        *_, last = cloud.fleet.follow(id_, timeout_s=max(0.0, until_s - time.monotonic()))
        statuses.append(status_of(last))
    return max(statuses)


def _show(found: BoxEvidence) -> None:
    if found.failed:
        say(f"the last check has failed: {one_line(found.failed)}")
    if not found.containers:
        typer.echo(f"no container on {found.box} holds a card, by its last report")
    for one in found.containers:
        typer.echo(one_line(f"{one.namespace}/{one.pod}  {one.container}  {_cards(one)}: {_words(one)}"))
        for line in one.checked.lines.splitlines() if one.checked else ():
            typer.echo(f"  {plain(line)}")


def _cards(one: CheckedContainer) -> str:
    return f"{'card' if len(one.cards) == 1 else 'cards'} {', '.join(one.cards)}"


def _words(one: CheckedContainer) -> str:
    if one.checked is None:
        return "not checked yet"
    when = f", checked {ago(one.checked.at_s, time.time())}"
    if one.stale:
        return f"it held other cards{when}: check again"
    seen = one.checked
    return f"{words_of(seen.verdict, held=seen.held, seen=seen.seen, text=seen.text)}{when}"
