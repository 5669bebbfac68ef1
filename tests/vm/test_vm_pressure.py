"""On a machine of its own: memory over the limit, a clock that is years wrong, a disk that fills up."""

from pathlib import Path
from typing import Any

import pytest
from box.bed import APPS
from box.faults import PAUSE, waiting
from box.filejudge import put_back
from box.heldpod import HeldPod, push_programs
from e2e.manifests import CORE, MEMORY
from lab.labrun import wait_until
from vm.services import NAMESPACE, card_of, containers_of, run_service
from vm.vmbed import VmBed

LIMIT_BYTES = 64 << 20
EATS = "trap 'exit 0' TERM; until test -e /tmp/eat; do sleep 1; done; tail /dev/zero"
FILL = 'fallocate -l "$(($(stat -f -c "%f*%S" /)))" /srv/fill; cat /dev/zero > /srv/rest'
FULL_AT = "after-STAGED"


def test_a_container_over_its_memory_is_killed_alone_and_comes_back_on_its_card(gpu_vm: VmBed) -> None:
    bed = gpu_vm
    limits = {MEMORY: "4", CORE: "1", "memory": str(LIMIT_BYTES)}
    card = run_service(bed, "eater", 4, command=["sh", "-c", EATS], resources={"limits": limits})
    others, services = containers_of(bed, *APPS), invocations(bed)
    pod = bed.cluster.the_pod(NAMESPACE, "eater")["metadata"]["name"]
    inside = ("exec", "-n", NAMESPACE, pod, "--")
    assert int(bed.cluster.kubectl(*inside, "cat", "/sys/fs/cgroup/memory.max")) == LIMIT_BYTES

    bed.cluster.kubectl(*inside, "touch", "/tmp/eat")  # noqa: S108  (of the container)

    def ended() -> dict[str, Any]:
        status = bed.cluster.the_pod(NAMESPACE, "eater")["status"]["containerStatuses"][0]
        state: dict[str, Any] = status["lastState"].get("terminated", {})
        return state

    state = wait_until(ended, what="the container has ended", every_s=0.5)
    assert (state["reason"], state["exitCode"]) == ("OOMKilled", 137)
    assert card_of(bed, "eater") == card
    assert bed.cluster.the_pod(NAMESPACE, "eater")["metadata"]["name"] == pod
    assert (containers_of(bed, *APPS), invocations(bed)) == (others, services)


def test_card_memory_over_the_limit_is_refused(gpu_vm: VmBed, limiter_build: Path, tmp_path: Path) -> None:
    push_programs(gpu_vm, tmp_path, limiter_build)
    assert HeldPod(gpu_vm, "held").is_held()


@pytest.mark.parametrize("years", ["+3 years", "-3 years"])
def test_a_clock_that_is_years_wrong_ends_nothing_and_all_works_when_it_is_right(gpu_vm: VmBed, years: str) -> None:
    bed = gpu_vm
    containers, services, processes = bed.apps_run(), invocations(bed), pod_processes(bed)
    bed.vm.set_clock(years)
    assert bed.edgegpu("status", "--json", check=False).returncode == 0
    assert bed.starved() == []
    assert (pod_processes(bed), invocations(bed)) == (processes, services)

    bed.vm.set_clock("host")
    bed.machine.ready()
    bed.offered()
    assert bed.apps_run() == containers
    run_service(bed, "new", 4)
    assert (bed.starved(), invocations(bed)) == ([], services)


def test_a_disk_that_fills_up_in_an_installation_leaves_the_machine_as_it_was(k3s_vm: VmBed, tmp_path: Path) -> None:
    bed, log = k3s_vm, tmp_path / "install.log"
    before = bed.disk()
    install = bed.machine.popen("env", f"{PAUSE}={FULL_AT}", "sh", "-c", bed.one_line("--yes"), log=log)
    pid = wait_until(lambda: waiting(log, FULL_AT), what=f"the installer waits ({log})")
    bed.machine.exec("sh", "-c", FILL, check=False)
    assert bed.machine.exec("sh", "-c", "echo a > /srv/more", check=False).returncode != 0
    bed.machine.exec("kill", "-USR1", pid)
    assert install.wait(240) != 0
    words = log.read_text()
    assert "No space left on device" in words, words
    assert "ROLLED_BACK" in words, words
    assert bed.journal() == {}, "a first installation takes its record away too"
    bed.machine.exec("sh", "-c", "rm -f /srv/fill /srv/rest /srv/more; sync")
    bed.machine.ready()
    assert put_back(before, bed.disk(), first=True) == []

    bed.line("--yes")
    bed.offered()


def invocations(bed: VmBed) -> dict[str, str]:
    """Return what changes with each start of edgegpu's services."""
    names = ("edgegpu-plugin", "edgegpu-agent")
    return {
        name: bed.machine.exec("systemctl", "show", "-p", "InvocationID", "--value", name).stdout.strip()
        for name in names
    }


def pod_processes(bed: VmBed) -> set[str]:
    """Return the processes of all pods, by the kernel's word."""
    find = ("find", "/sys/fs/cgroup/kubepods.slice", "-name", "cgroup.procs", "-exec", "cat", "{}", "+")
    return set(bed.machine.exec(*find).stdout.split())
