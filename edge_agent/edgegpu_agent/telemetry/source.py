"""The telemetry of a box: it reads plugin, cards and machine in turn, and keeps the results for the worker."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegpu_agent.ports import ClusterIdentity
from edgegpu_agent.telemetry import nvidia_smi
from edgegpu_agent.telemetry.machine import MachineReader
from edgegpu_agent.telemetry.messages import allocations, driver_version, inventory, memory_use, plugin_parts
from edgegpu_agent.telemetry.pending import pending_pods
from edgegpu_agent.telemetry.programs import Programs
from edgegpu_base.http_unix import NoHttpError, get
from edgegpu_sync.messages.telemetry import HealthPart, PendingPods, PodAlloc, Sample
from edgegpu_sync.messages.uplink import BoxVersions

_LOG = logging.getLogger(__name__)

PLUGIN_S, MACHINE_S = 10.0, 60.0
WATCH_S = 0.25
"""Seconds between two looks at the mark that the plugin touches when pods or cards have changed."""

_CALL_S = 5.0
_SMI_S = 20.0
_OK = 200
_MOST_SAMPLES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSnapshot:
    """The last readings of a box; `document` is the plugin's status, None while it does not answer.

    `pods`: what each pod holds by it, with the names of pods as they were known last.
    """

    document: Mapping[str, Any] | None = None
    pods: dict[str, PodAlloc] | None = None
    cards: tuple[nvidia_smi.CardReading, ...] = ()
    parts: tuple[HealthPart, ...] = ()
    versions: BoxVersions | None = None


def _nothing() -> None:
    """Ignore a change of the plugin's status."""


class TelemetryReader:
    """The reader of a box's telemetry; `run` needs a thread, any thread may call the rest."""

    def __init__(
        self,
        *,
        socket: Path,
        machine: MachineReader,
        programs: Programs,
        node: str,
        period_s: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Build the telemetry reader.

        Args:
            socket: the plugin's socket.
            machine: reads versions and health.
            programs: runs nvidia-smi.
            node: this machine's name.
            period_s: seconds between two measurements.
            clock: monotonic seconds.
            wall: seconds since 1970, by this box's clock.
        """
        self._socket, self._machine, self._programs = socket, machine, programs
        self._node, self.period_s = node, period_s
        self._mark_path, self._mark = socket.with_suffix(".changed"), 0
        self._changed: Callable[[], None] = _nothing
        self._cluster: Callable[[], ClusterIdentity] = ClusterIdentity
        self._clock, self._wall = clock, wall
        self._wake = threading.Event()
        self._stopping = False
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._view = BoxSnapshot()
        self._samples: list[Sample] = []
        self._parts: tuple[HealthPart, ...] = ()
        self._pods: dict[str, PodAlloc] = {}
        self._silent_s = 0.0
        self._due = dict.fromkeys(("plugin", "machine", "cards"), 0.0)

    def set_cluster_source(self, cluster: Callable[[], ClusterIdentity]) -> None:
        """Set the function that returns the cluster; it must return at once, on any thread."""
        self._cluster = cluster

    def set_listener(self, changed: Callable[[], None] | None) -> None:
        """Set the function that the reader calls, on its thread, when the plugin says something else; None: none."""
        self._changed = changed or _nothing

    # --- for the worker

    def cluster(self) -> ClusterIdentity:
        """Return the cluster, and whether this agent settles the app limits there."""
        return self._cluster()

    def inventory(self) -> dict[str, Any] | None:
        """Return the cards and what is offered of them; None while nothing was read, or the plugin is silent.

        That a plugin does not answer is no report that GPU sharing is off: what it said last stays, and grows old.
        """
        view = self._view
        if view.document is None and (not view.parts or self._is_silent(view)):
            return None
        return inventory(view.document, view.cards, node=self._node, cluster=self._cluster().uid)

    @staticmethod
    def _is_silent(view: BoxSnapshot) -> bool:
        """Whether a plugin is installed that does not answer."""
        return any(part.name == "plugin" and part.state != "off" for part in view.parts)

    def alloc(self) -> dict[str, PodAlloc] | None:
        """Return what each pod holds; None (not an empty answer) while the plugin does not answer."""
        return self._view.pods

    def pending(self) -> PendingPods | None:
        """Return the pods that have no card yet; None while the plugin does not answer."""
        document = self._view.document
        return None if document is None else pending_pods(document)

    def health_parts(self) -> tuple[HealthPart, ...]:
        """Return the health of plugin, kubelet, cards, k3s and disk."""
        return self._view.parts

    def samples(self) -> list[Sample]:
        """Return the samples since the last call, oldest first."""
        with self._lock:
            taken, self._samples = self._samples, []
        return taken

    def versions(self) -> BoxVersions:
        """Return the versions of this box's programs."""
        return self._view.versions or self._machine.versions()

    def refresh(self) -> None:
        """Read everything now; block for as long as that takes."""
        with self._looking:
            self._due = dict.fromkeys(self._due, 0.0)
            self._look()

    # --- its thread

    def run(self) -> None:
        """Read what is due, and wait, until `stop`."""
        while not self._stopping:
            with self._looking:
                self._look()
            self._wait()

    def stop(self) -> None:
        """Let `run` end; a running program may delay that for some seconds."""
        self._stopping = True
        self._wake.set()

    def _wait(self) -> None:
        """Wait until something is due, or the plugin has marked a change."""
        ends = self._clock() + max(0.1, min(self._due.values()) - self._clock())
        while not self._stopping and (left_s := ends - self._clock()) > 0:
            self._wake.wait(min(left_s, WATCH_S))
            if self._plugin_mark() != self._mark:
                self._due["plugin"] = 0.0
                return

    def _plugin_mark(self) -> int:
        """Return the time of the plugin's mark; 0 where there is none."""
        try:
            return self._mark_path.stat().st_mtime_ns
        except OSError:
            return 0

    def _look(self) -> None:
        now = self._clock()
        view = self._view
        document, cards = view.document, view.cards
        fresh = {name for name, due in self._due.items() if due <= now}
        if "plugin" in fresh:
            self._mark = self._plugin_mark()  # before the answer: a change after it is seen by its mark
            document = self._ask_plugin()
        if "cards" in fresh:
            cards = nvidia_smi.read(self._programs.output_of(nvidia_smi.QUERY, timeout_s=_SMI_S) or "")
            self._measured(cards, document)
        if document is None and (view.document is not None or not self._silent_s):
            self._silent_s = self._wall()
        came_or_went = (document is None) != (view.document is None)
        if "machine" in fresh or came_or_went:
            silent = () if document is not None else (self._machine.plugin_part(since_s=self._silent_s),)
            self._parts = (*self._machine.parts(), *silent)
        parts = (*(plugin_parts(document) if document is not None else ()), *self._parts)
        driver = driver_version(document, cards)
        versions = self._machine.versions(plugin=str((document or {}).get("version") or ""), driver=driver)
        if document is not None:
            self._pods = allocations(document, self._pods)
        pods = None if document is None else self._pods
        self._view = BoxSnapshot(document=document, pods=pods, cards=cards, parts=parts, versions=versions)
        for name, period_s in (("plugin", PLUGIN_S), ("machine", MACHINE_S), ("cards", self.period_s)):
            if name in fresh:
                self._due[name] = now + period_s
        if document != view.document:
            self._changed()

    def _ask_plugin(self) -> Mapping[str, Any] | None:
        try:
            status, body = get(self._socket, "/v1/status", timeout_s=_CALL_S)
            document = json.loads(body) if status == _OK else None
        except (OSError, NoHttpError, ValueError) as error:
            _LOG.debug("the plugin does not say how it is: %s", error)
            return None
        return document if isinstance(document, dict) else None

    def _measured(self, cards: tuple[nvidia_smi.CardReading, ...], document: Mapping[str, Any] | None) -> None:
        now_s = self._wall()
        use = None if document is None else memory_use(document, now_s=now_s)
        measured = tuple(sample for one in cards if (sample := one.sample()) is not None)
        if measured or use:
            moment = Sample(at=max(0, int(now_s)), cards=measured, memory_use=use)
            with self._lock:
                self._samples = [*self._samples, moment][-_MOST_SAMPLES:]
