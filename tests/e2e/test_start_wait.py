"""A plugin that registers seconds after kubelet's socket: pods that kubelet admits anew live, since it waits for them.

The plugin is stopped over the start of kubelet, so that none of it hangs on how busy the machine is. Without the lease
all of these pods fail.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.k3s import K3s
from e2e.manifests import container, deployment, pod_spec
from e2e.plugin_node import cards
from e2e.startwait import ended, link_of, own_resolv_conf, running_init, start_wait, wait_given_back
from kits.lease import keeps_waiting
from lab.labkit import wait_until

SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
REPLICAS = 3
pytestmark = pytest.mark.daily


@pytest.fixture(params=[True, False], ids=["waits", "does not wait"], scope="module")
def waits(request: pytest.FixtureRequest, k3s: K3s) -> Iterator[bool]:
    """Yield whether kubelet waits at its start, which is so configured."""
    wait_at_start = bool(request.param)
    with own_resolv_conf(k3s, wait_at_start=wait_at_start):
        insert_cards(k3s, {SERVER: cards(7611, 7611)})
        yield wait_at_start
        k3s.nodes[SERVER].stop()


def is_new(k3s: K3s) -> Callable[[], bool]:
    """Return what tells whether kubelet has another socket than now."""
    socket = k3s.server.path(SOCKET)
    before = socket.stat()

    def tell() -> bool:
        with contextlib.suppress(OSError):
            now = socket.stat()
            return (now.st_ino, now.st_ctime_ns) != (before.st_ino, before.st_ctime_ns)
        return False

    return tell


def test_pods_that_are_admitted_anew_live_where_kubelet_waits(k3s: K3s, namespace: str, *, waits: bool) -> None:
    prepare = container("prepare", 1, 1, command=["true"])
    spec = pod_spec(container(memory=1, core=1), init=[prepare], nodeSelector={"kubernetes.io/hostname": SERVER})
    k3s.apply(deployment("init", spec, namespace=namespace, replicas=REPLICAS))
    pods, node, has_new_socket = running_init(k3s, namespace, REPLICAS), k3s.nodes[SERVER], is_new(k3s)
    k3s.server.kill()  # it starts again after 5 s
    if waits:
        wait_until(lambda: not link_of(k3s).is_symlink(), what="the lease is taken", every_s=0.05)
    node.send_signal(signal.SIGSTOP)
    try:
        wait_until(has_new_socket, what="kubelet opens its socket", timeout_s=120, every_s=0.05)
        if waits:
            wait_until(
                lambda: keeps_waiting(link_of(k3s)), what="the kernel keeps kubelet in its open()", timeout_s=120
            )
        else:
            wait_until(lambda: pods & ended(k3s, namespace), what="kubelet has ended pods", timeout_s=120)
    finally:
        node.send_signal(signal.SIGCONT)
    k3s.server.ready()
    k3s.wait_allocatable(SERVER, 58, 200)
    # A new pod that runs shows that kubelet has looked at the others.
    k3s.apply(deployment("new", pod_spec(container(memory=1, core=1)), namespace=namespace))
    k3s.wait_phase(namespace, "new", "Running")
    lost = pods - running_init(k3s, namespace, REPLICAS)
    wait_given_back(k3s)
    assert start_wait(k3s)["waits"] is waits, start_wait(k3s)
    assert not lost if waits else lost == pods
