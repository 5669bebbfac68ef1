"""A k3s with two nodes, simulated cards and edgegpu's plugin on both: made once, used by all tests of this tier."""

import contextlib
import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from e2e.apireads import ApiReads
from e2e.cluster import add_extender, grant
from e2e.clusterwords import cluster_of, cluster_words
from e2e.k3s import EXTENDER, K3s
from e2e.plugin_node import PluginNode
from e2e.schedulerprobe import wait_for_scheduler
from e2e.testedrecord import TestedRecord
from lab.labkit import LabError, Node, down, missing, up_agent, up_server
from lab.labrun import wait_until

from edgegpu_sim.driver import SimCard

ROOT = Path(__file__).resolve().parents[2]
SERVER, AGENT = "gpu-one", "gpu-two"
LOGS = ROOT / "build/e2e"
NUMBERS = itertools.count(1)
LACKS = missing() + missing("image")


def pytest_configure(config: pytest.Config) -> None:
    """Record what runs on which versions (build/e2e/tested.jsonl)."""
    config.pluginmanager.register(TestedRecord())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder; where the machine lacks something, fail in CI and say it elsewhere."""
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(600))
            if LACKS and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason="; ".join(LACKS)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with a failed test what its cluster says of itself: its nodes are gone when the report is read."""
    report = yield
    if report.when != "teardown" and report.failed:
        cluster = cluster_of([*getattr(item, "funcargs", {}).values()])
        if cluster is not None:
            report.sections.append(("the cluster", cluster_words(cluster)))
    return report


def units(cards: tuple[SimCard, ...]) -> int:
    """Return the units that cards have."""
    return sum(card.mib // 256 for card in cards)


@pytest.fixture(scope="session")
def k3s(simdriver_build: Path) -> Iterator[K3s]:
    """Yield the cluster: the extender in the server's scheduler, plugins configured and without cards yet."""
    LOGS.mkdir(parents=True, exist_ok=True)
    down(AGENT, SERVER)
    server = up_server(SERVER)
    cluster = K3s(server)
    try:
        add_extender(cluster)
        server.restart()
        agent = up_agent(AGENT, server)
        for lab, role in ((server, "server"), (agent, "agent")):
            node = PluginNode(lab, role=role, build=simdriver_build, logs=LOGS)
            node.log_file.unlink(missing_ok=True)
            cluster.nodes[lab.name] = node
        grant(cluster)
        for node in cluster.nodes.values():
            node.configure(extender={"listen": EXTENDER})
        cluster.kubectl("create", "namespace", "baetyl-edge")
        cluster.reads = ApiReads(server, LOGS / "proxy.log")
        wait_for_scheduler(cluster, server, LOGS / "scheduler.stacks")
        yield cluster
    finally:
        if cluster.reads is not None:
            cluster.reads.stop()
        for node in cluster.nodes.values():
            with contextlib.suppress(Exception):
                node.stop()
            with contextlib.suppress(LabError):
                (LOGS / f"{node.name}.k3s.log").write_text(Node(node.name, SERVER).log())
        down(AGENT, SERVER)


def insert_cards(cluster: K3s, layout: dict[str, tuple[SimCard, ...]]) -> None:
    """Put cards into nodes (none where the layout says nothing), start the plugins, wait until all is offered."""
    for name, node in cluster.nodes.items():
        node.stop()
        if name in layout:
            node.insert_cards(layout[name])
            node.start()
    for name, cards in layout.items():
        cluster.wait_allocatable(name, units(cards), 100 * len(cards))
    for name in cluster.nodes.keys() - layout.keys():
        _wait_empty(cluster, cluster.nodes[name])


def _wait_empty(cluster: K3s, node: PluginNode) -> None:
    """Wait until a node without a plugin offers nothing.

    Five minutes after a plugin has gone kubelet drops its resources, and says so in one update of its Node. If the API
    server is away then, the Node keeps the amounts (seen with 1.37, where tests restarted k3s). A plugin that comes and
    goes has kubelet write them anew.
    """
    try:
        cluster.wait_allocatable(node.name, 0, 0)
    except LabError:
        node.start()
        wait_until(lambda: node.status()["kubelet"]["registered"], what=f"{node.name} is registered")
        node.stop()
        cluster.wait_allocatable(node.name, 0, 0)


@pytest.fixture
def namespace(k3s: K3s, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a namespace of the test's own, emptied and deleted afterwards."""
    words = request.node.name.partition("[")[0].removeprefix("test_").replace("_", "-")
    name = f"t{next(NUMBERS)}-{words[:40].strip('-')}"
    k3s.kubectl("create", "namespace", name)
    yield name
    k3s.clear(name)
    k3s.kubectl("delete", "namespace", name, "--wait=false")
