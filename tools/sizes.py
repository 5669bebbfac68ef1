"""The check of sizes: files and functions that are too long for a few screens, folders with too many modules."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE_LINES = 500
FUNCTION_LINES = 50
FOLDER_MODULES = 15
PILES = {"tests", "versions"}
"""Folders that may hold more, with those below them: tests mirror many subjects, revisions are one row in time."""
ROOTS = ("base", "simulation", "plugin", "installer", "cloud_sync", "edge_agent", "tests", "tools")
SUFFIXES = {".c", ".h", ".py", ".sh"}
SKIPPED = {"gen", "standin", "__pycache__"}  # generated, and the lab's Go
C_NAME = re.compile(r"(\w+)\s*\(")


def sources(root: Path) -> Iterator[Path]:
    """Yield the source files below our folders, including shell scripts without a suffix."""
    for path in sorted(p for top in ROOTS for p in (root / top).rglob("*") if p.is_file()):
        if SKIPPED.isdisjoint(path.parts) and (path.suffix in SUFFIXES or is_script(path)):
            yield path


def is_script(path: Path) -> bool:
    """Return whether a file without a suffix begins like a script."""
    if path.suffix:
        return False
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name, first line and length of every function of a Python file; nothing when it does not parse."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # ruff and mypy report it better
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def c_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, first line and length of every function of a C file in kernel style, with braces in column one."""
    start, name = 0, "?"
    for number, line in enumerate(text.splitlines(), 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            yield name, start, number - start + 1
            start = 0
        elif not start and line[:1].isalpha() and (found := C_NAME.search(line)):
            name = found[1]


def too_long(path: Path, root: Path) -> Iterator[str]:
    """Yield a line for a file that is too long, and for each of its functions that is."""
    text = path.read_text(encoding="utf-8")
    lines, name = len(text.splitlines()), path.relative_to(root)
    if lines > FILE_LINES:
        yield f"{name}: {lines} lines, the limit is {FILE_LINES}"
    readers = {".py": python_functions, ".c": c_functions}
    reader = readers.get(path.suffix)
    for function, line, length in reader(text) if reader else ():
        if length > FUNCTION_LINES:
            yield f"{name}:{line}: {function} has {length} lines, the limit is {FUNCTION_LINES}"


def too_many(paths: Iterable[Path], root: Path) -> Iterator[str]:
    """Yield a line for a folder with too many modules of Python."""
    modules = (path for path in paths if path.suffix == ".py" and path.name != "__init__.py")
    for folder, number in sorted(Counter(path.parent.relative_to(root) for path in modules).items()):
        if number > FOLDER_MODULES and PILES.isdisjoint(folder.parts):
            yield f"{folder}: {number} modules, the limit is {FOLDER_MODULES}: make a folder of a subject"


def main() -> int:
    """Print files and functions that are too long, and folders that are too full; return 1 when there are any."""
    root = Path(__file__).resolve().parent.parent
    paths = list(sources(root))
    found = [*(line for path in paths for line in too_long(path, root)), *too_many(paths, root)]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
