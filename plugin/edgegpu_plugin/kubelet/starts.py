"""Whose start kubelet's calls are: it asks for each resource of a container that starts, and names devices alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.ledger import Ledger

PAIR_S = 2.0
"""kubelet makes the second call of a start as soon as the first is answered, long before another container starts."""


@dataclass(frozen=True, slots=True)
class _Call:
    kind: DeviceKind
    containers: tuple[str, ...]
    at_s: float


@dataclass(slots=True)
class StartMatcher:
    """Finds which container of a pod starts, where several hold the same devices of a resource.

    An init container hands its devices on, so that one after it can have the same memory, the same core, or both. The
    calls for the two resources come one after the other, in any order: who starts is among those that both may be for.
    After the second call it is known, but for containers that hold the same of both. Who holds devices of one resource
    alone has one call; right after a start of another container it may be taken for that one's.
    """

    _last: dict[str, _Call] = field(default_factory=dict)
    """The last call by a pod's UID."""

    def starting(
        self, kind: DeviceKind, uid: str, owners: Sequence[str], ledger: Ledger, *, now_s: float
    ) -> tuple[str, ...]:
        """Return the containers of which one starts, by this call and the one before.

        Args:
            kind: of the devices that kubelet asks for.
            uid: the pod's UID in kubelet's records.
            owners: the containers of the pod that hold exactly these devices.
            ledger: what they hold.
            now_s: the time of a monotonic clock.
        """
        self._last = {key: call for key, call in self._last.items() if now_s - call.at_s < PAIR_S}
        last = self._last.get(uid)
        self._last[uid] = _Call(kind, tuple(owners), now_s)
        if last is not None and last.kind is not kind:
            both = tuple(one for one in owners if one in last.containers)
            if both:
                return both
        # For who holds the other resource too one more call follows, and what that says counts then.
        alone = tuple(one for one in owners if not ledger.grant(uid, one).ids.get(kind.other))
        return alone or tuple(owners)

    def answered(self, uid: str, *, now_s: float) -> None:
        """Note when the last call was answered: it may have waited for the driver."""
        if uid in self._last:
            self._last[uid] = replace(self._last[uid], at_s=now_s)
