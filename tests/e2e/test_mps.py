"""Isolation `mps` on a real kubelet and containerd: processes of pods are clients of the node's daemon.

The daemon is the simulated one, started by the plugin's file as its unit does. What MPS does to kernels is not seen.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from e2e.conftest import LOGS, SERVER, insert_cards
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import Manifest, container, pod, pod_spec
from e2e.plugin_node import cards
from e2e.test_isolation import CONTEXT_MIB, LIMIT_MIB, OOM, UNITS, client, isolation, run, spec_of
from kits.daily import of_the_day
from lab.labkit import Process, wait_until

__all__ = ["client"]

CORE = 10
SHM = "/dev/shm"  # noqa: S108  (the container's)
DAEMON = 'set -a; . /run/edgegpu/mps.env; exec "$PROGRAM" -f'
ASK = 'set -a; . /run/edgegpu/mps.env; exec "$PROGRAM"'


@pytest.fixture
def by(k3s: K3s, limiter_build: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Have containers share multiprocessors, in this injection mode, and no isolation afterwards."""
    node, mode = k3s.nodes[SERVER], str(request.param)
    isolation = {"mode": "mps", "context_mib": CONTEXT_MIB, "libraries": str(limiter_build)}
    node.configure(extender={"listen": EXTENDER}, driver={"injection": mode}, isolation=isolation)
    insert_cards(k3s, {SERVER: cards(7611)})
    yield mode
    node.configure(extender={"listen": EXTENDER})
    insert_cards(k3s, {SERVER: cards(7611)})


@pytest.fixture
def daemon(k3s: K3s, by: str) -> Iterator[Process]:
    del by
    process = k3s.nodes[SERVER].lab.popen("sh", "-c", DAEMON, log=LOGS / "mps.log")
    wait_until(lambda: ask(k3s, "get_default_active_thread_percentage"), what="MPS answers")
    yield process
    process.kill()
    process.wait(20)


def ask(k3s: K3s, command: str) -> list[str]:
    return k3s.nodes[SERVER].lab.exec("sh", "-c", f"echo {command} | ( {ASK} )").stdout.split("\n")[:-1]


def keeper(mib: int, *, env: dict[str, str] | None = None, shm: bool = False) -> Manifest:
    """Return a container whose program holds card memory until it is killed."""
    mounts = [{"name": "client", "mountPath": "/client", "readOnly": True}]
    mounts += [{"name": "shm", "mountPath": SHM}] if shm else []
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    command = ["/client/memory_client", "--keep", str(mib)]
    return container(memory=UNITS, core=CORE, args=command, volumeMounts=mounts, env=variables)


def percents(k3s: K3s) -> list[str]:
    return sorted(line.split()[1] for line in ask(k3s, "ps"))


def held(k3s: K3s, name: str) -> bool:
    return bool(isolation(k3s, name)["state"] == "enforced")


AUTHOR = {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}


@pytest.mark.parametrize("by", of_the_day(["cdi", "devices"], parts=2), indirect=True)
def test_processes_are_clients_whatever_their_author_sets(
    k3s: K3s, namespace: str, client: Path, daemon: Process, by: str
) -> None:
    assert daemon.poll() is None, by
    k3s.apply(pod("plain", spec_of(client, keeper(100)), namespace=namespace))
    k3s.apply(pod("sly", spec_of(client, keeper(100, env=AUTHOR)), namespace=namespace))
    for name in ("plain", "sly"):
        k3s.wait_phase(namespace, name, "Running")
    assert wait_until(lambda: len(ask(k3s, "ps")) > 1 and percents(k3s), what="two clients") == [str(CORE)] * 2
    for name in ("plain", "sly"):
        wait_until(partial(held, k3s, name), what=f"{name} is held")
    assert run(k3s, namespace, "plain", "/client/memory_client", str(LIMIT_MIB)) == [OOM]
    run(k3s, namespace, "plain", "touch", f"{SHM}/seen")
    assert run(k3s, namespace, "sly", "ls", SHM) == ["seen"]
    assert k3s.nodes[SERVER].lab.path("/run/edgegpu/mps/shm/seen").exists()


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_a_pods_own_shm_stays_its_own(k3s: K3s, namespace: str, client: Path, daemon: Process) -> None:
    assert daemon.poll() is None
    spec = pod_spec(
        keeper(100, shm=True),
        volumes=[
            {"name": "client", "hostPath": {"path": str(client)}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    )
    k3s.apply(pod("own", spec, namespace=namespace))
    k3s.wait_phase(namespace, "own", "Running")
    run(k3s, namespace, "own", "touch", f"{SHM}/mine")
    assert not k3s.nodes[SERVER].lab.path("/run/edgegpu/mps/shm/mine").exists()


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_without_the_daemon_a_pod_runs_and_its_compute_is_held_by_time(
    k3s: K3s, namespace: str, client: Path, by: str
) -> None:
    assert by == "cdi"
    k3s.apply(pod("alone", spec_of(client, keeper(100)), namespace=namespace))
    k3s.wait_phase(namespace, "alone", "Running")
    found = isolation(k3s, "alone")
    assert found["state"] == "degraded"
    assert found["reason"].startswith("mps: the MPS daemon does not answer")
    assert run(k3s, namespace, "alone", "/client/memory_client", str(LIMIT_MIB)) == [OOM]
