"""Which way cards go into containers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kits.runtime import container_runtime

from edgegpu_base.containerd import CONTAINERD_SOCKET, K3S_SOCKET, socket_of
from edgegpu_base.errors import EdgegpuError
from edgegpu_core.injection import Injection, InjectionChoice, NodeVersions
from edgegpu_plugin.containers.runtime import choose
from edgegpu_plugin.errors import PluginError

CDI_FOLDER = Path("/var/run/cdi")
V3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"
V4 = V3.replace("3", "4", 1)
V2 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
NVIDIA = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia"]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia".options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def auto(
    config: Path, *, kubelet: str = "v1.33.13+k3s1", runtime: str = "", cdi_folder: Path = CDI_FOLDER
) -> InjectionChoice:
    versions = NodeVersions(kubelet, runtime)
    return choose(
        Injection.AUTO,
        cdi_folder=cdi_folder,
        versions=versions,
        configs=[config.with_name("none"), config],
        root=config.parent,
    )


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (V3, Injection.CDI),
        (V3 + "enable_cdi = true\n", Injection.CDI),
        (V2 + "enable_cdi = true\n", Injection.CDI),
        (V2 + "enable_cdi = true\n" + NVIDIA, Injection.CDI),
        (V2 + NVIDIA, Injection.RUNTIME),
        (V2 + "enable_cdi = false\n" + NVIDIA, Injection.RUNTIME),
    ],
)
def test_cdi_where_containerd_has_it(config: Path, text: str, mode: Injection) -> None:
    config.write_text(text)
    choice = auto(config)
    assert choice.mode is mode
    assert str(config) in choice.why


def test_an_import_is_named_by_the_rules_of_go(config: Path) -> None:
    config.write_text("imports = ['conf.d/**.toml']\n" + V2)
    (config.parent / "conf.d").mkdir()
    (config.parent / "conf.d/cdi.toml").write_text(V2 + "enable_cdi = true\n")
    assert auto(config).mode is Injection.CDI


def test_an_import_that_names_no_file_is_an_error_with_its_name(config: Path) -> None:
    config.write_text("imports = ['/']\n" + V2)
    with pytest.raises(EdgegpuError, match=f"cannot read the imports '/' of {config}"):
        auto(config)


@pytest.mark.parametrize(
    "text", [V2, V3 + "enable_cdi = false\n", "", "version = 1\n[plugins.cri]\nenable_cdi = true\n"]
)
def test_without_cdi_and_nvidia_runtime_kubelets_own_answer_is_left(config: Path, text: str) -> None:
    config.write_text(text)
    choice = auto(config)
    assert choice.mode is Injection.DEVICES
    assert choice.why.startswith(f"{config} has CDI off; ")


@pytest.mark.parametrize(
    ("kubelet", "mode"),
    [("v1.28.15+k3s1", Injection.RUNTIME), ("v1.29.0", Injection.CDI), ("", Injection.CDI), ("odd", Injection.CDI)],
)
def test_an_old_kubelet_passes_no_cdi_names_on(config: Path, kubelet: str, mode: Injection) -> None:
    config.write_text(V2 + "enable_cdi = true\n" + NVIDIA)
    assert auto(config, kubelet=kubelet).mode is mode


@pytest.mark.parametrize("kubelet", ["v1.20.15+k3s1", "v1.24.17+k3s1", "v1.28.15"])
def test_an_old_kubelet_beside_a_containerd_with_cdi(config: Path, kubelet: str) -> None:
    """It ignores CDI names without a word: the pod would run, and without its card."""
    config.write_text(V2 + "enable_cdi = true\n")
    choice = auto(config, kubelet=kubelet)
    assert choice.mode is Injection.DEVICES
    assert f"kubelet {kubelet} passes no CDI devices on" in choice.cdi_problem


def test_no_configuration_means_cdi_and_says_so(config: Path) -> None:
    choice = auto(config)
    assert choice.mode is Injection.CDI
    assert "no configuration of containerd was found" in choice.why


def test_no_file_of_containerds_says_anything_about_another_runtime(config: Path) -> None:
    config.write_text("not read [")
    choice = auto(config, runtime="cri-o://1.33.2")
    assert (choice.mode, choice.why.partition(" ")[0]) == (Injection.CDI, "cri-o://1.33.2")
    assert auto(config, kubelet="v1.28.2", runtime="cri-o://1.28.2").mode is Injection.DEVICES


@pytest.mark.parametrize("kubelet", ["v1.23.17", "v1.33.4", ""])
def test_docker_passes_no_cdi_names_on(config: Path, kubelet: str) -> None:
    config.write_text(V3 + NVIDIA)
    assert auto(config, kubelet=kubelet, runtime="docker://20.10.7").mode is Injection.DEVICES
    assert auto(config, runtime="docker://28.3.0").cdi_problem == "docker://28.3.0 passes no CDI devices on"


def test_a_spec_folder_that_containerd_does_not_read(config: Path) -> None:
    config.write_text(V3 + 'cdi_spec_dirs = ["/etc/cdi", "/run/cdi/"]\n')
    assert auto(config).mode is Injection.CDI
    choice = auto(config, cdi_folder=Path("/srv/cdi"))
    assert choice.mode is Injection.DEVICES
    assert "reads CDI specs from /etc/cdi, /run/cdi/ and not from /srv/cdi" in choice.why


@pytest.mark.parametrize(
    ("text", "runtime", "mode"),
    [
        (V2, "containerd://1.7.27-k3s1", Injection.DEVICES),
        (V2, "containerd://2.1.9-k3s1", Injection.CDI),
        ("", "containerd://2.1.9-k3s1", Injection.CDI),
        (V3 + "enable_cdi = false\n", "containerd://2.3.7-k3s1", Injection.DEVICES),
        (V3 + "enable_cdi = false\n", "containerd://2.4.2-k3s1", Injection.CDI),
        (V2 + "enable_cdi = false\n", "containerd://2.4.2-k3s1", Injection.CDI),
        (V4, "containerd://2.4.2-k3s1", Injection.CDI),
        (V4 + "enable_cdi = false\n", "containerd://2.3.7-k3s1", Injection.DEVICES),
        (V4 + "enable_cdi = false\n", "", Injection.DEVICES),
        (V3, "cri-o://1.37.0", Injection.CDI),
    ],
)
def test_containerds_version_decides_where_its_file_says_nothing(
    config: Path, text: str, runtime: str, mode: Injection
) -> None:
    config.write_text(text)
    choice = auto(config, runtime=runtime)
    assert choice.mode is mode
    if "2.4" in runtime:
        assert choice.why == f"{runtime} has CDI on always"


@pytest.mark.parametrize(("main", "other"), [(V3, V2), (V2, V3), (V4, V2), (V2, V4), (V4, V3), (V3, V4)])
def test_an_import_counts_by_its_own_version(config: Path, main: str, other: str) -> None:
    config.with_name("other.toml").write_text(other + "enable_cdi = false\n")
    config.write_text("imports = ['other.toml']\n" + main + "enable_cdi = true\n")
    assert auto(config, runtime="containerd://2.3.7-k3s1").mode is Injection.DEVICES


def test_imports_of_imports_count_and_a_ring_ends(config: Path) -> None:
    config.write_text("imports = ['b.toml']\n" + V3)
    config.with_name("b.toml").write_text("imports = ['c.toml', 'config.toml']\n" + V3)
    config.with_name("c.toml").write_text("imports = ['b.toml']\n" + V2 + "enable_cdi = false\n")
    assert auto(config, runtime="containerd://2.1.9").mode is Injection.DEVICES


def test_what_is_imported_counts(config: Path) -> None:
    (config.parent / "conf.d").mkdir()
    (config.parent / "conf.d/10.toml").write_text(V3 + "enable_cdi = false\n")
    config.write_text(f'imports = ["{config.parent}/conf.d/*.toml"]\n' + V3)
    assert "has CDI off" in auto(config).cdi_problem


@pytest.mark.parametrize("wanted", [Injection.CDI, Injection.RUNTIME, Injection.DEVICES])
def test_what_is_asked_for_is_obeyed(config: Path, wanted: Injection) -> None:
    config.write_text("not [toml")
    choice = choose(wanted, cdi_folder=CDI_FOLDER, versions=NodeVersions(), configs=[config], root=config.parent)
    assert choice == InjectionChoice(wanted, "driver.injection says so")


def test_a_broken_configuration_is_told(config: Path) -> None:
    config.write_text("not [toml")
    with pytest.raises(
        PluginError, match=r"cannot read containerd's configuration .*config.toml: .*line 1.*cdi, devices or runtime"
    ):
        auto(config)


def answered(config: Path, information: Mapping[str, str], *, runtime: str = "") -> InjectionChoice:
    """Choose while a containerd answers with this on the socket that its configuration names."""
    with container_runtime(config.with_name("c.sock"), {}, information=information):
        return auto(config, runtime=runtime)


def of_containerd(**answer: object) -> Mapping[str, str]:
    """What CRI's Status has of containerd: its configuration as JSON."""
    table: dict[str, Any] = {"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": {"options": {}}}}}
    return {"config": json.dumps(table | answer), "golang": '"go1.24"'}


ADDRESS = "[grpc]\naddress = '/c.sock'\n"
ADDRESS_V4 = ADDRESS.replace("grpc", "plugins.'io.containerd.server.v1.grpc'")
SPECS = ["/etc/cdi", "/var/run/cdi"]
WITH_NVIDIA = {"runtimes": {"gpu": {"options": {"BinaryName": "/usr/bin/nvidia-container-runtime"}}}}


@pytest.mark.parametrize(
    ("answer", "mode"),
    [
        ({"enableCDI": True, "cdiSpecDirs": SPECS}, Injection.CDI),  # 2.1, 2.3
        ({"enableCDI": False, "cdiSpecDirs": SPECS}, Injection.DEVICES),  # 1.7 by default
        ({"enableCDI": False, "cdiSpecDirs": SPECS, "containerd": WITH_NVIDIA}, Injection.RUNTIME),
        ({"cdiSpecDirs": SPECS}, Injection.CDI),  # 2.4
        ({}, Injection.DEVICES),  # before 1.7
        ({"enableCDI": True, "cdiSpecDirs": ["/srv/cdi"]}, Injection.DEVICES),
        ({"enableCDI": True, "cdiSpecDirs": None}, Injection.DEVICES),
    ],
)
@pytest.mark.parametrize("text", [V2 + "enable_cdi = true\n", V3 + "enable_cdi = false\n", V4])
def test_the_running_containerd_counts_before_its_file(
    config: Path, text: str, answer: Mapping[str, object], mode: Injection
) -> None:
    config.write_text(text + (ADDRESS_V4 if text == V4 else ADDRESS))
    choice = answered(config, of_containerd(**answer), runtime="containerd://2.4.2-k3s1")
    assert choice.mode is mode
    assert "containerd (asked on /c.sock) " in choice.why


@pytest.mark.parametrize(
    "information", [{}, {"config": "no JSON"}, {"config": "[1]"}, {"config": "{}"}, {"config": '{"containerd": 1}'}]
)
def test_files_count_where_the_runtime_says_nothing_of_its_configuration(
    config: Path, information: Mapping[str, str]
) -> None:
    config.write_text(V2 + "enable_cdi = true\n" + ADDRESS)
    assert answered(config, information).why == f"{config} has CDI on"


def test_files_count_where_nobody_answers(config: Path) -> None:
    config.write_text(V2 + "enable_cdi = true\n" + ADDRESS)
    config.with_name("c.sock").write_text("")
    assert auto(config).why == f"{config} has CDI on"


def test_a_containerd_that_runs_with_a_file_that_cannot_be_read_is_asked(config: Path) -> None:
    config.write_text("not [toml")
    socket = config.parent / CONTAINERD_SOCKET.lstrip("/")
    socket.parent.mkdir(parents=True)
    with container_runtime(socket, {}, information=of_containerd(cdiSpecDirs=SPECS)):
        assert auto(config).why == f"containerd (asked on {CONTAINERD_SOCKET}) has CDI on"
        config.unlink()
        assert auto(config).why == f"containerd (asked on {CONTAINERD_SOCKET}) has CDI on"


@pytest.mark.parametrize(
    ("name", "text", "socket"),
    [
        ("config.toml", V3, CONTAINERD_SOCKET),
        ("config.toml", V3 + "[grpc]\naddress = '/run/a.sock'\n", "/run/a.sock"),
        ("config.toml", V4 + "[plugins.'io.containerd.server.v1.grpc']\naddress = '/run/b.sock'\n", "/run/b.sock"),
        ("config.toml", V4 + "[plugins.'io.containerd.server.v1.grpc']\naddress = ''\n", CONTAINERD_SOCKET),
        ("config.toml", V4 + "[grpc]\naddress = '/run/c.sock'\n", CONTAINERD_SOCKET),  # 2.4 listens there then
        ("config.toml", "grpc = 1\n", CONTAINERD_SOCKET),
        ("config.toml", "version = 'x'\n", CONTAINERD_SOCKET),
        ("data/agent/etc/containerd/config.toml", V3, K3S_SOCKET),
        ("data/agent/etc/containerd/config.toml", "not [toml", K3S_SOCKET),
    ],
)
def test_the_socket_that_a_configuration_names(tmp_path: Path, name: str, text: str, socket: str) -> None:
    config = tmp_path / name
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text)
    assert socket_of(config) == socket
