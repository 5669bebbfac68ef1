"""Follows one collection of the API server in a thread of its own: lists, then watches, and lists again when told."""

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
"""API servers send a bookmark about each minute: after two without a word the watch is opened anew."""

_SHORTEST_WATCH_S = 1.0
_SHORTEST_WAIT_S = 0.25
_SURE = 4
"""So many refusals in a row are meant: an API server that starts may refuse for a moment what it allows later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a reflector calls, in seconds."""

    watch_s: tuple[int, int] = (300, 600)
    """How long one watch is asked for; at random, so that the watchers of a cluster do not all come back at once."""
    relist_s: float = float("inf")
    """A watch that is opened anew so long after the last list begins with another list."""
    longest_wait_s: float = 3.0
    """Between two tries. An edge box restarts its API server while pods wait: a late watch places them late."""


@dataclass(frozen=True)  # no slots: with them `Handlers[T](…)` fails on Python 3.11
class Handlers(Generic[T]):
    """What a reflector tells its owner, always from its own thread and in the order in which things happened."""

    on_replace: Callable[[dict[str, T]], None]
    """All there is, by UID; what the owner knows beyond it is gone."""
    on_change: Callable[[str, T], None]
    """One object, by UID, is new or different."""
    on_delete: Callable[[str], None]
    """One object is gone, or of no interest any more; it may be one that was never told of."""
    on_trouble: Callable[[], None] = lambda: None
    """A call has failed: `problem` says why."""


class Reflector(Generic[T]):
    """One thread that keeps its owner's picture of one collection true.

    `synced` is set once the first list was told; `last_contact` is the monotonic time of the last word from the API
    server, None before the first; `problem` says why the picture is not kept at present, empty when it is, and `denied`
    whether that is because this account lacks the right.

    An owner that must not act on an old picture waits for a resource version that it has read elsewhere
    (`wait_version`), or for a list that began after its call (`list_again`).
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
        """Prepare it; `start` begins.

        Args:
            client: shared with others.
            path: the collection, e.g. `/api/v1/pods`.
            convert: makes a small value of an object, at once, so that objects never pile up; None = of no interest.
            handlers: who is told.
            params: selectors of list and watch.
            rng: for the jitter.
            page: objects per page of the list.
            pace: how often it calls; its defaults unless given.
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
        self.problem = ""
        self.denied = False

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def alive(self) -> bool:
        """Return whether its thread runs."""
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
        """Wait until the picture is at least as new as a resource version; False when it is not in time.

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
        """Read the collection from the store once more; True when a list was told that began after this call."""
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
                    version = ""  # also where the list fails: it is tried until it is told
                version = version or self._list()
                began, before = time.monotonic(), version
                version = self._follow(version)
                # A watch that is ended at once, again and again, must not become a storm of calls.
                idle = version == before and time.monotonic() - began < _SHORTEST_WATCH_S and not self._again
                failures = failures + 1 if idle else 0
                said = said if idle else ""
            except ExpiredError:
                _log.info("%s: resource version too old, listing again", self._path)
                version, failures = "", failures + 1
            except KubeError as error:
                failures += 1
                self.problem = str(error)
                self.denied = error.status == HTTPStatus.FORBIDDEN and failures >= _SURE
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
        """Return a time that doubles with each failure, with half of it at random."""
        longest = min(self._pace.longest_wait_s, _SHORTEST_WAIT_S * 2.0 ** min(failures - 1, 10))
        return longest * self._rng.uniform(0.5, 1.0)

    def _list(self) -> str:
        """Tell all there is; return the version at which to watch on.

        It reads from the store, not from a cache of the API server: limit works there, and nothing is out of date.
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
        """Watch from `version` on until the server ends it; return the version reached, "" to list again."""
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
                    reached = self._tell(event) or reached
                    self._reached(reached)
            except KubeError:
                # What was told before the break was told: go on from there, and only here wait before.
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

    def _tell(self, event: Json) -> str:
        """Pass one event on; return its resource version."""
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
        self.last_contact = time.monotonic()
        self.problem, self.denied = "", False


def _uid(item: Json) -> str:
    return str(item["metadata"]["uid"])
