"""The wrapper of wide paragraphs in Markdown files: tools/wrap_documents.py FILE...; tables and blocks stay."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from documents import PROSE_COLUMNS, columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) +")
MARKS = re.compile(r"([-*+#>|]|\d+[.)])$")
"""A word that would begin a list, a heading or a table as the first of its line."""
CODE = re.compile(r"\S*`[^`]*`\S*|\S+")
LONGEST_CODE = 70
"""The length up to which inline code stays in one line."""


def words(text: str) -> list[str]:
    """Return the unbreakable parts of a text: words, and short inline code with what is attached to it."""
    found: list[str] = []
    for piece in CODE.findall(text):
        for word in [piece] if len(piece) <= LONGEST_CODE else piece.split():
            if found and MARKS.match(word):
                found[-1] += f" {word}"
            else:
                found.append(word)
    return found


def fill(text: str, *, first: str, rest: str) -> Iterator[str]:
    """Yield a paragraph's lines, with `first` before the first of them and `rest` before the others."""
    line, empty = first, True
    for word in words(text):
        if not empty and columns(f"{line} {word}") > PROSE_COLUMNS:
            yield line
            line, empty = rest, True
        line, empty = f"{line}{word}" if empty else f"{line} {word}", False
    yield line


def is_fixed(line: str) -> bool:
    """Return whether a line is no prose: it is empty, a heading, a table's row, a fence or HTML."""
    return not line.strip() or line.lstrip().startswith(("```", "|", "#", "<"))


def paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines of each paragraph or item; a line that is no prose, or is in a block, comes alone."""
    fence, held = False, list[str]()
    for line in lines:
        if held and (fence or is_fixed(line) or ITEM.match(line)):
            yield held
            held = []
        if line.lstrip().startswith("```"):
            fence = not fence
            yield [line]
        elif fence or is_fixed(line):
            yield [line]
        else:
            held.append(line)
    if held:
        yield held


def wrapped(text: str) -> str:
    """Return a document with its wide paragraphs wrapped; narrow ones stay as they are."""
    made: list[str] = []
    fence = False
    for lines in paragraphs(text.splitlines()):
        fence ^= lines[0].lstrip().startswith("```")
        if fence or is_fixed(lines[0]) or all(columns(line) <= PROSE_COLUMNS for line in lines):
            made += lines
            continue
        start = (ITEM.match(lines[0]) or re.match(r"\s*", lines[0]) or [""])[0]
        body = " ".join([lines[0][len(start) :], *(line.strip() for line in lines[1:])])
        made += fill(body, first=start, rest=" " * len(start))
    return "".join(f"{line}\n" for line in made)


def main(names: list[str]) -> int:
    """Wrap the files and print the names of those that changed."""
    for path in map(Path, names):
        text = path.read_text(encoding="utf-8")
        if (made := wrapped(text)) != text:
            path.write_text(made, encoding="utf-8")
            sys.stdout.write(f"wrapped {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
