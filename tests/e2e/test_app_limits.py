"""An app's limits set as the agent sets them, on a real k3s, with the rights that it is given and no others."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import AGENT, SERVER, insert_cards
from e2e.consistency import wait_consistent
from e2e.k3s import K3s
from e2e.limitsaccount import KUBECONFIG, grant_limits, revoke_limits
from e2e.manifests import CORE, MEMORY, container, deployment, pod_spec
from e2e.plugin_node import cards
from lab.labkit import Process, wait_until

from edgegpu_agent.app_limits.patches import ASIDE

NAMESPACE = "apps"
PROGRAM = Path(__file__).with_name("limits_agent.py")


class Limits:
    """What sets limits in the tests' namespace."""

    def __init__(self, k3s: K3s, notes: Path) -> None:
        self.k3s = k3s
        self._notes = notes
        self._count = 0

    def set(self, app: str, memory: int, core: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Ask for an app's limits, and return its settlement."""
        self._count += 1
        return self._run(app, memory, core, {}, **more)

    def note(self, value: dict[str, Any]) -> None:
        """Lay down what the next settlement finds noted, as after a crash."""
        (self._notes / str(self._count + 1)).write_text(json.dumps(value))

    def look(self, app: str, memory: int, core: int = 1, *, settled: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Look at what was settled last."""
        return self._run(app, memory, core, {"settled": settled}, **more)

    def watch(self, app: str, memory: int, *, look_s: float) -> dict[str, Any]:
        """Follow an app's settled limits, write others back, and return what was noticed, and how soon."""
        return self._run(app, memory, 1, {"watch": look_s, "back": {MEMORY: str(memory - 1), CORE: "1"}})

    def follow(self, app: str, memory: int, *, log: Path) -> Process:
        """Follow an app's live limits, which were settled last, until the process is killed."""
        order = self._notes / "follow"
        order.write_text(json.dumps(self._order(app, memory, 1, {"follow": True}, live=True)))
        return self.k3s.server.popen(sys.executable, str(PROGRAM), str(order), log=log)

    def _run(self, app: str, memory: int, core: int, how: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
        order = json.dumps(self._order(app, memory, core, how, **more))
        done = self.k3s.server.exec(sys.executable, str(PROGRAM), input=order, timeout_s=90)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _order(self, app: str, memory: int, core: int, how: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
        item = {"rev": 1, "namespace": NAMESPACE, "app": app, "container": "main", "memory_units": memory, "core": core}
        notes = str(self._notes / str(self._count))
        return {"kubeconfig": KUBECONFIG, "me": SERVER, "item": item | more, "notes": notes, **how}

    def running(self, app: str) -> list[str]:
        """Return the units of an app's ready pods."""
        found = [pod for pod in self.k3s.pods(NAMESPACE, app) if "deletionTimestamp" not in pod["metadata"]]
        ready = [
            pod for pod in found if all(s["ready"] for s in pod["status"].get("containerStatuses") or [{"ready": 0}])
        ]
        return [pod["spec"]["containers"][0]["resources"].get("limits", {}).get(MEMORY, "") for pod in ready]


@pytest.fixture(scope="module")
def limits(k3s: K3s, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limits]:
    """Yield what sets limits with the rights of the agent's account, and clear up."""
    insert_cards(k3s, {SERVER: cards(24259), AGENT: cards(7611, 7611)})
    grant_limits(k3s, [NAMESPACE])
    yield Limits(k3s, tmp_path_factory.mktemp("notes"))
    k3s.clear(NAMESPACE)
    revoke_limits(k3s, [NAMESPACE])


def app(name: str, memory: int, *, node: str, strategy: str = "Recreate") -> dict[str, Any]:
    where = {"kubernetes.io/hostname": node}
    main = container(memory=memory, core=1 if memory else 0)
    spec = pod_spec(main, terminationGracePeriodSeconds=1, nodeSelector=where)
    return deployment(name, spec, namespace=NAMESPACE, strategy=strategy)


def test_the_fields_card_1_to_10_is_refused_with_the_numbers_then_forced(k3s: K3s, limits: Limits) -> None:
    k3s.apply(*(app(name, memory, node=SERVER) for name, memory in (("forty", 40), ("fifty", 50), ("one", 1))))
    for name in ("forty", "fifty", "one"):
        k3s.wait_phase(NAMESPACE, name, "Running")
    before = k3s.the_pod(NAMESPACE, "one")["metadata"]["uid"]

    came = limits.set("one", 10)
    assert (came["state"], came["code"]) == ("Rejected", "NO_ROOM"), came
    assert "needs 10 vcuda-memory on one card; card 0 has 4 free" in came["text"]
    [card] = came["numbers"]["cards"]  # the other node's are not for it
    assert (came["numbers"]["verdict"], card["free_units"], card["held_by_app_units"]) == ("never_fits", 4, 1)
    assert k3s.wait_phase(NAMESPACE, "one", "Running")["metadata"]["uid"] == before

    came = limits.set("one", 10, force=True)
    assert (came["state"], came["code"]) == ("Pending", "NO_ROOM"), came
    assert limits.look("one", 10, force=True, settled="Pending")["landed"] == ""
    k3s.kubectl("scale", "deployment", "forty", "-n", NAMESPACE, "--replicas=0")
    wait_until(
        lambda: limits.look("one", 10, force=True, settled="Pending")["landed"] == "Applied",
        what="the pod gets its card, and the item lands",
    )


def test_4_and_20_and_20_is_applied_and_verified_then_taken_away(k3s: K3s, limits: Limits) -> None:
    for name, memory in (("a", 4), ("b", 20), ("c", 4)):
        k3s.apply(app(name, memory, node=AGENT))
        k3s.wait_phase(NAMESPACE, name, "Running")
    assert limits.set("c", 20) == {"state": "Applied", "code": "", "text": "", "restored": False, "numbers": None}
    assert limits.running("c") == ["20"]
    managers = k3s.get("deployment", "c", namespace=NAMESPACE)
    assert managers["metadata"]["generation"] == 2
    wait_consistent(k3s)

    k3s.kubectl("set", "resources", "deployment/c", "-n", NAMESPACE, f"--limits={MEMORY}=5,{CORE}=1")
    [condition] = limits.look("c", 20, settled="Applied")["conditions"]
    assert (condition["type"], condition["manager"].partition("-")[0]) == ("Drifted", "kubectl")

    assert limits.set("c", 0, 0)["state"] == "Applied"
    resources = k3s.get("deployment", "c", namespace=NAMESPACE)["spec"]["template"]["spec"]["containers"][0][
        "resources"
    ]
    assert not resources.get("limits")
    assert limits.running("c") == [""]


def test_a_rolling_update_by_its_surge_and_by_an_interruption(k3s: K3s, limits: Limits) -> None:
    """On the one card of the node that is free: the other has what the test before has left there."""
    k3s.apply(app("rolls", 6, node=AGENT, strategy="RollingUpdate"))
    k3s.wait_phase(NAMESPACE, "rolls", "Running")
    assert limits.set("rolls", 15)["state"] == "Applied"
    assert limits.running("rolls") == ["15"]
    came = limits.set("rolls", 20)
    assert (came["state"], came["numbers"]["verdict"]) == ("Rejected", "fits_after_stop"), came
    assert limits.set("rolls", 20, interrupt=True)["state"] == "Applied"
    assert limits.running("rolls") == ["20"]
    found = k3s.get("deployment", "rolls", namespace=NAMESPACE)
    assert found["spec"]["strategy"]["type"] == "RollingUpdate"
    assert not [name for name in found["metadata"]["annotations"] if name.startswith("edgegpu.io/")]


def test_a_stateful_set_that_stands_still_goes_on_with_the_limits_before(k3s: K3s, limits: Limits) -> None:
    """As after a crash while the old limits are put back: Kubernetes itself would wait for the stuck pod for ever."""
    made = stateful("sized", memory=5, replicas=2)
    k3s.apply(made)
    wait_until(lambda: limits.running("sized") == ["5", "5"], what="both run", every_s=0.3)
    names = {"baidu.com/vcuda-core": "1", "baidu.com/vcuda-memory": "5"}
    nothing = dict.fromkeys(names)
    asked = {"limits": names | {MEMORY: "90"}, "requests": nothing}
    k3s.kubectl("set", "resources", "statefulset/sized", "-n", NAMESPACE, f"--limits={MEMORY}=90,{CORE}=1")
    uid = k3s.get("statefulset", "sized", namespace=NAMESPACE)["metadata"]["uid"]
    note = {"uid": uid, "before": {"limits": names, "requests": nothing}, "asked": asked, "forced": False}
    limits.note(note | {"step": "restoring", "why": "no card has 90", "fights": 0})
    wait_until(lambda: limits.running("sized") == ["5"], what="one waits", every_s=0.3)
    came = limits.set("sized", 90)
    assert (came["state"], came["restored"]) == ("Failed", True), came
    wait_until(lambda: limits.running("sized") == ["5", "5"], what="both run again", every_s=0.3)
    found = k3s.get("statefulset", "sized", namespace=NAMESPACE)
    assert (found["spec"]["replicas"], ASIDE in found["metadata"]["annotations"]) == (2, False)


def test_limits_that_are_written_back_are_noticed_by_the_watch_or_said_to_be_looked_at(
    k3s: K3s, limits: Limits
) -> None:
    for name in ("watched", "looked-at"):
        k3s.apply(app(name, 3, node=AGENT))
        k3s.wait_phase(NAMESPACE, name, "Running")
    seen = limits.watch("watched", 3, look_s=3600)
    assert (seen["calm"], seen["conditions"], seen["trouble"]) == ([], ["Drifted"], "")
    k3s.report("drift_noticed_s", [seen["took_s"]], limit=2.0, typical=2.0)

    role = k3s.get("clusterrole", "edgegpu-limits")
    older = [rule | {"verbs": [verb for verb in rule["verbs"] if verb != "watch"]} for rule in role["rules"]]
    k3s.kubectl("patch", "clusterrole", "edgegpu-limits", "--type=merge", "-p", json.dumps({"rules": older}))
    seen = limits.watch("looked-at", 3, look_s=1)
    assert (seen["calm"], seen["conditions"]) == ([], ["Drifted"])
    assert "run `edgegpu install`" in seen["trouble"]
    k3s.kubectl("patch", "clusterrole", "edgegpu-limits", "--type=merge", "-p", json.dumps({"rules": role["rules"]}))


def stateful(name: str, *, memory: int, replicas: int) -> dict[str, Any]:
    main = container(memory=memory, core=1)
    spec = pod_spec(main, terminationGracePeriodSeconds=1, nodeSelector={"kubernetes.io/hostname": SERVER})
    made = deployment(name, spec, namespace=NAMESPACE, replicas=replicas)
    del made["spec"]["strategy"]
    return made | {"kind": "StatefulSet", "spec": made["spec"] | {"serviceName": name}}
