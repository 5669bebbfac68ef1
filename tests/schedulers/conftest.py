"""An API server for all tests of this folder, and for each older version a scheduler with our extender."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from schedulers.oldcluster import ApiServer, OldCluster, lacks
from schedulers.programs import VERSIONS, program

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build/schedulers"
LACKS = lacks()
BUILD_S = 3600
PRIORITIES = {"low": 1, "high": 1000}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder; where the machine lacks something, fail in CI and say it elsewhere."""
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.schedulers)
            item.add_marker(pytest.mark.timeout(BUILD_S))
            if LACKS and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason="; ".join(LACKS)))


@pytest.fixture(scope="session")
def api() -> Iterator[ApiServer]:
    """Yield the API server, with two priority classes."""
    if LACKS:
        pytest.fail("this machine lacks: " + "; ".join(LACKS), pytrace=False)
    with tempfile.TemporaryDirectory(prefix="edgegpu-old-") as folder:
        server = ApiServer(Path(folder))
        try:
            server.start()
            for name, value in PRIORITIES.items():
                kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
                server.apply({**kind, "metadata": {"name": name}, "value": value})
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(api: ApiServer, request: pytest.FixtureRequest) -> Iterator[OldCluster]:
    """Yield the cluster with the scheduler of one version; its logs stay in build/schedulers."""
    version = str(request.param)
    program("kube-scheduler", version)
    folder = LOGS / version
    folder.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        log.unlink()
    made = OldCluster(api, version, folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def namespace(cluster: OldCluster) -> Iterator[None]:
    """Begin in a new namespace, and take away pods and nodes at the end."""
    cluster.begin()
    yield
    cluster.clear()
