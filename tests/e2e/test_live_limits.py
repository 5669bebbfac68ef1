"""Live limits from the agent's settler to a running program, on a real kubelet: plugin, limiter and containerd."""

import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import AGENT, LOGS, SERVER, insert_cards
from e2e.k3s import EXTENDER, K3s
from e2e.limitsaccount import grant_limits, revoke_limits
from e2e.manifests import container, deployment, pod_spec
from e2e.plugin_node import cards
from e2e.test_app_limits import NAMESPACE, Limits
from lab.labkit import LabError, wait_until

UNITS, CONTEXT_MIB, ASKS_MIB = 4, 64, 600
"""The program asks for 600 MiB again and again: with its context that fits into 3 units, and not into 2."""
OOM = "2"
FOLLOWS_S, NEW_POD_S = 1.0, 5.0


@pytest.fixture(scope="module")
def limits(k3s: K3s, limiter_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limits]:
    """Yield what sets limits with the rights of the agent's account, on a node that holds containers."""
    held = {"mode": "limiter", "context_mib": CONTEXT_MIB, "libraries": str(limiter_build)}
    node = k3s.nodes[SERVER]
    node.configure(extender={"listen": EXTENDER}, isolation=held)
    insert_cards(k3s, {SERVER: cards(7611), AGENT: cards(7611)})
    grant_limits(k3s, [NAMESPACE])
    yield Limits(k3s, tmp_path_factory.mktemp("notes"))
    k3s.clear(NAMESPACE)
    revoke_limits(k3s, [NAMESPACE])
    node.configure(extender={"listen": EXTENDER})
    insert_cards(k3s, {SERVER: cards(7611)})


@pytest.fixture(scope="module")
def client() -> Path:
    """Return the folder with a program that asks for card memory; containers mount it."""
    folder = LOGS / "client"
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("memory_client.c")
    subprocess.run(["cc", "-O1", "-o", folder / "memory_client", source, "-ldl"], check=True)
    return folder


def asking(name: str, client: Path, *, node: str = SERVER) -> dict[str, Any]:
    """Return an app whose one pod asks for memory ten times a second, and says when the answer is another."""
    mounts = [{"name": "client", "mountPath": "/client", "readOnly": True}]
    command = ["/client/memory_client", "--watch", str(ASKS_MIB)]
    main = container(memory=UNITS, core=1, volumeMounts=mounts, args=command)
    spec = pod_spec(
        main,
        terminationGracePeriodSeconds=1,
        nodeSelector={"kubernetes.io/hostname": node},
        volumes=[{"name": "client", "hostPath": {"path": str(client)}}],
    )
    return deployment(name, spec, namespace=NAMESPACE, strategy="Recreate")


def lines(k3s: K3s, pod: str, count: int) -> list[tuple[float, str]]:
    """Return what the program has said: when, and what it got. Raises LabError while that is less than `count`."""
    said = [line.split() for line in k3s.kubectl("logs", "-n", NAMESPACE, pod).splitlines()]
    if len(said) < count:
        raise LabError(f"it says {said}")
    return [(int(at_ms) / 1000, status) for at_ms, status in said]


def written(k3s: K3s) -> Callable[[], float]:
    """Return a clock of the one limits file on the server: when it was written last."""
    (folder,) = k3s.nodes[SERVER].lab.path("/run/edgegpu/containers").iterdir()
    return lambda: (folder / "limits").stat().st_mtime


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a pod's container statuses but for the devices' health: kubelet 1.36+ orders those anew at each sync."""
    return [
        {key: value for key, value in status.items() if key != "allocatedResourcesStatus"}
        for status in pod["status"]["containerStatuses"]
    ]


def test_a_running_program_follows_what_the_agent_settles(k3s: K3s, limits: Limits, client: Path) -> None:
    k3s.apply(asking("follows", client))
    before = k3s.wait_phase(NAMESPACE, "follows", "Running")
    name, written_s = before["metadata"]["name"], written(k3s)
    assert wait_until(partial(lines, k3s, name, 1), what="the first answer")[-1][1] == "0"
    took_s, settled_s = [], []
    for count, (units, status) in enumerate([(2, OOM), (3, "0"), (2, OOM), (UNITS, "0")], start=2):
        began = time.monotonic()
        came = limits.set("follows", units, live=units != UNITS)
        settled_s.append(time.monotonic() - began)
        assert came["state"] == "Applied", came
        if units != UNITS:
            assert came["text"] == f"live: {units} of {UNITS} units held; no pod was touched"
        at_s, got = wait_until(partial(lines, k3s, name, count), what="the next answer", every_s=0.2)[-1]
        assert got == status
        took_s.append(at_s - written_s())
    k3s.report("live_limit_followed_s", took_s, limit=FOLLOWS_S, most=FOLLOWS_S, typical=FOLLOWS_S)
    k3s.report("live_limit_settled_s", settled_s, limit=20)
    after = k3s.wait_phase(NAMESPACE, "follows", "Running")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert containers(after) == containers(before)
    assert k3s.get("deployment", "follows", namespace=NAMESPACE)["metadata"]["generation"] == 1
    k3s.kubectl("delete", "deployment", "-n", NAMESPACE, "follows")


def test_a_new_pod_gets_the_live_limit_within_seconds(k3s: K3s, limits: Limits, client: Path) -> None:
    k3s.apply(asking("anew", client))
    old = k3s.wait_phase(NAMESPACE, "anew", "Running")["metadata"]["name"]
    assert limits.set("anew", 2, live=True)["state"] == "Applied"
    log = LOGS / "live-limits.log"
    log.unlink(missing_ok=True)
    process = limits.follow("anew", 2, log=log)
    took_s = []
    try:
        wait_until(lambda: "live: 2 of 4 units held" in log.read_text(), what="the agent has looked at it")
        for _ in range(4):
            k3s.kubectl("delete", "pod", "-n", NAMESPACE, old)
            old = wait_until(partial(other_pod, k3s, "anew", old), what="a new pod runs", every_s=0.2)
            took_s.append(wait_until(partial(limited_after_s, k3s, old), what="it gets the limit", every_s=0.2))
    finally:
        process.kill()
        process.wait(20)
    k3s.report("live_limit_new_pod_s", took_s, limit=NEW_POD_S)
    k3s.kubectl("delete", "deployment", "-n", NAMESPACE, "anew")


def other_pod(k3s: K3s, app: str, old: str) -> str:
    """Return the name of an app's running pod that is not `old`; empty while there is none."""
    found = [one["metadata"]["name"] for one in k3s.pods(NAMESPACE, app) if one["status"].get("phase") == "Running"]
    return next((name for name in found if name != old), "")


def limited_after_s(k3s: K3s, pod: str) -> float:
    """Return for how long a program got more than its limit, a millisecond at least. Raises LabError while it does."""
    said = lines(k3s, pod, 1)
    if said[-1][1] != OOM:
        raise LabError(f"it says {said}")
    return max(0.001, said[-1][0] - said[0][0])  # 0 is no answer for who waits for one


def test_pods_on_another_node_are_named_and_left_alone(k3s: K3s, limits: Limits, client: Path) -> None:
    k3s.apply(asking("far", client, node=AGENT))
    before = k3s.wait_phase(NAMESPACE, "far", "Running")["metadata"]
    came = limits.set("far", 2, live=True)
    assert (came["state"], came["code"]) == ("Rejected", "PRECHECK"), came
    assert f"1 of its 1 pods, which are not on {SERVER}" in came["text"]
    assert f"{before['name']} on {AGENT}" in came["text"]
    assert k3s.wait_phase(NAMESPACE, "far", "Running")["metadata"]["uid"] == before["uid"]
