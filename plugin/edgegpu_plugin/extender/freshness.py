"""The check that the watched pods are new enough to bind by.

Bind decides by the watched pods and by its own assumptions: a list of a node's pods is a scan of the datastore, and
under kine a consistent one takes up to a second. So the watched pods must include every binding that may have taken
effect before. These write bindings with cards, and none of their bindings is missed:

- *This process.* It counts a binding before it sends it (`ClusterState.assume`), until the watch shows it, or a list
  that began after the answer does not. The answer to a Binding has no resource version, so only the binding's own event
  proves that the watch has come that far. While that event is overdue, nothing is bound before a new list.
- *The extender of the previous leader.* This process has no record of its bindings. Each call reads the schedulers'
  Lease, by one key. If the term differs from that of the last list, the pods are listed once, consistently, after that
  read. The previous leader also reads the Lease just before it sends: it has sent whatever it sends under the old term
  before the new term began. A waiting call of an old term ends with an error (`term` in `require`).
- *The pod itself* is read afresh, by one key. Events of one collection come in order, so watched pods that are older
  than this pod's own version are too old, and the call waits for newer ones.

One case is left: a request that the previous leader sent just before its term ended and that takes effect after our
list. It may book units twice, as two Kubernetes schedulers may. No card is overbooked by that, since PreStartContainer
refuses what does not fit, and the plugin evicts refused pods once there is room.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from edgegpu_base.kube import Forbidden, KubeError, KubeObjects, NotFound, Reflector
from edgegpu_core.podview import PodView
from edgegpu_plugin.extender.cluster import ClusterState

_log = logging.getLogger(__name__)

LEASE_NAMESPACE, LEASE = "kube-system", "kube-scheduler"
NO_ELECTION = ""
"""The term of a scheduler that leads without an election: a single k3s server."""

_LAG_S = 2.0
"""How long to wait for the watch when it is behind a pod that was read afresh; after that a list is quicker."""


class StaleWatchError(Exception):
    """The pods could not be read in time, so that nothing may be bound by the watched ones."""


@dataclass(eq=False, slots=True, kw_only=True)
class Freshness:
    """The check that lets bind proceed only while the watched pods are new enough."""

    objects: KubeObjects
    state: ClusterState
    pods: Reflector[PodView]
    clock: Callable[[], float]
    _listing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _listed_term: str = field(default=NO_ELECTION, init=False)
    """At first that of a cluster without an election, which the list at the start covers: nobody led before."""

    def require(self, *, version: str, term: str | None, ends: float) -> str:
        """Wait until the watched pods are new enough to bind by, and return the leader's term.

        Args:
            version: the resource version of the pod that is to be bound, as just read.
            term: the term that the first check of this call returned; None for the first check.
            ends: until when to wait, by the clock.

        Raises:
            StaleWatchError: another scheduler leads since the call began, or the pods cannot be read in time.
            KubeError: the Lease cannot be read.
        """
        now = self._term()
        if term is not None and now != term:
            raise StaleWatchError("another scheduler leads since this binding was asked for")
        if self._stale(now) or not self.pods.wait_version(version, min(_LAG_S, ends - self.clock())):
            self._list(now, version, ends)
        return now

    def _stale(self, term: str) -> bool:
        return term != self._listed_term or self.state.echo_overdue()

    def _list(self, term: str, version: str, ends: float) -> None:
        """List the pods once for all calls that wait for a list."""
        if not self._listing.acquire(timeout=max(0.0, ends - self.clock())):
            raise StaleWatchError("edgegpu's view of the pods is being read anew")
        try:
            if not self._stale(term) and self.pods.wait_version(version, 0):
                return
            began = self.clock()
            _log.info("listing the pods before the next binding: %s", self._cause(term))
            if not self.pods.list_again(max(0.0, ends - began)):
                raise StaleWatchError("edgegpu's view of the pods is behind the API server and could not be renewed")
            self.state.expire_assumed_by_list(began)
            self._listed_term = term
        finally:
            self._listing.release()

    def _cause(self, term: str) -> str:
        if term != self._listed_term:
            return "the scheduler's lead has changed"
        return "the watch does not show a binding of ours" if self.state.echo_overdue() else "the watch is behind"

    def _term(self) -> str:
        """Return the term: who leads and since when; NO_ELECTION without a Lease."""
        try:
            spec = self.objects.get_lease(LEASE_NAMESPACE, LEASE).get("spec") or {}
        except NotFound:
            return NO_ELECTION
        except Forbidden as error:
            raise KubeError(f"{error}: apply examples/rbac.yaml of this release anew", status=error.status) from error
        return f"{spec.get('holderIdentity')} {spec.get('acquireTime')} {spec.get('leaseTransitions')}"
