"""Writes the golden data anew from the present code: `.venv/bin/python tests/golden/record.py [SURFACE...]`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"


def main(names: list[str]) -> int:
    """Record these surfaces, all where none is named."""
    sys.path.insert(0, str(HERE.parent))
    from golden.surfaces import SURFACES  # noqa: PLC0415  (found by the line above)

    if unknown := sorted(set(names) - SURFACES.keys()):
        sys.stderr.write(f"record.py: no such surface: {', '.join(unknown)}; there are {', '.join(SURFACES)}\n")
        return 2
    for name in names or SURFACES:
        with tempfile.TemporaryDirectory(prefix="eg-", dir="/tmp") as folder:  # a short path: sockets
            made = SURFACES[name](Path(folder))
        shutil.rmtree(DATA / name, ignore_errors=True)
        (DATA / name).mkdir(parents=True)
        for file, text in made.items():
            (DATA / name / file).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}: {len(made)} files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
