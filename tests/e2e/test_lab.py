"""The lab itself: two nodes, a pod on each, k3s killed, a scheduler drop-in read, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab.boxkit import Box, build
from lab.labkit import IMAGE, LabError, Node, down, missing, up_agent, up_server, wait_until
from lab.labrun import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

LACKS = missing() + missing("image")
LACKS_BOX = missing("box")
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(LACKS), reason="; ".join(LACKS))]

SERVER, AGENT = "smoke", "smoke-agent"
SCHEDULER_FILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /var/lib/rancher/k3s/server/cred/scheduler.kubeconfig}
profiles: [{schedulerName: smoke-scheduler}]
"""
DROP_IN = 'kube-scheduler-arg+: ["config=/etc/rancher/k3s/smoke.yaml"]\n'


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    down(SERVER)
    yield up_server(SERVER)
    down(SERVER)


@pytest.fixture(scope="module")
def agent(server: Node) -> Node:
    return up_agent(AGENT, server)


@pytest.fixture(scope="module")
def pods(server: Node, agent: Node) -> dict[str, Node]:
    nodes = {f"on-{n.name}": n for n in (server, agent)}
    for pod, node in nodes.items():
        server.kubectl("apply", "-f", "-", input=manifest(pod, nodeName=node.name))
    for pod in nodes:
        await_running(server, pod)
    return nodes


def manifest(name: str, **spec: object) -> str:
    container = {"name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent"}
    whole = {"containers": [container], "enableServiceLinks": False, **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole})


def await_running(server: Node, pod: str) -> None:
    def running() -> bool:
        return server.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}").stdout == "Running"

    wait_until(running, what=f"{pod} runs")


def container(server: Node, pod: str) -> str:
    path = "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}"
    return server.kubectl("get", "pod", pod, "-o", path).stdout


def test_a_pod_on_each_node_can_be_entered(server: Node, pods: dict[str, Node]) -> None:
    for pod in pods:
        said = server.kubectl("exec", pod, "--", "sh", "-c", "echo $(hostname); ls /lib64 /lib").stdout
        assert pod in said
        assert "ld-linux" in said


def test_the_nodes_share_a_lan_and_no_run_folder(server: Node, agent: Node) -> None:
    server.write("/run/edgegpu/mark", "server")
    agent.write("/etc/edgegpu/mark", "agent")
    assert agent.exec("cat", "/run/edgegpu/mark", check=False).returncode == 1
    assert server.exec("cat", "/etc/edgegpu/mark", check=False).returncode == 1
    assert not Path("/etc/edgegpu/mark").exists()
    assert agent.exec("busybox", "ping", "-c1", "-W2", server.ip).returncode == 0


def test_a_process_in_a_node_gets_its_signals(agent: Node) -> None:
    code = "import signal, sys; print('on', flush=True); signal.sigwait([signal.SIGTERM]); sys.exit(7)"
    process = agent.popen(
        sys.executable, "-c", f"import signal; signal.pthread_sigmask(0, [15]); {code}", env={"A": "b"}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    process.terminate()
    assert process.wait(30) == 7
    process.stdout.close()


def test_kill_9_of_k3s_leaves_the_containers_alone(server: Node, agent: Node, pods: dict[str, Node]) -> None:
    before = [container(server, pod) for pod in pods]
    for node in (agent, server):
        pid = node.pid
        node.kill()
        node.ready()
        assert node.pid != pid
    assert [container(server, pod) for pod in pods] == before
    for pod in pods:  # a kubelet that has just started may not have heard of its pods yet

        def entered(name: str = pod) -> bool:
            return server.kubectl("exec", name, "--", "true", check=False).returncode == 0

        wait_until(entered, what=f"{pod} can be entered")


def test_a_scheduler_drop_in_is_read_at_the_start(server: Node) -> None:
    server.write("/etc/rancher/k3s/smoke.yaml", SCHEDULER_FILE)
    server.write("/etc/rancher/k3s/config.yaml.d/90-smoke.yaml", DROP_IN)
    server.restart()
    server.kubectl("apply", "-f", "-", input=manifest("late", schedulerName="smoke-scheduler"))
    await_running(server, "late")


def test_down_leaves_nothing_behind(server: Node, agent: Node) -> None:
    root = server.path("/")
    pid = server.pid
    down(server)
    with pytest.raises(LabError, match="is not up"):
        agent.exec("true")
    assert not root.exists()
    assert not Path(f"/proc/{pid}").exists()
    lab = Path(os.environ.get("EDGEGPU_LAB", "/var/tmp/edgegpu-lab"))  # noqa: S108 - the lab's own default
    assert not (lab / "direct" / SERVER).exists()
    assert not (lab / "direct" / AGENT).exists()
    left = [p for p in Path("/sys/fs/cgroup").glob("*/edgegpu-*") if p.name.endswith((f"-{SERVER}", f"-{AGENT}"))]
    assert left == []
    mounts = subprocess.run(["cat", "/proc/mounts"], capture_output=True, text=True, check=True).stdout
    assert str(lab / "direct" / SERVER) not in mounts


@pytest.fixture
def own_boxes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder of boxes that no other test has: another's box would keep the network up."""
    lab = Path(os.environ.get("EDGEGPU_LAB", "/var/tmp/edgegpu-lab"))  # noqa: S108 - the lab's own default
    state = lab / "two-boxes"
    state.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("BOX_STATE", str(state))
    for name in ("base.tar.zst", "base.list"):  # Debian's packages are those of the other boxes, where there are any
        if (lab / "state" / name).exists():
            shutil.copyfile(lab / "state" / name, state / name)
    build()
    yield state
    subprocess.run([HERE / "box", "down"], check=True)
    shutil.rmtree(state)


@pytest.mark.skipif(bool(LACKS_BOX), reason="; ".join(LACKS_BOX))
def test_a_box_that_is_on_its_way_keeps_its_disk_when_the_last_other_one_goes(own_boxes: Path, tmp_path: Path) -> None:
    leaving = Box("leaving")
    leaving.up()
    leaving.off()
    slow_cp = tmp_path / "cp"
    slow_cp.write_text(f'#!/bin/sh\nuntil [ -e {tmp_path}/go ]; do sleep 0.05; done\nexec /bin/cp "$@"\n')
    slow_cp.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    coming = subprocess.Popen([HERE / "box", "up", "coming"], env=env)
    wait_until((own_boxes / "boxes/coming/root").is_dir, what="a box that waits for its disk")
    going = subprocess.Popen([HERE / "box", "down", "leaving"])
    wait_until(lambda: not (own_boxes / "boxes/leaving").exists(), what="the other box is gone")
    with contextlib.suppress(subprocess.TimeoutExpired):
        going.wait(2)  # it must not end before the disk is there, and says nothing when it waits
    (tmp_path / "go").touch()
    assert (coming.wait(120), going.wait(60)) == (0, 0)
    assert Box("coming").exec("ip", "route", "get", "10.89.0.1").returncode == 0
