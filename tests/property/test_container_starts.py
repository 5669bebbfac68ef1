"""Which container of a pod starts, by kubelet's calls alone: whatever each holds, and in whatever order it asks."""

from hypothesis import given
from hypothesis import strategies as st

from edgegpu_core.deviceid import DeviceKind, core_ids, memory_ids
from edgegpu_core.ledger import Ledger
from edgegpu_plugin.kubelet.starts import PAIR_S, StartMatcher

NAMES = ("one", "two", "three")
AMOUNTS = st.tuples(st.sampled_from([0, 2, 4]), st.sampled_from([0, 5, 9])).filter(any)
STARTS = st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.floats(0.01, 3)), min_size=1, max_size=8)


def ledger_of(pod: list[tuple[int, int]]) -> Ledger:
    """Book devices as kubelet does: the same ones for each, as an init container hands them on."""
    ledger = Ledger()
    for name, (memory, core) in zip(NAMES, pod, strict=False):
        booked = {DeviceKind.MEMORY: memory_ids("GPU-0", 4)[:memory], DeviceKind.CORE: core_ids("GPU-0")[:core]}
        for kind, ids in booked.items():
            if ids:
                ledger.add("u", name, kind, tuple(ids))
    return ledger


@given(st.lists(AMOUNTS, min_size=1, max_size=3), STARTS)
def test_after_the_last_call_of_a_start_it_is_known(
    pod: list[tuple[int, int]], starts: list[tuple[int, bool, float]]
) -> None:
    ledger, matcher, now = ledger_of(pod), StartMatcher(), 0.0
    for which, memory_first, pause in starts:
        real = NAMES[which % len(pod)]
        now += pause
        held = ledger.grant("u", real).ids
        found: tuple[str, ...] = ()
        for kind in sorted(held, key=lambda one: (one is DeviceKind.MEMORY) != memory_first):
            now += 0.001
            owners = [name for _, name in ledger.owners_of(kind, held[kind])]
            found = matcher.starting(kind, "u", owners, ledger, now_s=now)
            matcher.answered("u", now_s=now)
            assert found
        if len(held) == len(DeviceKind) or pause > PAIR_S:
            assert real in found
            assert all(ledger.grant("u", name).ids == held for name in found)
