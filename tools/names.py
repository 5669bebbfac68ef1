"""The check of names: public classes of the same name, and docstrings whose first line names nothing."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from sizes import SKIPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PRODUCT = ("base", "plugin", "installer", "cloud_sync", "edge_agent", "simulation")
SHARED: dict[str, str] = {}
"""Public class names that may occur more than once, each with the reason, such as one idea in two layers."""
EMPTY_WORDS = {
    *("a", "all", "an", "and", "down", "here", "how", "it", "its", "itself", "no", "nobody", "none", "nothing"),
    *("now", "of", "one", "ones", "so", "that", "the", "them", "then", "there", "these", "they", "this"),
    *("those", "up"),
}
LEAST_WORDS = 2
"""How many words a first line needs at least: a verb and its object."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def modules(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield each Python file of the product with its syntax tree."""
    for path in sorted(path for top in PRODUCT for path in (root / top).rglob("*.py")):
        if SKIPPED.isdisjoint(path.parts):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def double_names(found: Iterable[tuple[Path, ast.Module]]) -> Iterator[str]:
    """Yield a sentence for each public class name that two modules define and `SHARED` does not explain."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in found:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    for name, where in sorted(places.items()):
        if len(where) > 1 and name not in SHARED:
            yield f"class {name} is defined {len(where)} times: {', '.join(where)}"
        if len(where) == 1 and name in SHARED:
            yield f"class {name} is defined once: take it out of SHARED"


def empty_summaries(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield a sentence for each docstring whose first line has no word for its subject, such as "Prepare it."."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            line = text.splitlines()[0]
            words = [word for word in re.findall(r"[\w./`-]+", line) if word.lower().strip("`.") not in EMPTY_WORDS]
            if len(words) < LEAST_WORDS:
                yield f'{path}:{getattr(node, "lineno", 1)}: "{line}" does not say what it is about'


def main() -> int:
    """Print every fault; return 1 when there is any, else 0."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    found = [(path.relative_to(root), tree) for path, tree in modules(root)]
    wrong = [*double_names(found), *(line for path, tree in found for line in empty_summaries(path, tree))]
    for line in wrong:
        sys.stdout.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
