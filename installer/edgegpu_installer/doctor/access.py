"""Checks of the access to the API server: the kubeconfig, and the rights of its account."""

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import yaml

from edgegpu_installer.doctor.probe import BoxProbe
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, note, result_of, warning
from edgegpu_installer.layout import K3S_KUBECONFIG

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MEND = "sudo edgegpu install  # writes rights and kubeconfig anew"
_PRIVATE = 0o077


@dataclass(frozen=True, slots=True)
class ClusterRight:
    """A right that the plugin needs in the cluster; `loss` says what fails without it."""

    verb: str
    resource: str
    loss: str
    vital: bool = True
    own: bool = False
    """Whether the right is needed only for the pods of this node."""
    group: str = ""
    name: str = ""

    @property
    def words(self) -> str:
        """The verb and the resource."""
        return f"{self.verb} {self.resource}"


NODE_RIGHTS = (
    ClusterRight("list", "pods", "no pod is known"),
    ClusterRight("watch", "pods", "no pod is known"),
    ClusterRight("patch", "pods", "a pod's card is not corrected in its annotation", vital=False),
    ClusterRight("delete", "pods", "pods that died at admission stay", vital=False),
    ClusterRight("create", "pods/eviction", "refused pods do not come again by themselves", vital=False),
    ClusterRight("get", "nodes", "the node's report cannot be written"),
    ClusterRight("patch", "nodes", "the node's report cannot be written"),
    ClusterRight(
        "get",
        "nodes/proxy",
        "kubelet's own pod list is not seen: units of pods that are gone are held for long",
        vital=False,
    ),
    ClusterRight("create", "events", "nothing is said in events", vital=False),
)
EXTENDER_RIGHTS = (
    ClusterRight("list", "nodes", "no node's cards are known"),
    ClusterRight("watch", "nodes", "no node's cards are known"),
    ClusterRight("create", "pods/binding", "no GPU pod can be bound"),
    ClusterRight(
        "list", "poddisruptionbudgets", "no pod is evicted for one of higher priority", vital=False, group="policy"
    ),
    ClusterRight("get", "leases", "no GPU pod can be bound", group="coordination.k8s.io", name="kube-scheduler"),
)

KUBELET_RIGHTS = (
    ClusterRight("list", "pods", "no pod is known", own=True),
    ClusterRight("watch", "pods", "no pod is known", own=True),
    ClusterRight("patch", "pods/status", "a pod's card is not corrected in its annotation", vital=False),
    ClusterRight("delete", "pods", "pods that died at admission stay", vital=False),
    ClusterRight("create", "pods/eviction", "refused pods do not come again by themselves", vital=False),
    ClusterRight("get", "nodes", "the node's report cannot be written"),
    ClusterRight("patch", "nodes", "the node's report cannot be written"),
    ClusterRight("create", "events", "nothing is said in events", vital=False),
)
"""The rights of an agent node whose plugin uses kubelet's own account."""

_NO_POD_LIST = note(
    "acts as its own kubelet, which may not read kubelet's pod list (nodes/proxy): units of pods that are gone may be "
    "held until kubelet admits the next GPU pod",
    "`edgegpu install` on the server prints a line with --join for this node",
)


def check_kubeconfig(probe: BoxProbe) -> CheckResult:
    """Check that the kubeconfig is private, that the API server answers, and that the account has its rights."""
    settings = probe.settings
    api = probe.api
    problems = list(_file_troubles(probe))
    details = [f"{settings.kubeconfig} for {api.server}"]
    ready = probe.object("/version")
    if ready.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        problems.append(broken(f"the API server refuses the account of {settings.kubeconfig}: {ready.status}", _MEND))
        return result_of(problems, details=details)
    if ready.status != HTTPStatus.OK:
        problems.append(broken(f"the API server {api.server} answers {ready.status}", "sudo journalctl -u k3s -e"))
        return result_of(problems, details=details)
    details.append(f"Kubernetes {ready.body.get('gitVersion', 'of an unknown version')}")
    rights = _wanted(probe)
    problems += [_NO_POD_LIST] if rights == list(KUBELET_RIGHTS) else []
    problems += _missing(probe, rights)
    return result_of(problems, ok=f"answers, and has all {len(rights)} rights", details=details)


def _wanted(probe: BoxProbe) -> list[ClusterRight]:
    settings = probe.settings
    if not settings.has_extender and _acts_as_kubelet(probe.text(settings.kubeconfig) or ""):
        return list(KUBELET_RIGHTS)
    rights = list(NODE_RIGHTS) if settings.has_plugin else []
    return rights + (list(EXTENDER_RIGHTS) if settings.has_extender else [])


def _acts_as_kubelet(kubeconfig: str) -> bool:
    """Return whether a kubeconfig is kubelet's: kubelet shows a certificate, our accounts have a token."""
    try:
        users = [user.get("user") or {} for user in yaml.safe_load(kubeconfig).get("users") or ()]
    except (yaml.YAMLError, AttributeError):
        return False
    return any({"client-certificate", "client-certificate-data"} & set(user) and "token" not in user for user in users)


def _file_troubles(probe: BoxProbe) -> Iterator[CheckProblem]:
    path = probe.settings.kubeconfig
    if probe.at(path).stat().st_mode & _PRIVATE:
        yield warning(f"{path} can be read by others than root", f"sudo chmod 600 {path}")
    admin = probe.text(K3S_KUBECONFIG)
    if admin is not None and admin == probe.text(path):
        yield warning(f"{path} is k3s's own admin kubeconfig: edgegpu needs far less", _MEND)


def _missing(probe: BoxProbe, rights: list[ClusterRight]) -> Iterator[CheckProblem]:
    for right in rights:
        resource, _, sub = right.resource.partition("/")
        asked: dict[str, Any] = {"verb": right.verb, "resource": resource, "group": right.group}
        asked |= {"subresource": sub} if sub else {}
        if right.name:
            asked |= {"namespace": "kube-system", "name": right.name}
        if right.own:
            # A node may list only its own pods. Older servers ignore the field selector.
            own = {"key": "spec.nodeName", "operator": "In", "values": [probe.settings.node]}
            asked["fieldSelector"] = {"requirements": [own]}
        if resource == "nodes" and right.verb in {"get", "patch"}:
            asked["name"] = probe.settings.node
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        reply = probe.api.post(_REVIEWS, body)
        if reply.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            text = (
                f"the API server does not say what this account may do: {reply.status} {reply.body.get('message', '')}"
            )
            yield warning(text, _MEND)
            return
        if not (reply.body.get("status") or {}).get("allowed"):
            level = broken if right.vital else warning
            yield level(f"the account may not {right.words}: {right.loss}", _MEND)
