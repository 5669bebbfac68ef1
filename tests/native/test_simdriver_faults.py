"""What people inject is seen by every process, until it is cleared."""

from collections.abc import Callable

import pytest
from native.simkit import Child, NvmlError

from edgegpu_sim.driver import SimCard, SimDriver

DEV = ["dev", 0]
XID = 8
WAIT_MS = 15_000


@pytest.fixture
def nvml(child: Callable[..., Child]) -> Child:
    process = child()
    process.call("nvmlInit")
    return process


def _listen(process: Child, *cards: int) -> list[object]:
    events = ["set", process.call("nvmlEventSetCreate")]
    for card in cards:
        process.call("nvmlDeviceRegisterEvents", ["dev", card], XID, events)
    return events


def test_every_process_sees_each_xid(box: SimDriver, two_cards: list[SimCard], child: Callable[..., Child]) -> None:
    listeners = [child() for _ in range(3)]
    waits = []
    for process in listeners:
        process.call("nvmlInit")
        waits.append(process.start("nvmlEventSetWait_v2", _listen(process, 0, 1), WAIT_MS))
    box.xid(two_cards[1].uuid, 79)
    for process, wait in zip(listeners, waits, strict=True):
        assert process.result(wait) == {"uuid": two_cards[1].uuid, "type": XID, "data": 79}


def test_xids_come_in_order_and_only_of_the_cards_that_were_asked_for(
    box: SimDriver, two_cards: list[SimCard], nvml: Child
) -> None:
    box.xid(two_cards[0].uuid, 1)
    events = _listen(nvml, 0)
    for code in (31, 48):
        box.xid(two_cards[1].uuid, 13)
        box.xid(two_cards[0].uuid, code)
    assert nvml.call("nvmlEventSetWait_v2", events, WAIT_MS)["data"] == 31
    assert nvml.call("nvmlEventSetWait_v2", events, WAIT_MS)["data"] == 48
    assert nvml.code("nvmlEventSetWait_v2", events, 0) == 10
    assert nvml.call("nvmlDeviceGetSupportedEventTypes", DEV) == XID
    assert nvml.code("nvmlDeviceRegisterEvents", DEV, 4, events) == 3


def test_a_vanished_card_is_lost_until_restored(
    box: SimDriver, two_cards: list[SimCard], nvml: Child, child: Callable[..., Child]
) -> None:
    user = child()
    user.open_cuda()
    wait = nvml.start("nvmlEventSetWait_v2", _listen(nvml, 0, 1), WAIT_MS)
    box.vanish(two_cards[0].uuid)
    with pytest.raises(NvmlError, match="15"):
        nvml.result(wait)
    assert nvml.code("nvmlDeviceGetMemoryInfo", DEV) == 15
    assert nvml.code("nvmlDeviceGetHandleByUUID", two_cards[0].uuid) == 15
    assert nvml.call("nvmlDeviceGetCount") == 2
    assert nvml.code("nvmlDeviceGetName", ["dev", 1]) == 0
    assert user.call("cuMemAlloc_v2", "&u64", 1024)[0] == 999
    box.restore(two_cards[0].uuid)
    assert nvml.code("nvmlDeviceGetMemoryInfo", DEV) == 0


def test_cuda_starts_without_the_card_that_vanished(
    box: SimDriver, two_cards: list[SimCard], child: Callable[..., Child]
) -> None:
    box.vanish(two_cards[0].uuid)
    user = child()
    assert user.call("cuInit", 0) == [0]
    assert user.call("cuDeviceGetCount", "&int") == [0, 1]


def test_a_call_that_hangs_holds_up_nobody_else(box: SimDriver, nvml: Child, child: Callable[..., Child]) -> None:
    box.hang("nvmlDeviceGetTemperature")
    hung = nvml.start("nvmlDeviceGetTemperature", DEV, 0)
    for _ in range(20):
        assert nvml.call("nvmlDeviceGetMemoryInfo", DEV)["used"] == 0
    other = child()
    other.open_cuda()
    other.alloc(1)
    assert not nvml.answered(hung)
    box.clear()
    assert nvml.result(hung) == 35


def test_star_hangs_every_nvml_call_and_a_new_init_but_no_cuda(
    box: SimDriver, nvml: Child, child: Callable[..., Child]
) -> None:
    box.hang("*")
    late = child()
    hung = [nvml.start("nvmlDeviceGetCount"), late.start("nvmlInit")]
    late.open_cuda()
    assert not nvml.answered(hung[0])
    assert not late.answered(hung[1])
    box.clear()
    assert nvml.result(hung[0]) == 2
    assert late.result(hung[1]) is None


def test_a_call_that_fails(box: SimDriver, nvml: Child, child: Callable[..., Child]) -> None:
    box.fail("nvmlDeviceGetMemoryInfo", 999)
    box.fail("cuMemAlloc", 2)
    user = child()
    user.open_cuda()
    assert nvml.code("nvmlDeviceGetMemoryInfo", DEV) == 999
    assert nvml.code("nvmlDeviceGetMemoryInfo", DEV, 0x02000028) == 999
    assert nvml.code("nvmlDeviceGetName", DEV) == 0
    assert user.call("cuMemAlloc_v2", "&u64", 1024)[0] == 2
    box.clear()
    assert nvml.code("nvmlDeviceGetMemoryInfo", DEV) == 0
    user.alloc(1)


def test_an_unloaded_driver(box: SimDriver, child: Callable[..., Child]) -> None:
    box.unload()
    process = child()
    assert process.code("nvmlInit") == 9
    assert process.call("cuInit", 0) == [100]
    box.load()
    assert process.code("nvmlInit") == 0
    assert process.call("cuInit", 0) == [0]


def test_no_control_file_is_no_driver(box: SimDriver, child: Callable[..., Child]) -> None:
    (box.root / "dev/nvidiactl").unlink()
    assert child().code("nvmlInit") == 9
