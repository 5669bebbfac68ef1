"""What a library exports and needs, by readelf."""

import re
from pathlib import Path

from limiter_functions import readelf

_COLUMNS = 8


def exports(library: Path) -> dict[str, str]:
    """Return the names that a library exports, with their kind: FUNC or OBJECT."""
    rows = [line.split() for line in readelf("--dyn-syms", library).splitlines()]
    return {
        row[7].partition("@")[0]: row[3]
        for row in rows
        if len(row) == _COLUMNS and row[4] in {"GLOBAL", "WEAK"} and row[6] not in {"UND", "ABS"}
    }


def needed(library: Path) -> list[str]:
    """Return the SONAMEs that a library is linked to."""
    return re.findall(r"NEEDED.*\[(.*?)\]", readelf("-d", library))
