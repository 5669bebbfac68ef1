"""The ways of a card into a container, on a real kubelet and containerd: kubelet's own answer, and one that fails."""

import platform
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import cards
from lab.labkit import LabError, wait_until


@pytest.fixture
def by(k3s: K3s, request: pytest.FixtureRequest) -> Iterator[str]:
    """Have cards come by this way, and by CDI again afterwards."""
    node = k3s.nodes[SERVER]
    mode = str(request.param)
    node.configure(extender={"listen": EXTENDER}, driver={"injection": mode})
    insert_cards(k3s, {SERVER: cards(7611, 7611)})
    yield mode
    node.configure(extender={"listen": EXTENDER})
    insert_cards(k3s, {SERVER: cards(7611, 7611)})


@pytest.mark.parametrize("by", ["devices"], indirect=True)
def test_a_card_comes_without_cdi_and_without_the_nvidia_runtime(k3s: K3s, namespace: str, by: str) -> None:
    own: dict[str, dict[str, Any]] = {"b": {"env": [{"name": "TRITON_LIBCUDA_PATH", "value": "/mine"}]}}
    for name in ("a", "b"):
        k3s.apply(pod(name, pod_spec(container(memory=20, core=1, **own.get(name, {}))), namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    seen = [k3s.sees(namespace, name) for name in ("a", "b")]
    assert [len(cards) for cards in seen] == [1, 1]
    assert seen[0] != seen[1]
    shown = ("sh", "-c", "echo $TRITON_LIBCUDA_PATH")
    told = [k3s.kubectl("exec", "-n", namespace, name, "--", *shown).strip() for name in ("a", "b")]
    assert told == [f"/usr/lib/{platform.machine()}-linux-gnu", "/mine"]
    assert k3s.nodes[SERVER].status()["injection"]["mode"] == by
    assert {row["state"] for row in k3s.nodes[SERVER].status()["pods"]} == {"allocated"}


@pytest.mark.parametrize("by", ["runtime"], indirect=True)
def test_a_container_that_started_without_its_card_is_told_of(k3s: K3s, namespace: str, by: str) -> None:
    """The pod names no nvidia runtime, so nothing brings its card in, and kubelet says that all is well."""
    k3s.apply(pod("blind", pod_spec(container(memory=20, core=1)), namespace=namespace))
    k3s.wait_phase(namespace, "blind", "Running")

    def probe() -> str:
        rows = [row for row in k3s.nodes[SERVER].status()["pods"] if row["pod"] == "blind"]
        if [row["state"] for row in rows] != ["cardless"]:
            raise LabError(str(rows))
        return str(rows[0]["reason"])

    said = wait_until(probe, what=f"a pod without its card by {by} is seen")
    assert "container main runs without its card 0" in said
    assert "runtimeClassName: nvidia" in said
    k3s.wait_event(namespace, "blind", "GPUMissing: container main runs without its card 0")
