"""The status of `serve`, for other commands: whether it runs, whether it is on the link, and why not."""

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable
from typing import IO

from edgegpu_base.lock_files import open_lock
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import BrokerConfig, CloudLayout
from edgegpu_cloud.ownership import open_regular, remedy_for
from edgegpu_sync.link.events import LinkDown, LinkEvent, LinkUp

_LOG = logging.getLogger(__name__)

_NAME, _HTTPS = "serve.state", "https.state"
"""The status files of the controller, and of HTTPS beside it."""

_TRIES, _PAUSE_S = 20, 0.05
"""A command that reads the status holds the lock for a moment, so `serve` tries for a second."""

_OTHER = "cannot serve {folder}: another `edgegpu-cloud serve` does, pid {pid}"
_REMEDY = "stop that one first (systemctl stop edgegpu-cloud), or name another --folder"


class ServeStatus:
    """The locked status file of the one controller, or HTTPS, of a folder; others see the lock and read it."""

    def __init__(self, file: IO[str], clock: Callable[[], float], *, bundle: str, pid: int) -> None:
        self._file, self._clock, self._bundle, self._pid = file, clock, bundle, pid

    def on_link_event(self, event: LinkEvent) -> None:
        """Record an event of the link."""
        if isinstance(event, LinkUp):
            self.write("")
        elif isinstance(event, LinkDown):
            self.write(event.why)

    def write(self, why: str) -> None:
        """Record that the controller is on the link, or why not; a write that fails is only logged."""
        try:
            self._file.seek(0)
            self._file.truncate()
            json.dump({"pid": self._pid, "why": why, "bundle": self._bundle, "since_s": self._clock()}, self._file)
            self._file.flush()
        except OSError as error:
            _LOG.warning("cannot write %s: %s", self._file.name, error)

    def close(self) -> None:
        """Close the status file, which releases its lock."""
        self._file.close()


def hold(
    layout: CloudLayout,
    *,
    link: bool,
    bundle: str = "",
    pid: int | None = None,
    clock: Callable[[], float] = time.time,
) -> ServeStatus:
    """Become the one controller (`link`), or the one HTTPS, of a folder, until the process ends.

    Args:
        layout: the folder.
        link: whether it is the controller.
        bundle: why boxes cannot be installed from here.
        pid: the process that a person stops.
        clock: seconds since 1970.

    Raises:
        CloudError: another one is, or the file cannot be written.
    """
    path = layout.folder / (_NAME if link else _HTTPS)
    try:
        file = os.fdopen(open_lock(path), "r+", encoding="utf-8")
    except OSError as error:
        raise CloudError(f"cannot write {path}: {error}", remedy=remedy_for(path)) from error
    for _ in range(_TRIES):
        if _locked(file, fcntl.LOCK_EX):
            found = ServeStatus(file, clock, bundle=bundle, pid=pid or os.getpid())
            found.write("no answer yet" if link else "")
            return found
        time.sleep(_PAUSE_S)
    held_by = _read_status(file).get("pid", "?")
    file.close()
    raise CloudError(_OTHER.format(folder=layout.folder, pid=held_by), remedy=_REMEDY)


def check_free(layout: CloudLayout) -> None:
    """Check that no controller and no HTTPS of a folder runs.

    Raises:
        CloudError: one does.
    """
    for name in (_NAME, _HTTPS):
        for left in reversed(range(_TRIES)):
            told = _runs(layout, name)
            if told is None:
                break
            if not left:
                raise CloudError(_OTHER.format(folder=layout.folder, pid=told.get("pid", "?")), remedy=_REMEDY)
            time.sleep(_PAUSE_S)


def check_stopped(layout: CloudLayout) -> None:
    """Check that no `serve` works with the tables of a folder's store, of which one that waits for them is none.

    Raises:
        CloudError: one does.
    """
    for name in (_NAME, _HTTPS):
        if (told := _runs(layout, name)) is not None:
            text = f"cannot migrate the store: `edgegpu-cloud serve` works with it, pid {told.get('pid', '?')}"
            raise CloudError(text, remedy="stop it (systemctl stop edgegpu-cloud), migrate, and start it again")


def _runs(layout: CloudLayout, name: str) -> dict[str, object] | None:
    """Return the status that the process has written which holds this file; None where none does."""
    try:
        with os.fdopen(open_regular(layout.folder / name, os.O_RDONLY), encoding="utf-8") as file:
            return None if _locked(file, fcntl.LOCK_SH) else _read_status(file)
    except OSError:
        return None


def runs(layout: CloudLayout) -> bool:
    """Whether the controller of a folder runs on this machine."""
    return _runs(layout, _NAME) is not None


def no_bundle(layout: CloudLayout) -> str:
    """Return why boxes cannot be installed from the running HTTPS; empty where they can, or none runs."""
    told = _runs(layout, _HTTPS)
    return "" if told is None else str(told.get("bundle", ""))


def trouble(layout: CloudLayout, broker: BrokerConfig) -> str:
    """Return in one line what keeps this controller from its boxes, and what to do; empty: nothing."""
    if (told := _runs(layout, _NAME)) is not None:
        return _words(told, broker)
    if _runs(layout, _HTTPS) is not None:
        return "the controller runs with --no-link, nothing is sent or heard: start `edgegpu-cloud serve` without it"
    return "the controller is not running, nothing is sent or heard: `edgegpu-cloud serve`"


def _locked(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read_status(file: IO[str]) -> dict[str, object]:
    try:
        file.seek(0)
        found = json.load(file)
    except (OSError, ValueError):  # the file is being written
        return {}
    return found if isinstance(found, dict) else {}


def _words(told: dict[str, object], broker: BrokerConfig) -> str:
    why = told.get("why", "")
    if not why:
        return ""
    return (
        f"the controller is not connected to the broker at {broker.host}:{broker.controller_port}, nothing is sent or "
        f"heard: {why}; is the broker running (systemctl status edgegpu-broker)?"
    )
