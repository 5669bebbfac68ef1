"""The list of NVIDIA's packages that `make driver` looks at: branches of the driver, and their packages by hash."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import yaml

LIST = Path(__file__).with_name("pins.yaml")
_HEAD = """\
# Packages of NVIDIA's user-space driver, as Debian's components non-free and contrib have them. `make driver-pin`
# writes versions and hashes anew; branches, releases and names are written by hand. None of the files is committed.
"""


@dataclass(frozen=True, slots=True)
class Package:
    """One package at one version; version and hash are empty before it was pinned for the first time."""

    name: str
    version: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of the driver, the release of Debian that has it, and its packages."""

    name: str
    release: str
    packages: tuple[Package, ...]

    @property
    def driver(self) -> Package:
        """Return the package that has libcuda."""
        return next(package for package in self.packages if package.name.endswith(("libcuda1", "-cuda1")))

    @property
    def version(self) -> str:
        """Return the driver's own version, `535.309.01`."""
        return self.driver.version.partition("-")[0]


@dataclass(frozen=True, slots=True)
class Pins:
    """All branches, and the day on which they were pinned."""

    day: str
    branches: tuple[Branch, ...]


def read_pins(path: Path = LIST) -> Pins:
    """Return what the list says."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Pins(
        str(data["pinned"]),
        tuple(
            Branch(row["branch"], row["release"], tuple(Package(**package) for package in row["packages"]))
            for row in data["branches"]
        ),
    )


def write_pins(branches: list[Branch], day: date, path: Path = LIST) -> None:
    """Write the list with these branches."""
    lines = [_HEAD, f"pinned: {day.isoformat()}\nbranches:\n"]
    for branch in branches:
        lines.append(f'- branch: "{branch.name}"\n  release: {branch.release}\n  packages:\n')
        lines += [
            f'  - {{name: {package.name}, version: "{package.version}",\n     sha256: {package.sha256}}}\n'
            for package in branch.packages
        ]
    path.write_text("".join(lines), encoding="utf-8")
