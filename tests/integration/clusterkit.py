"""A small API server for the installer's tests: namespaces that come and go, an administrator, tokens on demand."""

import base64
import json
import random
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgegpu_base.kube.kubeconfig import ApiAccess
from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.cluster.rbac import Account, ClusterRights, read_rights
from edgegpu_sim.api import ApiServer, Registry, ServerSettings

ADMIN = "admin-token"
TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105  (a kind of Secret)
CA_PEM = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
RBAC = Path(__file__).resolve().parents[2] / "docs/examples/rbac.yaml"


class Api:
    """The server, and the roles of the parts of a cluster that it does not have."""

    def __init__(self) -> None:
        self.tokens = {ADMIN: "admin"}
        self.registry = Registry(random_names=random.Random(7), strict_namespaces=True)
        self.server = ApiServer(self.registry, ServerSettings(tokens=self.tokens, may=self.may))
        self.rights: ClusterRights = read_rights(RBAC)

    def may(self, user: str, attributes: dict[str, Any]) -> bool:
        """Answer as the documented rights do, while they are there."""
        if user == "admin":
            return True
        rules = {item["metadata"]["name"] for item in self.registry.items("clusterroles")}
        is_server = user.endswith(Account.SERVER.value)
        match attributes["resource"], attributes.get("subresource"):
            case "pods", "binding":
                return is_server and "edgegpu-extender" in rules
            case "nodes", None:
                return attributes["verb"] == "patch" and "edgegpu-node" in rules
            case "leases", None:
                return user.endswith(Account.LIMITS.value) and "edgegpu-limits-see" in rules
        return False

    def issue_tokens(self) -> int:
        """Do the controller manager's work once: fill the empty token Secrets; return how many there were."""
        empty = [one for one in self.registry.items("secrets") if one.get("type") == TOKEN_TYPE and not one.get("data")]
        for metadata in (one["metadata"] for one in empty):
            token = secrets.token_hex(16)
            account = metadata["annotations"]["kubernetes.io/service-account.name"]
            self.tokens[token] = f"system:serviceaccount:{metadata['namespace']}:{account}"
            texts = {"token": token, "ca.crt": CA_PEM, "namespace": metadata["namespace"]}
            data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
            self.registry.patch("secrets", metadata["namespace"], metadata["name"], {"data": data})
        return len(empty)

    def admin(self, **changes: Any) -> ApiAccess:  # noqa: ANN401  (fields of an Access)
        """Return the administrator's way in."""
        return ApiAccess(**{"server": self.server.url, "token": ADMIN, **changes})

    def cluster(self, *, timeout_s: float = 5.0) -> ClusterClient:
        """Return the cluster as the administrator sees it."""
        return ClusterClient(self.admin(), timeout_s=timeout_s)

    def secret(self, account: Account) -> str:
        """Return the token in an account's Secret."""
        data = self.registry.get("secrets", "edgegpu", account.value)["data"]
        return base64.b64decode(data["token"]).decode()

    def calls(self) -> list[tuple[str, str, int]]:
        """Return verb, resource and answer of all calls."""
        return [(call.verb, call.resource, call.code) for call in self.server.calls]

    @contextmanager
    def controller(self) -> Iterator[None]:
        """Fill token Secrets soon after they are made, as the controller manager does."""
        ended = threading.Event()

        def work() -> None:
            version = 0
            while not ended.is_set():
                version = self.registry.store.wait(version, 0.1, ended.is_set)
                self.issue_tokens()

        thread = threading.Thread(target=work, name="tokens")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            self.registry.store.wake()
            thread.join()


@pytest.fixture
def api() -> Iterator[Api]:
    """Yield a running server."""
    running = Api()
    running.server.start()
    yield running
    running.server.stop()


def write_admin(path: Path, api: Api) -> Path:
    """Write the administrator's kubeconfig and return its path."""
    config = {
        "clusters": [{"name": "default", "cluster": {"server": api.server.url}}],
        "users": [{"name": "default", "user": {"token": ADMIN}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "current-context": "default",
    }
    path.write_text(json.dumps(config))
    return path
