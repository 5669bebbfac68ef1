"""What the installer's tests share: a node with two cards, a healthy box for the doctor, a controller's HTTPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.bed import EmbeddedBed
from contract.test_plugin import offered
from kits.doctor import Box, healthy
from kits.https import Served, serving

from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import make_card
from edgegpu_sim.node import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bed(simdriver_build: Path) -> Iterator[EmbeddedBed]:
    """Yield the embedded cluster of one node, `box`, whose plugin offers two cards of 29 units."""
    assert simdriver_build.is_dir()
    cards = [make_card(index, "Tesla T4", 7611) for index in range(2)]
    with EmbeddedCluster([NodeSpec(name="box", cards=cards)]) as cluster:
        cluster.start_plugin("box")
        made = EmbeddedBed(cluster)
        offered(made)
        yield made


@pytest.fixture
def box(short_tmp: Path) -> Iterator[Box]:
    """Yield a box on which each of the doctor's checks is content, until a test harms it."""
    with healthy(short_tmp) as made:
        yield made


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made
