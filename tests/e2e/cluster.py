"""Makes a k3s ours by hand, from docs/examples: scheduler file, certificates, rights, kubeconfigs."""

import base64
from pathlib import Path

import yaml
from e2e.k3s import DROP_IN, SCHEDULER_FILE, K3s, scheduler_configuration
from kits.cert import make_certs

ROOT = Path(__file__).resolve().parents[2]


def add_extender(cluster: K3s) -> None:
    """Write the scheduler's files and the extender's certificates; k3s reads them at its next start."""
    certs, server = make_certs(), cluster.server
    server.write(SCHEDULER_FILE, scheduler_configuration(certs), mode=0o600)
    server.write(DROP_IN, f'kube-scheduler-arg+: ["config={SCHEDULER_FILE}"]\n')
    server.write("/etc/edgegpu/extender/ca.crt", certs.ca)
    server.write("/etc/edgegpu/extender/server.crt", certs.server.cert)
    server.write("/etc/edgegpu/extender/server.key", certs.server.key, mode=0o600)


def grant(cluster: K3s) -> None:
    """Give the plugins the rights that the project documents, and no others."""
    manifests = list(yaml.safe_load_all((ROOT / "docs/examples/rbac.yaml").read_text()))
    cluster.apply(*manifests)
    accounts = {m["metadata"]["name"]: m["metadata"]["namespace"] for m in manifests if m["kind"] == "ServiceAccount"}
    config = yaml.safe_load(cluster.kubectl("config", "view", "--raw"))
    ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    for node in cluster.nodes.values():
        account = next(name for name in accounts if name.endswith(node.role))
        token = cluster.kubectl("create", "token", account, "-n", accounts[account], "--duration=24h").strip()
        node.lay_kubeconfig(server=f"https://{cluster.server.ip}:6443", ca=ca, token=token)
