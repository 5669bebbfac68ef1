"""The lease that decides which agent of a cluster settles its app limits; a task of its own renews it."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from edgegpu_agent.kube.leases import LeaseRecord, Leases
from edgegpu_base.kube import KubeError

NAMESPACE, NAME = "kube-system", "edgegpu-app-limits"
DURATION_S = 30
"""How long a holder may be silent before another agent takes over."""

_RENEW_S = 10.0
_SURE_S = 20.0
"""How long after its last renewal a holder acts: shorter than others wait, so that there are never two."""

_LOG = logging.getLogger(__name__)


class LeaseHolding(Protocol):
    """Whether this agent settles the app limits of its cluster."""

    def holds(self) -> bool:
        """Return whether this agent holds the lease, as far as is known now."""
        ...

    def known(self, timeout_s: float) -> bool:
        """Wait until the holder is known; return False when it is not known in time."""
        ...

    @property
    def holder(self) -> str:
        """The name of the holder; empty when none is known."""
        ...


def may_take(record: LeaseRecord | None, me: str, *, unchanged_s: float) -> bool:
    """Return whether to take (or renew) a lease: it is ours or nobody's, or we have seen no change of it for too long.

    Clocks of other machines are not trusted, so a holder is gone when its lease has not changed for its duration.

    Args:
        record: the lease as last read.
        me: the name of the agent that wants it.
        unchanged_s: for how long we have seen the lease unchanged.
    """
    return record is None or record.holder in {"", me} or unchanged_s >= DURATION_S


class LeaseKeeper:
    """The task that keeps the lease, or waits for it. `run` lasts until `stop`; any thread may call the rest."""

    def __init__(
        self,
        leases: Leases,
        *,
        me: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        renew_s: float = _RENEW_S,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        """Build the lease keeper.

        Args:
            leases: reads and writes the lease.
            me: this agent's name among those of the cluster, the same after a restart: the name of the node.
            clock: monotonic seconds.
            wall: seconds since 1970, for people.
            renew_s: seconds between two reads or renewals.
            told: called when the holder has changed, and when the API server answers again.
        """
        self._leases = leases
        self._me = me
        self._clock = clock
        self._wall = wall
        self._renew_s = renew_s
        self._told = told
        self._away = False
        self._changed = threading.Condition()
        self._stopping = False
        self._seen: LeaseRecord | None = None
        self._seen_since = 0.0
        self._renewed: float | None = None
        self._said = ""

    @property
    def holder(self) -> str:
        """The holder of the lease, as last seen."""
        with self._changed:
            return self._seen.holder if self._seen else ""

    def holds(self) -> bool:
        """Return whether this agent holds the lease, renewed so lately that no other agent may have taken it."""
        with self._changed:
            return self._renewed is not None and self._clock() - self._renewed < _SURE_S

    def known(self, timeout_s: float) -> bool:
        """Wait until the lease was seen with a holder; return whether that is so, or `stop` was called."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopping or bool(self._seen and self._seen.holder), timeout_s)

    def run(self) -> None:
        """Read the lease, take or renew it, and wait, until `stop`."""
        while not self._stopping:
            try:
                self.look()
                if self._away:
                    self._away = False
                    self._told()
            except KubeError as error:  # for example, k3s restarts
                self._away = True
                self._say(f"cannot look after the lease {NAME}: {error}", logging.WARNING)
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, self._renew_s)

    def stop(self) -> None:
        """Let `run` end; the lease is not released, since after a restart this agent has the same name."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def look(self) -> None:
        """Renew our lease over the version last seen; else read the lease, and take it or wait. Raises KubeError."""
        asked = self._clock()
        if self.holds() and self._write(self._seen, asked):
            return
        record = self._leases.read()
        if self._seen is None or record is None or record.version != self._seen.version:
            self._keep(record, since=asked)
        if may_take(record, self._me, unchanged_s=asked - self._seen_since):
            self._write(record, asked)
        else:
            self._say(f"{self.holder} settles the app limits of this cluster")

    def _write(self, over: LeaseRecord | None, asked: float) -> bool:
        written = self._leases.write(self._me, self._wall(), over=over)
        if written is not None:
            self._keep(written, since=asked, renewed=asked)
            self._say("this agent settles the app limits of its cluster")
        return written is not None

    def _keep(self, record: LeaseRecord | None, *, since: float, renewed: float | None = None) -> None:
        with self._changed:
            before = self.holder, self.holds()
            self._seen, self._seen_since = record, since
            self._renewed = renewed if record is not None and record.holder == self._me else None
            now = self.holder, self.holds()
            self._changed.notify_all()
        if now != before:
            self._told()

    def _say(self, words: str, level: int = logging.INFO) -> None:
        if words != self._said:
            self._said = words
            _LOG.log(level, "%s", words)
