"""An uninstall does not take the plugin from under pods that use shares, unless somebody says that it may."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.clusterkit import Api, api, write_admin
from integration.previewkit import machine_of, never, release, server_box

from edgegpu_core.model import ResourceModel
from edgegpu_installer.layout import PLUGIN_UNIT, UNITS
from edgegpu_installer.plan.site import site_of
from edgegpu_installer.uninstall import InUseError, Uninstallation

if TYPE_CHECKING:
    from kits.facts import FakeBox

__all__ = ["api"]

MODEL = ResourceModel()
PLUGIN = f"{UNITS}/{PLUGIN_UNIT}"


@pytest.fixture
def box(tmp_path: Path, api: Api) -> FakeBox:
    made = server_box(tmp_path / "box")
    made.write(PLUGIN, "")
    made.write("/var/lib/edgegpu/baseline/000001.a/index", f"1 - - {PLUGIN}\n")
    made.k3s("agent")  # there is no lease to take on it
    kubeconfig = made.layout.at(site_of(made.facts()).kubelet_kubeconfig)
    kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    write_admin(kubeconfig, api)
    api.registry.create("nodes", {"metadata": {"name": site_of(made.facts()).node_name}})
    return made


def pod(api: Api, node: str, *, memory: str = "4", phase: str = "Running") -> None:
    limits = {MODEL.memory_resource: memory, MODEL.core_resource: "10"}
    spec = {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]}
    made = {"metadata": {"name": "asr", "namespace": "default"}, "spec": spec, "status": {"phase": phase}}
    if api.registry.store.get(("namespaces", "", "default")) is None:
        api.registry.create("namespaces", {"metadata": {"name": "default"}})
    api.registry.create("pods", made)


def removal(box: FakeBox, *, keep_agent: bool = False, force: bool = False) -> Uninstallation:
    return Uninstallation(
        site=site_of(box.facts()),
        release=release(),
        machine=machine_of(box),
        verifier=never,
        agreed=True,
        force=force,
        keep_agent=keep_agent,
    )


@pytest.mark.parametrize("keep_agent", [False, True])
def test_while_a_pod_uses_a_share_nothing_is_changed(box: FakeBox, api: Api, *, keep_agent: bool) -> None:
    pod(api, site_of(box.facts()).node_name)
    with pytest.raises(InUseError) as refused:
        removal(box, keep_agent=keep_agent).run()
    assert "default/asr" in f"{refused.value.message} {refused.value.remedy}"
    assert box.layout.at(PLUGIN).exists()
    assert not box.layout.tx.exists()


def test_said_so_it_goes_on(box: FakeBox, api: Api) -> None:
    pod(api, site_of(box.facts()).node_name)
    with pytest.raises(AssertionError, match="verifies nothing"):  # so far it came
        removal(box, force=True).run()


def test_pods_of_another_node_are_none_of_its_business(box: FakeBox, api: Api) -> None:
    pod(api, "far")
    with pytest.raises(AssertionError, match="verifies nothing"):
        removal(box).run()
