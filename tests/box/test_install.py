"""One line installs a box: the resources are offered, both scenarios run, k3s is restarted once, then never again."""

import json
from typing import Any

import pytest
from box.bed import CORE, UNITS, Bed, api_gap
from box.harms import remedies_mend
from e2e.k3s import DROP_IN, SCHEDULER_FILE
from e2e.manifests import MEMORY, container, deployment, pod_spec
from lab.labrun import wait_until

pytestmark = pytest.mark.daily

SERVICES = ("edgegpu-plugin", "edgegpu-agent")


def test_one_line_installs_and_both_scenarios_run(k3s_box: Bed) -> None:
    bed = k3s_box
    with api_gap(bed) as plain:
        before = bed.restarts()
        bed.node.restart()
        assert bed.restarts() != before
    with api_gap(bed) as gap:
        before, starts = bed.restarts(), bed.starts()
        done = bed.line("--yes")
        bed.offered()
        after = bed.restarts()
    bed.cluster.report("install_api_gap_s", gap, limit=plain[0] + 2)
    bed.cluster.report("k3s_restart_api_gap_s", plain, limit=plain[0])
    assert after != before, "the scheduler's file was read by nobody"
    assert bed.starts() == starts + 1, "an install starts k3s once"
    assert "COMMITTED" in bed.journal()["state"]
    for service in SERVICES:
        assert service in done.stdout
        assert bed.machine.exec("systemctl", "is-active", service).stdout.strip() == "active"
        assert bed.machine.exec("systemctl", "is-enabled", service).stdout.strip() == "enabled"
    assert str(UNITS) in done.stdout
    assert str(CORE) in done.stdout
    own_python = bed.machine.exec("sh", "-c", "readlink /proc/$(systemctl show -p MainPID --value edgegpu-plugin)/exe")
    assert own_python.stdout.startswith("/opt/edgegpu/")
    _two_cards(bed)
    _self_test(bed)
    _again_changes_nothing(bed)
    remedies_mend(bed)


def _two_cards(bed: Bed) -> None:
    seen = {}
    for name, units in {"a": 4, "b": 20, "c": 20}.items():
        bed.cluster.apply(deployment(name, pod_spec(container(memory=units, core=1)), namespace="default"))
        pod = bed.cluster.wait_phase("default", name, "Running")
        (seen[name],) = bed.cluster.sees("default", pod["metadata"]["name"])
    assert seen["a"] == seen["b"] != seen["c"]
    _folders_have_a_size(bed)
    bed.cluster.apply(deployment("d", pod_spec(container(memory=10, core=1)), namespace="default"))
    bed.cluster.wait_event("default", "d", "on one card")
    bed.cluster.apply(deployment("e", pod_spec(container(memory=59, core=1)), namespace="default"))
    bed.cluster.wait_event("default", "e", f"Insufficient {MEMORY}")
    bed.cluster.kubectl("delete", "deployments", "--all", "-n", "default", "--now", "--wait")


def _self_test(bed: Bed) -> None:
    """The plugin has tried the limiter in a unit of its own, under that unit's hardening."""
    told = wait_until(lambda: _tried(bed), what="the self-test has ended")
    assert [(one["verdict"], one["reason"]) for one in told["cards"]] == [("passed", "")] * 2
    logged = bed.machine.exec("journalctl", "-u", "edgegpu-selftest", "--no-pager", "-o", "cat").stdout
    assert '"payload_bytes"' in logged  # what the program prints
    again = bed.edgegpu("selftest", "--json")
    assert json.loads(again.stdout)["isolation"] == "limiter"


def _folders_have_a_size(bed: Bed) -> None:
    """What containers write to lies in one file system with a size, over a restart of the plugin too."""
    look = ("findmnt", "-bno", "SOURCE,FSTYPE,SIZE", "-M", "/run/edgegpu/containers")
    before = bed.machine.exec("ls", "/run/edgegpu/containers").stdout
    assert before  # of the pods with shares
    bed.machine.exec("systemctl", "restart", "edgegpu-plugin")
    bed.offered()
    assert bed.machine.exec(*look).stdout.split() == ["edgegpu-containers", "tmpfs", str(64 << 20)]
    assert bed.machine.exec("ls", "/run/edgegpu/containers").stdout == before


def _tried(bed: Bed) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(bed.edgegpu("selftest", "--last", "--json", check=False).stdout)
    return told if all(one["verdict"] for one in told["cards"]) else {}


def _again_changes_nothing(bed: Bed) -> None:
    before, starts, disk = bed.restarts(), bed.starts(), bed.disk()
    plugin = bed.machine.exec("systemctl", "show", "-p", "InvocationID", "--value", "edgegpu-plugin").stdout
    assert "\nno restart of k3s" in bed.line("--yes", "--dry-run").stdout
    done = bed.line("--yes")
    assert "nothing to change" in done.stdout
    assert (bed.restarts(), bed.starts()) == (before, starts)
    assert bed.machine.exec("systemctl", "show", "-p", "InvocationID", "--value", "edgegpu-plugin").stdout == plugin
    after = bed.disk()
    changed = {path for path in disk.keys() | after.keys() if disk.get(path) != after.get(path)}
    assert not {path for path in changed if not path.startswith("/var/lib/edgegpu")}


def test_a_dry_run_says_all_and_does_nothing(k3s_box: Bed) -> None:
    bed = k3s_box
    before, disk = bed.restarts(), bed.disk()
    done = bed.line("--yes", "--dry-run")
    for path in (SCHEDULER_FILE, DROP_IN, "/etc/systemd/system/edgegpu-plugin.service", "/usr/local/bin/edgegpu"):
        assert path in done.stdout
    assert "\nrestart   k3s" in done.stdout
    assert bed.restarts() == before
    assert bed.disk() == disk


def test_what_doctor_says_of_a_good_box(gpu_box: Bed) -> None:
    done = gpu_box.edgegpu("doctor", "--json", check=False)
    told = json.loads(done.stdout)
    broken = [one for one in told["checks"] if one["level"] == "broken"]
    assert not broken
    assert done.returncode in {0, 1}
