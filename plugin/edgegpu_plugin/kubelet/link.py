"""The registration with kubelet: a watch of kubelet's folder, our sockets in it, both resources registered."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from edgegpu_base.process.inotify import folder_watch
from edgegpu_base.process.realtime import RealtimePriority
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.kubelet.device_plugin import OPTIONS, ResourcePlugin
from edgegpu_plugin.kubelet.endpoint import FileIdentity, PluginSocket, listens
from edgegpu_plugin.kubelet.pods import status_of
from edgegpu_plugin.kubelet.start_lease import StartLease
from edgegpu_plugin.pb import Registration, RegistrationCaller, ServingLoop, channel

_log = logging.getLogger(__name__)

KUBELET_SOCKET = "kubelet.sock"
CHECKPOINT = "kubelet_internal_checkpoint"

_THREADS = 64
"""A stream holds a thread while it lives, and PreStart calls wait for NVML in parallel; threads are made as needed."""

_REGISTER_TIMEOUT_S = 10.0
_DIAL_GRACE_S = 10.0
"""kubelet dials back within this time after Register."""

_LOST_GRACE_S = 0.5
_FIRST_RETRY_S, _LAST_RETRY_S = 0.01, 5.0
_SETTLED = 5
"""How many times rarer the folder is checked while all is registered. A check costs 0.3 ms, and inotify reports what
changes. Only a folder that was mounted over needs a check."""

_SAY_AGAIN_S = 60.0


class KubeletLink:
    """The registration of the plugins with each kubelet that starts; `run` is the task, the rest is thread-safe."""

    def __init__(
        self,
        *,
        folder: Path,
        plugins: Sequence[ResourcePlugin],
        on_registered: Callable[[float], None] = lambda _ms: None,
        on_kubelet_restart: Callable[[], None] = lambda: None,
        on_checkpoint: Callable[[], None] = lambda: None,
        start_lease: StartLease | None = None,
        poll_s: float = 1.0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Make the link.

        Args:
            folder: kubelet's `device-plugins` folder, which need not exist yet.
            plugins: the device plugins, one per resource.
            on_registered: called on the link's thread when all first lists are sent, with the milliseconds since
                kubelet's socket appeared (or since `run` began, if it existed before).
            on_kubelet_restart: called on the link's thread when a new kubelet has started, before the registration.
            on_checkpoint: called on the link's thread when kubelet has written its checkpoint.
            start_lease: what keeps a starting kubelet from its pods until it has the devices.
            poll_s: how often the folder is checked without an event from it; a fifth as often while all is
                registered.
            wall: seconds since 1970, in which the kernel says when the socket appeared; it may be set at any time.
        """
        self._folder = folder
        self._socket = folder / KUBELET_SOCKET
        self._on_registered = on_registered
        self._on_kubelet_restart = on_kubelet_restart
        self._on_checkpoint = on_checkpoint
        self._poll_s, self._wall = poll_s, wall
        self._watch = folder_watch()
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="kubelet-call")
        self._loop = ServingLoop(self._executor)
        self._endpoints = [
            PluginSocket(plugin, folder=folder, loop=self._loop, told=self._streams_changed) for plugin in plugins
        ]
        self._stopping = threading.Event()
        self._link: grpc.Channel | None = None
        self._kubelet: FileIdentity | None = None
        self._pending: set[PluginSocket] = set()
        self._failures, self._retry_at = 0, 0.0
        self._lost_at: dict[PluginSocket, float] = {}
        self._began_s = self._listed_s = 0.0
        self._announced = False
        self._waiting = _Said()
        self._urgency = RealtimePriority()
        self.start_lease = start_lease or StartLease()
        self.last_registration_ms: float | None = None

    @property
    def registered(self) -> bool:
        """Whether kubelet has the lists of all resources."""
        return self._announced and not self._pending

    @property
    def waiting_for(self) -> str:
        """The text that says what the link waits for; empty when all is registered."""
        return "" if self.registered else self._waiting.text or f"waiting for kubelet to answer at {self._socket}"

    def run(self) -> None:
        """Serve and register until `stop`, then end all streams and remove our sockets.

        Raises:
            PluginError: the folder cannot be written, or one of our sockets is another process's.
        """
        started_s = time.monotonic()
        made: frozenset[str] = frozenset()
        try:
            self.start_lease.give_back()  # what a plugin that was killed has left
            while not self._stopping.is_set():
                try:
                    wait_s = self._round(made, started_s)
                except OSError as error:  # one file must not end the process; streams and sockets stay
                    self._announced = False
                    self._waiting.say(f"waiting for kubelet's folder {self._folder} to be usable: {error}")
                    wait_s = self._poll_s
                made = self._watch.wait(wait_s)
                if CHECKPOINT in made:
                    self._on_checkpoint()
        finally:
            self.start_lease.give_back()
            self._urgency.give_back()
            for endpoint in self._endpoints:
                endpoint.close()
            self._loop.close()
            self._executor.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Make `run` end."""
        self._stopping.set()
        self._watch.wake()
        link = self._link
        if link is not None:
            link.close()

    def _round(self, made: frozenset[str], started_s: float) -> float:
        """Do the work that is due and return the seconds until more may be due."""
        self.start_lease.give_back_late()
        if self.start_lease.is_wanted and self._is_kubelet_away():
            self.start_lease.take()
        self._watch.follow(self._folder)
        found = FileIdentity.of(self._socket)
        ready = self._folder_ready()
        if not ready or found is None:
            self._say_missing()
            self._urgency.give_back_late()
            if ready:
                self._prepare()
            return self._poll_s
        if self._is_new(found, made):
            if self._kubelet is not None:
                self._on_kubelet_restart()
            self._start_over(found, started_s)
        else:
            self._keep_up()
            self._urgency.give_back_late()
        now = time.monotonic()
        if self._pending and now >= self._retry_at:
            self._register()
        self._announce()
        return self._next_s()

    def _is_kubelet_away(self) -> bool:
        return not any(endpoint.streams for endpoint in self._endpoints) and not listens(self._socket)

    def _folder_ready(self) -> bool:
        if not self._folder.is_dir():
            return False
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise PluginError(
                f"cannot write to kubelet's folder {self._folder}: run the plugin as root, "
                "and check that the file system is not read-only"
            )
        return True

    def _say_missing(self) -> None:
        self._announced = False
        if self._folder.is_dir():
            self._waiting.say(f"waiting for kubelet's socket {self._socket}: is k3s (kubelet) running?")
        else:
            self._waiting.say(f"waiting for kubelet's folder {self._folder}: is k3s (kubelet) installed and started?")

    def _is_new(self, found: FileIdentity, made: frozenset[str]) -> bool:
        """Return whether this socket is of a kubelet that we have not served yet; a chmod of it means no new kubelet.

        A socket with the old inode and a new time is kept in doubt: inotify may report its creation next.
        """
        if found == self._kubelet:
            return False
        if self._kubelet is None or not found.same_inode(self._kubelet) or KUBELET_SOCKET in made:
            return True
        return any(endpoint.streams == 0 for endpoint in self._endpoints)

    def _prepare(self) -> None:
        for endpoint in self._endpoints:
            endpoint.prepare()
            endpoint.stop_retired()

    def _start_over(self, found: FileIdentity, started_s: float) -> None:
        """Begin the registration of all resources with a new kubelet."""
        _log.debug("kubelet's socket is new: registering")
        self._urgency.take()
        age_s = max(0.0, self._wall() - found.ctime_ns / 1e9)  # the clock may have been set since
        self._began_s = max(time.monotonic() - age_s, started_s)
        self._announced = False
        self._prepare()
        self._kubelet = found
        self._pending = set(self._endpoints)
        self._lost_at.clear()
        self._failures, self._retry_at = 0, 0.0

    def _keep_up(self) -> None:
        """Register a resource again when kubelet has closed its stream."""
        now = time.monotonic()
        for endpoint in self._endpoints:
            endpoint.stop_retired()
            if endpoint in self._pending or endpoint.streams:
                self._lost_at.pop(endpoint, None)
            elif now >= self._lost_at.setdefault(endpoint, now + _LOST_GRACE_S):
                _log.warning("kubelet has no stream of %s: registering again", endpoint.plugin.resource)
                self._urgency.take()
                self._lost_at.pop(endpoint)
                self._pending.add(endpoint)
                self._began_s = time.monotonic()
                self._announced = False

    def _register(self) -> None:
        """Register all pending resources at the same time; those that fail stay pending."""
        if self._failures and not listens(self._socket):  # a name is not spent on a kubelet that is down
            self._prepare()
            self._postpone("nobody listens on its socket")
            return
        with contextlib.closing(channel(str(self._socket))) as link:
            self._link = link
            if self._stopping.is_set():  # `stop` may have looked for the channel before
                return
            caller = RegistrationCaller(link)
            asked = {
                endpoint: self._executor.submit(
                    caller.register,
                    Registration(endpoint.fresh_name(), endpoint.plugin.resource, OPTIONS),
                    _REGISTER_TIMEOUT_S,
                )
                for endpoint in self._pending
            }
            why = ""
            for endpoint, answer in asked.items():
                try:
                    answer.result()
                except (grpc.RpcError, ValueError) as error:  # ValueError: `stop` closed the channel
                    code, details = status_of(error)
                    why = f"{code.name.lower()}: {details}" if isinstance(error, grpc.Call) else details
                else:
                    self._pending.discard(endpoint)
                    self._lost_at[endpoint] = time.monotonic() + _DIAL_GRACE_S
            self._link = None
        if self._pending and not self._stopping.is_set():
            self._postpone(why)

    def _postpone(self, why: str) -> None:
        names = " and ".join(sorted(endpoint.plugin.resource for endpoint in self._pending))
        self._waiting.say(f"waiting for kubelet to take {names}: {why}")
        self._failures += 1
        self._retry_at = time.monotonic() + min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(self._failures, 10))

    def _announce(self) -> None:
        if self._announced or self._pending or any(endpoint.streams == 0 for endpoint in self._endpoints):
            return
        self._announced = True
        self._urgency.give_back()
        self._waiting.forget()
        self.last_registration_ms = max(0.0, self._listed_s - self._began_s) * 1000
        self.start_lease.devices_listed()
        _log.info("registered with kubelet, first lists sent after %.0f ms", self.last_registration_ms)
        self._on_registered(self.last_registration_ms)

    def _next_s(self) -> float:
        now = time.monotonic()
        due = [now + self._poll_s * (_SETTLED if self.registered else 1), *self._lost_at.values()]
        due.append(self.start_lease.due_s)
        if self._pending:
            due.append(self._retry_at)
        return max(0.0, min(due) - now)

    def _streams_changed(self) -> None:
        """Store the time and wake the loop; runs on gRPC's threads."""
        self._listed_s = time.monotonic()
        self._watch.wake()


class _Said:
    """A log message that repeats once a minute at most."""

    def __init__(self) -> None:
        self.text = ""
        self._again_at = 0.0

    def say(self, text: str) -> None:
        now = time.monotonic()
        if text != self.text or now >= self._again_at:
            _log.warning("%s", text)
            self.text, self._again_at = text, now + _SAY_AGAIN_S

    def forget(self) -> None:
        self.text = ""
