"""While a change lets k3s run without the extender beside the plugin, a node offers no more than its pods hold."""

from dataclasses import replace
from pathlib import Path

import pytest
from contract.bed import EmbeddedBed, phase, pod
from contract.test_plugin import offered, runs, share, told
from integration.clusterkit import Api, api

from edgegpu_agent.cli.clients.plugin import fetch_status
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import REPORT_ANNOTATION
from edgegpu_installer.changes import LEAVING, Deadline, TransactionKind
from edgegpu_installer.layout import AGENT_UNIT, PLUGIN_UNIT
from edgegpu_installer.transaction.journal import TransactionJournal, TransactionRecord, TransactionTables
from edgegpu_installer.transaction.share_drain import drain
from edgegpu_installer.transaction.states import TERMINAL, TransactionState
from edgegpu_plugin.records import sharing_change
from edgegpu_plugin.records.cluster_check import UNKNOWN

__all__ = ["api"]

MODEL = ResourceModel()


def test_the_plugin_and_the_installer_name_the_same_ops_and_states() -> None:
    assert {op.value for op in LEAVING} == sharing_change.LEAVING
    assert {TransactionKind.INSTALL.value, TransactionKind.UPGRADE.value} == sharing_change.COMING
    assert sharing_change.PLUGIN_UNIT == PLUGIN_UNIT
    assert TransactionKind.CHANGE.value == sharing_change.CHANGE
    ended = TERMINAL | {TransactionState.INCONSISTENT}
    assert {state.value for state in TransactionState if state not in ended} == sharing_change.UNDER_WAY


def test_only_what_pods_hold_is_offered_until_the_change_has_ended(bed: EmbeddedBed) -> None:
    bed.apply(pod("runs", share(20, 7)))
    runs(bed, "runs")
    journal = bed.cluster.nodes["box"].folder / "state/tx"
    journal.mkdir()
    (journal / "state").write_text("id=1\nop=uninstall\nstate=PREPARED\n")
    bed.wait(lambda: amounts(bed) == ("20", "7"), what="20 units and 7 hundredths", timeout_s=20)
    bed.apply(pod("waits", share(5)))
    told(bed, "waits", "Insufficient baidu.com/vcuda-memory")
    bed.kill_plugin("box")
    bed.restart_kubelet("box")
    bed.start_plugin("box")
    bed.wait(lambda: amounts(bed) == ("20", "7"), what="no more after a start either", timeout_s=20)
    (journal / "state").write_text("id=1\nop=uninstall\nstate=ROLLED_BACK\n")
    runs(bed, "waits")
    offered(bed)


def amounts(bed: EmbeddedBed) -> tuple[str, str]:
    found = (bed.get("Node", "box") or {})["status"]["allocatable"]
    return found["baidu.com/vcuda-memory"], found["baidu.com/vcuda-core"]


def test_a_plugin_that_an_installation_starts_offers_no_more_than_pods_hold_until_k3s_restarts(
    bed: EmbeddedBed,
) -> None:
    bed.apply(pod("runs", share(20, 7)))
    runs(bed, "runs")
    bed.kill_plugin("box")
    box = bed.cluster.nodes["box"]
    state, said_before = box.folder / "state", len(box.log_path.read_text())
    (state / "inventory.json").unlink()  # an uninstall has removed it
    (state / "tx").mkdir()
    (state / "tx/units").write_text(f"inactive {PLUGIN_UNIT}\n")
    (state / "tx/state").write_text("id=1\nop=install\nstate=SWAPPED\nrestart=1\nunit=k3s\ninvocation=a\n")
    bed.wait(lambda: amounts(bed)[0] == "0", what="nothing without the plugin", timeout_s=20)
    seen = set[str]()

    def held() -> bool:
        seen.add(amounts(bed)[0])
        return "20" in seen

    bed.start_plugin("box")
    bed.wait(held, what="20 units", timeout_s=20)
    assert seen <= {"0", "20"}
    words = box.log_path.read_text()[said_before:]
    assert words.index("offering only what pods hold") < words.index("offering card 0")  # kubelet saw no free device
    (state / "tx/state").write_text("id=1\nop=install\nstate=VERIFYING\nrestart=1\nunit=k3s\ninvocation=a\n")
    bed.restart_kubelet("box")
    offered(bed)


REGISTERED = "registered with kubelet"


def test_a_kubelet_that_begins_anew_gets_no_free_device_until_the_api_server_takes_the_account(
    bed: EmbeddedBed,
) -> None:
    """So it is when k3s was removed and installed again: no extender in its scheduler, another cluster's accounts."""
    box, api = bed.cluster.nodes["box"], bed.cluster.api
    accounts, said_before = api.settings.tokens, log_length(bed)
    api.stop()
    box.kubelet.stop()
    (bed.devices_folder("box") / "kubelet_internal_checkpoint").unlink()
    api.settings.tokens = {token: user for token, user in accounts.items() if user != "plugin:box"}
    api.start()
    box.kubelet.start()

    def words() -> str:
        return box.log_path.read_text()[said_before:]

    bed.wait(lambda: REGISTERED in words(), what="the plugin has registered", timeout_s=20)
    assert words().index("offering nothing") < words().index(REGISTERED)
    bed.apply(pod("waits", share(5)))
    told(bed, "waits", "Insufficient baidu.com/vcuda-memory")
    bed.kill_plugin("box")
    said_before = len(box.log_path.read_text())
    bed.start_plugin("box")
    bed.wait(lambda: REGISTERED in words(), what="the next process has registered", timeout_s=20)
    assert words().index("offering nothing") < words().index(REGISTERED)
    assert amounts(bed) == ("0", "0")
    assert phase(bed, "waits") == "Pending"
    journal = box.folder / "state/tx/state"
    journal.parent.mkdir()
    journal.write_text("id=1\nop=change\nstate=SWAPPED\nrestart=1\nunit=k3s\ninvocation=a\n")
    assert api_problem(bed) == UNKNOWN
    bed.cluster.apply({"kind": "Node", "metadata": {"name": "box", "annotations": {REPORT_ANNOTATION: None}}})
    api.settings.tokens = accounts  # as `edgegpu install` does, before it restarts k3s
    bed.wait(
        lambda: REPORT_ANNOTATION in annotations(bed), what="the node's report, which follows each look", timeout_s=20
    )
    assert api_problem(bed) == UNKNOWN
    assert amounts(bed) == ("0", "0")
    journal.write_text("id=1\nop=change\nstate=COMMITTED\n")
    runs(bed, "waits")
    offered(bed)


def test_a_kubelet_that_begins_anew_gets_nothing_of_what_pods_of_the_old_cluster_held(bed: EmbeddedBed) -> None:
    bed.apply(pod("runs", share(20, 7)))
    runs(bed, "runs")
    box, api = bed.cluster.nodes["box"], bed.cluster.api
    said_before = log_length(bed)
    api.stop()
    box.kubelet.stop()
    (bed.devices_folder("box") / "kubelet_internal_checkpoint").unlink()
    api.settings.tokens = {token: user for token, user in api.settings.tokens.items() if user != "plugin:box"}
    api.start()
    bed.delete("Pod", "runs", grace_s=0)
    box.kubelet.start()
    bed.wait(lambda: REGISTERED in box.log_path.read_text()[said_before:], what="it has registered", timeout_s=20)
    bed.apply(pod("waits", share(5)))
    told(bed, "waits", "Insufficient baidu.com/vcuda-memory")
    assert amounts(bed) == ("0", "0")


def log_length(bed: EmbeddedBed) -> int:
    """Return the length of the plugin's log after its first registration, which the node's devices may precede."""
    path = bed.cluster.nodes["box"].log_path
    bed.wait(lambda: REGISTERED in path.read_text(), what="the first registration", timeout_s=20)
    return len(path.read_text())


def annotations(bed: EmbeddedBed) -> dict[str, str]:
    return (bed.get("Node", "box") or {})["metadata"].get("annotations") or {}


def api_problem(bed: EmbeddedBed) -> str:
    return fetch_status(bed.cluster.nodes["box"].run_folder / "plugin.sock").api_problem


RECORD = TransactionRecord(
    id="1",
    op=TransactionKind.INSTALL,
    state=TransactionState.VERIFYING,
    restart=True,
    unit="k3s",  # as the plan of an installation names it; systemd's link has the whole name
    invocation="aa",
)


@pytest.mark.parametrize(
    ("record", "start", "extender"),
    [
        (RECORD, "aa", "missing"),
        (RECORD, "bb", "there"),
        (RECORD, "", "there"),
        (replace(RECORD, unit="k3s.service"), "aa", "missing"),
        (replace(RECORD, state=TransactionState.RESTARTING), "aa", "missing"),
        (replace(RECORD, state=TransactionState.RESTARTING), "bb", "there"),
        (replace(RECORD, state=TransactionState.SWAPPED), "aa", "missing"),
        (replace(RECORD, state=TransactionState.SWAPPED), "", "missing"),
        (replace(RECORD, state=TransactionState.SWAPPED, restart=False), "aa", "there"),
        (replace(RECORD, state=TransactionState.ROLLING_BACK), "bb", "missing"),
        (replace(RECORD, state=TransactionState.COMMITTED), "aa", "there"),
        (replace(RECORD, state=TransactionState.ROLLED_BACK), "aa", "there"),
        (replace(RECORD, op=TransactionKind.CHANGE, state=TransactionState.SWAPPED), "aa", "there"),
        (replace(RECORD, op=TransactionKind.UNINSTALL), "bb", "missing"),
        (replace(RECORD, op=TransactionKind.UNINSTALL, restart=False), "aa", "missing"),
    ],
)
def test_an_installation_brings_the_extender_with_another_start_of_k3s(
    tmp_path: Path, record: TransactionRecord, start: str, extender: str
) -> None:
    change = written(tmp_path, record, start=start, plugin_ran=False)
    assert change.is_without_extender() is (extender == "missing")


@pytest.mark.parametrize("op", [TransactionKind.INSTALL, TransactionKind.UPGRADE])
@pytest.mark.parametrize("state", [TransactionState.SWAPPED, TransactionState.RESTARTING])
def test_sharing_comes_where_the_plugin_did_not_run_and_by_an_upgrade_too(
    tmp_path: Path, op: TransactionKind, state: TransactionState
) -> None:
    """An upgrade of a machine that has the agent alone starts the plugin as an installation does."""
    for plugin_ran in (False, True):
        folder = tmp_path / str(plugin_ran)
        change = written(folder, replace(RECORD, op=op, state=state), start="aa", plugin_ran=plugin_ran)
        assert change.is_without_extender() is not plugin_ran


@pytest.mark.parametrize("op", [TransactionKind.INSTALL, TransactionKind.UPGRADE, TransactionKind.CHANGE])
def test_a_change_of_a_machine_brings_the_extender_to_a_k3s_that_is_new(tmp_path: Path, op: TransactionKind) -> None:
    for name, start, restart in (("before", "aa", True), ("after", "bb", True), ("none", "aa", False)):
        change = written(tmp_path / name, replace(RECORD, op=op, restart=restart), start=start, plugin_ran=True)
        assert change.brings_extender() is (name == "before")
        assert not change.is_without_extender()
    ended = replace(RECORD, op=op, state=TransactionState.COMMITTED)
    assert not written(tmp_path / "ended", ended, start="aa", plugin_ran=True).brings_extender()


def written(folder: Path, record: TransactionRecord, *, start: str, plugin_ran: bool) -> sharing_change.SharingChange:
    """Let the installer write its journal, and systemd the present start of k3s; returns the plugin's reader."""
    journal, units = TransactionJournal(folder / "tx"), folder / "run/systemd/units"
    journal.begin(record.id, TransactionTables((), (), (), ((PLUGIN_UNIT, plugin_ran), (AGENT_UNIT, True))))
    journal.write(record)
    units.mkdir(parents=True)
    if start:
        (units / "invocation:k3s.service").symlink_to(start)
    return sharing_change.SharingChange(folder, run=folder / "run")


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
