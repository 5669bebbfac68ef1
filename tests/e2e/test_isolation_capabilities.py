"""What a held container gets of the driver beside compute, on a real kubelet and containerd."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.conftest import LOGS, SERVER, insert_cards
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import Manifest, pod
from e2e.memoryclient import make_memory_client
from e2e.plugin_node import cards
from e2e.test_isolation import CONTEXT_MIB, LIMIT_MIB, OOM, held, isolation, run, spec_of
from kits.daily import of_the_day
from lab.labkit import wait_until

GRAPHICS = {"edgegpu.io/capabilities": "graphics"}
DREW, SLACK_MIB = 300, 20
NO_LIBRARY = "libGLX_nvidia.so.0: cannot open shared object file: No such file or directory"


@pytest.fixture(scope="module")
def client() -> Path:
    """Return the folder with a program that takes card memory for graphics; containers mount it."""
    return make_memory_client(LOGS / "client")


@pytest.fixture(params=of_the_day(["cdi", "devices"], parts=2))
def by(k3s: K3s, limiter_build: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Have the node open graphics to pods that ask, in this injection mode, and kill who goes past the limiter."""
    node, mode = k3s.nodes[SERVER], str(request.param)
    isolation = {"context_mib": CONTEXT_MIB, "libraries": str(limiter_build), "on_bypass": "kill", "pods_may": ["none"]}
    node.configure(
        extender={"listen": EXTENDER},
        driver={"injection": mode},
        isolation={"mode": "limiter", "capabilities": ["graphics"], **isolation},
    )
    insert_cards(k3s, {SERVER: cards(7611)})
    yield mode
    node.configure(extender={"listen": EXTENDER})
    insert_cards(k3s, {SERVER: cards(7611)})


def drawing(namespace: str, client: Path, name: str, annotations: dict[str, str]) -> Manifest:
    made = pod(name, spec_of(client, held("/client/memory_client", "--draw", str(DREW))), namespace=namespace)
    made["metadata"]["annotations"] = annotations
    return made


def test_graphics_are_closed_and_opened_by_the_annotation_and_count_then(
    k3s: K3s, namespace: str, client: Path, by: str
) -> None:
    chosen = {"closed": {}, "open": GRAPHICS, "free": {"edgegpu.io/isolation": "none"}}
    k3s.apply(*(drawing(namespace, client, name, some) for name, some in chosen.items()))

    def said(name: str) -> str:
        k3s.wait_phase(namespace, name, "Running")
        return wait_until(lambda: k3s.kubectl("logs", "-n", namespace, name).strip(), what=f"{name} has tried")

    assert {name: said(name) for name in chosen} == {"closed": NO_LIBRARY, "open": "0", "free": "0"}
    assert k3s.nodes[SERVER].status()["injection"]["mode"] == by
    counted = DREW - SLACK_MIB

    def counts() -> bool:
        return bool(counted <= isolation(k3s, "open")["cards"][0]["counted_mib"] <= DREW)

    wait_until(counts, what="what it drew is counted")
    assert run(k3s, namespace, "open", "/client/memory_client", str(LIMIT_MIB - CONTEXT_MIB - counted + 8)) == [OOM]
    found = isolation(k3s, "open")
    assert found["state"] == "degraded"
    assert found["reason"].startswith("its pod has opened graphics: ")
    assert "past the limiter" not in found["reason"]  # who draws is told of in the reason, and not killed
    assert isolation(k3s, "closed")["cards"][0]["counted_mib"] == 0


VIDEO = "NVIDIA_DRIVER_CAPABILITIES asks for video, and it has no video: add video to isolation.capabilities in the"


def test_what_a_pod_asks_by_nvidias_variable_and_does_not_get_is_said_on_it(
    k3s: K3s, namespace: str, client: Path, by: str
) -> None:
    for name in ("frigate", "by-image"):
        made = drawing(namespace, client, name, {})
        (main,) = made["spec"]["containers"]
        if name == "frigate":
            main["env"] = [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,video,utility"}]
        else:  # what the spec does not show, as a variable of the image
            main["envFrom"] = [{"configMapRef": {"name": "image"}}]
        k3s.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "image", "namespace": namespace},
                "data": {"NVIDIA_DRIVER_CAPABILITIES": "video"},
            },
            made,
        )
        k3s.wait_phase(namespace, name, "Running")

        def told(name: str = name) -> bool:
            return VIDEO in k3s.kubectl("describe", "pod", "-n", namespace, name)

        wait_until(told, what=f"the pod {name} says so, by {by}")
        found = isolation(k3s, name)
        assert (found["state"], [VIDEO in note for note in found["notes"]]) == ("enforced", [True])


def test_what_the_node_does_not_open_waits_and_says_so(k3s: K3s, namespace: str, client: Path, by: str) -> None:
    for name, asked, words in (
        ("video", "video", "this node does not open video to containers that it holds: change the annotation"),
        ("other", "graphics,display", "there is no capability 'display' (there are: graphics, video)"),
    ):
        k3s.apply(drawing(namespace, client, name, {"edgegpu.io/capabilities": asked}))

        def told(name: str = name, words: str = words) -> bool:
            return words in k3s.kubectl("describe", "pod", "-n", namespace, name)

        wait_until(told, what=f"the scheduler says why {name} waits by {by}")
