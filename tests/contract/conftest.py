from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.bed import Bed, EmbeddedBed
from contract.toyplugin import ToyPlugin

from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.node import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

TOY = "toy.test/thing"


@pytest.fixture
def bed() -> Iterator[Bed]:
    with EmbeddedCluster([NodeSpec(name="box")]) as cluster:
        yield EmbeddedBed(cluster)


@pytest.fixture
def toy(bed: Bed) -> Iterator[ToyPlugin]:
    plugin = ToyPlugin(bed.devices_folder(bed.nodes[0]), TOY, count=8)
    plugin.serve()
    yield plugin
    plugin.stop()
