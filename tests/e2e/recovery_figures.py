"""Times that tests of a real cluster measure, in one file that `make bench` judges.

Tests of a cluster and of booted boxes run beside each other and write to it.
"""

import json
from collections.abc import Mapping, Sequence
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).resolve().parents[2] / "build/bench/e2e.json"


def recovery_figure(
    name: str, values: Sequence[float], *, limit: float, most: float | None = None, typical: float | None = None
) -> dict[str, Any]:
    """Return the row of some measured times.

    Args:
        name: of the figure, its unit at the end.
        values: what was measured.
        limit: of their p95.
        most: of each; None: none.
        typical: of their median; with it median and `most` are judged however few they are. None: none.
    """
    row = {"name": name, "unit": name.rpartition("_")[2], "median": _quantile(values, 0.5)}
    row |= {"p95": _quantile(values, 0.95), "max": max(values), "limit": limit, "runs": len(values)}
    row |= {} if most is None else {"most": most}
    row |= {} if typical is None else {"typical": typical}
    return row


def record(row: Mapping[str, Any], file: Path = FIGURES) -> None:
    """Put a row in the place of the one of its name; another process may do so at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        flock(lock, LOCK_EX)
        rows = json.loads(file.read_text()) if file.exists() else []
        file.write_text(json.dumps([other for other in rows if other["name"] != row["name"]] + [row], indent=1))


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[round(share * (len(ordered) - 1))]
