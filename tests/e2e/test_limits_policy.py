"""The account for app limits against the API server, attack by attack: a settlement is taken, nothing else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.k3s import K3s
from e2e.limitsaccount import answers, grant_limits, revoke_limits
from e2e.manifests import CORE, MEMORY, container, pod_spec
from lab.labkit import wait_until

from edgegpu_agent.app_limits.patches import (
    ASIDE,
    amounts_patch,
    aside_patch,
    back_patch,
    merged,
    replicas_patch,
    wanted,
    written,
)
from edgegpu_agent.kube.apps import FoundWorkload, WorkloadRef
from edgegpu_core.limits.workload import WorkloadKind
from edgegpu_core.model import ResourceModel
from edgegpu_core.request import RequestedAmounts

Json = dict[str, Any]
NAMESPACE = "attacked"
STRATEGIC, MERGE, LIST, APPLY = (
    f"application/{kind}"
    for kind in ("strategic-merge-patch+json", "merge-patch+json", "json-patch+json", "apply-patch+yaml")
)
KINDS = {
    "deployment": WorkloadKind.DEPLOYMENT,
    "statefulset": WorkloadKind.STATEFUL_SET,
    "daemonset": WorkloadKind.DAEMON_SET,
}
KEPT = ("labels", "annotations", "finalizers", "ownerReferences")
POLICY, RIGHTS = "ValidatingAdmissionPolicy 'edgegpu-limits'", "forbidden"


def request(path: str, body: Any, kind: str = STRATEGIC, *, method: str = "PATCH", **params: str) -> Json:  # noqa: ANN401
    """Return a request as the account sends it."""
    manager = {"fieldManager": "edgegpu-agent"}
    return {"method": method, "path": path, "body": body, "type": kind, "params": manager | params}


def patch(kind: str, body: Any, how: str = STRATEGIC, **params: str) -> Json:  # noqa: ANN401
    """Return a patch of the workload of a kind."""
    return request(WorkloadRef(KINDS[kind], NAMESPACE, kind).path, body, how, **params)


def template(spec: Json) -> Json:
    return {"spec": {"template": {"spec": spec}}}


def main(fields: Json) -> Json:
    return template({"containers": [{"name": "main", **fields}]})


def noted(text: str | None, spec: Json | None = None) -> Json:
    return {"metadata": {"annotations": {ASIDE: text}}, **({"spec": spec} if spec else {})}


def kept(replicas: int) -> str:
    return json.dumps({"replicas": replicas}, separators=(",", ":"))


METADATA: dict[str, Json] = {
    "an owner that is not there": {
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone", "uid": "0-0"}]
    },
    "a finalizer": {"finalizers": ["example.com/never"]},
    "no finalizer": {"$deleteFromPrimitiveList/finalizers": ["example.com/keep"]},
    "a label": {"labels": {"x": "y"}},
    "no label": {"labels": {"mine": None}},
    "another's annotation": {"annotations": {"x": "y"}},
    "no annotation": {"annotations": {"mine": None}},
    "an annotation of edgegpu's that no settlement writes": {"annotations": {"edgegpu.io/other": "y"}},
    "another count of templates": {"annotations": {"deprecated.daemonset.template.generation": "99", "x": "y"}},
}
CONTAINER: dict[str, Json] = {
    "an image": {"image": "other"},
    "a command": {"command": ["sh"]},
    "arguments": {"args": ["x"]},
    "an environment": {"env": [{"name": "LD_PRELOAD", "value": "/x.so"}]},
    "a pull policy": {"imagePullPolicy": "Always"},
    "privileges": {"securityContext": {"privileged": True}},
    "a mount": {"volumeMounts": [{"name": "data", "mountPath": "/etc"}]},
    "a hook": {"lifecycle": {"preStop": {"exec": {"command": ["sh"]}}}},
    "a probe": {"livenessProbe": {"exec": {"command": ["false"]}}},
    "a host port": {"ports": [{"containerPort": 1, "hostPort": 1}]},
    "a cpu limit": {"resources": {"limits": {"cpu": "1"}}},
    "a request of memory": {"resources": {"requests": {"memory": "1Mi"}}},
    "no request of memory": {"resources": {"requests": {"memory": None, "cpu": None}}},
    "another GPU resource": {"resources": {"limits": {"nvidia.com/gpu": "1"}}},
}
POD: dict[str, Json] = {
    "the host's network": {"hostNetwork": True},
    "the host's processes": {"hostPID": True},
    "another account": {"serviceAccountName": "default"},
    "a node": {"nodeName": "gpu-one"},
    "a selector": {"nodeSelector": {"x": "y"}},
    "a toleration": {"tolerations": [{"operator": "Exists"}]},
    "the host's files": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "a user": {"securityContext": {"runAsUser": 0}},
    "a scheduler": {"schedulerName": "mine"},
    "a priority": {"priorityClassName": "system-node-critical"},
    "a runtime": {"runtimeClassName": "nvidia"},
    "another container": {"containers": [{"name": "more", "image": "other"}]},
    "a container less": {"containers": [{"name": "side", "$patch": "delete"}]},
    "another first container": {"initContainers": [{"name": "zero", "image": "other"}]},
    "a first container's image": {"initContainers": [{"name": "one", "image": "other"}]},
}
TEMPLATE: dict[str, Json] = {
    "a pod's label": {"labels": {"x": "y"}},
    "a pod's annotation": {"annotations": {"edgegpu.io/x": "y"}},
    "a pod's finalizer": {"finalizers": ["example.com/never"]},
}
SPECS: dict[str, dict[str, Json]] = {
    "deployment": {
        "no replicas": {"replicas": 0},
        "5000 replicas": {"replicas": 5000},
        "a pause": {"paused": True},
        "minReadySeconds": {"minReadySeconds": 60},
        "no history": {"revisionHistoryLimit": 0},
        "a deadline": {"progressDeadlineSeconds": 5000},
        "Recreate": {"strategy": {"type": "Recreate", "rollingUpdate": None}},
        "all at once": {"strategy": {"rollingUpdate": {"maxUnavailable": "100%"}}},
    },
    "statefulset": {
        "no replicas": {"replicas": 0},
        "5000 replicas": {"replicas": 5000},
        "a partition": {"updateStrategy": {"rollingUpdate": {"partition": 5}}},
        "OnDelete": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
        "claims deleted": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}},
        "other ordinals": {"ordinals": {"start": 7}},
    },
    "daemonset": {
        "minReadySeconds": {"minReadySeconds": 60},
        "OnDelete": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
        "all at once": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0}}},
    },
}
RECREATE = {"strategy": {"type": "Recreate", "rollingUpdate": None}}
NO_SURGE = {"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
TRUTH = '{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}}'
LIE = '{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"100%","maxSurge":"25%"}}}'
SURGE = '{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}}'
LIMITS = main({"resources": {"limits": {MEMORY: "9", CORE: "1"}}})

INTERRUPTIONS: dict[str, Json] = {
    "a lie alone": patch("statefulset", noted(kept(5000))),
    "the truth alone": patch("statefulset", noted(kept(2))),
    "a lie, and fewer": patch("statefulset", noted(kept(5000), {"replicas": 0})),
    "a lie, and what it says": patch("statefulset", noted(kept(5000), {"replicas": 5000})),
    "the truth, and more": patch("statefulset", noted(kept(2), {"replicas": 5000})),
    "the truth, fewer, and a partition": patch(
        "statefulset", noted(kept(2), {"replicas": 0, "updateStrategy": {"rollingUpdate": {"partition": 5}}})
    ),
    "a Deployment's replicas": patch("deployment", noted(kept(2), {"replicas": 0})),
    "a Deployment's replicas, with a truth": patch(
        "deployment", merged(LIMITS, noted(TRUTH, RECREATE | {"replicas": 0}))
    ),
    "a Deployment's strategy without its limits": patch("deployment", noted(TRUTH, RECREATE)),
    "a Deployment's strategy with a lie": patch("deployment", merged(LIMITS, noted(LIE, RECREATE))),
    "another strategy with the truth": patch(
        "deployment", merged(LIMITS, noted(TRUTH, {"strategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}))
    ),
    "a DaemonSet's surge without its limits": patch("daemonset", noted(SURGE, NO_SURGE)),
    "a DaemonSet's OnDelete with the truth": patch(
        "daemonset", merged(LIMITS, noted(SURGE, {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}))
    ),
}
MIDWAY: dict[str, dict[str, Json]] = {
    "statefulset": {
        "what is kept": noted(kept(5000)),
        "what is kept, done": noted(kept(0)),
        "what is kept, gone": noted(None),
        "more than was kept": noted(None, {"replicas": 5000}),
        "more while it lasts": {"spec": {"replicas": 1}},
        "put back, and kept still": {"spec": {"replicas": 2}},
    },
    "deployment": {
        "what is kept": noted(LIE),
        "what is kept, gone": noted(None),
        "another strategy put back": noted(
            None,
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": "25%"}}},
        ),
        "replicas": {"spec": {"replicas": 0}},
    },
}
LEASE: Json = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "edgegpu-app-limits", "namespace": "kube-system"},
    "spec": {"holderIdentity": "me", "leaseDurationSeconds": 30},
}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Attacked:
    """The account's three workloads, none of whose pods ever finds a node."""

    def __init__(self, k3s: K3s) -> None:
        self.k3s = k3s

    def found(self, kind: str) -> FoundWorkload:
        """Return a workload as it stands."""
        args = ("get", kind, kind, "-n", NAMESPACE, "-o", "json", "--show-managed-fields")
        return FoundWorkload(WorkloadRef(KINDS[kind], NAMESPACE, kind), json.loads(self.k3s.kubectl(*args)))

    def answers(self, *requests: Json) -> list[str]:
        """Return what the API server says to each request of the account."""
        return answers(self.k3s, requests)

    def taken(self, kind: str, body: Json | None) -> None:
        """Send a patch that must be taken."""
        assert body is not None
        assert self.answers(patch(kind, body)) == [""]

    def refused(self, attacks: dict[str, Json], word: str = POLICY) -> None:
        """Send attacks that must all be refused, each by itself."""
        said = dict(zip(attacks, self.answers(*attacks.values()), strict=True))
        assert {name: text for name, text in said.items() if word not in text} == {}

    def limits(self, kind: str, memory: int, name: str = "main") -> Json:
        """Return the patch of a settlement, by the agent's own code."""
        spec = self.found(kind).template["spec"]
        now = written(spec, name, ResourceModel())
        return amounts_patch(spec, name, wanted(now, RequestedAmounts(memory, min(1, memory)), ResourceModel()))


def workload(kind: str, spec: Json) -> Json:
    """Return a workload whose every part somebody may want to change."""
    first = [container("one"), container("two")]
    asks = {"limits": {MEMORY: "2", CORE: "1"}, "requests": {"memory": "8Mi", "cpu": "10m"}}
    pods = pod_spec(
        container() | {"resources": asks},
        container("side"),
        init=first,
        volumes=[{"name": "data"}],
        nodeSelector={"nowhere": "at-all"},
    )
    metadata = {"name": kind, "namespace": NAMESPACE, "labels": {"mine": "1"}, "annotations": {"mine": "1"}}
    labels = {"app": kind}
    return {
        "apiVersion": "apps/v1",
        "kind": KINDS[kind].value,
        "metadata": metadata | {"finalizers": ["example.com/keep"]},
        "spec": spec
        | {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pods}},
    }


@pytest.fixture(scope="module")
def attacked(k3s: K3s) -> Iterator[Attacked]:
    grant_limits(k3s, [NAMESPACE])
    k3s.apply(
        workload("deployment", {"replicas": 2, "strategy": {"type": "RollingUpdate"}}),
        workload("statefulset", {"replicas": 2, "serviceName": "x"}),
        workload("daemonset", {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}),
    )
    found = Attacked(k3s)
    probe = patch("deployment", {"metadata": {"labels": {"x": "y"}}}, dryRun="All")
    wait_until(lambda: POLICY in found.answers(probe)[0], what="the policy is in effect", every_s=0.3)
    yield found
    for kind in KINDS:
        k3s.kubectl("patch", kind, kind, "-n", NAMESPACE, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    k3s.clear(NAMESPACE)
    k3s.kubectl("delete", "lease", "edgegpu-app-limits", "-n", "kube-system", "--ignore-not-found")
    revoke_limits(k3s, [NAMESPACE])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_limits_may_be_changed_in_a_workload(attacked: Attacked, kind: str) -> None:
    attacks = {
        **{name: {"metadata": one} for name, one in METADATA.items()},
        **{name: {"spec": {"template": {"metadata": one}}} for name, one in TEMPLATE.items()},
        **{name: {"spec": one} for name, one in SPECS[kind].items()},
    }
    beside = {f"{name}, beside limits": merged(LIMITS, one) for name, one in attacks.items()}
    attacks |= {name: main(one) for name, one in CONTAINER.items()} | {name: template(one) for name, one in POD.items()}
    before = attacked.found(kind).item
    attacked.refused({name: patch(kind, body) for name, body in (attacks | beside).items()})
    for part in ("containers", "initContainers"):
        turned = [
            {
                "op": "replace",
                "path": f"/spec/template/spec/{part}",
                "value": before["spec"]["template"]["spec"][part][::-1],
            }
        ]
        attacked.refused({f"{part} in another order": patch(kind, turned, LIST)})
    after = attacked.found(kind).item
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
    assert {name: after["metadata"].get(name) for name in KEPT} == {name: before["metadata"].get(name) for name in KEPT}


def test_an_interruption_says_the_truth_and_ends_with_it(attacked: Attacked) -> None:
    attacked.refused(INTERRUPTIONS)
    for kind, attacks in MIDWAY.items():
        found = attacked.found(kind)
        attacked.taken(kind, merged(attacked.limits(kind, 3), aside_patch(found)))
        attacked.refused({name: patch(kind, body) for name, body in attacks.items()})
        attacked.taken(kind, back_patch(attacked.found(kind)))
        attacked.taken(kind, attacked.limits(kind, 2))
        assert attacked.found(kind).spec == found.spec


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_settlement_does_is_taken(attacked: Attacked, kind: str) -> None:
    before = attacked.found(kind)
    for name, units in (("main", 5), ("main", 0), ("main", 2), ("side", 3), ("side", 0), ("one", 1), ("one", 0)):
        attacked.taken(kind, attacked.limits(kind, units, name))
    attacked.taken(kind, merged(attacked.limits(kind, 7), aside_patch(before)))
    attacked.taken(kind, merged(attacked.limits(kind, 2), back_patch(attacked.found(kind)) or {}))
    assert attacked.found(kind).spec == before.spec
    for text in ("no JSON", '{"other":1}'):  # nobody here wrote it
        attacked.k3s.kubectl("annotate", kind, kind, "-n", NAMESPACE, f"{ASIDE}={text}")
        attacked.taken(kind, back_patch(attacked.found(kind)))
    assert ASIDE not in attacked.found(kind).item["metadata"]["annotations"]


@pytest.mark.parametrize("operation", ["Update", "Apply"])
def test_a_settlement_of_a_very_large_workload_costs_no_more_than_a_policy_may(
    attacked: Attacked, operation: str
) -> None:
    """The API server refuses whatever costs a policy more than so many steps: a MiB, of which managedFields a part."""
    name = f"large-{operation.lower()}"
    env = [{"name": f"SETTING_{at}", "value": "x" * 380} for at in range(20)]
    more = [container(f"c{at}") | {"env": env} for at in range(99)]
    made = workload("deployment", {"replicas": 0})
    made["metadata"] = {"name": name, "namespace": NAMESPACE}
    made["spec"]["template"]["spec"]["containers"][1:] = more
    how = ["apply", "--server-side"] if operation == "Apply" else ["create"]
    attacked.k3s.kubectl(*how, "-f", "-", text=json.dumps(made))
    ref = WorkloadRef(WorkloadKind.DEPLOYMENT, NAMESPACE, name)
    settled = template({"containers": [{"name": "c98", "resources": {"limits": {MEMORY: "9", CORE: "1"}}}]})
    assert attacked.answers(request(ref.path, settled)) == [""]
    assert attacked.answers(request(ref.path, main({"resources": {"limits": {MEMORY: "5", CORE: "1"}}}))) == [""]
    image = template({"containers": [{"name": "c98", "image": "other"}]})
    attacked.refused({"an image": request(ref.path, image)})


def test_a_stateful_set_may_lose_its_stuck_pods_and_gets_them_again(attacked: Attacked) -> None:
    attacked.taken("statefulset", replicas_patch(attacked.found("statefulset"), 1))
    attacked.taken("statefulset", back_patch(attacked.found("statefulset")))
    assert attacked.found("statefulset").spec["replicas"] == 2


def test_no_other_managers_fields_are_forged(attacked: Attacked) -> None:
    """Who owns a field by `managedFields` has it removed at the next apply that does not name it."""
    entries = attacked.found("deployment").item["metadata"]["managedFields"]
    base = {"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z"}
    image: Json = {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"main"}': {"f:image": {}}}}}}}
    forged = {
        "nobody's": [{}],
        "one less": entries[1:],
        "another's": [
            *entries,
            base | {"manager": "x", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}},
        ],
        "another's by apply": [*entries, base | {"manager": "x", "operation": "Apply", "fieldsV1": image}],
        "more of another's": [
            {**entries[0], "fieldsV1": {**entries[0]["fieldsV1"], "f:spec": {"f:paused": {}}}},
            *entries[1:],
        ],
        "our own, and more": [
            *(one for one in entries if one["manager"] != "edgegpu-agent"),
            base | {"manager": "edgegpu-agent", "operation": "Update", "fieldsV1": image},
        ],
    }
    attacked.refused(
        {name: patch("deployment", {"metadata": {"managedFields": one}}, MERGE) for name, one in forged.items()}
    )
    whole: Json = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "deployment", "namespace": NAMESPACE},
    }
    by = {"force": "true", "fieldManager": "console"}
    attacked.refused(
        {
            "limits in another's name": patch("deployment", LIMITS, fieldManager="console"),
            "limits by apply": patch("deployment", whole | LIMITS, APPLY, **by),
            "an image by apply": patch("deployment", whole | main({"image": "other"}), APPLY, **by),
        }
    )
    taken_over = {"resources": {"limits": {MEMORY: "4", CORE: "1"}}}
    args = ("apply", "--server-side", "--force-conflicts", "--field-manager=console", "-f", "-")
    attacked.k3s.kubectl(*args, text=json.dumps(whole | main(taken_over)))
    attacked.taken("deployment", attacked.limits("deployment", 2))  # from the console, whose entry is the smaller now
    attacked.k3s.kubectl(
        "set", "resources", "deployment/deployment", "-c=main", "-n", NAMESPACE, f"--limits={MEMORY}=4"
    )
    attacked.taken("deployment", attacked.limits("deployment", 2))


def test_beside_workloads_there_is_one_lease(attacked: Attacked) -> None:
    def lease(**metadata: object) -> Json:
        return {**LEASE, "metadata": LEASE["metadata"] | metadata}

    mine = f"{LEASES}/edgegpu-app-limits"
    owner = METADATA["an owner that is not there"]
    attacked.k3s.kubectl("delete", "lease", "edgegpu-app-limits", "-n", "kube-system", "--ignore-not-found")

    def post(body: Json) -> Json:
        return request(LEASES, body, "application/json", method="POST")

    def put(body: Json) -> Json:
        return request(mine, body, "application/json", method="PUT")

    bad: dict[str, Json] = {
        "owner": owner,
        "finalizer": {"finalizers": ["example.com/x"]},
        "label": {"labels": {"x": "y"}},
    }
    attacked.refused(
        {"another": post(lease(name="kube-scheduler-2")), **{k: post(lease(**one)) for k, one in bad.items()}}
    )
    assert attacked.answers(post(LEASE)) == [""]
    version = json.loads(attacked.k3s.kubectl("get", "lease", "edgegpu-app-limits", "-n", "kube-system", "-o", "json"))
    seen = {"resourceVersion": version["metadata"]["resourceVersion"]}
    attacked.refused({name: put(lease(**seen, **one)) for name, one in bad.items()})
    assert attacked.answers(put(lease(**seen))) == [""]
    path, new = (WorkloadRef(WorkloadKind.DEPLOYMENT, NAMESPACE, name).path for name in ("deployment", "new"))
    made = workload("deployment", {"replicas": 1}) | {"metadata": {"name": "new", "namespace": NAMESPACE}}
    attacked.refused(
        {
            "delete": request(path, None, method="DELETE"),
            "its scale": request(f"{path}/scale", {"spec": {"replicas": 0}}, MERGE),
            "its status": request(f"{path}/status", {"status": {"replicas": 9}}, MERGE),
            "a new one by apply": request(new, made, APPLY, fieldManager="edgegpu-agent", force="true"),
            "the policy": request(
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/edgegpu-limits", {}, MERGE
            ),
            "secrets": request(f"/api/v1/namespaces/{NAMESPACE}/secrets", None, method="GET"),
            "pods": request(f"/api/v1/namespaces/{NAMESPACE}/pods", {}, method="DELETE"),
            "kube-system": request("/apis/apps/v1/namespaces/kube-system/deployments/coredns", LIMITS),
            "another namespace": request("/apis/apps/v1/namespaces/default/deployments/x", LIMITS),
        },
        RIGHTS,
    )
