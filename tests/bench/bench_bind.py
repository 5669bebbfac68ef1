"""Measures paced bindings on a real API server over kine and SQLite: a thousand nodes, four pods on each but few.

The API server is that of a k3s, the lab's or EDGEGPU_K3S; it runs alone, without kubelet, scheduler and controllers,
needs no root and leaves nothing behind.
"""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.bench_extender import START_S, ask_served
from bench.figures import Figure, figure
from integration.extender_run import Caller
from integration.extender_world import Json, node, pod

from edgegpu_base.kube import KubeClient, KubeError, load_kubeconfig

NODES, PODS, CARDS, UNITS = 1000, 3900, 8, 141 * 1024 // 256
LIMIT_MS, FIRST_LIMIT_MS = 60.0, 10_000.0
PACE_S = 0.05
_AT_ONCE = 8
_ALONE = ("--disable-agent", "--disable-scheduler", "--disable-controller-manager")
LAB = Path(__file__).resolve().parents[1] / "lab"


class NoK3sError(Exception):
    """This machine has no k3s to measure on; the text says what to do."""


def run(runs: int) -> list[Figure]:
    """Bind pods one after the other, each to a node of its own; milliseconds from request to parsed answer.

    On a machine without a k3s nothing is measured, and that is said; in CI it is an error.
    """
    try:
        k3s = _k3s()
    except NoK3sError as error:
        if os.environ.get("CI"):
            raise
        sys.stderr.write(f"bind is not measured, for want of a k3s: {error}\n")
        return []
    with tempfile.TemporaryDirectory(prefix="eg-") as made:
        folder = Path(made)
        with _api_server(k3s, folder) as kubeconfig:
            client = KubeClient(load_kubeconfig(kubeconfig), timeout_s=60)
            try:
                _fill(client)
                with ask_served(["--kubeconfig", str(kubeconfig)], folder) as caller:
                    took = [_bind(client, caller, number) for number in range(runs + 1)]
            finally:
                client.close()
    where = f"{NODES} nodes, {PODS} pods, kine/SQLite"
    return [
        figure(f"bind, {where}", took[1:], unit="ms", limit=LIMIT_MS),
        # It lists all pods before.
        figure("first bind of a new leader there", took[:1], unit="ms", limit=FIRST_LIMIT_MS),
    ]


def _bind(client: KubeClient, caller: Caller, number: int) -> float:
    asked = client.create("/api/v1/namespaces/default/pods", _pod(f"new-{number}"))
    time.sleep(PACE_S)
    began = time.perf_counter()
    error = caller.bind(asked, f"node-{number:04}")
    took_ms = (time.perf_counter() - began) * 1000
    if error:
        raise RuntimeError(f"a binding was refused: {error}")
    return took_ms


def _fill(client: KubeClient) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    client.create("/api/v1/namespaces/default/serviceaccounts", account)

    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kube-scheduler"}}
    leads = {"holderIdentity": "bench", "acquireTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 1}
    client.create("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", {**lease, "spec": leads})

    def add_node(number: int) -> None:
        item = node(f"node-{number:04}", [UNITS] * CARDS)
        del item["metadata"]["uid"]
        client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **item})

    def add_pod(number: int) -> None:
        client.create("/api/v1/namespaces/default/pods", _pod(f"old-{number}", node=f"node-{number % NODES:04}"))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(add_node, range(NODES)))
        list(pool.map(add_pod, range(PODS)))


def _pod(name: str, *, node: str = "") -> Json:
    item = pod(name, (4, 1), node=node)
    for key in ("uid", "namespace"):
        del item["metadata"][key]
    del item["spec"]["priority"]
    for container in item["spec"]["containers"]:
        container["image"] = "x"
    # What a Deployment's pod carries beside its limits, so that a list has its real size.
    item["spec"]["containers"][0]["env"] = [{"name": f"NAME_{i}", "value": "value " * 8} for i in range(20)]
    return {"apiVersion": "v1", "kind": "Pod", **item}


@contextmanager
def _api_server(k3s: str, folder: Path) -> Iterator[Path]:
    """Run an API server over kine and SQLite; yield an administrator's kubeconfig."""
    kubeconfig, log = folder / "kubeconfig", folder / "k3s.log"
    command = [k3s, "server", *_ALONE, "--data-dir", str(folder / "data"), "--write-kubeconfig", str(kubeconfig)]
    with log.open("w") as output:
        server = subprocess.Popen([*command, "--https-listen-port", str(_port())], stdout=output, stderr=output)
    try:
        ends = time.monotonic() + START_S
        while not _answers(kubeconfig):
            if server.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"the API server does not come up: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield kubeconfig
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(20)


def _answers(kubeconfig: Path) -> bool:
    if not kubeconfig.exists():
        return False
    try:
        client = KubeClient(load_kubeconfig(kubeconfig))
        client.get("/api/v1/namespaces/default")
    except (KubeError, OSError, ssl.SSLError):
        return False
    client.close()
    return True


def _k3s() -> str:
    named = os.environ.get("EDGEGPU_K3S") or shutil.which("k3s")
    if named:
        return named
    found = subprocess.run([LAB / "pack"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise NoK3sError(found.stderr.strip() or "tests/lab/pack failed")
    return str(Path(found.stdout.strip()) / "k3s")


def _port() -> int:
    """Return a free port whose successor, which k3s takes too, is free as well."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except OSError:
                continue
