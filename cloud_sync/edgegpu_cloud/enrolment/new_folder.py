"""The folder of a new controller: made by one process at a time, and all of it or nothing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgegpu_base.lock_files import is_in_place, open_lock, try_lock
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout

_UNFINISHED = ".init"
_LOCK = ".init.lock"
_MOVING = ".moving"
"""The name of the unfinished folder from the moment on in which its files are given their place."""


def check_empty(layout: CloudLayout) -> None:
    """Refuse a folder that holds a controller, or a part of one.

    Raises:
        CloudError: naming what is there.
    """
    there = [path.name for path in _parts(layout) if path.exists()]
    if there:
        remedy = "name another --folder; to begin anew move this one away: without its keys no enrolled box obeys"
        text = f"cannot make a controller in {layout.folder}: it has {', '.join(there)} already"
        raise CloudError(text, remedy=remedy)


@contextmanager
def unfinished(layout: CloudLayout) -> Iterator[CloudLayout]:
    """Yield the layout of a new empty folder in which a controller is made, and remove that folder at the end.

    What an interrupted process has left is thrown away. The controller's own folder is created where it is missing;
    after an error it goes again.

    Raises:
        CloudError: a controller is there already, or another process makes one there.
        OSError: the system refuses.
    """
    missing = [path for path in (layout.folder, *layout.folder.parents) if not path.exists()]
    layout.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = CloudLayout(layout.folder / _UNFINISHED)
    with _locked(layout.folder) as lock:
        try:
            _remove_leftovers(layout)
            check_empty(layout)
            new.folder.mkdir(mode=0o700)
            yield new
        except BaseException:
            _remove_leftovers(layout)
            lock.unlink()
            for path in missing:
                with suppress(OSError):  # somebody else has put something there
                    path.rmdir()
            raise
        _remove_leftovers(layout)
        lock.unlink()


def take_over(new: CloudLayout, layout: CloudLayout) -> None:
    """Give the files of an unfinished folder their place, controller.yaml last, and remove that folder.

    Raises:
        OSError: the system refuses.
    """
    moving = CloudLayout(layout.folder / _MOVING)
    new.folder.rename(moving.folder)
    for path in sorted(moving.folder.iterdir(), key=lambda one: one == moving.config):
        if not (layout.folder / path.name).exists():  # `release` may be there, filled, before the rest
            path.rename(layout.folder / path.name)
    shutil.rmtree(moving.folder)


def _parts(layout: CloudLayout) -> tuple[Path, ...]:
    return (layout.config, layout.database, layout.keys, layout.ca, layout.tls, layout.broker)


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    """Hold the lock of a folder, and yield its file; the process that had it before may have removed both meanwhile.

    Any user who can open the folder could lock the folder itself.
    """
    path = folder / _LOCK
    text = f"cannot make a controller in {folder}: another `init` or `restore` runs there"
    busy = CloudError(text, remedy="wait for its end, then see what it has made; or name another --folder")
    try:
        handle = open_lock(path)
    except FileNotFoundError as error:
        raise busy from error
    try:
        if not (try_lock(handle) and is_in_place(handle, path)):
            raise busy
        yield path
    finally:
        os.close(handle)


def _remove_leftovers(layout: CloudLayout) -> None:
    """Remove an unfinished folder, with the files that already had their place: without controller.yaml they are none.

    Nothing has used them: each command reads controller.yaml first.
    """
    moving = layout.folder / _MOVING
    if moving.exists() and not layout.config.exists():
        for path in _parts(layout):
            if path.exists() and not (moving / path.name).exists():
                path.rename(moving / path.name)
    for folder in (moving, layout.folder / _UNFINISHED):
        shutil.rmtree(folder, ignore_errors=True)
