"""The demo with its console: the scenarios play in it, and it stays up until Ctrl-C."""

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from edgegpu_agent.cli.common import EXIT_WRONG, CliError, reporting
from edgegpu_agent.cli.demo import ended_by_signals, report_outcome

if TYPE_CHECKING:
    from edgegpu_agent.demo.run import DemoOutcome, Say
    from edgegpu_sim.demo.acts import ConsoleBox
    from edgegpu_sim.demo.controller import DemoController


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenarios:
    """The scenarios of a demo: where their rows go, the placement policy, whether the cloud's is among them."""

    out: Path | None
    policy: str
    cloud: bool

    def run(self, outcome: "DemoOutcome", say: "Say") -> None:
        """Run them without a console."""
        from edgegpu_sim.demo.acts import run_simulated  # noqa: PLC0415  (grpc, which reads its environment as it comes)

        run_simulated(outcome, policy=self.policy, with_cloud=self.cloud, say=say)

    def play(
        self, outcome: "DemoOutcome", boxes: "Sequence[ConsoleBox]", controller: "DemoController", say: "Say"
    ) -> None:
        """Run them on the boxes of a console, and print what came of them."""
        from edgegpu_agent.demo.report import write_rows  # noqa: PLC0415
        from edgegpu_sim.demo.acts import play_in_console  # noqa: PLC0415

        play_in_console(outcome, boxes, controller, with_cloud=self.cloud, say=say)
        if self.out is not None:
            write_rows(self.out, outcome.rows)
        report_outcome(outcome, self.out, as_json=False)


def say_line(text: str) -> None:
    """Print a line at once; where the reader has gone (`| tee`, ended by the same Ctrl-C), go on without one."""
    try:
        typer.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stay(scenarios: Scenarios | None, *, policy: str, many: int = 0) -> None:
    """Start the fleet and its console, play the scenarios there, and keep it up until Ctrl-C, or SIGTERM.

    Args:
        scenarios: None: none play.
        policy: the placement policy of the boxes.
        many: so many simpler boxes join too.
    """
    from edgegpu_agent.demo.model import DemoError  # noqa: PLC0415
    from edgegpu_agent.demo.run import DemoOutcome  # noqa: PLC0415
    from edgegpu_core.placement import parse_policy  # noqa: PLC0415
    from edgegpu_sim.demo.controller import find_mosquitto, missing  # noqa: PLC0415
    from edgegpu_sim.demo.fleet import ScenarioPace, show_fleet  # noqa: PLC0415

    mosquitto, outcome = find_mosquitto(), DemoOutcome()
    play = None if scenarios is None else partial(scenarios.play, outcome)
    with reporting(as_json=False), ended_by_signals():
        if lacking := missing(mosquitto=mosquitto):
            raise CliError(f"cannot show the console: {lacking}", remedy="make demo ONCE=1 runs the scenarios without")
        try:
            parse_policy(policy)
            with contextlib.suppress(KeyboardInterrupt):
                show_fleet(say_line, ScenarioPace(), mosquitto=mosquitto, play=play, policy=policy, many=many)
        except (DemoError, ValueError) as error:
            raise CliError(str(error)) from error
        if outcome.failures:
            raise typer.Exit(EXIT_WRONG)
