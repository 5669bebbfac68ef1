"""What is offered when NVML's thread and the reconciler's change it at the same time."""

import threading
from collections.abc import Callable, Iterator

from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.inventory import Card
from edgegpu_core.model import ResourceModel
from edgegpu_plugin.kubelet.device_list import DeviceList

CARD = Card(uuid="GPU-1", index=0, name="T4", memory_mib=1024, pci="00000000:01:00.0", minor=0)
OTHER_WAITS_S = 0.2
"""How long a change that must wait for another is given to come first all the same."""


class Cards(tuple[Card, ...]):
    """Cards during whose reading something else happens, once the memory's devices are listed."""

    __slots__ = ()
    reads = 0
    meanwhile: Callable[[], object]

    def __iter__(self) -> Iterator[Card]:
        yield from super().__iter__()
        Cards.reads += 1
        if Cards.reads == 2:  # the count is checked first, then come the memory's devices
            Cards.meanwhile()


def test_a_limit_that_comes_while_cards_are_taken_stands() -> None:
    """What nobody holds was offered over a whole uninstall."""
    device_list = DeviceList(ResourceModel())
    limiting = threading.Thread(target=device_list.limit, args=[frozenset()])

    def limit() -> None:
        limiting.start()
        limiting.join(OTHER_WAITS_S)

    Cards.reads, Cards.meanwhile = 0, limit
    device_list.set(Cards([CARD]))
    limiting.join(10)
    for kind in (DeviceKind.MEMORY, DeviceKind.CORE):
        assert device_list.devices(kind)
        assert not [one for one in device_list.devices(kind) if one.healthy]
