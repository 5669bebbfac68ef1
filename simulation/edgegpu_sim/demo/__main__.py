"""`make demo`: the scenarios on simulated cards, and a box with its cloud."""

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from edgegpu_agent.cli.common import JsonOption
from edgegpu_agent.cli.demo import OutOption, PolicyOption, ended_by_signals, run_demo

if TYPE_CHECKING:
    from edgegpu_agent.demo.run import DemoOutcome, Say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
CloudOption = Annotated[bool, typer.Option("--cloud/--no-cloud", help="Show the box in a cloud as well.")]


ConsoleOption = Annotated[
    bool | None,
    typer.Option("--console/--no-console", help="Leave a console with three boxes up.  [default: on a terminal]"),
]
ScenariosOption = Annotated[bool, typer.Option("--scenarios/--no-scenarios", help="Run the scenarios.")]


@app.command()
def main(
    *,
    out: OutOption = None,
    json: JsonOption = False,
    policy: PolicyOption = "first-fit",
    cloud: CloudOption = True,
    console: ConsoleOption = None,
    scenarios: ScenariosOption = True,
) -> None:
    """Place services on simulated cards, show a box with its cloud, and check every placement.

    It needs no GPU, no k3s and no root: the real plugin process runs over a simulated NVIDIA driver, a small scheduler
    and an embedded kubelet. Scenarios, the file and the document are those of `edgegpu demo --help`, with one more.

    In "cloud", a box has its agent, a broker, a controller: the limits of an app are set to what has no room, and
    refused with the numbers; set to what has; sharing is uninstalled and installed. It needs the controller's packages
    (pip install 'SOURCE[cloud]') and mosquitto, or amqtt in its place. Each command that asks for something of an app
    has a row: what became of the app's pod, "phase" Rejected where nothing was changed.

    On a terminal the demo then starts three boxes with different cards in one cloud, and leaves the web console up
    until Ctrl-C: both scenarios can be played there by hand.
    """

    def run(outcome: "DemoOutcome", say: "Say") -> None:
        from edgegpu_sim.demo.acts import run_simulated  # noqa: PLC0415  (grpc, which reads its environment as it comes)

        run_simulated(outcome, policy=policy, with_cloud=cloud, say=say)

    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # hides its notes on closed connections
    if scenarios:
        run_demo(run, policy=policy, out=out, as_json=json)
    if console is None:
        console = not json and sys.stdin.isatty() and sys.stdout.isatty()
    if console:
        _stay()


def _stay() -> None:
    """Keep the fleet and its console up until Ctrl-C, or SIGTERM."""
    from edgegpu_agent.cli.common import CliError, reporting  # noqa: PLC0415
    from edgegpu_agent.demo.model import DemoError  # noqa: PLC0415
    from edgegpu_sim.demo.controller import find_mosquitto, missing  # noqa: PLC0415
    from edgegpu_sim.demo.fleet import show_fleet  # noqa: PLC0415

    mosquitto = find_mosquitto()
    with reporting(as_json=False), ended_by_signals():
        if lacking := missing(mosquitto=mosquitto):
            raise CliError(f"cannot show the console: {lacking}")
        try:
            with contextlib.suppress(KeyboardInterrupt):
                show_fleet(typer.echo, threading.Event(), mosquitto=mosquitto)
        except DemoError as error:
            raise CliError(str(error)) from error


if __name__ == "__main__":
    app(prog_name="python -m edgegpu_sim.demo")
