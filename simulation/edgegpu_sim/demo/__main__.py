"""`make demo`: the scenarios on simulated cards, and a box with its cloud."""

from typing import TYPE_CHECKING, Annotated

import typer

from edgegpu_agent.cli.common import JsonOption
from edgegpu_agent.cli.demo import OutOption, PolicyOption, run_demo

if TYPE_CHECKING:
    from edgegpu_agent.demo.run import DemoOutcome, Say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
CloudOption = Annotated[bool, typer.Option("--cloud/--no-cloud", help="Show the box in a cloud as well.")]


@app.command()
def main(
    *, out: OutOption = None, json: JsonOption = False, policy: PolicyOption = "first-fit", cloud: CloudOption = True
) -> None:
    """Place services on simulated cards, show a box with its cloud, and check every placement.

    It needs no GPU, no k3s and no root: the real plugin process runs over a simulated NVIDIA driver, a small scheduler
    and an embedded kubelet. Scenarios, the file and the document are those of `edgegpu demo --help`, with one more.

    In "cloud", a box has its agent, a broker, a controller: the limits of an app are set to what has no room, and
    refused with the numbers; set to what has; sharing is uninstalled and installed. It needs the controller's packages
    (pip install 'SOURCE[cloud]') and mosquitto, or amqtt in its place. Each command that asks for something of an app
    has a row: what became of the app's pod, "phase" Rejected where nothing was changed.
    """

    def run(outcome: "DemoOutcome", say: "Say") -> None:
        from edgegpu_sim.demo.acts import run_simulated  # noqa: PLC0415  (grpc, which reads its environment as it comes)

        run_simulated(outcome, policy=policy, with_cloud=cloud, say=say)

    run_demo(run, policy=policy, out=out, as_json=json)


if __name__ == "__main__":
    app(prog_name="python -m edgegpu_sim.demo")
