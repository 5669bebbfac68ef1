"""The look at app limits: lease, cluster, what has landed, drifted or is to be tried again, over small API servers."""

from __future__ import annotations

import queue
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from kits.limitsapi import Api
from kits.limitsbed import Bed, Paper, field
from kits.limitscases import manifest
from kits.limitsworld import CLUSTER

from edgegpu_agent.app_limits.lease import DURATION_S, NAME, NAMESPACE, LeaseKeeper
from edgegpu_agent.app_limits.task import AppLimitsService, app_limits
from edgegpu_agent.kube.client import AgentClient
from edgegpu_agent.kube.leases import Leases
from edgegpu_agent.ports import DriftChecks, SettledItem
from edgegpu_base.kube import ApiAccess
from edgegpu_installer.layout import PLUGIN_UNIT, Layout
from edgegpu_sim.api import ApiServer, Registry, ServerSettings
from edgegpu_sync.messages.spec import AppLimits as AppLimitsItem
from edgegpu_sync.messages.spec import AskedItem, OnDrift, TryKey, item_name
from edgegpu_sync.messages.uplink import ItemState as State
from edgegpu_sync.rules.settle import Settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAIT_S = 60.0


@pytest.fixture
def bed() -> Iterator[Bed]:
    with Api() as api:
        yield field(api)


def layout(root: Path) -> Layout:
    made = Layout(root)
    made.units.mkdir(parents=True)
    (made.units / PLUGIN_UNIT).touch()
    return made


class Looks:
    """The part in threads; what it tells the worker lies in `told`."""

    def __init__(self, client: AgentClient, root: Path, *, look_s: float = 0.02) -> None:
        self.part = AppLimitsService(client, layout(root), node="box-1", look_s=look_s)
        self.told: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._items: list[SettledItem] = []
        self._tell: list[Callable[[], None]] = []
        checks = DriftChecks(
            settled=lambda: self._items,
            on_change=self._tell.append,
            landed=lambda name, _key, settlement: self.told.put((name, settlement)),
            noticed=lambda name, conditions: self.told.put((name, conditions)),
            again=lambda name: self.told.put((name, "again")),
        )
        self.tasks = self.part.tasks(checks)
        self.threads = [threading.Thread(target=task.run) for task in self.tasks]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        ends = time.monotonic() + WAIT_S
        while not (self.part.cluster().holder and self.part.cluster().uid):
            assert time.monotonic() < ends, self.part.cluster()
            threading.Event().wait(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.tasks:
            task.stop()
        for thread in self.threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def settled(self, *asked: AskedItem, state: State = State.APPLIED, notes: Paper | None = None) -> None:
        """Let the worker have settled these."""
        paper = notes or Paper()
        self._items = [SettledItem(asked=one, settlement=Settlement(state=state), notes=paper) for one in asked]
        for tell in self._tell:
            tell()

    def hear(self) -> tuple[str, Any]:
        return self.told.get(timeout=WAIT_S)


def test_what_was_pending_lands_and_what_stood_elsewhere_is_tried_again(bed: Bed, tmp_path: Path) -> None:
    asked = bed.ask(1)
    with Looks(bed.api.client(), tmp_path) as looks:
        assert looks.part.cluster().uid == CLUSTER
        looks.settled(asked, state=State.PENDING)
        assert looks.hear() == (asked.name, Settlement.applied())
        assert looks.hear() == (asked.name, ())
        looks.settled(asked, state=State.ELSEWHERE)
        while (told := looks.hear()) != (asked.name, "again"):
            assert told[0] == asked.name


def test_a_box_without_the_account_has_no_such_part(tmp_path: Path) -> None:
    assert app_limits(tmp_path / "limits-kubeconfig", layout(tmp_path), node="box-1") is None
    (tmp_path / "limits-kubeconfig").write_text("nonsense: [")
    assert app_limits(tmp_path / "limits-kubeconfig", Layout(tmp_path), node="box-1") is None


def test_it_is_able_while_its_account_is_there(bed: Bed, tmp_path: Path) -> None:
    account = tmp_path / "limits-kubeconfig"
    part = AppLimitsService(bed.api.client(), layout(tmp_path), node="box-1", account=account)
    assert not part.has_account
    account.touch()
    assert part.has_account


class Box:
    """An API server with watches, with apps whose limits were settled."""

    def __init__(self, root: Path) -> None:
        self.api = ApiServer(Registry(random_names=random.Random(1)), ServerSettings({"token": "agent"}))
        self.api.start()
        self.root = root

    def client(self) -> AgentClient:
        return AgentClient(ApiAccess(server=self.api.url, token="token"), timeout_s=5)  # noqa: S106

    def app(self, name: str, kind: str = "Deployment", **more: Any) -> AskedItem:  # noqa: ANN401
        self.api.registry.create(f"{kind.lower()}s", manifest(kind, name, memory=4))
        uid = self.api.registry.get("namespaces", "", "kube-system")["metadata"]["uid"]
        item = AppLimitsItem(
            cluster=uid, namespace="default", app=name, container="main", memory_units=4, core=1, rev=1, **more
        )
        return AskedItem(name=item_name(item), key=TryKey(1, "00", 0), item=item)

    def write_back(self, name: str, memory: int = 1, resource: str = "deployments") -> None:
        limits = {"baidu.com/vcuda-memory": str(memory), "baidu.com/vcuda-core": "1"}
        spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        self.api.registry.patch_strategic(resource, "default", name, {"spec": {"template": {"spec": spec}}})

    def calls(self, *resources: str) -> list[tuple[str, str]]:
        return [(one.verb, one.resource) for one in list(self.api.calls) if one.resource in resources]


WORKLOADS = ("deployments", "statefulsets", "daemonsets", "pods")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.api.stop()


def drifted(told: tuple[str, Any]) -> str:
    name, conditions = told
    return name if [one.type for one in conditions] == ["Drifted"] else ""


def settle(looks: Looks, *asked: AskedItem) -> None:
    """Let the items be settled, and wait until their watches stand and nothing more is asked."""
    looks.settled(*asked)
    for _ in range(2):  # first, and once the watches stand
        assert {looks.hear() for _ in asked} == {(one.name, ()) for one in asked}


def test_drift_is_seen_by_its_event_and_nothing_is_asked_while_nothing_happens(box: Box) -> None:
    asked = [box.app(f"app-{at}") for at in range(4)] + [box.app("set", "StatefulSet")]
    with Looks(box.client(), box.root, look_s=3600) as looks:
        settle(looks, *asked)
        assert len([one for one in box.calls(*WORKLOADS) if one[0] == "get"]) == 2 * 3 * len(asked)
        before = len(box.calls(*WORKLOADS))
        box.api.registry.patch("deployments", "default", "app-1", {"status": {"readyReplicas": 1}}, sub="status")
        began = time.monotonic()
        box.write_back("app-2")
        assert drifted(looks.hear()) == asked[2].name
        assert time.monotonic() - began < 2
        assert [one for one in box.calls(*WORKLOADS)[before:] if one[0] == "get"] == [
            ("get", "deployments"),
            ("get", "statefulsets"),
            ("get", "daemonsets"),
        ]
        assert box.calls("deployments").count(("watch", "deployments")) == 1, "one serves all apps of a kind"
        box.api.registry.delete("statefulsets", "default", "set")
        name, [condition] = looks.hear()
        assert (name, condition.type) == (asked[4].name, "Missing")
        box.api.registry.create("daemonsets", manifest("DaemonSet", "set", memory=4))
        while (told := looks.hear()) != (asked[4].name, ()):  # what takes its name is seen, of whatever kind it is
            assert told[1][0].type == "Missing"


def test_a_pod_that_waited_is_seen_to_have_its_card(box: Box) -> None:
    asked = box.app("asr")
    template = manifest("Deployment", "asr", memory=4)["spec"]["template"]
    owner = {"kind": "ReplicaSet", "name": "asr-1", "controller": True}
    pod = {"metadata": {"name": "asr-1-x", "labels": template["metadata"]["labels"], "ownerReferences": [owner]}}
    box.api.registry.create("pods", pod | {"spec": template["spec"]})
    with Looks(box.client(), box.root, look_s=3600) as looks:
        looks.settled(asked, state=State.PENDING)
        assert looks.hear() == (asked.name, ())
        while ("watch", "pods") not in box.calls("pods"):
            threading.Event().wait(0.01)
        box.api.registry.bind("default", "asr-1-x", {"target": {"name": "box-1"}})
        while not isinstance(told := looks.hear()[1], Settlement):
            assert told == ()
        assert (told.state, told.text) == (State.APPLIED, "its pods are not ready yet")


def test_limits_that_are_set_again_are_not_set_again_at_once(box: Box) -> None:
    asked = box.app("asr", on_drift=OnDrift.ENFORCE, force=True)
    with Looks(box.client(), box.root, look_s=1.0) as looks:
        settle(looks, asked)
        for times in ("once", "twice"):
            began = time.monotonic()
            box.write_back("asr")
            name, [condition] = looks.hear()
            assert (name, condition.text.rpartition(" ")[2]) == (asked.name, times)
        assert time.monotonic() - began > 0.5


@pytest.mark.parametrize("forgets", [False, True])
def test_the_api_server_goes_and_comes_back(box: Box, *, forgets: bool) -> None:
    asked = box.app("asr")
    with Looks(box.client(), box.root, look_s=3600) as looks:
        settle(looks, asked)
        lists = box.calls("deployments").count(("list", "deployments"))
        box.api.stop()
        box.api.registry.is_up = True
        box.write_back("asr")
        if forgets:
            box.api.registry.store.forget()
        box.api.start()
        assert drifted(looks.hear()) == asked.name
        assert box.calls("deployments").count(("list", "deployments")) - lists == int(forgets), "else it goes on"


@pytest.mark.parametrize("away", [False, True])
def test_a_cluster_that_is_not_known_when_the_lease_is_taken_is_known_soon(box: Box, *, away: bool) -> None:
    """Away: k3s has been gone for so long that nobody asks it often any more."""
    may, comes, since = threading.Event(), threading.Event(), list[float]()
    box.api.settings.allow = lambda _user, route: (
        may.is_set() if route.resource == "namespaces" else not away or comes.is_set() or route.resource != "leases"
    )

    def starts() -> None:  # nothing but time passes between the last refusal and this
        if away:
            threading.Event().wait(4.5)  # asked after 1 and 3 s, then after 7
            comes.set()
        while ("create", "leases") not in box.calls("leases"):
            threading.Event().wait(0.01)
        threading.Event().wait(1.0)
        may.set()
        since.append(time.monotonic())

    thread = threading.Thread(target=starts)
    thread.start()
    with Looks(box.client(), box.root, look_s=3600) as looks:
        took_s = time.monotonic() - since[0]
        assert took_s < 8, "it was asked 15 s later"
        assert looks.part.cluster().uid == box.api.registry.get("namespaces", "", "kube-system")["metadata"]["uid"]
    thread.join()


def test_an_account_that_may_not_watch_is_said_and_its_items_are_looked_at(box: Box) -> None:
    box.api.settings.allow = lambda _user, route: route.verb != "watch"
    asked = box.app("asr")
    with Looks(box.client(), box.root, look_s=0.05) as looks:
        looks.settled(asked)
        assert looks.hear() == (asked.name, ())
        while "run `edgegpu install`" not in looks.part.trouble:
            looks.hear()
        box.write_back("asr")
        while not drifted(looks.hear()):
            pass
        box.api.settings.allow = lambda _user, _route: True
        while looks.part.trouble:
            looks.hear()


def test_a_lease_that_is_ours_is_renewed_without_being_read(box: Box) -> None:
    leases = Leases(box.client(), namespace=NAMESPACE, name=NAME, duration_s=DURATION_S)
    keeper, other = (LeaseKeeper(leases, me=name) for name in ("box-1", "box-2"))
    for _ in range(3):
        keeper.look()
    assert [verb for verb, _ in box.calls("leases")] == ["get", "create", "update", "update"]
    other.look()
    assert (other.holds(), keeper.holds()) == (False, True)
    box.api.registry.patch("leases", NAMESPACE, NAME, {"spec": {"holderIdentity": "box-2"}})
    keeper.look()
    assert (keeper.holds(), keeper.holder) == (False, "box-2")
