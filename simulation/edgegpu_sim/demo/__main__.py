"""`make demo`: the scenarios on simulated cards, and a box with its cloud."""

import os
from typing import Annotated

import typer

from edgegpu_agent.cli.common import JsonOption
from edgegpu_agent.cli.demo import OutOption, PolicyOption, run_demo
from edgegpu_sim.demo.staying import Scenarios, say_line, stay

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
CloudOption = Annotated[bool, typer.Option("--cloud/--no-cloud", help="Show the box in a cloud as well.")]


ConsoleOption = Annotated[
    bool | None,
    typer.Option(
        "--console/--no-console",
        help="Play the scenarios in a console with three boxes, and leave it up.  [default: for a terminal]",
    ),
]
ScenariosOption = Annotated[bool, typer.Option("--scenarios/--no-scenarios", help="Run the scenarios.")]

BoxesOption = Annotated[
    int,
    typer.Option(
        "--boxes",
        min=0,
        max=5_000,
        help="So many simpler boxes join the console: no agent, no plugin; they report and obey. Implies --console.",
    ),
]


def has_console(asked: bool | None, *, boxes: int, json: bool, terminal: bool) -> bool:  # noqa: FBT001  (an option)
    """Return whether the demo has a console.

    Args:
        asked: by --console or --no-console; None: by neither.
        boxes: so many simpler boxes are to join it.
        json: whether a document is printed.
        terminal: whether somebody sees what is printed.

    Raises:
        typer.BadParameter: boxes have no console that they could join.
    """
    if boxes and (asked is False or json):
        without = "--no-console (ONCE=1)" if asked is False else "--json"
        raise typer.BadParameter(
            f"boxes join the console, and {without} has none: leave one of the two out", param_hint="--boxes"
        )
    return bool(boxes) or (not json and terminal) if asked is None else asked


@app.command()
def main(
    *,
    out: OutOption = None,
    json: JsonOption = False,
    policy: PolicyOption = "first-fit",
    cloud: CloudOption = True,
    console: ConsoleOption = None,
    scenarios: ScenariosOption = True,
    boxes: BoxesOption = 0,
) -> None:
    """Place services on simulated cards, show a box with its cloud, and check every placement.

    It needs no GPU, no k3s and no root: the real plugin process runs over a simulated NVIDIA driver, a small scheduler
    and an embedded kubelet. Scenarios, the file and the document are those of `edgegpu demo --help`, with one more.

    In "cloud", a box has its agent, a broker, a controller: the limits of an app are set to what has no room, and
    refused with the numbers; set to what has; sharing is uninstalled and installed. It needs the controller's packages
    (pip install 'SOURCE[cloud]') and mosquitto, or amqtt in its place. Each command that asks for something of an app
    has a row: what became of the app's pod, "phase" Rejected where nothing was changed.

    For a terminal the demo starts three boxes with different cards in one cloud, prints the link of its web console,
    and plays the scenarios there, once somebody has signed in. The console stays up until Ctrl-C: both scenarios can be
    played there by hand. Its output may go elsewhere (`make demo | tee log`): input, output or errors on a terminal do.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # hides its notes on closed connections
    terminal = any(os.isatty(number) for number in (0, 1, 2))
    is_shown = has_console(console, boxes=boxes, json=json, terminal=terminal)
    if console is None and not is_shown and not scenarios and not json:
        say_line("no terminal here, so nothing is shown: --console starts the console all the same")
    shown = Scenarios(out=out, policy=policy, cloud=cloud) if scenarios else None
    if is_shown:
        stay(shown, policy=policy, many=boxes)
    elif shown is not None:
        run_demo(shown.run, policy=policy, out=out, as_json=json)


if __name__ == "__main__":
    app(prog_name="python -m edgegpu_sim.demo")
