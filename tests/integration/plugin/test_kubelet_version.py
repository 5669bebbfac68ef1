"""Where kubelet's version is kept, by which cards come into containers before an API server answers."""

from pathlib import Path

from integration.kube_stub import KubeStub

from edgegpu_base.kube import KubeClient
from edgegpu_core.injection import NodeVersions
from edgegpu_plugin.config.schema import Driver, KubeletSection, Paths, PluginConfig
from edgegpu_plugin.node import NodePart

VERSIONS = NodeVersions("v1.37.2", "containerd://2.4.2")


def test_a_version_that_an_allocation_learned_first_is_kept_as_well(tmp_path: Path) -> None:
    config = PluginConfig(
        version=1,
        node_name="n",
        paths=Paths(state=tmp_path / "state", run=tmp_path / "run"),
        kubelet=KubeletSection(folder=tmp_path / "kubelet", device_plugins=tmp_path / "kubelet/device-plugins"),
        driver=Driver(root=tmp_path, cdi_folder=tmp_path / "cdi", containerd_config=tmp_path / "none"),
    )
    info = {"kubeletVersion": VERSIONS.kubelet, "containerRuntimeVersion": VERSIONS.runtime}
    with KubeStub() as stub:
        stub.add_node({"metadata": {"name": "n"}, "status": {"nodeInfo": info}})
        client = KubeClient(stub.access, timeout_s=5)
        part = NodePart(config, client, beat=lambda: None, proc=tmp_path)
        assert part.injector.allocation(["GPU-0"])
        assert part.injector.versions == VERSIONS
        part.publisher.publish(part.state.snapshot())
        assert (tmp_path / "state/kubelet-version").read_text() == "v1.37.2 containerd://2.4.2\n"
        again = NodePart(config, client, beat=lambda: None, proc=tmp_path)
        assert again.injector.versions == VERSIONS
        client.close()
