"""The example policy that denies pods which would see cards past their share, on a real API server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.k3s import K3s
from e2e.manifests import container, pod, pod_spec
from lab.labkit import LabError, wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/deny-all-cards.yaml"
CLASS = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}


def seen(value: str) -> dict[str, Any]:
    return {"env": [{"name": "OTHER", "value": "x"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}


FROM = {"envFrom": [{"configMapRef": {"name": "settings"}}]}
FIELD = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}


def plain(**more: Any) -> dict[str, Any]:  # noqa: ANN401  (a container's fields)
    return container(**more)


def share(**more: Any) -> dict[str, Any]:  # noqa: ANN401  (a container's fields)
    return container(memory=4, core=10, **more)


GOOD = {
    "nothing of NVIDIA's": pod_spec(plain()),
    "a share": pod_spec(share(), plain(name="side")),
    "a share by the runtime": pod_spec(share(), runtimeClassName="nvidia"),
    "a side without cards by the runtime": pod_spec(
        share(), plain(name="s", **seen("void")), runtimeClassName="nvidia"
    ),
    "none": pod_spec(plain(**seen("none"))),
    "settings from elsewhere, by runc": pod_spec(share(**FROM), plain(name="side", **FROM)),
}
BAD = {
    "all": pod_spec(plain(**seen("all"))),
    "all by the runtime": pod_spec(plain(**seen("all")), runtimeClassName="nvidia"),
    "a card's number": pod_spec(plain(**seen("0")), runtimeClassName="nvidia"),
    "from a field": pod_spec(plain(**FIELD), runtimeClassName="nvidia"),
    "what the image says": pod_spec(plain(), runtimeClassName="nvidia"),
    "a side beside a share": pod_spec(share(), plain(name="side"), runtimeClassName="nvidia"),
    "an init container": pod_spec(share(), init=[plain(name="first", **seen("all"))]),
    "an init container by the runtime": pod_spec(share(), init=[plain(name="first")], runtimeClassName="nvidia"),
    "a share that names another card": pod_spec(share(**seen("all")), runtimeClassName="nvidia"),
    "a share and settings from elsewhere": pod_spec(share(**FROM), runtimeClassName="nvidia"),
    "another class of the runtime's": pod_spec(plain(), runtimeClassName="nvidia-cdi"),
}


class Api:
    """Says whether the API server would take a pod."""

    def __init__(self, k3s: K3s, namespace: str) -> None:
        self._k3s = k3s
        self._namespace = namespace

    def denies(self, spec: dict[str, Any]) -> str:
        """Return the words of the policy; empty where the pod would be taken."""
        manifest = json.dumps(pod("asked", spec, namespace=self._namespace))
        done = self._k3s.server.kubectl("create", "--dry-run=server", "-f", "-", input=manifest, check=False)
        if done.returncode == 0:
            return ""
        assert "edgegpu-deny-all-cards" in done.stderr, done.stderr
        return done.stderr


@pytest.fixture
def api(k3s: K3s, namespace: str) -> Iterator[Api]:
    names = ("nvidia", "nvidia-cdi")
    classes = [json.loads(json.dumps(CLASS)) | {"metadata": {"name": name}} for name in names]
    there = k3s.kubectl("get", "runtimeclass", "-o", "name")
    missing = [one for one in classes if f"/{one['metadata']['name']}\n" not in f"{there}\n"]
    k3s.apply(*missing)
    k3s.kubectl("apply", "-f", "-", text=EXAMPLE.read_text())
    asked = Api(k3s, namespace)

    def probe() -> bool:
        if not asked.denies(BAD["all"]):
            raise LabError("not yet")
        return True

    try:
        wait_until(probe, what="the policy counts", every_s=0.3)
        yield asked
    finally:
        k3s.kubectl("delete", "-f", "-", text=EXAMPLE.read_text())
        for one in missing:
            k3s.kubectl("delete", "runtimeclass", one["metadata"]["name"])


def test_pods_that_would_see_cards_past_their_share_are_denied_and_no_others(api: Api) -> None:
    assert {name: said for name, spec in GOOD.items() if (said := api.denies(spec))} == {}
    assert [name for name, spec in BAD.items() if not api.denies(spec)] == []
