"""A reflector of one collection of the API server, in its own thread: list, then watch, and list again on request."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, TypeVar

from edgegpu_base.kube.client import PAGE, Json, KubeClient, WatchStream
from edgegpu_base.kube.errors import ExpiredError, KubeError, of_status

T = TypeVar("T")
_log = logging.getLogger(__name__)

_SILENCE_S = 120.0
"""API servers send a bookmark about each minute: after two silent minutes the watch is opened anew."""

_SHORTEST_WATCH_S = 1.0
_SHORTEST_WAIT_S = 0.25
_MAX_REFUSALS = 4
"""After this number of refusals in a row a right is missing: a starting API server may refuse calls for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a reflector calls the API server, in seconds."""

    watch_s: tuple[int, int] = (300, 600)
    """The range of one watch's length, random so that the watchers of a cluster do not all reconnect at once."""
    relist_s: float = float("inf")
    """After this time since the last list, a watch that is opened anew begins with another list."""
    longest_wait_s: float = 3.0
    """The longest wait between two tries: a box restarts its API server while pods wait, which a late watch delays."""


@dataclass(frozen=True)  # no slots: with them `Handlers[T](…)` fails on Python 3.11
class Handlers(Generic[T]):
    """The callbacks of a reflector, always on its own thread and in the order of the events."""

    on_replace: Callable[[dict[str, T]], None]
    """Called with all objects by UID; the owner's other objects are gone."""
    on_change: Callable[[str, T], None]
    """Called with a new or changed object and its UID."""
    on_delete: Callable[[str], None]
    """Called with the UID of an object that is gone or no longer of interest, even if it was never passed on."""
    on_trouble: Callable[[], None] = lambda: None
    """Called after a failed call: `problem` says why."""


class Reflector(Generic[T]):
    """One thread that keeps its owner's copy of one collection current.

    `synced` is set once the first list was passed on. `last_contact` is the monotonic time of the last data from the
    API server, None before the first, and `heard_at_s` the same in seconds since 1970. `problem` says why the copy is
    not kept current at present, empty when it is, and `denied` whether that is because this account lacks the right.

    An owner that must not act on an old copy waits for a resource version that it has read elsewhere (`wait_version`),
    or for a list that began after its call (`list_again`).
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        convert: Callable[[Json], T | None],
        handlers: Handlers[T],
        params: Mapping[str, str] | None = None,
        rng: random.Random | None = None,
        page: int = PAGE,
        pace: Pace | None = None,
    ) -> None:
        """Prepare the reflector; `start` begins.

        Args:
            client: the client, which others may use too.
            path: the collection, e.g. `/api/v1/pods`.
            convert: makes a small value of each object at once, so that objects never pile up; None for no interest.
            handlers: the owner's callbacks.
            params: selectors of list and watch.
            rng: for the jitter.
            page: objects per page of the list.
            pace: how often it calls the API server.
        """
        self._client = client
        self._path = path
        self._convert = convert
        self._handlers = handlers
        self._params = dict(params or {})
        self._rng = rng or random.Random()  # noqa: S311  (jitter is no secret)
        self._page = page
        self._pace = pace or Pace()
        self._listed_s = 0.0
        self._stopping = threading.Event()
        self._stream: WatchStream | None = None
        self._stream_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)
        self._progress = threading.Condition()
        self._version = 0
        self._begun = self._told = 0
        self._again = False
        self.synced = threading.Event()
        self.last_contact: float | None = None
        self.heard_at_s: float | None = None
        self.problem = ""
        self.denied = False

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    @property
    def silence(self) -> Json | None:
        """Why the copy is not kept current, and when the API server was heard last (seconds since 1970); else None."""
        if self.synced.is_set() and not self.problem:
            return None
        return {"why": self.problem or "not read yet", "heard_at": self.heard_at_s and int(self.heard_at_s)}

    def alive(self) -> bool:
        """Return whether the reflector's thread runs."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the watch at once and wait for the thread."""
        self._stopping.set()
        with self._progress:
            self._progress.notify_all()
        self._end_stream()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def wait_version(self, version: str, timeout_s: float) -> bool:
        """Wait until the copy is at least as new as a resource version; return False after the timeout.

        Versions of one collection are compared as numbers, as client-go does; one that is no number is never reached.
        """
        if not version.isdecimal():
            return False
        with self._progress:
            return (
                self._progress.wait_for(lambda: self._stopping.is_set() or self._version >= int(version), timeout_s)
                and not self._stopping.is_set()
            )

    def list_again(self, timeout_s: float) -> bool:
        """List the collection again; return True when a list that began after this call was passed on."""
        with self._progress:
            self._again = True
            wanted = self._begun + 1
        self._end_stream()
        with self._progress:
            told = self._progress.wait_for(lambda: self._stopping.is_set() or self._told >= wanted, timeout_s)
            return told and not self._stopping.is_set()

    def _end_stream(self) -> None:
        with self._stream_lock:
            if self._stream is not None:
                self._stream.close()

    def _run(self) -> None:
        version = ""
        failures, said = 0, ""
        while not self._stopping.is_set():
            try:
                if self._again or time.monotonic() - self._listed_s > self._pace.relist_s:
                    version = ""  # also if the list fails: it is tried until it succeeds
                version = version or self._list()
                began, before = time.monotonic(), version
                version = self._follow(version)
                # A watch that the server always ends at once must not cause a storm of calls.
                idle = version == before and time.monotonic() - began < _SHORTEST_WATCH_S and not self._again
                failures = failures + 1 if idle else 0
                said = said if idle else ""
            except ExpiredError:
                _log.info("%s: resource version too old, listing again", self._path)
                version, failures = "", failures + 1
            except KubeError as error:
                failures += 1
                self.problem = str(error)
                self.denied = error.status == HTTPStatus.FORBIDDEN and failures >= _MAX_REFUSALS
                self._handlers.on_trouble()
                if not self._stopping.is_set() and str(error) != said:
                    said = str(error)
                    _log.warning("%s: %s; trying again", self._path, error)
            except Exception:  # noqa: BLE001  (the border of this task)
                _log.exception("%s: the picture may be wrong, listing again", self._path)
                version, failures = "", failures + 1
            if failures:
                self._stopping.wait(self._pause_s(failures))

    def _pause_s(self, failures: int) -> float:
        """Return a wait that doubles with each failure, half of it random."""
        longest = min(self._pace.longest_wait_s, _SHORTEST_WAIT_S * 2.0 ** min(failures - 1, 10))
        return longest * self._rng.uniform(0.5, 1.0)

    def _list(self) -> str:
        """List the collection, pass it on, and return the version from which to watch.

        The list is read from the store, not from a cache of the API server: `limit` works there, and nothing is old.
        """
        found: dict[str, T] = {}
        version = ""
        with self._progress:
            self._again = False
            self._begun += 1
            number = self._begun
        for page in self._client.pages(self._path, params=self._params, limit=self._page):
            self._heard()
            version = page.resource_version
            for item in page.items:
                value = self._convert(item)
                if value is not None:
                    found[_uid(item)] = value
            if self._stopping.is_set():
                return version
        self._handlers.on_replace(found)
        self._listed_s = time.monotonic()
        with self._progress:
            self._told = number
            self._version = int(version) if version.isdecimal() else 0
            self._progress.notify_all()
        self.synced.set()
        return version

    def _follow(self, version: str) -> str:
        """Watch from `version` until the server ends the watch; return the version reached, or "" to list again."""
        params = {
            **self._params,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(*self._pace.watch_s)),
        }
        reached = version
        with self._client.watch(self._path, params=params, silence_s=_SILENCE_S) as stream:
            self._attach(stream)
            self._heard()
            try:
                for event in stream:
                    self._heard()
                    reached = self._deliver(event) or reached
                    self._reached(reached)
            except KubeError:
                # Events before the break were passed on: continue after them, and wait only if there were none.
                if reached == version or self._stopping.is_set():
                    raise
            finally:
                self._attach(None)
        return reached

    def _attach(self, stream: WatchStream | None) -> None:
        with self._stream_lock:
            self._stream = stream
            if stream is not None and (self._stopping.is_set() or self._again):
                stream.close()

    def _deliver(self, event: Json) -> str:
        """Pass one event on and return its resource version."""
        item = event["object"]
        kind = event["type"]
        if kind == "ERROR":
            raise of_status(int(item.get("code") or 500), f"watch ended by the API server: {item.get('message')}")
        if kind == "DELETED":
            self._handlers.on_delete(_uid(item))
        elif kind in {"ADDED", "MODIFIED"}:
            value = self._convert(item)
            if value is None:
                self._handlers.on_delete(_uid(item))
            else:
                self._handlers.on_change(_uid(item), value)
        with suppress(KeyError, TypeError):
            return str(item["metadata"]["resourceVersion"])
        return ""

    def _reached(self, version: str) -> None:
        if version.isdecimal():
            with self._progress:
                self._version = int(version)
                self._progress.notify_all()

    def _heard(self) -> None:
        self.last_contact, self.heard_at_s = time.monotonic(), time.time()
        self.problem, self.denied = "", False


def _uid(item: Json) -> str:
    return str(item["metadata"]["uid"])
