"""Whether the watched pods are new enough to bind by.

Bind decides by the watched pods and by its own assumptions: a list of a node's pods is a scan of the datastore, and
under kine a consistent one takes up to a second. The watched pods must then hold every binding that may have taken
effect before. Who writes bindings with cards, and why none is missed:

- *This process.* It counts a binding before it sends it (`ClusterState.assume`), until the watch shows it or a list
  that began after the answer does not. A Binding's answer carries no resource version, so the binding's own event is
  the proof that the watch has come so far; while that event is overdue nothing is bound before a new list.
- *The extender of the leader before.* Its bindings are in no memory of ours. Each call reads the schedulers' Lease, a
  read of one key; when the term is another than that of the last list, the pods are listed once, consistently, after
  that read. The predecessor reads the Lease as well, just before it sends: what it sends under the old term it has
  sent before the new term began, and a call of an old term that waits ends with an error (`term` in `require`).
- *The pod itself* is read afresh, by one key. Events of one collection come in order, so watched pods that are older
  than this pod's own version are too old, and are waited for.

One flight is left: a request that the predecessor sent just before its term ended and that takes effect after our
list. It may book units twice, as two schedulers of Kubernetes may; no card is overbooked by it, since PreStartContainer
refuses what does not fit and the plugin lets that pod come again.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from edgegpu_base.kube import Forbidden, KubeError, KubeObjects, NotFound
from edgegpu_plugin.extender.cluster import ClusterState

_log = logging.getLogger(__name__)

LEASE_NAMESPACE, LEASE = "kube-system", "kube-scheduler"
NO_ELECTION = ""
"""The term of a scheduler that leads without an election: a single k3s server."""

_LAG_S = 2.0
"""How long the watch may be behind a pod that was read afresh, before a list is quicker."""


class StaleWatchError(Exception):
    """The pods could not be read in time; nothing may be bound by what is known."""


class WatchedPods(Protocol):
    """The watched pods: a Reflector."""

    def wait_version(self, version: str, timeout_s: float) -> bool:
        """Wait until the picture is at least as new as a resource version."""

    def list_again(self, timeout_s: float) -> bool:
        """Read everything from the store once more; True when a list was told that began after this call."""


class Freshness:
    """Lets bind go on only while the watched pods are new enough."""

    def __init__(
        self, *, objects: KubeObjects, state: ClusterState, pods: WatchedPods, clock: Callable[[], float]
    ) -> None:
        self._objects = objects
        self._state = state
        self._pods = pods
        self._clock = clock
        self._listing = threading.Lock()
        # The list at the start covers a cluster without an election: nobody else has led.
        self._listed_term = NO_ELECTION

    def require(self, *, version: str, term: str | None, ends: float) -> str:
        """Wait until the watched pods may be bound by; return the leader's term.

        Args:
            version: of the pod that is to be bound, as just read.
            term: at the beginning of this call, None at its beginning.
            ends: until when to wait, by the clock.

        Raises:
            StalePictureError: another scheduler leads since the call began, or the pods cannot be read in time.
            KubeError: the Lease cannot be read.
        """
        now = self._term()
        if term is not None and now != term:
            raise StaleWatchError("another scheduler leads since this binding was asked for")
        if self._stale(now) or not self._pods.wait_version(version, min(_LAG_S, ends - self._clock())):
            self._list(now, version, ends)
        return now

    def _stale(self, term: str) -> bool:
        return term != self._listed_term or self._state.echo_overdue()

    def _list(self, term: str, version: str, ends: float) -> None:
        """List the pods once for all calls that wait for it."""
        if not self._listing.acquire(timeout=max(0.0, ends - self._clock())):
            raise StaleWatchError("edgegpu's view of the pods is being read anew")
        try:
            if not self._stale(term) and self._pods.wait_version(version, 0):
                return
            began = self._clock()
            _log.info("listing the pods before the next binding: %s", self._cause(term))
            if not self._pods.list_again(max(0.0, ends - began)):
                raise StaleWatchError("edgegpu's view of the pods is behind the API server and could not be renewed")
            self._state.settle_assumed(began)
            self._listed_term = term
        finally:
            self._listing.release()

    def _cause(self, term: str) -> str:
        if term != self._listed_term:
            return "the scheduler's lead has changed"
        return "the watch does not show a binding of ours" if self._state.echo_overdue() else "the watch is behind"

    def _term(self) -> str:
        """Return who leads since when; NO_ELECTION without a Lease."""
        try:
            spec = self._objects.get_lease(LEASE_NAMESPACE, LEASE).get("spec") or {}
        except NotFound:
            return NO_ELECTION
        except Forbidden as error:
            raise KubeError(f"{error}: apply examples/rbac.yaml of this release anew", status=error.status) from error
        return f"{spec.get('holderIdentity')} {spec.get('acquireTime')} {spec.get('leaseTransitions')}"
