"""What a process puts on the disk, and in which order: its calls of fsync and rename, written down by a library."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def library(folder: Path) -> Path:
    """Build the library that writes the calls down."""
    made = folder / "syncs.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


def traced(script: str, *args: str | Path, library: Path) -> dict[str, list[str]]:
    """Run a script of Python; return its calls by the mark that it set before them, paths as below its first argument.

    `mark(NAME)` is there for the script. A line is `sync PATH` or `rename FROM TO`.
    """
    root, log = Path(args[0]), library.with_name("syncs.log")
    log.unlink(missing_ok=True)
    mark = "import os\ndef mark(name):\n    open(os.environ['SYNCS_LOG'], 'a').write(f'mark {name}\\n')\n"
    subprocess.run(
        [sys.executable, "-c", mark + script, *map(str, args)],
        env={**os.environ, "LD_PRELOAD": str(library), "SYNCS_LOG": str(log)},
        check=True,
    )
    found: dict[str, list[str]] = {"": []}
    at = ""
    for line in log.read_text().splitlines():
        call, _, paths = line.partition(" ")
        if call == "mark":
            at = paths
            found[at] = []
        elif str(root) in paths:
            found[at].append(f"{call} {' '.join(os.path.relpath(path, root) for path in paths.split())}")
    return found
