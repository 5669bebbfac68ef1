"""The files that this process opens below a folder, by the audit events of Python."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WATCHED: dict[str, list[str]] = {}


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _WATCHED and isinstance(path := arguments[0], str | os.PathLike):
        text = os.fspath(path)
        for folder, opened in _WATCHED.items():
            if isinstance(text, str) and text.startswith(folder):
                opened.append(text.removeprefix(folder))


sys.addaudithook(_note)  # no hook can be taken away again


@contextmanager
def opened_files(folder: Path) -> Iterator[list[str]]:
    """Yield the list of the files that are opened below a folder meanwhile, each relative to it, once for each open."""
    opened = _WATCHED.setdefault(f"{folder}/", [])
    try:
        yield opened
    finally:
        del _WATCHED[f"{folder}/"]
