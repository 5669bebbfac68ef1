from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.bed import Bed, EmbeddedBed
from contract.toyplugin import ToyPlugin
from kits.cert import make_certs

from edgegpu_sim.cluster import ClusterSettings, EmbeddedCluster
from edgegpu_sim.driver import make_card
from edgegpu_sim.node import NodeSpec
from edgegpu_sim.scheduler.extender import ClientTls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


@pytest.fixture
def gpu_bed(simdriver_build: Path, short_tmp: Path) -> Iterator[Bed]:
    """Two cards of 29 units, the real plugin process, its extender behind mutual TLS."""
    assert simdriver_build.is_dir()
    cards = [make_card(index, "Tesla T4", 7611) for index in range(2)]
    with EmbeddedCluster([NodeSpec(name="box", cards=cards)], settings=_mutual_tls(short_tmp)) as cluster:
        cluster.start_plugin("box")
        yield EmbeddedBed(cluster)


def _mutual_tls(folder: Path) -> ClusterSettings:
    certs = make_certs()
    texts = {
        "ca.crt": certs.ca,
        "server.crt": certs.server.cert,
        "server.key": certs.server.key,
        "client.crt": certs.client.cert,
        "client.key": certs.client.key,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    server = {"cert": "server.crt", "key": "server.key", "client_ca": "ca.crt"}
    return ClusterSettings(
        server_tls={key: str(folder / name) for key, name in server.items()},
        client_tls=ClientTls(
            folder / "ca.crt", folder / "client.crt", folder / "client.key", server_name="edgegpu-extender"
        ),
    )
