"""Unpack the scripts of the console from the locked packages that carry them: `assets.py WHEELS TARGET`.

htmx comes without a copy in this repository: requirements/assets.txt pins the package by its hash. The package is not
installed, for nothing else of it is used.
"""

import sys
import zipfile
from pathlib import Path

FILES = {
    "django_htmx/static/django_htmx/htmx-2.min.js": "htmx.min.js",
}


def unpack(wheels: Path, target: Path) -> None:
    """Write the scripts of the packages in `wheels` into the folder `target`.

    Raises:
        FileNotFoundError: a script is in none of the packages.
    """
    target.mkdir(parents=True, exist_ok=True)
    missing = dict(FILES)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            for member in set(missing).intersection(packed.namelist()):
                (target / missing.pop(member)).write_bytes(packed.read(member))
    if missing:
        raise FileNotFoundError(f"cannot find {', '.join(missing)} in {wheels}")


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
