"""What the installer does with a cluster, run inside a node: `python -m e2e.installer_steps STEP KUBECONFIG [ARG...]`.

A step prints one JSON document; an assertion that fails ends it with a traceback.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgegpu_core.model import ResourceModel
from edgegpu_installer.cluster.accounts import ControllerWait, grant, join, present, remove, usable
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import (
    CLUSTER_ROLE_BINDING,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    kind_of,
    name_of,
    namespace_of,
)
from edgegpu_installer.cluster.lease import NAME as LEASE_NAME
from edgegpu_installer.cluster.lease import NAMESPACE as LEASE_FOLDER
from edgegpu_installer.cluster.lease import HeldError, acquire, lease_environment, this_process
from edgegpu_installer.cluster.nodes import all_facts, clear, mark_extender, mark_gpu, marks_of
from edgegpu_installer.cluster.rbac import Account, ClusterRights, parse_rights
from edgegpu_installer.cluster.shares import in_use
from edgegpu_installer.errors import InstallError

RBAC = Path(__file__).resolve().parents[2] / "docs/examples/rbac.yaml"
MODEL = ResourceModel()


def rights(suffix: str) -> ClusterRights:
    """Return the documented rights in a namespace and roles of a test's own; the accounts keep their names."""
    text = RBAC.read_text().replace("name: edgegpu-node", f"name: edgegpu-node-{suffix}")
    text = text.replace("name: edgegpu-extender", f"name: edgegpu-extender-{suffix}")
    text = text.replace("name: edgegpu\n", f"name: edgegpu-{suffix}\n")
    return parse_rights(text.replace("namespace: edgegpu\n", f"namespace: edgegpu-{suffix}\n"))


def status_of(call: Callable[[], object]) -> int:
    """Return the HTTP status of a refusal, 0 when there is none."""
    try:
        call()
    except ClusterError as error:
        return error.status
    return 0


def ways(cluster: ClusterClient) -> Any:  # noqa: ANN401  (JSON)
    """Reads, refusals, and the server's own words."""
    assert cluster.ready()
    assert cluster.call("GET", "/version").date is not None
    assert cluster.find(NAMESPACE, "nowhere") is None
    assert status_of(lambda: cluster.get(NODE, "nowhere")) == 404
    assert len(cluster.items(POD, fields="status.phase=Nonsense")) == 0
    return {"version": cluster.version(), "nodes": len(cluster.items(NODE))}


def accounts(cluster: ClusterClient, file: str) -> Any:  # noqa: ANN401
    """Rights are made, used, made again without a change, and removed."""
    mine = rights("steps")
    grant(cluster, mine)
    text = join(cluster, mine, Account.SERVER).kubeconfig()
    path = Path(file)
    path.touch(mode=0o600)
    path.write_text(text)
    assert usable(path, Account.SERVER)
    assert text == join(cluster, mine, Account.SERVER).kubeconfig()
    agent = join(cluster, mine, Account.AGENT)
    path.write_text(agent.kubeconfig())
    assert usable(path, Account.AGENT)
    assert not usable(path, Account.SERVER)
    with ClusterClient.from_kubeconfig(path) as limited:
        limited.items(POD)
        assert status_of(lambda: limited.items(SECRET)) == 403
    before = _versions(cluster, mine)
    grant(cluster, mine)
    changed = [key for key, version in _versions(cluster, mine).items() if version != before[key]]
    done = remove(cluster, mine)
    assert done.left == ()
    assert present(cluster, mine) == ()
    assert not usable(path, Account.AGENT)
    path.unlink()
    return {"gone": len(done.gone), "changed": changed}


def _versions(cluster: ClusterClient, mine: ClusterRights) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in mine.items:
        now = cluster.get(kind_of(item), name_of(item), namespace_of(item))
        found[f"{now['kind']} {name_of(now)}"] = now["metadata"]["resourceVersion"]
    return found


def other_role(cluster: ClusterClient) -> Any:  # noqa: ANN401
    """A binding of our name that grants something else is made anew, not refused."""
    mine = rights("other")
    binding = next(item for item in mine.items if item["kind"] == "ClusterRoleBinding")
    foreign = {**binding, "roleRef": {**binding["roleRef"], "name": "view"}}
    cluster.apply(foreign)
    grant(cluster, mine)
    now = cluster.get(CLUSTER_ROLE_BINDING, binding["metadata"]["name"])
    remove(cluster, mine)
    return {"role": now["roleRef"]["name"]}


def left(cluster: ClusterClient) -> Any:  # noqa: ANN401
    """A namespace that somebody's finalizer holds is said to be left, and goes when that is lifted."""
    mine = rights("left")
    grant(cluster, mine)
    refused_again = ""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "held", "namespace": mine.namespace, "finalizers": ["example.com/held"]},
    }
    cluster.create(secret)
    first = remove(cluster, mine, pace=ControllerWait(gone_s=3))
    try:
        grant(cluster, mine, pace=ControllerWait(gone_s=0.5))
    except InstallError as error:
        refused_again = str(error)
    cluster.patch(SECRET, "held", {"metadata": {"finalizers": None}}, mine.namespace)
    second = remove(cluster, mine)
    return {"left": first.left, "later": second.left, "present": present(cluster, mine), "again": refused_again}


def marks(cluster: ClusterClient, name: str) -> Any:  # noqa: ANN401
    """Marks are written, shown, and taken away without a trace."""
    clear(cluster, name)  # the report of a plugin that has run here
    mark_gpu(cluster, name)
    mark_extender(cluster, name, "0.1.0")
    shown = next(facts for facts in all_facts(cluster, MODEL) if facts.name == name)
    clear(cluster, name)
    return {"facts": asdict(shown), "left": asdict(marks_of(cluster.get(NODE, name)))}


def shares(cluster: ClusterClient, name: str) -> Any:  # noqa: ANN401
    """Return which pods use shares on a node."""
    return [share.full_name for share in in_use(cluster, MODEL, node=name)]


def hold(cluster: ClusterClient, name: str, until: str) -> Any:  # noqa: ANN401
    """Hold the install lease until a file is there; return how often k3s was away meanwhile."""
    away = 0
    with acquire(cluster, this_process(name), environment=lease_environment(), say=print) as lease:
        Path(until).with_suffix(".held").touch()
        while not Path(until).exists():
            away += not cluster.ready()
            lease.check()
            time.sleep(0.2)
    return {"away": away, "left": cluster.find(LEASE, LEASE_NAME, LEASE_FOLDER) is not None}


def refused(cluster: ClusterClient, name: str) -> Any:  # noqa: ANN401
    """Want the lease as another server does; return why it was refused."""
    began = time.monotonic()
    try:
        acquire(cluster, this_process(name), environment=lease_environment(), say=lambda _: None)
    except HeldError as error:
        return {"why": str(error), "after_s": time.monotonic() - began}
    raise AssertionError("it was given to both")


STEPS: dict[str, Callable[..., Any]] = {
    "ways": ways,
    "accounts": accounts,
    "other-role": other_role,
    "left": left,
    "marks": marks,
    "shares": shares,
    "hold": hold,
    "refused": refused,
}


def main() -> None:
    """Run one step."""
    step, kubeconfig, *args = sys.argv[1:]
    with ClusterClient.from_kubeconfig(Path(kubeconfig)) as cluster:
        print(json.dumps(STEPS[step](cluster, *args)))  # noqa: T201


if __name__ == "__main__":
    main()
