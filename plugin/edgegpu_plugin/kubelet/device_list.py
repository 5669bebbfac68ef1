"""The device lists that are offered to kubelet: a change reaches every open stream at once."""

import threading
from collections.abc import Callable, Iterator

from edgegpu_core.deviceid import DeviceKind, core_ids, memory_ids
from edgegpu_core.inventory import Card
from edgegpu_core.model import ResourceModel
from edgegpu_plugin.pb import OfferedDevice, StopSignal, encode_devices


class DeviceList:
    """The current devices of both resources; every method is thread-safe and atomic."""

    def __init__(self, model: ResourceModel) -> None:
        self._model = model
        self._changed = threading.Condition()
        self._cards: tuple[Card, ...] = ()
        self._only: frozenset[str] | None = None
        self._lists: dict[DeviceKind, tuple[OfferedDevice, ...]] = {DeviceKind.MEMORY: (), DeviceKind.CORE: ()}
        self._version = 0

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards that are offered."""
        return self._cards

    def set(self, cards: tuple[Card, ...]) -> bool:
        """Offer these cards in the given order, and return whether the lists change.

        The devices of a card out of order stay in the lists as unhealthy ones: kubelet takes them out of allocatable.

        Raises:
            ModelError: more devices than kubelet's message limit carries; the lists stay as they were.
        """
        with self._changed:
            self._model.check_device_count([card.memory_mib for card in cards])
            ids: dict[DeviceKind, Callable[[Card], tuple[str, ...]]] = {
                DeviceKind.MEMORY: lambda card: memory_ids(card.uuid, card.units(self._model)),
                DeviceKind.CORE: lambda card: core_ids(card.uuid),
            }
            lists = {
                kind: tuple(
                    OfferedDevice(text, card.healthy and (self._only is None or text in self._only))
                    for card in cards
                    for text in ids_of(card)
                )
                for kind, ids_of in ids.items()
            }
            self._cards = cards
            if lists == self._lists:
                return False
            for devices in lists.values():
                encode_devices(devices)  # now, not while a kubelet that has just started waits
            self._lists = lists
            self._version += 1
            self._changed.notify_all()
            return True

    def use(self, model: ResourceModel) -> None:
        """Offer the same cards in units of another size.

        Raises:
            ModelError: more devices than kubelet's message limit carries; the lists stay as they were.
        """
        with self._changed:
            self._model = model
            self.set(self._cards)

    @property
    def is_limited(self) -> bool:
        """Whether only some devices are offered as healthy, by `limit`."""
        return self._only is not None

    def limit(self, only: frozenset[str] | None) -> bool:
        """Offer only these devices as healthy, or all with None; return whether that is another limit than before."""
        with self._changed:
            if only == self._only:
                return False
            self._only = only
            self.set(self._cards)
            return True

    def devices(self, kind: DeviceKind) -> tuple[OfferedDevice, ...]:
        """Return the devices of one resource."""
        return self._lists[kind]

    def watch(self, kind: DeviceKind, stopped: StopSignal) -> Iterator[tuple[OfferedDevice, ...]]:
        """Yield the list at once and again at each change, until the stream ends."""
        ended = threading.Event()

        def end() -> None:
            ended.set()
            with self._changed:
                self._changed.notify_all()

        stopped.on_stop(end)
        seen = -1
        while True:
            with self._changed:
                while not ended.is_set() and self._version == seen:
                    self._changed.wait()
                if ended.is_set():
                    return
                seen, devices = self._version, self._lists[kind]
            yield devices
