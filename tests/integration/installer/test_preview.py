"""Dry runs of whole installations and uninstalls in a root of their own, whose cluster does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from integration.previewkit import machine_of, never, release, report_of, server_box
from kits.facts import FakeBox

from edgegpu_installer.changes import Plan
from edgegpu_installer.layout import LIB
from edgegpu_installer.plan.site import InstallOptions, site_of
from edgegpu_installer.uninstall import Uninstallation, UninstallResult


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    return server_box(tmp_path / "box")


def removal_of(box: FakeBox) -> UninstallResult:
    site = site_of(box.facts())
    return Uninstallation(site=site, release=release(), machine=machine_of(box), verifier=never).preview()


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
    assert removal_of(box).cluster_changes.unseen


def test_an_installation_names_the_nodes_that_it_would_mark(box: FakeBox) -> None:
    own = report_of(box, InstallOptions()).cluster_changes
    assert [(mark.node, mark.name) for mark in own.marks] == [
        ("edge-1", "edgegpu.io/gpu"),
        ("edge-1", "edgegpu.io/extender"),
    ]
    named = report_of(box, InstallOptions(nodes=("far",))).cluster_changes
    assert [mark.node for mark in named.marks] == ["far", "edge-1"]


def test_an_agent_node_has_nothing_to_do_in_the_cluster(box: FakeBox) -> None:
    box.k3s("agent")
    assert report_of(box, InstallOptions()).cluster_changes.marks == ()
