"""`edgegpu demo`: both scenarios, on this box's own cards."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from edgegpu_agent.cli.clients.plugin import find_socket
from edgegpu_agent.cli.common import (
    EXIT_WRONG,
    CliError,
    ConfigOption,
    JsonOption,
    SocketOption,
    print_json,
    reporting,
    sayer,
)
from edgegpu_base.cli.output import make_console, print_table

if TYPE_CHECKING:
    from edgegpu_agent.demo.run import DemoOutcome

JSON_VERSION = 1
_INTERRUPTED = 130

HELP = """\
Place services on this box's cards and check every placement.

It uses this box's k3s, its plugin and what is free of its cards, in a namespace of its own that it removes at the end;
the amounts keep the proportions of the scenarios. The same on simulated cards, without a GPU and without k3s, is
`make demo` in the repository.

\b
Scenarios, in the field's amounts:
  three-services  one card; services of 50, 40 and 1 units run; the third, changed to 10, waits with
                  "Insufficient baidu.com/vcuda-memory", and runs again with 1
  two-cards       4, 20 and 20 units on two cards of 29: the two of 20 on different cards;
                  2 GiB + 2 GiB on two cards of 4 GiB: on one; 2 GiB + 3 GiB: on two

\b
Examples:
  sudo edgegpu demo --real
  sudo edgegpu demo --real --policy spread   # two that belong on one card land on two: wrong, exit status 1

\b
FILE (--out) gets a list of {"scenario", "pod": TEXT, "units", "core": NUMBER, "phase": TEXT,
  "card_index": NUMBER or null, "card_uuid": TEXT, "sees": [UUID], "reason": TEXT, "command": TEXT}
--json: {"v": 1, "ok": BOOL, "failures", "skipped": [TEXT], "pods": [as in FILE]}; progress goes to stderr

Exits 0 only if everything was as it should be; what was left out is said, and is no failure.
"""

OnceOption = Annotated[bool, typer.Option("--once", help="Run each scenario once and end; there is no other mode yet.")]
RealOption = Annotated[bool, typer.Option("--real", help="Use this box's k3s, plugin and cards.")]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the result there as well.")]
ImageOption = Annotated[str, typer.Option("--image", metavar="IMAGE", help="An image with glibc and `sleep`.")]
PolicyOption = Annotated[str, typer.Option("--policy", metavar="POLICY", help="How cards are chosen.")]


def demo(
    *,
    once: OnceOption = False,
    real: RealOption = False,
    out: OutOption = None,
    json: JsonOption = False,
    image: ImageOption = "docker.io/library/debian:stable-slim",
    policy: PolicyOption = "first-fit",
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """Place services on this box's cards and check every placement."""
    del once  # each run is one round anyway

    def run(outcome: "DemoOutcome", say: Callable[[str], None]) -> None:
        if not real:
            text = "cannot run on simulated cards: what stands in for a card is not installed with edgegpu"
            raise CliError(text, remedy="sudo edgegpu demo --real runs on this box's own; in the repository: make demo")
        from edgegpu_agent.demo.run import run_real  # noqa: PLC0415  (loads grpc: only here)

        run_real(outcome, socket=find_socket(socket, config), image=image, policy=policy, say=say)

    run_demo(run, policy=policy, out=out, as_json=json)


def run_demo(
    run: "Callable[[DemoOutcome, Callable[[str], None]], None]", *, policy: str, out: Path | None, as_json: bool
) -> None:
    """Run a demo, print its results and write them to a file; exit with status 1 where something was wrong.

    Args:
        run: runs the demo; gets the outcome to fill, and the function that prints lines for people.
        policy: the placement policy.
        out: the file that gets the rows.
        as_json: whether to print a JSON document instead of text.
    """
    with reporting(as_json=as_json), ended_by_signals():
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # hides its notes on closed connections
        from edgegpu_agent.demo.model import DemoError  # noqa: PLC0415  (loads grpc: only here)
        from edgegpu_agent.demo.report import write_rows  # noqa: PLC0415
        from edgegpu_agent.demo.run import DemoOutcome  # noqa: PLC0415
        from edgegpu_core.placement import parse_policy  # noqa: PLC0415

        outcome = DemoOutcome()
        try:
            parse_policy(policy)
            run(outcome, sayer(as_json=as_json))
            if out is not None:
                write_rows(out, outcome.rows)
        except (DemoError, ValueError) as error:
            raise CliError(str(error)) from error
        except KeyboardInterrupt:
            typer.echo("\nedgegpu: interrupted; everything is taken down", err=True)
            raise typer.Exit(_INTERRUPTED) from None
        report_outcome(outcome, out, as_json=as_json)
        if outcome.failures:
            raise typer.Exit(EXIT_WRONG)


def report_outcome(outcome: "DemoOutcome", out: Path | None, *, as_json: bool) -> None:
    """Print the rows of a demo, its failures and what was left out; `out` is the file that has the rows."""
    if as_json:
        ok, pods = not outcome.failures, [row.document() for row in outcome.rows]
        failures = {"failures": outcome.failures, "skipped": outcome.skipped}
        print_json({"v": JSON_VERSION, "ok": ok, **failures, "pods": pods})
        return
    from edgegpu_agent.demo.report import table  # noqa: PLC0415  (rich: only for text)

    typer.echo("")
    print_table(table(outcome.rows), make_console())
    typer.echo("")
    for failure in outcome.failures:
        typer.echo(f"WRONG  {failure.splitlines()[0]}")
    wrong = "1 thing was wrong" if len(outcome.failures) == 1 else f"{len(outcome.failures)} things were wrong"
    verdict = wrong if outcome.failures else "everything was as it should be"
    for skipped in outcome.skipped:
        typer.echo(f"left out  {skipped}")
    typer.echo(f"{verdict}; {out} has the list" if out is not None else verdict)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does, so that it cleans up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
