"""Whose files they are: a file belongs to whom its folder belongs, also when root has written it."""

import os
import pwd
from pathlib import Path

ROOT = 0


def account(uid: int) -> str:
    """Return the name of a user; the environment may say otherwise."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def owner(folder: Path) -> int:
    """Return the uid of a folder's owner; of the nearest that can be looked at."""
    try:
        return folder.stat().st_uid
    except OSError:
        return owner(folder.parent) if folder.parent != folder else os.geteuid()


def give(path: Path | int, folder: Path) -> None:
    """Give what root has made in a folder to that folder's owner; nobody else may, nor needs to.

    Raises:
        OSError: the file system does not.
    """
    if os.geteuid() == ROOT:
        there = folder.stat()
        if there.st_uid != ROOT:
            os.chown(path, there.st_uid, there.st_gid)


def give_all(folder: Path, like: Path) -> None:
    """Give a folder, and all in it, to the owner of another one."""
    for path in (folder, *folder.rglob("*")):
        give(path, like)


def remedy_for(path: Path) -> str:
    """Say what to do where a file must not be read or written: run it as whom, or give it to whom."""
    folder = path.parent
    uid = owner(folder)
    if uid == os.geteuid():
        return f"it is not yours: as root, chown -R {account(uid)}: {folder}"
    return f"run this as {account(uid)}: runuser -u {account(uid)} -- edgegpu-cloud ..."
