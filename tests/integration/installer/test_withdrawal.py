"""While sharing is being taken off, a node offers no more than its pods hold."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.bed import EmbeddedBed, pod
from contract.test_plugin import offered, runs, share, told
from integration.clusterkit import Api, api

from edgegpu_core.model import ResourceModel
from edgegpu_installer.changes import LEAVING, Deadline
from edgegpu_installer.transaction.share_drain import drain
from edgegpu_installer.transaction.states import TERMINAL, TransactionState
from edgegpu_plugin.records import withdrawal
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import make_card
from edgegpu_sim.node import NodeSpec

__all__ = ["api"]

MODEL = ResourceModel()


@pytest.fixture
def bed(simdriver_build: Path) -> Iterator[EmbeddedBed]:
    assert simdriver_build.is_dir()
    cards = [make_card(index, "Tesla T4", 7611) for index in range(2)]
    with EmbeddedCluster([NodeSpec(name="box", cards=cards)]) as cluster:
        cluster.start_plugin("box")
        made = EmbeddedBed(cluster)
        offered(made)
        yield made


def test_the_plugin_and_the_installer_name_the_same_ops_and_states() -> None:
    assert {op.value for op in LEAVING} == withdrawal.LEAVING
    ended = TERMINAL | {TransactionState.INCONSISTENT}
    assert {state.value for state in TransactionState if state not in ended} == withdrawal.UNDER_WAY


def test_only_what_pods_hold_is_offered_until_the_change_has_ended(bed: EmbeddedBed) -> None:
    bed.apply(pod("runs", share(20, 7)))
    runs(bed, "runs")
    journal = bed.cluster.nodes["box"].folder / "state/tx"
    journal.mkdir()
    (journal / "state").write_text("id=1\nop=uninstall\nstate=PREPARED\n")

    def amounts() -> tuple[str, str]:
        found = (bed.get("Node", "box") or {})["status"]["allocatable"]
        return found["baidu.com/vcuda-memory"], found["baidu.com/vcuda-core"]

    bed.wait(lambda: amounts() == ("20", "7"), what="20 units and 7 hundredths", timeout_s=20)
    bed.apply(pod("waits", share(5)))
    told(bed, "waits", "Insufficient baidu.com/vcuda-memory")
    bed.kill_plugin("box")
    bed.restart_kubelet("box")
    bed.start_plugin("box")
    bed.wait(lambda: amounts() == ("20", "7"), what="no more after a start either", timeout_s=20)
    (journal / "state").write_text("id=1\nop=uninstall\nstate=ROLLED_BACK\n")
    runs(bed, "waits")
    offered(bed)


def node(api: Api, units: int) -> None:
    amounts = {MODEL.memory_resource: str(units), MODEL.core_resource: "200"}
    api.registry.create("nodes", {"metadata": {"name": "box"}, "status": {"allocatable": amounts}})
    api.registry.create("namespaces", {"metadata": {"name": "default"}})
    limits = {"limits": {MODEL.memory_resource: "20", MODEL.core_resource: "1"}}
    spec = {"nodeName": "box", "containers": [{"name": "m", "resources": limits}]}
    api.registry.create("pods", {"metadata": {"name": "runs", "namespace": "default"}, "spec": spec})


def drained(api: Api, *, looks: int = 3) -> list[str]:
    """Wait, on a clock that moves with each look; returns what was said."""
    now, said = [0.0], list[str]()

    def pause(_: float) -> None:
        now[0] += 1

    deadline = Deadline(looks, lambda: now[0])
    with api.cluster() as cluster:
        drain(cluster, MODEL, node="box", deadline=deadline, say=said.append, pause=pause)
    return said


def test_it_goes_on_at_once_where_nothing_is_free(api: Api) -> None:
    node(api, 20)
    assert drained(api) == ["waiting until box offers no more than its pods hold"]


def test_it_goes_on_and_says_so_where_something_stays_free(api: Api) -> None:
    node(api, 58)
    assert "38 units are still offered" in drained(api)[-1]
