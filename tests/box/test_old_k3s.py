"""A k3s that takes no drop-in: our lines in its config.yaml, seen on a box whose k3s says that it is old, and is not.

A program in front of k3s gives the version of an old one, and lets the real one read neither drop-ins nor a scheduler's
file of a version that it does not know: it starts it with a configuration elsewhere, and the file as `v1`.
"""

from box.bed import RECOVER, Bed, differences
from e2e.k3s import DROP_IN, SCHEDULER_FILE
from e2e.manifests import container, deployment, pod_spec
from lab.labrun import wait_until

CONFIG = "/etc/rancher/k3s/config.yaml"
K3S, REAL = "/usr/local/bin/k3s", "/usr/local/bin/k3s.real"
OLD = f"""#!/bin/sh
case $1 in
--version) echo "k3s version v1.20.15+k3s1 (lab)" ;;
server)
    [ ! -f {SCHEDULER_FILE} ] || sed 's|k8s.io/v1beta1$|k8s.io/v1|' {SCHEDULER_FILE} > /run/old-scheduler.yaml
    sed 's|{SCHEDULER_FILE}|/run/old-scheduler.yaml|' {CONFIG} > /run/old-config.yaml
    K3S_CONFIG_FILE=/run/old-config.yaml exec {REAL} "$@" ;;
*) exec {REAL} "$@" ;;
esac
"""


def pretend(bed: Bed) -> None:
    """Put the program in front of k3s."""
    bed.machine.exec("mv", K3S, REAL)
    bed.node.write(K3S, OLD, mode=0o755)
    bed.node.restart()


def text(bed: Bed, path: str = CONFIG) -> str:
    return bed.machine.exec("cat", path).stdout


def there(bed: Bed, path: str) -> bool:
    return bed.machine.exec("test", "-e", path, check=False).returncode == 0


def works(bed: Bed, name: str) -> None:
    """Start a service that needs the extender: two that fit by the node's sum get a card each."""
    bed.offered()
    for app in (f"{name}-a", f"{name}-b"):
        bed.cluster.apply(deployment(app, pod_spec(container(memory=20, core=1)), namespace="default"))
    for app in (f"{name}-a", f"{name}-b"):
        pod = bed.cluster.wait_phase("default", app, "Running")
        assert "edgegpu.io/cards" in pod["metadata"]["annotations"]
    bed.cluster.kubectl("delete", "deployments", "--all", "-n", "default", "--now", "--wait")


def test_our_lines_stand_in_config_yaml_and_go_and_what_the_user_adds_stays(k3s_box: Bed) -> None:
    bed = k3s_box
    pretend(bed)
    before, disk, starts = text(bed), bed.disk(), bed.starts()
    done = bed.line("--yes")
    assert "is old" in done.stdout + done.stderr
    assert text(bed).startswith(before)
    assert text(bed).count("edgegpu-scheduler.yaml") == 1
    assert "v1beta1" in text(bed, SCHEDULER_FILE)
    assert not there(bed, DROP_IN)
    works(bed, "old")
    assert "reads /etc/rancher/k3s/edgegpu-scheduler.yaml" in bed.edgegpu("doctor", "--check", "scheduler").stdout
    bed.machine.exec("sh", "-c", f"echo 'debug: false' >> {CONFIG}")
    assert "nothing to change" in bed.line("--yes").stdout
    assert bed.starts() == starts + 1
    bed.edgegpu("uninstall", "--yes")
    bed.machine.ready()
    assert text(bed) == f"{before}debug: false\n"
    left = {path: what for path, what in differences(disk, bed.disk()).items() if path != CONFIG}
    assert not [path for path in left if path.startswith("/etc/rancher")], left


def test_an_upgrade_of_k3s_moves_them_to_the_drop_in(k3s_box: Bed) -> None:
    bed = k3s_box
    pretend(bed)
    before = text(bed)
    bed.line("--yes")
    assert text(bed) != before
    bed.machine.exec("mv", REAL, K3S)
    bed.node.restart()

    def taken() -> bool:
        return bed.journal().get("op") == "guard" and bed.journal()["state"] == "ROLLED_BACK"

    wait_until(taken, what=f"{RECOVER} takes out a file that this k3s would end about", every_s=1)
    assert text(bed) == before
    assert not there(bed, SCHEDULER_FILE)
    bed.edgegpu("install", "--yes")
    assert (text(bed), there(bed, DROP_IN)) == (before, True)
    works(bed, "new")
