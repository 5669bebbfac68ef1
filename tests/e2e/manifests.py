"""Manifests of the test's pods."""

from collections.abc import Mapping, Sequence
from typing import Any

from lab.labkit import IMAGE

MEMORY, CORE = "baidu.com/vcuda-memory", "baidu.com/vcuda-core"
Manifest = dict[str, Any]


def container(
    name: str = "main", memory: int = 0, core: int = 0, *, command: Sequence[str] = (), **more: object
) -> Manifest:
    """Return a container that asks for so much; its image waits for TERM unless a command is given."""
    amounts = {MEMORY: memory, CORE: core}
    limits = {resource: str(amount) for resource, amount in amounts.items() if amount}
    made: Manifest = {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "resources": {"limits": limits}}
    if command:
        made["command"] = list(command)
    return made | more


def pod_spec(*containers: Manifest, init: Sequence[Manifest] = (), **more: object) -> Manifest:
    """Return a pod's spec."""
    spec: Manifest = {
        "containers": list(containers),
        "terminationGracePeriodSeconds": 2,
        "enableServiceLinks": False,
    }
    if init:
        spec["initContainers"] = list(init)
    return spec | more


def pod(name: str, spec: Manifest, *, namespace: str, annotations: Mapping[str, str] | None = None) -> Manifest:
    """Return a bare pod."""
    metadata: Manifest = {"name": name, "namespace": namespace, "labels": {"app": name}}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def deployment(
    name: str,
    spec: Manifest,
    *,
    namespace: str,
    replicas: int = 1,
    strategy: str = "Recreate",
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a Deployment, as the field's consoles make them."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": strategy},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}, "annotations": dict(annotations or {})}, "spec": spec},
        },
    }
