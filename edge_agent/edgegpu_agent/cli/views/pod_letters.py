"""The letters of pods in the bars of `edgegpu status`; a file beside the plugin's socket keeps them."""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from edgegpu_agent.cli.views.bars import LETTERS, MANY

FILE = "letters.json"
"""The file in the run folder, which a boot empties."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def letters_of(uids: Sequence[str], folder: Path) -> dict[str, str]:
    """Return a letter for each pod: the one that it had at the last call, else the next free one.

    A freed letter is given again only after all others were, so that nobody takes a new pod for an old one. Where the
    file cannot be written (another user's folder, a full disk) the letters are those of this call only.

    Args:
        uids: the UIDs of the pods that have a card, each once, in the order in which letters are given.
        folder: the folder of the plugin's socket.
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
    """Return whether only this user can write into the folder."""
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
