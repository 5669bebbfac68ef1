"""Dry runs of whole installations and uninstalls in a root of their own, whose cluster does not answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from factskit import FakeBox
from schedulerkit import KUBECONFIG

from edgegpu_installer.changes import Plan
from edgegpu_installer.install import Installation, Report
from edgegpu_installer.layout import AGENT_UNIT, LIB, PLUGIN_UNIT
from edgegpu_installer.preparing import Machine
from edgegpu_installer.rbac import Rights
from edgegpu_installer.recovery import Recovery
from edgegpu_installer.release import Release
from edgegpu_installer.site import Options
from edgegpu_installer.siteread import site_of
from edgegpu_installer.systemd import Systemd
from edgegpu_installer.transaction import Verify
from edgegpu_installer.uninstall import Removal, Uninstallation


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    made = FakeBox(tmp_path / "box")
    made.k3s()
    made.gpu()
    made.write("/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig", yaml.safe_dump(KUBECONFIG))
    return made


def release() -> Release:
    return Release(
        version="1.2.3",
        folder=Path("/opt/edgegpu/1.2.3"),
        plugin_unit=PLUGIN_UNIT.encode(),
        agent_unit=AGENT_UNIT.encode(),
        farewell=b"",
        farewell_unit=b"",
        rights=Rights((), "edgegpu"),
        recovery=Recovery.of_version(Path("/opt/edgegpu/1.2.3")),
    )


def never(_offers: bool) -> Verify:  # noqa: FBT001  (the installer's type)
    raise AssertionError("a dry run verifies nothing")


def machine_of(box: FakeBox) -> Machine:
    system = Systemd({"PATH": f"{box.bin}:{os.environ['PATH']}"})
    return Machine(layout=box.layout, system=system, recovery=release().recovery, say=lambda _: None)


def removal_of(box: FakeBox) -> Removal:
    site = site_of(box.facts())
    return Uninstallation(site=site, release=release(), machine=machine_of(box), verifier=never).preview()


def report_of(box: FakeBox, options: Options) -> Report:
    site = site_of(box.facts())
    made = Installation(site=site, options=options, release=release(), machine=machine_of(box), verifier=never)
    return made.preview()


def conf_of(plan: Plan) -> str:
    (content,) = (change.content for change in plan.files if change.path == f"{LIB}/farewell.conf")
    return (content or b"").decode()


def test_the_farewell_cleans_up_where_plugin_yaml_says(box: FakeBox) -> None:
    settings = {"driver": {"cdi_folder": "/etc/cdi"}, "paths": {"run": "/run/edgegpu-2"}}
    box.write("/etc/edgegpu/plugin.yaml", yaml.safe_dump(settings))
    box.write("/var/lib/edgegpu/baseline/000001.a/index", "0 - d /etc/edgegpu\n0 - d /etc/edgegpu/extender\n")
    conf = conf_of(removal_of(box).plan)
    assert "CDI_SPEC=/etc/cdi/edgegpu.json\nRUN_FOLDER=/run/edgegpu-2\n" in conf
    assert "FOLDERS='/etc/edgegpu/extender /etc/edgegpu'\n" in conf


def test_a_run_folder_that_is_not_ours_alone_is_never_removed(box: FakeBox) -> None:
    box.write("/etc/edgegpu/plugin.yaml", yaml.safe_dump({"paths": {"run": "/run"}}))
    assert "RUN_FOLDER=/run/edgegpu\n" in conf_of(removal_of(box).plan)


def test_a_cluster_that_cannot_be_read_is_said_and_no_error(box: FakeBox) -> None:
    assert removal_of(box).foreseen.unseen


def test_an_installation_names_the_nodes_that_it_would_mark(box: FakeBox) -> None:
    own = report_of(box, Options()).foreseen
    assert [(mark.node, mark.name) for mark in own.marks] == [
        ("edge-1", "edgegpu.io/gpu"),
        ("edge-1", "edgegpu.io/extender"),
    ]
    named = report_of(box, Options(nodes=("far",))).foreseen
    assert [mark.node for mark in named.marks] == ["far", "edge-1"]


def test_an_agent_node_has_nothing_to_do_in_the_cluster(box: FakeBox) -> None:
    box.k3s("agent")
    assert report_of(box, Options()).foreseen.marks == ()
