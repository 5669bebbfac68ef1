"""What commands are told on their line: boxes, apps, commands; each completed by the shell."""

from typing import Annotated

import typer

from edgegpu_cloud.cli import completing

BoxArgument = Annotated[
    str,
    typer.Argument(
        metavar="BOX", help="Its name or device id; the beginning of it will do.", autocompletion=completing.boxes
    ),
]
OptionalBoxArgument = Annotated[
    str,
    typer.Argument(
        metavar="[BOX]",
        help="Its name or device id; the beginning of it will do. Left out with -l.",
        autocompletion=completing.boxes,
        show_default=False,
    ),
]
SelectorOption = Annotated[
    str, typer.Option("--selector", "-l", metavar="SELECTOR", help="Boxes by their labels: site=hall,rack!=3.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Go on, with a line for each change, until ctrl-C.")]
SinceOption = Annotated[str, typer.Option("--since", metavar="TIME", help="Only what is younger: 90s, 2h, 7d.")]
