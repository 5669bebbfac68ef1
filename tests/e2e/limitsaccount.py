"""The account for app limits in the tests' cluster, and what asks the API server with its token."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from e2e.k3s import K3s

from edgegpu_agent.app_limits.rbac import ACCOUNT, HOME, manifests
from edgegpu_core.model import ResourceModel

KUBECONFIG = "/etc/edgegpu/limits.kubeconfig"


def grant_limits(k3s: K3s, namespaces: Sequence[str]) -> None:
    """Make namespaces and the account that may change apps' limits there, and write its kubeconfig on the server."""
    for name in namespaces:
        k3s.kubectl("create", "namespace", name)
    k3s.apply(*manifests(namespaces, model=ResourceModel()))
    config = yaml.safe_load(k3s.kubectl("config", "view", "--raw"))
    cluster = config["clusters"][0]["cluster"]
    token = k3s.kubectl("create", "token", ACCOUNT, "-n", HOME, "--duration=1h").strip()
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "k3s", "cluster": {**cluster, "server": f"https://{k3s.server.ip}:6443"}}],
        "users": [{"name": "edgegpu", "user": {"token": token}}],
        "contexts": [{"name": "edgegpu", "context": {"cluster": "k3s", "user": "edgegpu"}}],
        "current-context": "edgegpu",
    }
    k3s.server.write(KUBECONFIG, json.dumps(text), mode=0o600)


def revoke_limits(k3s: K3s, namespaces: Sequence[str]) -> None:
    """Take the policy away with the namespaces, and wait until those are gone: the next test makes them anew."""
    for name in namespaces:
        k3s.kubectl("delete", "namespace", name, "--timeout=50s")
    for one in ("policybinding", "policy"):
        k3s.kubectl("delete", f"validatingadmission{one}", "edgegpu-limits", "--ignore-not-found")


def answers(k3s: K3s, requests: Sequence[dict[str, Any]]) -> list[str]:
    """Return what the API server answers the account, for each request; empty: it did it."""
    order = json.dumps({"kubeconfig": KUBECONFIG, "requests": list(requests)})
    program = Path(__file__).with_name("limits_attacks.py")
    found: list[str] = json.loads(k3s.server.exec(sys.executable, str(program), input=order, timeout_s=90).stdout)
    return found
