#!/usr/bin/env python3
"""labversion.py [--today | --others]: print the Kubernetes and containerd of the lab's programs, such as `1.37 2.4`.

EDGEGPU_LAB_KUBERNETES and EDGEGPU_LAB_CONTAINERD choose them; else those of the archive that EDGEGPU_LAB_PACK names
count, else the newest of versions.txt. `--others` prints all but the newest, a line for each, `--today` the line whose
turn it is, by the day.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).resolve().parent
_MINOR = re.compile(r"v?(\d+\.\d+)\.\d+")


class UnknownVersionError(Exception):
    """The lab cannot be built with that version; the text names those that it can."""


@dataclass(frozen=True, slots=True)
class LabVersion:
    """The minor versions of Kubernetes and containerd, such as 1.37 and 2.4."""

    kubernetes: str
    containerd: str

    def __str__(self) -> str:
        return f"{self.kubernetes} {self.containerd}"


def read_table(text: str) -> list[LabVersion]:
    """Return the rows of versions.txt, newest first."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [LabVersion(kubernetes, containerd) for kubernetes, containerd in rows]


def choose(table: Sequence[LabVersion], environ: Mapping[str, str]) -> LabVersion:
    """Return what the variables name; a containerd that is not named is the one of that Kubernetes.

    Raises:
        UnknownVersionError: the table has no such version.
    """
    kubernetes = environ.get("EDGEGPU_LAB_KUBERNETES") or table[0].kubernetes
    paired = {row.kubernetes: row.containerd for row in table}
    containerd = environ.get("EDGEGPU_LAB_CONTAINERD") or paired.get(kubernetes, "")
    for name, version, known in (
        ("Kubernetes", kubernetes, list(paired)),
        ("containerd", containerd, sorted(set(paired.values()), reverse=True)),
    ):
        if version not in known:
            raise UnknownVersionError(f"the lab has no {name} {version}: there are {', '.join(known)}")
    return LabVersion(kubernetes, containerd)


def of_day(table: Sequence[LabVersion], day: int) -> LabVersion:
    """Return the version whose turn it is beside the newest."""
    others = table[1:]
    return others[day % len(others)]


def _of_archive() -> LabVersion:
    pack = Path(_output(str(HERE / "pack")).strip())
    versions = [_output(str(pack / program), "--version") for program in ("k3s", "bin/containerd")]
    return LabVersion(*(match.group(1) for text in versions if (match := _MINOR.search(text))))


def _output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(arguments: Sequence[str]) -> int:
    """Print the version; return 2 where the lab has none such."""
    table = read_table((HERE / "versions.txt").read_text())
    match arguments:
        case []:
            try:
                of_archive = os.environ.get("EDGEGPU_LAB_PACK") and not os.environ.get("EDGEGPU_LAB_KUBERNETES")
                version = str(_of_archive() if of_archive else choose(table, os.environ))
            except UnknownVersionError as error:
                sys.stderr.write(f"labversion.py: {error}\n")
                return 2
        case ["--today"]:
            sys.path.insert(0, str(HERE.parent))
            from kits.daily import today  # noqa: PLC0415

            version = str(of_day(table, today()))
        case ["--others"]:
            version = "\n".join(map(str, table[1:]))
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    sys.stdout.write(f"{version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
