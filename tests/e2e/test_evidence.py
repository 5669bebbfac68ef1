"""What nvidia-smi prints in containers, asked of a real containerd by the engineer's command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import cards
from lab.labkit import LabError

if TYPE_CHECKING:
    from e2e.k3s import K3s

HANGS = "mkdir -p /own; printf '#!/bin/sh\\nexec sleep 1000\\n' > /own/nvidia-smi; chmod +x /own/nvidia-smi"


@pytest.fixture(scope="module", autouse=True)
def two_cards(k3s: K3s) -> None:
    insert_cards(k3s, {SERVER: cards(7611, 7611)})


def evidence(k3s: K3s, namespace: str) -> dict[str, dict[str, Any]]:
    told = k3s.nodes[SERVER].edgegpu("pods", "--evidence", "-n", namespace)
    return {one["pod"]: one for one in told["pods"]}


def test_each_container_sees_its_card_and_that_is_what_its_own_exec_prints(k3s: K3s, namespace: str) -> None:
    for name, memory in (("one", 20), ("other", 20)):
        k3s.apply(pod(name, pod_spec(container(memory=memory, core=1)), namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    k3s.apply(pod("plain", pod_spec(container(command=["sleep", "1000"])), namespace=namespace))
    k3s.wait_phase(namespace, "plain", "Running")
    found = evidence(k3s, namespace)
    assert sorted(found) == ["one", "other"]
    for name, one in found.items():
        assert one["evidence"]["verdict"] == "own"
        assert one["evidence"]["seen"] == [card["uuid"] for card in one["cards"]]
        printed = k3s.kubectl("exec", "-n", namespace, name, "--", "nvidia-smi", "-L")
        assert one["evidence"]["lines"] == printed.strip()
    assert len({one["cards"][0]["uuid"] for one in found.values()}) == 2


def test_two_whole_cards_are_both_seen(k3s: K3s, namespace: str) -> None:
    k3s.apply(pod("both", pod_spec(container(core=200)), namespace=namespace))
    k3s.wait_phase(namespace, "both", "Running")
    (both,) = evidence(k3s, namespace).values()
    assert (both["evidence"]["verdict"], len(both["evidence"]["seen"])) == ("own", 2)


def test_a_program_that_hangs_in_a_container_is_ended_there(k3s: K3s, namespace: str) -> None:
    path = {"name": "PATH", "value": "/own:/usr/local/bin:/usr/bin:/bin"}
    hung = container(memory=2, core=1, env=[path], command=["sh", "-c", f"{HANGS}; sleep 1000"])
    k3s.apply(pod("hung", pod_spec(hung), namespace=namespace))
    k3s.wait_phase(namespace, "hung", "Running")
    k3s.apply(pod("well", pod_spec(container(memory=2, core=1)), namespace=namespace))
    k3s.wait_phase(namespace, "well", "Running")
    found = evidence(k3s, namespace)
    assert found["hung"]["evidence"]["verdict"] == "unknown"
    assert "10 s" in found["hung"]["evidence"]["text"]
    assert found["well"]["evidence"]["verdict"] == "own"
    with pytest.raises(LabError):
        k3s.kubectl("exec", "-n", namespace, "hung", "--", "pidof", "nvidia-smi")
