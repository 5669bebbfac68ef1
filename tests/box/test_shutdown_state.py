"""A kubelet with a `shutdownGracePeriod` waits for the devices at its start, without any setting of edgegpu's.

It asks systemd-logind how long a shutdown may be delayed, and reads the state of its last graceful shutdown then. The
plugin is stopped over the start of kubelet, so that none of it hangs on how busy the machine is.
"""

import json
import signal

import pytest
from box.bed import Bed
from e2e.manifests import container, deployment, pod_spec
from e2e.startwait import ended, running_init
from kits.lease import is_leased, keeps_waiting
from lab.labrun import wait_until

STATE = "/var/lib/kubelet/graceful_node_shutdown_state"
SETTINGS = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/50-shutdown.conf"
WATCHDOG = "/etc/systemd/system/edgegpu-plugin.service.d/50-watchdog.conf"
GRACE = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
"""
REPLICAS = 3


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "does not wait"])
def test_pods_that_are_admitted_anew_live_where_kubelet_reads_its_shutdown_state(gpu_box: Bed, *, waits: bool) -> None:
    bed, cluster = gpu_box, gpu_box.cluster
    bed.stop_apps()
    bed.node.write(SETTINGS, GRACE)
    bed.node.write(WATCHDOG, "[Service]\nWatchdogSec=0\n")  # it would end a stopped plugin on a slow machine
    if not waits:
        bed.machine.exec("sh", "-c", "printf 'kubelet:\\n  wait_at_start: false\\n' >> /etc/edgegpu/plugin.yaml")
    bed.machine.exec("systemctl", "daemon-reload")
    bed.machine.exec("systemctl", "restart", "edgegpu-plugin")
    bed.node.restart()
    bed.offered()
    prepare = container("prepare", 1, 1, command=["true"])
    spec = pod_spec(container(memory=1, core=1), init=[prepare])
    cluster.apply(deployment("init", spec, namespace="default", replicas=REPLICAS))
    pods = running_init(cluster, "default", REPLICAS)
    restarts_before = bed.restarts()
    bed.node.kill()  # it starts again after 5 s
    if waits:
        wait_until(lambda: is_leased(bed.node.path(STATE)), what="the lease is taken", every_s=0.05)
    signalled(bed, signal.SIGSTOP)
    try:
        wait_until(lambda: bed.restarts() != restarts_before, what="k3s starts again", timeout_s=60)
        if waits:
            state = bed.node.path(STATE)
            wait_until(lambda: keeps_waiting(state), what="the kernel keeps kubelet in its open()", timeout_s=120)
        else:
            wait_until(lambda: pods & ended(cluster, "default"), what="kubelet has ended pods", timeout_s=120)
    finally:
        signalled(bed, signal.SIGCONT)
    bed.machine.ready()
    bed.offered()
    # A new pod that runs shows that kubelet has looked at the others.
    cluster.apply(deployment("new", pod_spec(container(memory=1, core=1)), namespace="default"))
    cluster.wait_phase("default", "new", "Running")
    lost = pods - running_init(cluster, "default", REPLICAS)
    told = json.loads(bed.edgegpu("status", "--json", check=False).stdout)["kubelet"]["start_wait"]
    assert told["waits"] is waits, told
    assert not lost if waits else lost == pods


def signalled(bed: Bed, number: signal.Signals) -> None:
    """Send a signal to the plugin."""
    bed.machine.exec("systemctl", "kill", "-s", number.name, "--kill-who=main", "edgegpu-plugin")
