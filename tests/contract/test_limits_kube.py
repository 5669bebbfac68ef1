"""The agent's calls to the API server: the same suite on the simulation's API and on the tests' small one."""

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kits.limitsapi import Api
from kits.limitscases import manifest

from edgegpu_agent.app_limits.lease import DURATION_S, NAME, NAMESPACE, LeaseKeeper
from edgegpu_agent.kube.apps import Apps, WorkloadRef
from edgegpu_agent.kube.client import AgentClient
from edgegpu_agent.kube.leases import Leases
from edgegpu_base.kube import ApiAccess, Conflict, Json, NotFound, load_kubeconfig
from edgegpu_core.limits.workload import WorkloadKind
from edgegpu_sim.api import ApiServer, Registry, ServerSettings

Put = Callable[[Json], Json]


class Bed:
    """An API server with one Deployment."""

    def __init__(self, client: AgentClient, put: Put) -> None:
        self.client = client
        self.apps = Apps(client)
        self.put = put


def simulated() -> Iterator[Bed]:
    server = ApiServer(Registry(random_names=random.Random(1)), ServerSettings({"token": "agent"}))
    server.start()

    def put(item: Json) -> Json:
        return server.registry.create({"Deployment": "deployments", "Pod": "pods", "Node": "nodes"}[item["kind"]], item)

    try:
        yield Bed(AgentClient(ApiAccess(server=server.url, token="token"), timeout_s=5), put)  # noqa: S106
    finally:
        server.stop()


def small() -> Iterator[Bed]:
    with Api() as api:
        api.store.put("/api/v1/namespaces/kube-system", {"metadata": {"name": "kube-system", "uid": "u"}})

        def put(item: Json) -> Json:
            name, kind = item["metadata"]["name"], item["kind"]
            folders = {
                "Deployment": "/apis/apps/v1/namespaces/default/deployments",
                "Pod": "/api/v1/namespaces/default/pods",
                "Node": "/api/v1/nodes",
            }
            return api.store.put(f"{folders[kind]}/{name}", item)

        yield Bed(api.client(), put)


@pytest.fixture(params=[simulated, small])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    yield from request.param()


def test_a_workload_is_found_by_name_and_read(bed: Bed) -> None:
    bed.put(manifest("Deployment", "asr", memory=4))
    [found] = bed.apps.find("default", "asr")
    assert found.ref == WorkloadRef(WorkloadKind.DEPLOYMENT, "default", "asr")
    assert found.template["spec"]["containers"][0]["name"] == "main"
    assert bed.apps.find("default", "nobody") == ()
    with pytest.raises(NotFound):
        bed.apps.read(WorkloadRef(WorkloadKind.STATEFUL_SET, "default", "asr"))
    assert bed.apps.cluster_uid()


def test_a_patch_holds_for_the_version_that_was_read(bed: Bed) -> None:
    bed.put(manifest("Deployment", "asr", memory=4))
    [found] = bed.apps.find("default", "asr")
    noted = bed.apps.patch(found, {"metadata": {"annotations": {"edgegpu.io/x": "1"}}})
    assert noted.annotation("edgegpu.io/x") == "1"
    with pytest.raises(Conflict):
        bed.apps.patch(found, {"metadata": {"annotations": {"edgegpu.io/x": "2"}}})
    bed.apps.patch(noted, {"metadata": {"annotations": {"edgegpu.io/x": None}}})
    assert bed.apps.read(found.ref).annotation("edgegpu.io/x") == ""


def test_lists_and_collections_that_there_are_not(bed: Bed) -> None:
    pod = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    bed.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, **pod})
    bed.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "box-1"}})
    assert [one["metadata"]["name"] for one in bed.apps.pods()] == ["p"]
    assert [one["metadata"]["name"] for one in bed.apps.pods("default")] == ["p"]
    assert [one["metadata"]["name"] for one in bed.apps.nodes()] == ["box-1"]
    assert bed.apps.quotas("default") == []
    assert bed.apps.autoscaled_to(WorkloadRef(WorkloadKind.DEPLOYMENT, "default", "asr")) is None


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def keeper(bed: Bed, me: str, clock: Clock) -> LeaseKeeper:
    leases = Leases(bed.client, namespace=NAMESPACE, name=NAME, duration_s=DURATION_S)
    return LeaseKeeper(leases, me=me, clock=clock, wall=lambda: 1_790_000_000.5 + clock.now_s)


def test_one_agent_holds_the_lease_and_another_waits_for_its_silence(bed: Bed) -> None:
    clock = Clock()
    one, two = keeper(bed, "box-1", clock), keeper(bed, "box-2", clock)
    assert not one.known(0)
    for _ in range(8):
        one.look()
        two.look()
        assert (one.holds(), two.holds()) == (True, False)
        clock.now_s += 10
    assert (two.holder, two.known(0)) == ("box-1", True)
    for _ in range(8):  # the first has fallen silent: nobody holds it, then the other does, never both
        two.look()
        assert not (one.holds() and two.holds())
        clock.now_s += 5
    assert (one.holds(), two.holds()) == (False, True)
    one.look()
    assert (one.holds(), one.holder) == (False, "box-2")


def test_after_a_restart_the_lease_is_ours_at_once(bed: Bed) -> None:
    clock = Clock()
    keeper(bed, "box-1", clock).look()
    again = keeper(bed, "box-1", clock)
    again.look()
    assert again.holds()
    clock.now_s += 21
    assert not again.holds(), "it was not renewed, so another one may soon think that it is free"


def test_the_task_keeps_it_until_it_is_stopped(bed: Bed) -> None:
    task = keeper(bed, "box-1", Clock())
    thread = threading.Thread(target=task.run)
    thread.start()
    try:
        assert task.known(10)
        assert task.holds()
    finally:
        task.stop()
        thread.join(30)
    assert not thread.is_alive()


def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot read kubeconfig"):
        AgentClient(load_kubeconfig(tmp_path / "none"))
