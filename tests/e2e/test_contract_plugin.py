"""The contract of edgegpu's plugin with kubelet and scheduler, on the real ones."""

from collections.abc import Iterator

import pytest
from contract.test_plugin import *  # noqa: F403  (the suite itself)
from e2e.conftest import SERVER, insert_cards
from e2e.k3s import K3s
from e2e.plugin_node import cards
from e2e.realbed import RealBed


@pytest.fixture(scope="module", autouse=True)
def two_cards(k3s: K3s) -> None:
    insert_cards(k3s, {SERVER: cards(7611, 7611)})


@pytest.fixture  # type: ignore[no-redef]  # the suite's own is the embedded one
def bed(k3s: K3s) -> Iterator[RealBed]:
    made = RealBed(k3s, SERVER)
    yield made
    made.close()
