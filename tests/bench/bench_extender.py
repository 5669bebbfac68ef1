"""Measures the extender's filter over a thousand nodes of eight cards, over mutual TLS, as the scheduler calls it."""

import json
import os
import random
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure, figure
from integration.extender_run import Caller, extender_config
from integration.extender_world import Json, node, pod, uuid
from integration.kube_stub import KubeStub
from kits.cert import Certs, make_certs

from edgegpu_base.kube import ApiAccess, KubeClient, load_kubeconfig
from edgegpu_core.placement import Share
from edgegpu_plugin.config.schema import Tls
from edgegpu_plugin.extender.extender import Extender

NODES, CARDS, UNITS = 1000, 8, 141 * 1024 // 256
LIMIT_MS = 20.0
MEDIAN_LIMIT_MS = 2.95
START_S = 120.0


def run(runs: int) -> list[Figure]:
    """Ask for pods that fit everywhere, in places and nowhere, in turn; milliseconds from request to parsed answer."""
    order = random.Random(11)
    names = [f"node-{number:04}" for number in range(NODES)]
    asked = [[(1, 1)], [(UNITS // 2, 30)], [(UNITS, 1)], [(UNITS - 40, 1)], [(0, 100)], [(4, 1), (UNITS // 2, 1)]]
    with tempfile.TemporaryDirectory(prefix="eg-") as folder, KubeStub() as stub:
        for name in names:
            stub.add_node(node(name, [UNITS] * CARDS, held=_held(name, order)))
        with ask_served(["--server", stub.access.server], Path(folder)) as caller:
            took = []
            for number in range(runs + len(asked)):
                body = _args(pod(f"p{number}", *asked[number % len(asked)]), names)
                began = time.perf_counter()
                status, text = caller.call("/filter", body)
                answer: Json = json.loads(text)
                took.append((time.perf_counter() - began) * 1000)
                judged = len(answer["NodeNames"]) + len(answer["FailedAndUnresolvableNodes"])
                if status != 200 or judged != NODES:
                    raise RuntimeError(f"filter judged {judged} of {NODES} nodes: {text[:200]!r}")
    # The first of each kind makes what is kept for all that follow, as in a scheduler that has run for a while.
    name, rest = f"filter of {NODES} nodes x {CARDS} cards", took[len(asked) :]
    return [
        figure(name, rest, unit="ms", limit=LIMIT_MS),
        figure(f"{name}, median", rest, unit="ms", limit=MEDIAN_LIMIT_MS, share=0.5),
    ]


def _held(name: str, order: random.Random) -> dict[str, tuple[Share, ...]]:
    """Hold something of half of the cards."""
    return {
        f"uid-{name}-{card}": (Share(uuid(name, card), order.randint(1, UNITS - 1), order.randint(1, 60)),)
        for card in range(CARDS)
        if order.random() < 0.5
    }


def _args(asking: Json, names: list[str]) -> bytes:
    # The rest of a pod as a scheduler sends it: a few kilobytes of environment, volumes and field managers.
    asking["spec"]["containers"][0]["env"] = [{"name": f"NAME_{i}", "value": "value " * 8} for i in range(60)]
    return json.dumps({"Pod": asking, "Nodes": None, "NodeNames": names}).encode()


@contextmanager
def ask_served(api: list[str], folder: Path) -> Iterator[Caller]:
    """Run the extender in a process of its own and yield a caller; `api` says which API server it reads."""
    certs = make_certs()
    for name, text in _files(certs).items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "bench.bench_extender", str(folder), *api]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as served:
        assert served.stdout is not None
        context = ssl.create_default_context(cadata=certs.ca)
        context.load_cert_chain(folder / "client.pem")
        caller = Caller(int(served.stdout.readline()), context)
        try:
            yield caller
        finally:
            caller.close()
            served.communicate("\n", timeout=START_S)


def _files(certs: Certs) -> dict[str, str]:
    return {
        "ca.crt": certs.ca,
        "server.crt": certs.server.cert,
        "server.key": certs.server.key,
        "client.pem": certs.client.cert + certs.client.key,
    }


def serve(folder: Path, kind: str, where: str) -> None:
    """Run the extender until a line comes on stdin; say its port once it has read the cluster."""
    client = KubeClient(ApiAccess(server=where) if kind == "--server" else load_kubeconfig(Path(where)))
    tls = Tls(cert=folder / "server.crt", key=folder / "server.key", client_ca=folder / "ca.crt")
    extender = Extender(extender_config(tls), client)
    extender.start()
    if not extender.wait_synced(START_S):
        raise TimeoutError("the extender did not read the cluster")
    sys.stdout.write(f"{extender.server.port}\n")
    sys.stdout.flush()
    sys.stdin.readline()
    extender.stop()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
