"""Print the table of build/shares.json as Markdown: `sharestable.py [FILE]`; what lies outside of 2 points is bold.

Behind a slash stands what the same program gets where nothing holds it, where that is less than the share.
"""

import itertools
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

BUILT = Path(__file__).resolve().parents[2] / "build/shares.json"
POINTS = 2.0

Cell = dict[str, Any]


def _kernels(cell: Cell) -> str:
    ms = f"{cell['ns'] / 1e6:g} ms"
    depth = "one at a time" if cell["depth"] == 1 else f"{cell['depth']} deep"
    processes = {1: ", one process", 3: ", three"}.get(cell.get("processes", 0), "")
    return f"{ms}, {depth}{processes}{', ' + cell['way'] if 'way' in cell else ''}"


def _column(cell: Cell) -> str:
    return " + ".join(str(core) for core in cell["pair"]) if "pair" in cell else str(cell["core"])


def _figure(got: float, share: float, able: float) -> str:
    text = f"{got:.1f}"
    return (f"**{text}**" if abs(got - share) > POINTS else text) + (f" / {able:.1f}" if 0 < able < share else "")


def _figures(row: Cell) -> str:
    """Return what the last try got: each container's share, or in brackets the least and the most second of one.

    Of one beside another there is before the brackets by how many points a second was off on average.
    """
    got, wanted, able = row["got"][-1], row["wanted"], row["able"]
    if "second" in row["table"]:
        most = min(wanted[0], able[0] or wanted[0])
        off = f"{statistics.mean(abs(one - most) for one in got):.1f} " if "pair" in row["cell"] else ""
        return f"{off}({_figure(min(got), wanted[0], able[0])} to {_figure(max(got), wanted[0], 0)})"
    return ", ".join(itertools.starmap(_figure, zip(got, wanted, able, strict=True)))


def markdown(rows: list[Cell]) -> str:
    """Return one table for each kind of cell; a program's seconds stand beside its share."""
    kinds: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        line = kinds["share" if row["table"] == "second" else row["table"]][_kernels(row["cell"])]
        column = _column(row["cell"])
        between = ", " if "pair" in row["cell"] else " "
        line[column] = f"{line[column]}{between}{_figures(row)}" if column in line else _figures(row)
    parts = []
    for kind, lines in kinds.items():
        columns = list(dict.fromkeys(column for line in lines.values() for column in line))
        parts.append(f"| {kind} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
        parts += [
            f"| {name} | {' | '.join(line.get(column, '') for column in columns)} |" for name, line in lines.items()
        ]
        parts.append("")
    return "\n".join(parts)


def _over(row: Cell) -> float:
    """Return how much what got most had above its share, in any try."""
    return max(float(got - share) for tried in row["got"] for got, share in zip(tried, row["wanted"], strict=True))


def _under(row: Cell) -> float:
    """Return how much what got least lacks of its share, or of what it gets where nothing holds it."""
    some = zip(row["got"][-1], row["wanted"], row["able"], strict=True)
    return max(float(min(share, can or share) - got) for got, share, can in some)


def summary(rows: list[Cell]) -> str:
    """Return how many cells there are, and how far those that are farthest from what was given are from it."""
    lines = [f"{len(rows)} cells, {sum(len(row['got']) > 1 for row in rows)} of them measured more than once"]
    for kind in dict.fromkeys(row["table"] for row in rows):
        some = [row for row in rows if row["table"] == kind]
        most, least = max(map(_over, some)), max(map(_under, some))
        lines.append(f"{kind}: {len(some)} cells, at most {most:+.2f} points above and {least:.2f} below")
    return "\n".join(lines)


if __name__ == "__main__":
    found = json.loads(Path(sys.argv[1] if len(sys.argv) > 1 else BUILT).read_text())
    print(markdown(found) + "\n" + summary(found))  # noqa: T201
