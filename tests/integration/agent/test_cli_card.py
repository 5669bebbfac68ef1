"""`edgegpu card` against the plugin's own answers on a Unix socket: words, JSON, exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from kits.cli import CARD_0, CARD_1, card, document, edgegpu, plugin, pod

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.card_requests import CardRequests
from edgegpu_plugin.cards.nvml import Nvml
from edgegpu_plugin.config.schema import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CARDS = tuple(
    Card(uuid=uuid, index=index, name="P4", memory_mib=1, pci=str(index), minor=index)
    for index, uuid in enumerate((CARD_0, CARD_1))
)
DOCUMENT = document(cards=[card(CARD_0), card(CARD_1)], pods=[pod("face", 4, CARD_0), pod("plate", 4, CARD_1)])


@pytest.fixture
def socket(short_tmp: Path) -> Iterator[Path]:
    nvml = Nvml(Driver())
    requests = CardRequests(nvml, cards=lambda: CARDS)
    with plugin(short_tmp, DOCUMENT, change=requests.answer) as path:
        yield path
    nvml.stop()


@pytest.mark.parametrize("name", ["0", CARD_0])
def test_a_card_is_let_go_of_and_its_pods_are_named(socket: Path, name: str) -> None:
    done = edgegpu("card", "release", name, "--socket", socket)
    assert (done.code, "these pods still hold it" in done.out) == (0, True)
    assert "baetyl-edge/face" in done.out
    assert "plate" not in done.out
    assert "nvidia-smi --gpu-reset -i 0" in done.out
    told = json.loads(edgegpu("card", "release", name, "--json", "--socket", socket).out)
    assert told == {"v": 1, "card": CARD_0, "pods": ["baetyl-edge/face"]}


def test_a_card_is_accepted_again(socket: Path) -> None:
    done = edgegpu("card", "accept", "1", "--socket", socket)
    assert (done.code, "is offered again" in done.out) == (0, True)
    told = json.loads(edgegpu("card", "accept", "1", "--json", "--socket", socket).out)
    assert told == {"v": 1, "card": CARD_1, "pods": ["baetyl-edge/plate"]}


def test_a_card_that_is_not_there_is_named_with_those_that_are(socket: Path) -> None:
    done = edgegpu("card", "release", "7", "--socket", socket)
    assert (done.code, "cannot find card 7 on box-1: it offers 0, 1" in done.err) == (1, True)
