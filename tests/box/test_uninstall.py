"""Uninstall leaves the box as it was, byte for byte, and does not pull shares from under running pods unasked."""

import json
import os
import re
from pathlib import Path
from typing import Any

from box.bed import APPS, INSTALLED, RECOVER, WAITS, WITH_EDGEGPU, WITH_K3S, Bed, differences
from box.heldpod import HeldPod, is_the_share, push_programs
from e2e.manifests import container, deployment, pod, pod_spec
from lab.labrun import wait_until

FULL = bool(os.environ.get("BOX_FULL"))
FAREWELL_S = 390.0
"""kubelet keeps a dead resource for five minutes, and is looked at after that."""
REMOVED_S = 60.0
"""The farewell looks every two seconds, and for 22 s that kubelet brings nothing back."""


def test_pods_with_shares_are_named_and_then_forced(bed: Bed, installed: str) -> None:
    bed.fresh(WITH_K3S)
    before, node = bed.disk(), bed.node_object()
    bed.fresh(installed)
    assert installed == WITH_EDGEGPU
    refused = bed.edgegpu("uninstall", check=False)
    assert refused.returncode == 1
    for app in APPS:
        assert f"default/{app}" in refused.stdout + refused.stderr
    containers = bed.apps_run()

    bed.edgegpu("uninstall", "--yes", "--force")
    bed.machine.ready()
    assert bed.machine.exec("test", "-e", RECOVER, check=False).returncode != 0
    assert bed.apps_run() == containers
    bed.cluster.kubectl("delete", "deployments", *APPS, "--now", "--wait")

    left = {path: what for path, what in differences(before, bed.disk()).items() if not re.search(WAITS, path)}
    assert not left, left
    marks = bed.node_object()
    assert (marks["labels"], marks["annotations"]) == (node["labels"], node["annotations"])
    assert not bed.cluster.get("clusterroles", selector="app.kubernetes.io/part-of=edgegpu")["items"]
    if FULL:
        equal_in_the_end(bed, before, node)


def equal_in_the_end(bed: Bed, before: dict[str, str], node: dict[str, Any]) -> None:
    """Wait until kubelet has let go, and the farewell has gone."""

    def as_before() -> bool:
        return not differences(before, bed.disk()) and bed.node_object() == node

    try:
        wait_until(as_before, what="the box is as it was", timeout_s=FAREWELL_S, every_s=5)
    finally:
        print(differences(before, bed.disk()), bed.node_object())  # noqa: T201  (what a failure is looked for with)


FOLDER = "/run/edgegpu"


def test_a_container_is_held_on_when_edgegpu_has_gone(
    bed: Bed, installed: str, limiter_build: Path, tmp_path: Path
) -> None:
    bed.fresh(installed)
    bed.edgegpu("install", "--isolation", "limiter")
    bed.offered()
    push_programs(bed, tmp_path, limiter_build)
    held = HeldPod(bed, "held")
    assert held.is_held()
    bed.edgegpu("uninstall", "--yes", "--force")
    bed.machine.ready()
    assert bed.machine.exec("test", "-e", str(Path(INSTALLED).parent), check=False).returncode != 0
    assert held.is_held()
    percent = held.core_percent()
    assert is_the_share(percent), percent
    if FULL:
        folder_ends_with(bed, held)


def folder_ends_with(bed: Bed, held: HeldPod) -> None:
    """The farewell waits for the container that is held, and then removes the folder from which it is."""
    bed.cluster.kubectl("delete", "deployments", *APPS, "--now", "--wait")

    def waits() -> bool:
        told = bed.machine.exec("journalctl", "-q", "-o", "cat", "-u", "edgegpu-farewell").stdout.splitlines()
        return bool(told) and told[-1].rstrip().endswith("waiting for the last pods with shares: default/held")

    wait_until(waits, what="the farewell waits for the pod alone", timeout_s=FAREWELL_S, every_s=5)
    assert held.is_held()
    held.delete()

    def gone() -> bool:
        return bed.machine.exec("test", "-e", FOLDER, check=False).returncode != 0

    wait_until(gone, what=f"{FOLDER} is removed", timeout_s=REMOVED_S, every_s=1)


WAITING = {"waits": 15, "bare": 16}
"""Units that fit by the node's sum and on neither card, beside those of the services."""

AGENT_DROP_INS = "/etc/systemd/system/edgegpu-agent.service.d"
PUBLISHED_S = 15
"""Within this time kubelet has published what the plugin offers it: its status has a period of 10 s."""


def test_pods_that_wait_for_a_card_wait_on_over_an_uninstall_and_an_installation(bed: Bed, installed: str) -> None:
    bed.fresh(installed)
    renew_apps(bed)
    specs = {name: pod_spec(container(memory=units, core=1)) for name, units in WAITING.items()}
    bed.cluster.apply(deployment("waits", specs["waits"], namespace="default"))
    bed.cluster.apply(pod("bare", specs["bare"], namespace="default"))
    for name, units in WAITING.items():
        bed.cluster.wait_event("default", name, f"needs {units} vcuda-memory on one card")
    containers = bed.apps_run()
    before = unbound(bed)

    bed.edgegpu("uninstall", "--yes", "--force")
    bed.machine.ready()
    assert unbound(bed) == before
    slow_agent(bed)
    bed.line("--yes")
    bed.offered()
    assert unbound(bed) == before
    assert bed.apps_run() == containers
    told = json.loads(bed.edgegpu("status", "--json").stdout)
    assert {row["state"] for row in told["pods"]} == {"allocated"}
    assert [card["units_free"] for card in told["cards"]] == [9, 9]
    bed.cluster.kubectl("delete", "deployment", "other", "--now", "--wait")

    def one_runs() -> bool:
        pods = [found for name in WAITING for found in bed.cluster.pods("default", name)]
        return sorted(found["status"]["phase"] for found in pods) == ["Pending", "Running"]

    wait_until(one_runs, what="one that waited runs", every_s=0.5)


def renew_apps(bed: Bed) -> None:
    """Give the services pods whose containers have never ended.

    The boot has ended the containers of those that are there. A kubelet that starts admits such pods anew, and fails
    them where it is sooner than the plugin's registration (docs/box/restarts.md); that is not what is asked here.
    """
    bed.cluster.kubectl("delete", "pods", "-n", "default", "-l", f"app in ({','.join(APPS)})", "--now", "--wait")
    bed.apps_run()


def slow_agent(bed: Bed) -> None:
    """Let the agent start slowly: an installation starts it after the plugin, and restarts k3s when it has started.

    So kubelet publishes what the new plugin offers while the k3s without the extender still places pods.
    """
    bed.machine.exec("mkdir", "-p", AGENT_DROP_INS)
    bed.machine.exec("tee", f"{AGENT_DROP_INS}/slow.conf", input=f"[Service]\nExecStartPre=/bin/sleep {PUBLISHED_S}\n")


def unbound(bed: Bed) -> set[tuple[str, str]]:
    """Name the pods that no node has taken, with their UIDs; none has failed."""
    pods = [found for name in WAITING for found in bed.cluster.pods("default", name)]
    said = [(found["metadata"]["name"], found["status"]) for found in pods if found["spec"].get("nodeName")]
    assert all(status["phase"] == "Running" for _, status in said), said
    return {
        (found["metadata"]["name"], found["metadata"]["uid"]) for found in pods if not found["spec"].get("nodeName")
    }
