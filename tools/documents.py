"""The check of the documents: lines that are too wide, and links and file names that lead nowhere."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sizes import ROOTS, sources

if TYPE_CHECKING:
    from collections.abc import Iterator

PROSE_COLUMNS = 100
ROW_COLUMNS = 160
"""The limit of a table's row, which cannot be wrapped; longer text belongs below the table."""
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
NAMED = re.compile(r"\bdocs/[\w./-]+\.(?:md|yaml|sh|tmpl)\b")
WIDE = {"W", "F"}


def documents(root: Path) -> list[Path]:
    """Return every Markdown file of the project, including those in the code's folders."""
    below = [path for top in ("docs", *ROOTS) for path in (root / top).rglob("*.md")]
    return sorted([*root.glob("*.md"), *below])


def lines_of_text(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line outside of fenced blocks."""
    fence = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fence = not fence
        elif not fence:
            yield number, line


def columns(line: str) -> int:
    """Return a line's width on a screen: a Chinese character takes two columns, link targets do not count."""
    shown = LINK.sub("]", line)
    return sum(2 if unicodedata.east_asian_width(char) in WIDE else 1 for char in shown)


def too_wide(text: str) -> Iterator[str]:
    """Yield a sentence for each line that is wider than the limit of its kind."""
    for number, line in lines_of_text(text):
        limit = ROW_COLUMNS if line.lstrip().startswith("|") else PROSE_COLUMNS
        if (width := columns(line)) > limit:
            yield f"{number}: {width} columns, the limit is {limit}"


def anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings as GitHub makes them: the second of a name ends with -1."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for _, line in lines_of_text(text):
        if head := re.match(r"#+ (.+)$", line):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head[1]).lower().strip()
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def broken_links(path: Path) -> Iterator[str]:
    """Yield a sentence for each relative link whose file or heading does not exist."""
    for number, line in lines_of_text(path.read_text(encoding="utf-8")):
        for target, anchor in LINK.findall(line):
            if "://" in target:
                continue
            there = (path.parent / target).resolve() if target else path
            if not there.exists():
                yield f"{number}: there is no {target}"
            elif anchor and anchor not in anchors(there.read_text(encoding="utf-8")):
                yield f"{number}: {target or path.name} has no heading #{anchor}"


def unknown_names(path: Path, root: Path) -> Iterator[str]:
    """Yield a sentence for each document that a source file names and that does not exist."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for name in NAMED.findall(line):
            if not (root / name).exists():
                yield f"{number}: there is no {name}"


def faults(root: Path) -> Iterator[str]:
    """Yield a line for every fault of a document, with the file first."""
    for path in documents(root):
        name = path.relative_to(root).as_posix()
        found = [*broken_links(path), *too_wide(path.read_text(encoding="utf-8"))]
        yield from (f"{name}:{fault}" for fault in found)
    for path in sources(root):
        name = path.relative_to(root).as_posix()
        if not name.startswith("tests/"):  # a test that reads a missing document fails anyway
            yield from (f"{name}:{fault}" for fault in unknown_names(path, root))


def main(arguments: list[str]) -> int:
    """Print the faults of the project, or of the given folder; return 1 when there are any."""
    found = list(faults(Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent))
    sys.stdout.writelines(f"{line}\n" for line in found)
    if any(line.endswith(f"the limit is {PROSE_COLUMNS}") for line in found):
        sys.stderr.write("tools/wrap_documents.py FILE... wraps paragraphs\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
