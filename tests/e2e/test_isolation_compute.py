"""The limiter's shares of a card's time in containers of a real kubelet and containerd, with the plugin's control."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from e2e.conftest import LOGS, SERVER, insert_cards
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import container, pod
from e2e.plugin_node import cards
from e2e.test_isolation import CONTEXT_MIB, isolation, run, spec_of
from native.limiterkit import compile_program

SHARES = {"thirty": 30, "sixty": 60}
POINTS = 3.0
LEAST = 0.5
"""The part of its share that a container gets at least on a machine that has other work."""
WORK = ("/client/compute", "share", "1000000", "50", "14", "1", "6")
"""Kernels of 1 ms, 50 deep, for fourteen seconds of which the first six are not measured.

The control has found the shares by then; a single second of a busy machine is up to four points beside its share.
"""


@pytest.fixture(scope="module")
def client(limiter_build: Path) -> Path:
    """Return the folder with a program that keeps a card busy; containers mount it."""
    folder = LOGS / "compute"
    folder.mkdir(parents=True, exist_ok=True)
    compile_program(folder / "compute", limiter_build, ["tests/compute.c"])
    return folder


@pytest.fixture
def pods(
    k3s: K3s, namespace: str, client: Path, limiter_build: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[str, ...]]:
    """Have pods with shares of one card's time, held by this policy."""
    node = k3s.nodes[SERVER]
    isolation_of = {"mode": "limiter", "context_mib": CONTEXT_MIB, "libraries": str(limiter_build)}
    node.configure(extender={"listen": EXTENDER}, isolation={**isolation_of, "compute": str(request.param)})
    insert_cards(k3s, {SERVER: cards(7611)})
    mounts = [{"name": "client", "mountPath": "/client", "readOnly": True}]
    for name, core in SHARES.items():
        k3s.apply(pod(name, spec_of(client, container(memory=4, core=core, volumeMounts=mounts)), namespace=namespace))
    for name in SHARES:
        k3s.wait_phase(namespace, name, "Running")
    yield tuple(SHARES)
    node.configure(extender={"listen": EXTENDER})
    insert_cards(k3s, {SERVER: cards(7611)})


def percent(k3s: K3s, namespace: str, name: str) -> float:
    """Return the percent of the card that a container gets, by the work that it has done."""
    return float(run(k3s, namespace, name, *WORK)[0])


@pytest.mark.parametrize("pods", ["strict"], indirect=True)
def test_containers_get_their_shares_of_a_cards_time_and_not_more(
    k3s: K3s, namespace: str, pods: tuple[str, ...]
) -> None:
    assert [isolation(k3s, name)["cards"][0]["core_percent"] for name in pods] == [*SHARES.values()]
    assert LEAST * 30 < percent(k3s, namespace, "thirty") < 30 + POINTS
    with ThreadPoolExecutor() as pool:
        got = dict(zip(pods, pool.map(partial(percent, k3s, namespace), pods), strict=True))
    assert {name for name, core in SHARES.items() if LEAST * core < got[name] < core + POINTS} == {*pods}, got


@pytest.mark.parametrize("pods", ["elastic"], indirect=True)
def test_an_elastic_container_has_what_nobody_else_wants_and_gives_it_back(
    k3s: K3s, namespace: str, pods: tuple[str, ...]
) -> None:
    assert percent(k3s, namespace, "thirty") > 50
    with ThreadPoolExecutor() as pool:
        got = dict(zip(pods, pool.map(partial(percent, k3s, namespace), pods), strict=True))
    assert got["thirty"] < 45, got
    assert got["sixty"] > 45, got
