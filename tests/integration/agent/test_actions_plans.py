"""What the installer plans where the agent stays, or comes alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.previewkit import machine_of, never, release, report_of, server_box
from kits.facts import FakeBox

from edgegpu_installer.changes import Plan, TransactionKind
from edgegpu_installer.errors import InstallError
from edgegpu_installer.install import Installation
from edgegpu_installer.layout import AGENT_UNIT, CURRENT, PLUGIN_UNIT, PLUGIN_YAML, RECOVER, UNITS, unit_drop_in
from edgegpu_installer.plan.precheck import precheck, refused
from edgegpu_installer.plan.site import InstallOptions, site_of
from edgegpu_installer.transaction.farewell import UNIT
from edgegpu_installer.uninstall import Uninstallation

SCHEDULER = "/etc/rancher/k3s/edgegpu-scheduler.yaml"
PLUGIN, AGENT = f"{UNITS}/{PLUGIN_UNIT}", f"{UNITS}/{AGENT_UNIT}"


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    return server_box(tmp_path / "box")


def installed(box: FakeBox) -> None:
    """Leave what an installation leaves in the baseline, and the plugin's unit."""
    box.write(PLUGIN, "")
    paths = {
        RECOVER: "e",
        unit_drop_in("k3s"): "e",
        CURRENT: "-",
        AGENT: "-",
        PLUGIN_YAML: "-",
        PLUGIN: "-",
        SCHEDULER: "k",
    }
    rows = [f"{number} {flags} - {path}\n" for number, (path, flags) in enumerate(paths.items(), 1)]
    box.write("/var/lib/edgegpu/baseline/000001.a/index", "0 - d /etc/edgegpu\n" + "".join(rows))


def withdrawal(box: FakeBox) -> Plan:
    site = site_of(box.facts())
    made = Uninstallation(site=site, release=release(), machine=machine_of(box), verifier=never, keep_agent=True)
    return made.preview().plan


def test_sharing_goes_alone(box: FakeBox) -> None:
    installed(box)
    plan = withdrawal(box)
    assert plan.op is TransactionKind.WITHDRAW
    assert (plan.stop, plan.start, plan.restart) == ((PLUGIN_UNIT,), (UNIT,), "k3s")
    removed = {change.path for change in plan.files if change.absent}
    assert removed == {PLUGIN, SCHEDULER}
    (conf,) = (change.content for change in plan.files if change.path.endswith("farewell.conf"))
    assert b"FOLDERS=''\n" in (conf or b"")


def test_where_sharing_is_gone_nothing_is_planned(box: FakeBox) -> None:
    assert withdrawal(box).files == ()


def test_the_agent_comes_alone(box: FakeBox) -> None:
    plan = report_of(box, InstallOptions(agent_only=True)).plan
    assert (plan.op, plan.start, plan.restart) == (TransactionKind.INSTALL, (AGENT_UNIT,), None)
    assert not any(change.k3s_reads for change in plan.files)
    paths = {change.path for change in plan.files}
    assert AGENT in paths
    assert not paths & {PLUGIN, SCHEDULER, PLUGIN_YAML}


def test_the_agent_alone_is_refused_where_sharing_is(box: FakeBox) -> None:
    installed(box)
    site = site_of(box.facts())
    made = Installation(
        site=site, options=InstallOptions(agent_only=True), release=release(), machine=machine_of(box), verifier=never
    )
    with pytest.raises(InstallError, match="GPU sharing is installed"):
        made.run()


def test_for_the_agent_alone_k3s_need_not_be_well(tmp_path: Path) -> None:
    bare = FakeBox(tmp_path / "bare")
    found = bare.facts()
    assert any("no k3s" in one.what for one in refused(precheck(found, InstallOptions())))
    assert not any("no k3s" in one.what for one in refused(precheck(found, InstallOptions(agent_only=True))))
