"""The unit files of a controller's machine, as tests read and run them: `systemd/cloud`."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

FOLDER = "/var/lib/edgegpu-cloud"
UNITS = Path(__file__).resolve().parents[2] / "systemd/cloud"
PROGRAM = "/usr/local/bin/edgegpu-cloud"


def settings(unit: str, key: str) -> list[str]:
    """Return the values of a key in a unit file, one for each line that gives it."""
    lines = (line.partition("=") for line in (UNITS / unit).read_text().splitlines() if not line.startswith("#"))
    return [value for name, _, value in lines if name == key]


def command(unit: str, instance: str = "") -> list[str]:
    """Return the words of ExecStart, for this instance of a template."""
    (line,) = settings(unit, "ExecStart")
    return [word.replace("%i", instance) for word in shlex.split(line)]


def below(path: str) -> str:
    """Return a path of a unit relative to the controller's folder."""
    return str(Path(path.lstrip("-").partition(":")[0]).relative_to(FOLDER))


def hidden(unit: str) -> list[str]:
    """Return what a unit's process does not see of the controller's folder, but for what `bound` returns."""
    return _paths(unit, "InaccessiblePaths", "TemporaryFileSystem")


def bound(unit: str) -> list[str]:
    """Return what it sees again of the folders that are hidden."""
    return _paths(unit, "BindPaths", "BindReadOnlyPaths")


def _paths(unit: str, *keys: str) -> list[str]:
    return [below(word) for key in keys for value in settings(unit, key) for word in value.split()]


def sees(unit: str, path: str) -> bool:
    """Whether a unit's process sees a path of the controller's folder: the deepest setting above it counts."""
    above = [Path(path), *Path(path).parents]
    rules = {Path(name): False for name in hidden(unit)} | {Path(name): True for name in bound(unit)}
    return next((rules[one] for one in above if one in rules), True)


def view(unit: str, folder: Path, new: Path) -> Path:
    """Copy a controller's folder into a new one as a unit's process sees it."""
    shutil.copytree(folder, new)
    for name in hidden(unit):
        path = new / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name in bound(unit):
        (new / name).parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(folder / name, new / name)
    return new
