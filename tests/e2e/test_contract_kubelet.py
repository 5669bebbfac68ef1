"""The contract of kubelet with device plugins, on the real kubelet: the very tests that the embedded one passes."""

from collections.abc import Iterator

import pytest
from contract.conftest import TOY
from contract.test_kubelet import *  # noqa: F403  (the suite itself)
from contract.toyplugin import ToyPlugin
from e2e.conftest import SERVER
from e2e.k3s import K3s
from e2e.realbed import RealBed


@pytest.fixture
def bed(k3s: K3s) -> Iterator[RealBed]:
    made = RealBed(k3s, SERVER)
    yield made
    made.close()


@pytest.fixture
def toy(bed: RealBed) -> Iterator[ToyPlugin]:
    plugin = ToyPlugin(bed.devices_folder(SERVER), TOY, count=8)
    plugin.serve()
    yield plugin
    plugin.stop()
