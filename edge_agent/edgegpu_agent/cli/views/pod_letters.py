"""Which pod has which letter in the bars of `edgegpu status`: kept beside the plugin's socket, so that it stays."""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from edgegpu_agent.cli.views.bars import LETTERS, MANY

FILE = "letters.json"
"""In the run folder, which a boot empties."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def letters_of(uids: Sequence[str], folder: Path) -> dict[str, str]:
    """Return a letter for each pod: the one that it had at the last call, else the next that nobody has.

    A letter that came free is given again only when the others are through, so that a new pod is not taken for the one
    before it. Where nothing can be kept (another user's folder, a full disk) letters are those of this call.

    Args:
        uids: of the pods that have a card, each once, in the order in which letters are given.
        folder: that of the plugin's socket.
    """
    before, last = _load(folder / FILE) if _is_ours(folder) else ({}, -1)
    found = {uid: before[uid] for uid in uids if uid in before}
    for uid in uids:
        if uid not in found:
            free = [(last + 1 + i) % len(LETTERS) for i in range(len(LETTERS))]
            last, letter = next(((i, LETTERS[i]) for i in free if LETTERS[i] not in found.values()), (last, MANY))
            found[uid] = letter
    if found != before and _is_ours(folder):
        _keep(folder / FILE, found, last)
    return found


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can put anything into the folder."""
    try:
        state = folder.stat()
    except OSError:
        return False
    return state.st_uid == os.geteuid() and not state.st_mode & _OTHERS_WRITE


def _load(path: Path) -> tuple[dict[str, str], int]:
    try:
        value = json.loads(path.read_bytes())
        letters = {str(uid): str(letter) for uid, letter in value["letters"].items() if letter in LETTERS}
        return (letters, int(value["last"])) if len(set(letters.values())) == len(letters) else ({}, -1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}, -1


def _keep(path: Path, letters: dict[str, str], last: int) -> None:
    from edgegpu_installer.errors import InstallError  # noqa: PLC0415
    from edgegpu_installer.machine import atomic  # noqa: PLC0415  (only where something changed)

    kept = {uid: letter for uid, letter in letters.items() if letter != MANY}
    try:
        atomic.write(path, json.dumps({"v": 1, "letters": kept, "last": last}).encode())
    except (OSError, InstallError):
        return
