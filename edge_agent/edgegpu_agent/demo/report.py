"""The results of a demo: a file, and a table."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgegpu_agent.demo.model import DemoError, DemoRow

if TYPE_CHECKING:
    from rich.table import Table


def write_rows(path: Path, rows: Sequence[DemoRow]) -> None:
    """Write the rows as a JSON list, atomically.

    Raises:
        DemoError: the file cannot be written.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temp.write_text(json.dumps([row.document() for row in rows], indent=2) + "\n")
        temp.replace(path)
    except OSError as error:
        raise DemoError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error


def table(rows: Sequence[DemoRow]) -> "Table":
    """Return the table of results for the end of a demo."""
    from rich.table import Table  # noqa: PLC0415  (only text output needs it)

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("SCENARIO", "POD"):
        made.add_column(name, no_wrap=True)
    made.add_column("UNITS", justify="right")
    for name in ("CORE", "PHASE", "CARD", "SEES"):
        made.add_column(name, no_wrap=name != "SEES")
    for row in rows:
        card = "-" if row.card_index is None else str(row.card_index)
        seen = "\n".join(row.sees) or "-"
        made.add_row(row.scenario, row.pod, str(row.units), str(row.core), row.phase, card, seen)
    return made
