"""The output of `edgegpu pods --evidence`: what each container sees, and what nvidia-smi printed in it."""

from collections.abc import Sequence

import typer

from edgegpu_base.cli.output import one_line, plain
from edgegpu_sync.messages.evidence import ContainerEvidence, SeenCards, words_of

WRONG = frozenset({SeenCards.MORE, SeenCards.OTHER, SeenCards.NONE})
"""The verdicts by which a container sees other cards than its own."""


def print_evidence(found: Sequence[ContainerEvidence]) -> None:
    """Print a line for each container, and below it what nvidia-smi printed there."""
    for one in found:
        words = words_of(one.verdict, held=one.held, seen=one.seen, text=one.text)
        typer.echo(one_line(f"{one.namespace}/{one.pod}  {one.container}: {words}"))
        for line in one.lines.splitlines():
            typer.echo(f"  {plain(line)}")
