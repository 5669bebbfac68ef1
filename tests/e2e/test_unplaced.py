"""Pods that nobody placed (nodeName, static): admitted where they fit, refused at their start where they do not."""

import json
from typing import Any

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.consistency import wait_consistent
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import Manifest, container, deployment, pod, pod_spec
from e2e.plugin_node import cards
from e2e.staticpods import FOLDER
from lab.labkit import LabError, wait_until

STATIC = f"{FOLDER}/stat.json"

MARKS = ("kubernetes.io/config.mirror", "kubernetes.io/config.hash")


@pytest.fixture(scope="module", autouse=True)
def two_cards(k3s: K3s) -> None:
    insert_cards(k3s, {SERVER: cards(7611, 7611)})


def named(memory: int, core: int = 1) -> Manifest:
    return pod_spec(container(memory=memory, core=core), nodeName=SERVER)


def waiting_message(pod: dict[str, Any]) -> str:
    statuses = pod["status"].get("containerStatuses") or [{}]
    waiting: dict[str, str] = statuses[0].get("state", {}).get("waiting", {})
    return f"{waiting.get('reason', '')}: {waiting.get('message', '')}"


def wait_refused(k3s: K3s, namespace: str, app: str) -> str:
    def probe() -> str:
        said = waiting_message(k3s.the_pod(namespace, app))
        if "edgegpu: refused" not in said:
            raise LabError(said)
        return said

    return wait_until(probe, what=f"{app} is refused", every_s=0.3)


def test_a_pod_with_a_node_name_gets_one_card(k3s: K3s, namespace: str) -> None:
    k3s.apply(pod("a", named(20), namespace=namespace), pod("b", named(20), namespace=namespace))
    seen = []
    for name in ("a", "b"):
        k3s.wait_phase(namespace, name, "Running")
        seen += k3s.sees(namespace, name)
    assert len(set(seen)) == 2
    wait_consistent(k3s)


def test_where_no_card_fits_it_is_refused_and_runs_once_there_is_room(k3s: K3s, namespace: str) -> None:
    for name in ("a", "b"):
        k3s.apply(pod(name, pod_spec(container(memory=20, core=1)), namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    k3s.apply(deployment("wide", named(15), namespace=namespace))
    said = wait_refused(k3s, namespace, "wide")
    assert "CreateContainerConfigError" in said
    assert "needs 15 vcuda-memory on one card; card 0 has 9 free, card 1 has 9 free" in said
    first = k3s.the_pod(namespace, "wide")["metadata"]["uid"]
    wait_until(
        lambda: k3s.events(namespace, k3s.the_pod(namespace, "wide")).count("GPURefused") > 0,
        what="the event says it too",
    )
    assert [p["metadata"]["uid"] for p in k3s.pods(namespace, "wide")] == [first], "a storm of new pods"
    k3s.kubectl("delete", "pod", "a", "-n", namespace, "--now")
    made = k3s.wait_phase(namespace, "wide", "Running")
    assert len(k3s.sees(namespace, made["metadata"]["name"])) == 1
    wait_consistent(k3s)


def test_a_pod_marked_as_the_mirror_of_another_takes_nothing_of_it(k3s: K3s, namespace: str) -> None:
    k3s.apply(pod("victim", pod_spec(container(memory=20, core=1)), namespace=namespace))
    uid = k3s.wait_phase(namespace, "victim", "Running")["metadata"]["uid"]
    node = k3s.get("node", SERVER)["metadata"]
    forged = pod("forged", named(1), namespace=namespace, annotations=dict.fromkeys(MARKS, uid))
    owner = {"apiVersion": "v1", "kind": "Node", "name": SERVER, "uid": node["uid"], "controller": True}
    forged["metadata"]["ownerReferences"] = [owner]
    k3s.apply(forged)
    wait_until(lambda: not k3s.pods(namespace, "forged"), what="kubelet has deleted a mirror that is not its own")
    rows = [row for row in k3s.nodes[SERVER].status()["pods"] if row["namespace"] == namespace]
    assert [(row["pod"], row["memory_units"], row["state"]) for row in rows] == [("victim", 20, "allocated")]
    wait_consistent(k3s)


def test_a_static_pod_that_fits_nowhere_stays_refused_with_the_remedy(k3s: K3s, namespace: str) -> None:
    for name in ("a", "b"):
        k3s.apply(pod(name, pod_spec(container(memory=20, core=1)), namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    manifest = pod("stat", pod_spec(container(memory=15, core=1)), namespace=namespace)
    file = k3s.server.write(STATIC, json.dumps(manifest))
    try:
        said = wait_refused(k3s, namespace, "stat")
        assert "needs 15 vcuda-memory on one card" in said
        k3s.kubectl("delete", "pod", "a", "-n", namespace, "--now")
        k3s.wait_event(namespace, "stat", "move its file out of the static pod folder and back")
    finally:
        file.unlink()
    wait_until(lambda: not k3s.pods(namespace, "stat"), what="the static pod is gone")


def test_a_static_pod_that_fits_runs_on_one_card(k3s: K3s, namespace: str) -> None:
    manifest = pod("stat", pod_spec(container(memory=15, core=1)), namespace=namespace)
    file = k3s.server.write(STATIC, json.dumps(manifest))
    try:
        made = k3s.wait_phase(namespace, "stat", "Running")
        assert len(k3s.sees(namespace, made["metadata"]["name"])) == 1
        wait_consistent(k3s)
    finally:
        file.unlink()
    wait_until(lambda: not k3s.pods(namespace, "stat"), what="the static pod is gone")


def test_a_pod_whose_card_is_gone_is_shown_and_gets_another_one(k3s: K3s, namespace: str) -> None:
    for name, units in (("first", 29), ("bare", 4)):
        k3s.apply(pod(name, pod_spec(container(memory=units, core=1)), namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    k3s.apply(deployment("moves", pod_spec(container(memory=20, core=1)), namespace=namespace))
    old = k3s.wait_phase(namespace, "moves", "Running")["metadata"]
    k3s.kubectl("delete", "pod", "first", "-n", namespace, "--now")
    node = k3s.nodes[SERVER]
    node.stop()
    node.insert_cards(cards(7611))
    node.configure(extender={"listen": EXTENDER}, driver={"absent_s": 20})
    node.start()
    try:
        k3s.wait_event(namespace, "bare", "is gone from this machine; it has no controller")

        def shown() -> bool:
            """Ask until kubelet has removed the folder of the first pod, which the plugin never saw alive."""
            rows = {row["pod"]: (row["state"], row["cards"][0]["index"]) for row in node.edgegpu("pods")["pods"]}
            return rows == {"bare": ("lost", "1"), old["name"]: ("lost", "1")}

        wait_until(shown, what="both pods are lost with their card", every_s=0.5)

        def moved() -> bool:
            found = k3s.the_pod(namespace, "moves")
            return bool(found["metadata"]["uid"] != old["uid"] and found["status"]["phase"] == "Running")

        wait_until(moved, what="a new pod runs on the card that is left", every_s=0.5)
        assert k3s.the_pod(namespace, "bare")["status"]["phase"] == "Running"
        k3s.kubectl("delete", "pod", "bare", "-n", namespace, "--now")
    finally:
        node.configure(extender={"listen": EXTENDER})
        insert_cards(k3s, {SERVER: cards(7611, 7611)})
