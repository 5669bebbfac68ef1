"""What an operator asks of a card by the plugin's socket, and what follows for its pods."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.plugin.test_reconciler import Bench, card

from edgegpu_base.http_unix import ChangeRequest
from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.card_requests import CardRequests
from edgegpu_plugin.cards.nvml import Nvml
from edgegpu_plugin.config.schema import Driver

GPU = Card(uuid="GPU-1", index=0, name="T4", memory_mib=1024, pci="00000000:01:00.0", minor=0)
PART = replace(GPU, uuid="MIG-0", mig=0, parent="GPU-2", index=1)


@pytest.fixture
def requests() -> Iterator[CardRequests]:
    nvml = Nvml(Driver())
    yield CardRequests(nvml, cards=lambda: (GPU, PART))
    nvml.stop()


@pytest.mark.parametrize("action", ["release", "accept"])
@pytest.mark.parametrize(("uuid", "gpu"), [("GPU-1", "GPU-1"), ("MIG-0", "GPU-2"), ("GPU-2", "GPU-2")])
def test_a_card_is_named_by_its_uuid_or_that_of_its_gpu(
    requests: CardRequests, uuid: str, gpu: str, action: str
) -> None:
    answer = requests.answer(ChangeRequest("PUT", f"/v1/cards/{uuid}/{action}"))
    assert (answer.status, json.loads(answer.body)) == (200, {"gpu": gpu})


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("PUT", "/v1/cards/GPU-9/release"),
        ("PUT", "/v1/cards/GPU-1/reset"),
        ("DELETE", "/v1/cards/GPU-1/release"),
        ("PUT", "/v1/cards/../release"),
    ],
)
def test_anything_else_is_refused(requests: CardRequests, method: str, target: str) -> None:
    assert requests.takes(target)
    answer = requests.answer(ChangeRequest(method, target))
    assert (answer.status, list(json.loads(answer.body))) == (404, ["error"])


def test_pods_on_a_card_with_a_fault_are_told_and_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path, phase="Running")
    bench.offer(0, 1)
    cards = (card(0), replace(card(1), healthy=False, problem="XID 95, uncontained memory error: out until a reset"))
    bench.state.set_machine(cards)
    bench.state.set_cards(cards)
    bench.reconciler.step()
    assert bench.pods.told == [
        "u GPUFault: card 1 is out of order: XID 95, uncontained memory error: out until a reset"
    ]
    assert bench.pods.evicted == []
