"""A box and its cloud: the pasted line enrols it, sharing comes and goes over MQTT, k3s is restarted under the link."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from box.bed import CORE, NAME, UNITS, WAITS, WITH_K3S, Bed, differences
from box.cloudbed import Cloud
from box.harms import doctor, paste
from e2e.k3s import SCHEDULER_FILE
from e2e.manifests import CORE as CORES
from e2e.manifests import MEMORY
from lab.labrun import wait_until

HALL = "hall"
ONLY = ("--container", "main")
LIMITS = "/etc/edgegpu/limits-kubeconfig"


@pytest.fixture(scope="module")
def cloud(bed: Bed) -> Iterator[Cloud]:
    """Yield a controller with one box that has pasted its line."""
    bed.fresh(WITH_K3S)
    with tempfile.TemporaryDirectory() as folder:
        made = Cloud(bed, Path(folder) / "cloud")
        made.start()
        try:
            yield made
        finally:
            made.stop()


def test_the_pasted_line_enrols_the_box(cloud: Cloud) -> None:
    bed = cloud.bed
    began = time.monotonic()
    line = cloud.line(HALL)
    token = line.partition("EDGEGPU_TOKEN=")[2].partition(" ")[0]
    said = cloud.paste(line)
    assert "is installed" in said.stdout
    assert token
    assert token not in said.stdout + said.stderr
    assert f"enrolled as {HALL} at https://" in said.stdout
    assert f"edgegpu-cloud box {HALL}" in said.stdout.splitlines()[-1]
    view = cloud.online(HALL)
    bed.cluster.report("line_to_online_s", [time.monotonic() - began], limit=120)
    assert {"sharing.install", "sharing.uninstall", "k3s.restart"} <= set(view["capabilities"])
    bed.offered()
    gone = bed.machine.exec("test", "-e", "/etc/edgegpu/cloud-token", check=False)
    assert gone.returncode != 0, "the token is still there"
    _the_line_again_changes_nothing(cloud, line)
    _an_old_line_fails_and_the_box_stays_in(cloud)


def _the_line_again_changes_nothing(cloud: Cloud, line: str) -> None:
    bed = cloud.bed
    before, enrolment = bed.restarts(), cloud.box(HALL)["enrolment"]
    assert "nothing to change" in cloud.paste(line).stdout
    assert "nothing to change" in bed.edgegpu("install", "--yes").stdout
    assert bed.restarts() == before
    assert cloud.box(HALL)["online"]
    assert cloud.box(HALL)["enrolment"] == enrolment
    assert not cloud.read("alarms")


def _an_old_line_fails_and_the_box_stays_in(cloud: Cloud) -> None:
    line = cloud.line(HALL, "--expires", "1s")
    wait_until(lambda: not cloud.read("tokens"), what="the token is too old", every_s=0.5)
    failed = cloud.paste(line, check=False)
    assert failed.returncode == 1
    assert "cannot enrol at https://" in failed.stderr
    assert "this token is too old" in failed.stderr
    assert "sudo edgegpu agent enrol --url https://" in failed.stderr
    (alarm,) = cloud.read("alarms")
    assert alarm["kind"] == "enrol.TOKEN_EXPIRED"
    cloud.ask("alarms", "--seen", str(alarm["number"]))
    assert cloud.box(HALL)["online"]
    _the_doctors_remedy_mends(cloud.bed, "enrolment", "sudo rm /etc/edgegpu/cloud-token")


def _the_doctors_remedy_mends(bed: Bed, check: str, begins: str) -> None:
    """Run what the doctor says, word for word, and see its check green."""
    (trouble,) = doctor(bed)[check]["troubles"]
    assert trouble["remedy"].startswith(begins)
    paste(bed, trouble["remedy"])
    wait_until(lambda: doctor(bed)[check]["level"] == "ok", what=f"the check {check} is green", every_s=1)


def test_what_a_person_changes_on_the_box_is_told(cloud: Cloud) -> None:
    def told() -> list[tuple[str, str, str, str]]:
        reports = [one["transaction"] for one in cloud.read("box", HALL)["changes"]]
        return [(one["op"], one["author"], one["user"], one["result"]) for one in reports if one is not None]

    assert told()[-1] == ("install", "person", "root", "COMMITTED"), "the pasted line's"
    before = len(told())
    cloud.bed.edgegpu("install", "--yes", "--policy", "best-fit")
    wait_until(lambda: len(told()) == before + 1, what="the change on the box is told", every_s=0.5)
    assert told()[0] == ("change", "person", "root", "COMMITTED")
    cloud.bed.edgegpu("install", "--yes", "--policy", "first-fit")
    wait_until(lambda: len(told()) == before + 2, what="the change back is told", every_s=0.5)


def test_k3s_is_restarted_once_and_says_so(cloud: Cloud) -> None:
    bed = cloud.bed
    before = bed.restarts()
    cloud.done("command", HALL, "k3s.restart", "--yes")
    after = bed.restarts()
    assert after != before
    (view,) = (one for one in cloud.read("commands") if one["op"] == "k3s.restart")
    assert view["state"] == "SUCCEEDED"
    assert view["data"]["invocation"] == after
    bed.offered()


def test_limits_are_applied_or_refused_with_numbers(cloud: Cloud) -> None:
    bed = cloud.bed
    wait_until(lambda: "app_limits" in cloud.box(HALL)["capabilities"], what="app limits")
    bed.run_apps()
    cloud.done("limits", "set", HALL, "default/large", *ONLY, "--memory", "9", "--core", "2", timeout_s=180)
    pod = _only_pod(bed, "large")
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {MEMORY: "9", CORES: "2"}
    bed.apps_run()
    asked = ("limits", "set", HALL, "default/large", *ONLY, "--memory", "30", "--core", "2", "--wait")
    refused = cloud.ask(*asked, check=False, timeout_s=120)
    assert refused.returncode == 1
    assert "Rejected: NO_ROOM: needs 30" in refused.stdout
    assert f"{UNITS // 2} units" in refused.stdout
    assert _only_pod(bed, "large")["metadata"]["uid"] == pod["metadata"]["uid"]
    kept = cloud.ask("uninstall", HALL, "--yes", "--wait", check=False, timeout_s=120)
    assert kept.returncode == 1
    assert "REJECTED" in kept.stdout
    assert "default/large" in kept.stdout
    bed.cluster.kubectl("delete", "deployments", "--all", "-n", "default", "--now", "--wait")


def _only_pod(bed: Bed, app: str) -> dict[str, Any]:
    """Return an app's pod when those before it have gone."""
    wait_until(lambda: len(bed.cluster.pods("default", app)) == 1, what=f"one pod of {app}")
    return bed.cluster.wait_phase("default", app, "Running")


def test_sharing_goes_and_comes_over_the_link(cloud: Cloud) -> None:
    bed = cloud.bed
    disk = bed.disk()
    cloud.done("uninstall", HALL, "--yes")
    bed.machine.ready()
    assert not _is_installed(bed)
    assert bed.machine.exec("test", "-e", LIMITS, check=False).returncode != 0
    assert not bed.cluster.get("clusterroles", selector="app.kubernetes.io/part-of=edgegpu")["items"]
    assert cloud.box(HALL)["online"]
    cloud.done("install", HALL)
    bed.machine.ready()
    bed.offered()
    wait_until(lambda: "app_limits" in cloud.online(HALL)["capabilities"], what="app limits again")
    after = bed.disk()
    changed = {path for path in disk.keys() | after.keys() if disk.get(path) != after.get(path)}
    anew = ("/var/lib/edgegpu", "/etc/edgegpu/extender", "/etc/edgegpu/kubeconfig", LIMITS, SCHEDULER_FILE)
    assert not {path for path in changed if not path.startswith(anew)}


def test_an_orderly_boot_is_seen(cloud: Cloud) -> None:
    bed = cloud.bed
    bed.machine.off()
    wait_until(lambda: not cloud.box(HALL)["online"], what="its end is heard", every_s=0.5)
    bed.machine.up()
    cloud.online(HALL)
    bed.cluster.wait_allocatable(NAME, UNITS, CORE)


def test_an_uninstall_leaves_nothing_of_the_cloud(cloud: Cloud) -> None:
    bed = cloud.bed
    _with_sharing(cloud)
    bed.edgegpu("uninstall", "--yes", "--force")
    wait_until(lambda: cloud.box(HALL)["left"] == "uninstall", what="it has said that it goes")
    assert re.search(rf"^{HALL} +uninstalled ", cloud.ask("boxes").stdout, re.MULTILINE)
    bed.machine.ready()
    left = differences(cloud.disk_before, bed.disk())
    assert not {path: what for path, what in left.items() if not re.search(WAITS, path)}
    policies = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    kinds = f"clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,leases,{policies}"
    names = [one["metadata"]["name"] for one in bed.cluster.get(kinds)["items"]]
    assert not [name for name in names if name.startswith("edgegpu")]


def _with_sharing(cloud: Cloud) -> None:
    cloud.online(HALL)
    if not _is_installed(cloud.bed):
        cloud.done("install", HALL)
    cloud.bed.offered(timeout_s=180)


def _is_installed(bed: Bed) -> bool:
    found = bed.machine.exec("test", "-e", "/etc/systemd/system/edgegpu-plugin.service", check=False)
    return found.returncode == 0
