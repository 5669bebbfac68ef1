"""What a controller subscribes to: everything where it is alone, else its own boxes, added and removed at run time."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from edgegpu_sync.ids import DeviceId
from edgegpu_sync.link.events import MessageArrived
from edgegpu_sync.topics import uplink_filter

MOST_FILTERS = 500
"""Filters in one packet: mosquitto ends the connection on one with 2 000."""


class FilterSender(Protocol):
    """The part of the link that subscribes: `edgegpu_sync.link.link.Link`."""

    def subscribe(self, filters: Sequence[str]) -> int | None:
        """Subscribe; return the token of the event that the broker has granted it, None while the link is down."""
        ...

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Give up filters."""
        ...


class LinkSender(FilterSender, Protocol):
    """The part of the link that a controller needs: `edgegpu_sync.link.link.Link`, or a network that a test makes."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        """Publish with QoS 1; None when it cannot be sent now."""
        ...

    def ack(self, arrived: MessageArrived) -> None:
        """Acknowledge a message to the broker."""
        ...


class Subscriptions:
    """The boxes whose uplinks arrive, or will when the broker has granted their filters."""

    def __init__(self, sender: FilterSender, *, shared: bool) -> None:
        """Build it; without `shared` the link has the one filter for all boxes from its beginning."""
        self._sender, self._shared = sender, shared
        self._devices: set[DeviceId] = set()
        self._waiting: dict[int, tuple[DeviceId, ...]] = {}

    def clear(self) -> None:
        """Forget all: the connection has ended, and the broker keeps nothing for this controller."""
        self._devices.clear()
        self._waiting.clear()

    def add(self, devices: Collection[DeviceId]) -> list[DeviceId]:
        """Subscribe to boxes; return those that are heard already, `granted` returns the others."""
        if not self._shared:
            return list(devices)
        for part in parts([device for device in devices if device not in self._devices]):
            token = self._sender.subscribe([uplink_filter(device) for device in part])
            if token is not None:
                self._waiting[token] = part
                self._devices.update(part)
        return []

    def granted(self, token: int) -> tuple[DeviceId, ...]:
        """Return the boxes that are heard from now on."""
        return self._waiting.pop(token, ())

    def missing(self, devices: Iterable[DeviceId]) -> list[DeviceId]:
        """Return those of these boxes that are not subscribed to."""
        return [device for device in devices if device not in self._devices] if self._shared else []

    def remove(self, devices: Iterable[DeviceId]) -> None:
        """Give up boxes."""
        known = self._devices.intersection(devices)
        self._devices -= known
        for part in parts(sorted(known)):
            self._sender.unsubscribe([uplink_filter(device) for device in part])

    def __iter__(self) -> Iterator[DeviceId]:
        """Return the boxes that are subscribed to."""
        return iter(self._devices)


def parts(devices: Sequence[DeviceId]) -> Iterator[tuple[DeviceId, ...]]:
    """Yield boxes in parts of `MOST_FILTERS`, which are as many as one transaction works on."""
    for at in range(0, len(devices), MOST_FILTERS):
        yield tuple(devices[at : at + MOST_FILTERS])
