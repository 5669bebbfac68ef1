"""How `serve` stands, for the commands beside it: whether it runs, whether it is on the link, and why not."""

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable
from typing import IO

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import BrokerConfig, CloudLayout
from edgegpu_cloud.ownership import open_regular, open_state, remedy_for
from edgegpu_sync.link.events import Down, LinkEvent, Up

_LOG = logging.getLogger(__name__)

_NAME = "serve.state"
_TRIES, _PAUSE_S = 20, 0.05
"""Whoever looks holds the lock for a moment: so `serve` tries for a second."""

_ENROLS = "--no-link"


class Standing:
    """Held by the one `serve` of a folder; others see by the lock that it runs, and read what it has told."""

    def __init__(self, file: IO[str], clock: Callable[[], float], *, bundle: str) -> None:
        self._file, self._clock, self._bundle = file, clock, bundle

    def hear(self, event: LinkEvent) -> None:
        """Note what the link says of itself."""
        if isinstance(event, Up):
            self.tell("")
        elif isinstance(event, Down):
            self.tell(event.why)

    def tell(self, why: str) -> None:
        """Note that it is on the link, or why not; what cannot be written is logged alone."""
        try:
            self._file.seek(0)
            self._file.truncate()
            json.dump({"pid": os.getpid(), "why": why, "bundle": self._bundle, "since_s": self._clock()}, self._file)
            self._file.flush()
        except OSError as error:
            _LOG.warning("cannot write %s: %s", self._file.name, error)

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


def hold(layout: CloudLayout, *, link: bool, bundle: str = "", clock: Callable[[], float] = time.time) -> Standing:
    """Be the one `serve` of a folder, until the process ends; `bundle` says why boxes cannot be installed from here.

    Raises:
        CloudError: another one is, or the file cannot be written.
    """
    path = layout.folder / _NAME
    try:
        file = os.fdopen(open_state(path), "r+", encoding="utf-8")
    except OSError as error:
        raise CloudError(f"cannot write {path}: {error}", remedy=remedy_for(path)) from error
    for _ in range(_TRIES):
        if _locked(file, fcntl.LOCK_EX):
            found = Standing(file, clock, bundle=bundle)
            found.tell("no answer yet" if link else _ENROLS)
            return found
        time.sleep(_PAUSE_S)
    pid = _told(file).get("pid", "?")
    file.close()
    remedy = "stop that one first (systemctl stop edgegpu-cloud), or name another --folder"
    raise CloudError(f"cannot serve {layout.folder}: another `edgegpu-cloud serve` does, pid {pid}", remedy=remedy)


def no_bundle(layout: CloudLayout) -> str:
    """Return why boxes cannot be installed from the `serve` that runs; empty where they can, or none runs."""
    try:
        with os.fdopen(open_regular(layout.folder / _NAME, os.O_RDONLY), encoding="utf-8") as file:
            return "" if _locked(file, fcntl.LOCK_SH) else str(_told(file).get("bundle", ""))
    except OSError:
        return ""


def trouble(layout: CloudLayout, broker: BrokerConfig) -> str:
    """Return what keeps this controller from its boxes, and what to do, in a line; empty: nothing."""
    try:
        with os.fdopen(open_regular(layout.folder / _NAME, os.O_RDONLY), encoding="utf-8") as file:
            if not _locked(file, fcntl.LOCK_SH):
                return _words(_told(file), broker)
    except OSError:
        pass  # there never was one
    return "the controller is not running, nothing is sent or heard: `edgegpu-cloud serve`"


def _locked(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _told(file: IO[str]) -> dict[str, object]:
    try:
        file.seek(0)
        found = json.load(file)
    except (OSError, ValueError):  # it is being written
        return {}
    return found if isinstance(found, dict) else {}


def _words(told: dict[str, object], broker: BrokerConfig) -> str:
    why = told.get("why", "")
    if not why:
        return ""
    if why == _ENROLS:
        return "the controller runs with --no-link, nothing is sent or heard: start `edgegpu-cloud serve` without it"
    return (
        f"the controller is not connected to the broker at {broker.host}:{broker.controller_port}, nothing is sent or "
        f"heard: {why}; is the broker running (systemctl status edgegpu-broker)?"
    )
