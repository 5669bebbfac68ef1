"""When a card is out of order, and when it is in order again."""

from dataclasses import replace

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.health import IGNORED_XIDS, CardHealth

ONE = Card(uuid="GPU-1", index=0, name="T4", memory_mib=1024, pci="00000000:01:00.0", minor=0)
TWO = replace(ONE, uuid="GPU-2", index=1)
PARTS = tuple(replace(TWO, uuid=f"MIG-{n}", mig=n, parent="GPU-2") for n in range(2))


def health(state: CardHealth, now_s: float = 0) -> dict[str, bool]:
    return {card.uuid: card.healthy for card in state.with_health(now_s)}


def test_a_silent_card_is_kept_out_of_order_until_it_answers() -> None:
    state = CardHealth(10)
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    state.update([TWO], {"GPU-2"})
    assert health(state) == {"GPU-1": False, "GPU-2": True}
    assert state.missing
    state.update([], set())
    assert health(state) == {"GPU-1": False, "GPU-2": False}
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    assert health(state) == {"GPU-1": True, "GPU-2": True}
    assert not state.missing


def test_what_a_gpu_no_longer_offers_is_forgotten() -> None:
    state = CardHealth(10)
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    state.update([ONE, *PARTS], {"GPU-1", "GPU-2"})
    assert health(state) == {"GPU-1": True, "MIG-0": True, "MIG-1": True}
    state.update([ONE, PARTS[1]], {"GPU-1", "GPU-2"})
    assert health(state) == {"GPU-1": True, "MIG-1": True}
    state.update([ONE], {"GPU-1"})
    assert health(state) == {"GPU-1": True, "MIG-1": False}


def test_an_error_is_forgiven_after_a_quiet_while() -> None:
    state = CardHealth(10)
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    assert state.report_xid(["GPU-1"], 79, 100)
    assert health(state, 105) == {"GPU-1": False, "GPU-2": True}
    assert state.report_xid(["GPU-1"], 79, 106)
    assert not health(state, 115)["GPU-1"]
    assert health(state, 116)["GPU-1"]


def test_errors_of_applications_are_ignored() -> None:
    state = CardHealth(10)
    state.update([ONE], {"GPU-1"})
    assert not any(state.report_xid(["GPU-1"], code, 0) for code in IGNORED_XIDS)
    assert health(state) == {"GPU-1": True}
